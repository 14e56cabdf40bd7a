"""The options of the commands that measure: each with its default and its help, once.

An empty option means the default, and lists have commas between. What is typed is read, and
refused, where it is used (tfbench.options).
"""

from __future__ import annotations

from dataclasses import dataclass

from tfbuild.option import option

ALL = "all"
TRAIN = "train"
_ARMS = "wheels with commas between: stock, tuned, a path, NAME==VERSION"
_SETS = "names and sets (six, modern) with commas between; all are the six"
_NETS = "workloads with commas between, sizes behind them as in resnet50:image=64:batch=8"
_ONE = "one of the workloads, or your own: .py with build(), .keras, .h5 or a SavedModel"
_OWN = "instead: one of your own, .py with build(), .keras, .h5 or a SavedModel"
_PHASE = "train, or infer: requests"
_VCPUS = "how many vCPUs; all that are usable by default"
_THREADS = "numbers of threads with commas between"
_OUT = "the folder for samples and reports; an unfinished run there goes on"
_TIMINGS = "the folder for timings and selection; an unfinished one goes on"
_SEED = "of the data, the parameters and the order of samples"
_BUDGET = "limit of the command, as 90s, 20m or 1h30m"
_ORDER = "of the order of launches, call sites and samples"
_PROFILE = "a file that invoke profile wrote; by default that of the six workloads"
_CANDIDATE = "the tuned wheel; by default the newest that this CPU can run"
_LAUNCHES = "fresh processes per cell"
_IMAGE = "pixels of a side, instead of the published ones"
_PRICES = "a price book: 2017-07-gce, 2018-04-riseml, or a .toml or .csv file"
_MACHINE = "the machine of the book that is paid for"
_MODE = "how it is paid for, if the book has it in several: on_demand, spot, reserved_1y, monthly"
_REGION = "where it stands, if the book has it in several regions"


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileOptions:
    """The options of `invoke profile`; `out` is the file that is written."""

    workloads: str = option(ALL, _SETS)
    workload: str = option("", f"instead: {_ONE}", old=("for",))
    phase: str = option(TRAIN, f"{_PHASE} of 1 and of 32 examples")
    steps: str = option("20", "steps to look at")
    out: str = option("", "the file to write")


@dataclass(frozen=True, kw_only=True, slots=True)
class SelectOptions:
    """The options of `invoke select`.

    `profile` is a file that `invoke profile` wrote, `out` a folder.
    """

    candidate: str = option(
        "", "the wheel whose kernels are timed; by default the newest that runs here"
    )
    profile: str = option("", _PROFILE)
    workload: str = option("", f"instead: profile this first, {_ONE}", old=("for",))
    phase: str = option(TRAIN, f"{_PHASE} of 1 and of 32 examples, which are profiled first")
    vcpus: str = option("", _THREADS)
    launches: str = option("6", "processes per arm, in the search and again in the confirmation")
    rate: str = option("0.05", "the false discovery rate that is allowed, a share such as 0.05")
    budget: str = option("", f"{_BUDGET}; none by default")
    out: str = option("", _TIMINGS)
    seed: str = option("1", _ORDER)


@dataclass(frozen=True, kw_only=True, slots=True)
class FlagsOptions:
    """The options of `invoke flags`.

    `flag_sets` have semicolons between; the target's own flags alone come first. `pgo` is the
    path of a program: last, the kernels are compiled with the profile of its run.
    """

    flag_sets: str = option(
        "",
        "flags to try beside the target's, with semicolons between; by default -O3, and "
        "-mno-avx512f for a CPU with AVX-512; -flto=thin optimizes in the link",
        old=("variants",),
    )
    pgo: str = option("", "try what the compiler learns from a run, too: workloads, or a program")
    source: str = option("", "TensorFlow's sources: an archive, or a checkout")
    profile: str = option("", _PROFILE)
    vcpus: str = option("1", _THREADS)
    launches: str = option("4", "processes per arm")
    budget: str = option("", f"{_BUDGET}; no set begins that would end after it; none by default")
    out: str = option("", _TIMINGS)
    seed: str = option("1", _ORDER)


@dataclass(frozen=True, kw_only=True, slots=True)
class TuneOptions:
    workload: str = option("", _ONE, old=("for",))
    phase: str = option(
        TRAIN,
        f"{_PHASE} of one example, or of as many as NAME:batch=32 says, from one client",
    )
    arms: str = option(
        "",
        f"{_ARMS}, the baseline first; by default stock, and tuned where there is one",
        old=("wheels",),
    )
    candidate: str = option("", "the wheel that tuned means")
    levers: str = option(
        "",
        "what to try, with commas between: wheel, onednn, intra, inter, malloc, bf16, "
        "steps_per_execution, jit_compile",
    )
    vcpus: str = option("", _VCPUS)
    budget: str = option("20m", f"{_BUDGET}; 20m by default")
    allow_bf16: bool = option(False, "also try bfloat16, which changes results")
    out: str = option("", _OUT)
    seed: str = option("1", _SEED)


@dataclass(frozen=True, kw_only=True, slots=True)
class CompareOptions:
    arms: str = option(
        "",
        "a line-up: ladder, levers, mallocs, control, peers, a .toml file, or stock,tuned,… "
        "(stock:onednn=off, old=tensorflow-cpu==2.13.1, path.whl); by default stock,tuned",
    )
    candidate: str = option("", _CANDIDATE)
    baseline: str = option(
        "stock",
        "the first arm's wheel where --arms gives none: stock, a path, NAME==VERSION",
    )
    workloads: str = option(ALL, _SETS)
    workload: str = option("", _OWN)
    phase: str = option(
        TRAIN,
        f"{_PHASE} of 1 and of 32 examples, from one client and from as many as vCPUs; or fit: "
        "epochs of fit(), beside training steps",
    )
    vcpus: str = option(
        "", "numbers of vCPUs with commas between; by default that of all usable ones"
    )
    out: str = option("", _OUT)
    thorough: bool = option(
        False, "until ±0.5%, five minutes per cell, and the phases of a whole training run"
    )
    budget: str = option(
        "",
        "limit of each cell, a workload at a number of vCPUs, as 90s or 20m; 2m by default, 5m "
        "with --thorough",
    )
    precision: str = option(
        "", "stop a cell when all intervals are as narrow as ± this many percent"
    )
    threshold: str = option("0", "the least gain or loss, in percent, that counts as one")
    margin: str = option("2", "a difference that is surely less, in percent, counts as none")
    gate: bool = option(
        False, "fail with exit code 31 where an arm is slower, 32 where there is no answer"
    )
    seed: str = option("1", _SEED)


@dataclass(frozen=True, kw_only=True, slots=True)
class StartupOptions:
    candidate: str = option("", _CANDIDATE)
    rounds: str = option("20", "each imports every arm twice; twenty take about 4 minutes")
    out: str = option("", "the folder for startup.json; by default a new one in reports/")


@dataclass(frozen=True, kw_only=True, slots=True)
class SelfcheckOptions:
    quick: bool = option(False, "a few minutes, with too few trials to prove anything")
    out: str = option("", "the folder for trials and result; a check that was stopped goes on")
    seed: str = option("1", _SEED)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportOptions:
    comparison: str = option(
        "",
        "comparison.json files or their folders, with commas between; by default the newest. Those "
        "of several machines of one kind become one report",
    )
    samples: str = option(
        "",
        "instead: the folder of a recorded run (run.json; samples.jsonl, or .jsonl.xz), computed "
        "again with the statistics of this version",
    )
    totals: str = option("", "instead: a CSV of whole training runs, or 2017 for the article's")
    logs: str = option(
        "", "instead: MODEL/BUILD/MACHINE=LOG.csv,… with the columns epoch and elapsed"
    )
    out: str = option("", "the folder for the report; by default beside the comparison")
    prices: str = option(
        "", "price books with commas between: 2017-07-gce, 2018-04-riseml, .toml, .csv"
    )
    as_of: str = option("", "the day of a CSV's prices, as 2026-11-21")
    region: str = option("", "of the prices")
    mode: str = option("", "of the prices: on_demand, spot, reserved_1y or monthly")
    mix_dates: bool = option(False, "let prices of different days stand together")
    machines: str = option("", "the machine of the book for each number of vCPUs: 1=NAME,2=NAME")
    relative_to: str = option("", "the run that time and cost are relative to: ARM or ARM@VCPUS")
    build_usd: str = option("", "what a build costs, for its break-even")
    runs_per_day: str = option("", "how often the training runs, for the break-even in days")
    kit: str = option(
        "", "runs elsewhere, such as on a GPU: SAMPLES.jsonl=MACHINE,… that the kit measured"
    )
    line: bool = option(False, "print one line, write nothing")


@dataclass(frozen=True, kw_only=True, slots=True)
class ThroughputOptions:
    workloads: str = option("resnet50", f"{_NETS}; resnet50 by default")
    workload: str = option("", _OWN)
    batches: str = option("16,32,64", "examples in a step, as in 16,32,64")
    image: str = option("", _IMAGE)
    augmentation: str = option("off", "off, on or both")
    arms: str = option("", _ARMS)
    vcpus: str = option("", _VCPUS)
    steps: str = option("100", "timed steps of each process")
    launches: str = option("3", _LAUNCHES)
    prices: str = option("", _PRICES)
    machine: str = option("", _MACHINE)
    mode: str = option("", _MODE)
    region: str = option("", _REGION)
    out: str = option("", _OUT)
    seed: str = option("1", _SEED)


@dataclass(frozen=True, kw_only=True, slots=True)
class AccuracyOptions:
    data: str = option(
        "",
        "what is trained on: digits (scikit-learn's), mnist or cifar10; by default digits",
    )
    data_file: str = option(
        "",
        "where MNIST or CIFAR-10 lie, if they cannot be fetched: an .npz as Keras's mnist.npz, or "
        "cifar-10-python.tar.gz",
    )
    reach: str = option("", "the share of test examples to be told, 0.97 or 97%", old=("target",))
    seeds: str = option("", "trainings of each arm; by default 5")
    epochs: str = option("", "how long a training goes on without the target")
    batch: str = option("", "examples in a batch; by default the model's own")
    arms: str = option("", f"{_ARMS}; by default stock")
    vcpus: str = option("", _VCPUS)
    seed: str = option("", "the first training's seed, those of the others follow it; by default 1")
    prices: str = option("", _PRICES)
    machine: str = option("", _MACHINE)
    mode: str = option("", _MODE)
    region: str = option("", _REGION)
    import_: str = option(
        "", "read a curve instead: a DAWNBench TSV, or a CSV with epoch,seconds,accuracy"
    )
    column: str = option("", "the column of its accuracy, such as top5Accuracy")
    article: str = option("", "compute an article's times and costs again from its figures: 2018")
    out: str = option("", _OUT)


@dataclass(frozen=True, kw_only=True, slots=True)
class SizingOptions:
    workloads: str = option("alexnet:batch=32,ptb_lstm_small", _NETS)
    workload: str = option("", _OWN)
    phases: str = option("train,infer,preprocess", "train, infer, preprocess")
    inputs: str = option(
        "memory,cached,cold", "memory, cached, cold, or a disk's speed such as 40MB/s@500IOPS"
    )
    data: str = option(
        "", "a folder of your own images, in a folder per class, instead of generated ones"
    )
    image: str = option("", _IMAGE)
    vcpus: str = option("", "numbers of vCPUs, as in 1,2; by default 1, 2, 4 and so on")
    memory: str = option("", "limits in MB, as in 0,4000,1000; 0 is none")
    seconds: str = option("5", "of timed steps in each process")
    launches: str = option("2", _LAUNCHES)
    within: str = option("5", "percent of the fastest that count as as fast")
    arms: str = option("", "one wheel: stock, tuned, a path, NAME==VERSION")
    prices: str = option("", _PRICES)
    out: str = option("", _OUT)
    seed: str = option("1", _SEED)


@dataclass(frozen=True, kw_only=True, slots=True)
class StrategiesOptions:
    strategies: str = option(
        "",
        "central, server, ring, one_device, hierarchical, nccl, independent; all by default",
    )
    workloads: str = option("", "names with sizes, batch per device: alexnet:image=64:batch=16,…")
    devices: str = option("", "how many, with commas between; 1,2 by default")
    kind: str = option(
        "auto", "of devices: cpu (logical ones), gpu, or auto for GPUs where there are any"
    )
    launches: str = option("", f"{_LAUNCHES}; 3 by default")
    seconds: str = option("", "of timed steps per launch; 10 by default")
    arms: str = option("", f"{_ARMS}; by default stock")
    out: str = option("", _OUT)
    seed: str = option("1", _SEED)


@dataclass(frozen=True, kw_only=True, slots=True)
class OverheadOptions:
    workload: str = option(
        "iris_mlp",
        f"{_ONE}, sizes behind a name as in resnet50:image=64:batch=8",
        old=("for",),
    )
    arms: str = option("", _ARMS)
    device: str = option("", "where the model is computed, such as GPU:0; the CPU by default")
    epochs: str = option("20", "epochs of the script whose time is explained")
    vcpus: str = option("", _VCPUS)
    launches: str = option("5", "fresh processes per arm")
    out: str = option("", _OUT)
    seed: str = option("1", _SEED)


@dataclass(frozen=True, kw_only=True, slots=True)
class ArticlesOptions:
    quick: bool = option(False, "a small form of everything, 20 minutes on 2 vCPUs")
    arms: str = option("", _ARMS)
    out: str = option("", _OUT)


@dataclass(frozen=True, kw_only=True, slots=True)
class KitOptions:
    out: str = option("", "the file to write")
    read: str = option("", "samples.jsonl files to show instead")
