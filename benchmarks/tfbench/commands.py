"""Options of the commands that measure, with their defaults and help texts.

An empty option means the default; lists are comma-separated. tfbench.options parses and checks the
values.
"""

from __future__ import annotations

from dataclasses import dataclass

from tfbuild.option import option

ALL = "all"
TRAIN = "train"
_ARMS = "comma-separated wheels: stock, tuned, a path, NAME==VERSION"
_SETS = "comma-separated workloads and sets (six, modern); all means six"
_NETS = "comma-separated workloads, with sizes if needed: resnet50:image=64:batch=8"
_ONE = "workload, or your own model: .py with build(), .keras, .h5 or SavedModel"
_OWN = "your own model instead: .py with build(), .keras, .h5 or SavedModel"
_PHASE = "train, or infer (inference)"
_VCPUS = "number of vCPUs; default: all usable ones"
_THREADS = "comma-separated numbers of threads"
_OUT = "folder for samples and reports; an unfinished run is continued"
_TIMINGS = "folder for timings and selection; an unfinished run is continued"
_SEED = "seed of the data, the parameters and the order of samples"
_BUDGET = "time limit, for example 90s, 20m or 1h30m"
_ORDER = "seed of the order of launches, call sites and samples"
_PROFILE = "file from invoke profile; default: that of the six workloads"
_CANDIDATE = "tuned wheel; default: the newest that this CPU can run"
_LAUNCHES = "fresh processes per cell"
_IMAGE = "image height and width in pixels; default: the published size"
_PRICES = "price book: 2017-07-gce, 2018-04-riseml, or a .toml or .csv file"
_MACHINE = "machine type in the price book"
_MODE = "payment mode, if the book has several: on_demand, spot, reserved_1y, monthly"
_REGION = "region of the machine, if the book has several"


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileOptions:
    """The options of `invoke profile`; `out` is the output file."""

    workloads: str = option(ALL, _SETS)
    workload: str = option("", f"one model instead: {_ONE}", old=("for",))
    phase: str = option(TRAIN, f"{_PHASE} with 1 and with 32 examples")
    steps: str = option("20", "number of steps to profile")
    out: str = option("", "output file")


@dataclass(frozen=True, kw_only=True, slots=True)
class SelectOptions:
    """The options of `invoke select`.

    `profile` is a file from `invoke profile`, `out` a folder.
    """

    candidate: str = option(
        "", "wheel whose kernels are timed; default: the newest that this CPU can run"
    )
    profile: str = option("", _PROFILE)
    workload: str = option("", f"profile this model first: {_ONE}", old=("for",))
    phase: str = option(TRAIN, f"{_PHASE} with 1 and with 32 examples, profiled first")
    vcpus: str = option("", _THREADS)
    launches: str = option("6", "processes per arm, in the search and again in the confirmation")
    rate: str = option("0.05", "maximum false discovery rate, for example 0.05")
    budget: str = option("", f"{_BUDGET}; default: none")
    out: str = option("", _TIMINGS)
    seed: str = option("1", _ORDER)


@dataclass(frozen=True, kw_only=True, slots=True)
class TuneOptions:
    workload: str = option("", _ONE, old=("for",))
    phase: str = option(
        TRAIN,
        f"{_PHASE} with one client and one example per request, or as in NAME:batch=32",
    )
    arms: str = option(
        "",
        f"{_ARMS}, baseline first; default: stock, and tuned if there is one",
        old=("wheels",),
    )
    candidate: str = option("", _CANDIDATE)
    levers: str = option(
        "",
        "comma-separated changes to try: wheel, onednn, intra, inter, malloc, bf16, "
        "steps_per_execution, jit_compile",
    )
    vcpus: str = option("", _VCPUS)
    budget: str = option("20m", f"{_BUDGET}; default: 20m")
    allow_bf16: bool = option(False, "also try bfloat16, which changes results")
    out: str = option("", _OUT)
    seed: str = option("1", _SEED)


@dataclass(frozen=True, kw_only=True, slots=True)
class CompareOptions:
    arms: str = option(
        "",
        "line-up: ladder, levers, mallocs, control, peers, a .toml file, or comma-separated arms "
        "(stock:onednn=off, old=tensorflow-cpu==2.13.1, path.whl); default: stock,tuned",
    )
    candidate: str = option("", _CANDIDATE)
    baseline: str = option(
        "stock",
        "baseline wheel, without --arms: stock, a path, NAME==VERSION",
    )
    workloads: str = option(ALL, _SETS)
    workload: str = option("", _OWN)
    phase: str = option(
        TRAIN,
        "train (training steps), fit (training steps and epochs of fit()) or infer (inference)",
    )
    vcpus: str = option(
        "", "comma-separated numbers of vCPUs; default: one cell with all usable ones"
    )
    out: str = option("", _OUT)
    thorough: bool = option(
        False, "stop at ±0.5 % or 5 minutes per cell; also time the phases of a whole training run"
    )
    budget: str = option(
        "", "time limit per cell, for example 90s or 20m; default: 2m, or 5m with --thorough"
    )
    precision: str = option(
        "",
        "half-width of all intervals, in percent, at which a cell stops; default: 1.5, or 0.5 with "
        "--thorough",
    )
    threshold: str = option("0", "smallest relevant change, in percent")
    margin: str = option("2", "equivalence margin, in percent")
    gate: bool = option(
        False, "exit with code 31 if an arm is slower, with 32 if the result is inconclusive"
    )
    seed: str = option("1", _SEED)


@dataclass(frozen=True, kw_only=True, slots=True)
class StartupOptions:
    candidate: str = option("", _CANDIDATE)
    rounds: str = option("20", "number of rounds of two imports per arm; 20 take about 4 minutes")
    out: str = option("", "folder for startup.json; default: a new one in reports/")


@dataclass(frozen=True, kw_only=True, slots=True)
class SelfcheckOptions:
    quick: bool = option(False, "run for a few minutes only: too few trials to prove anything")
    out: str = option("", "folder for trials and result; an unfinished check is continued")
    seed: str = option("1", _SEED)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportOptions:
    comparison: str = option(
        "",
        "comma-separated comparison.json files or folders, of machines of one kind; default: the "
        "newest",
    )
    samples: str = option(
        "", "recorded run instead: the folder of run.json and samples.jsonl or .jsonl.xz"
    )
    totals: str = option("", "CSV of whole training runs instead, or 2017 for the article's")
    logs: str = option(
        "", "training logs instead: MODEL/BUILD/MACHINE=LOG.csv,… with columns epoch and elapsed"
    )
    out: str = option("", "folder for the report; default: the comparison's folder")
    prices: str = option(
        "", "comma-separated price books: 2017-07-gce, 2018-04-riseml, .toml, .csv"
    )
    as_of: str = option("", "date of a CSV's prices, for example 2026-11-21")
    region: str = option("", "region of the prices")
    mode: str = option("", "payment mode of the prices: on_demand, spot, reserved_1y or monthly")
    mix_dates: bool = option(False, "combine prices of different dates")
    machines: str = option("", "machine in the price book per number of vCPUs: 1=NAME,2=NAME")
    relative_to: str = option("", "run that time and cost are relative to: ARM or ARM@VCPUS")
    build_usd: str = option("", "cost of a build in US dollars, for its break-even")
    runs_per_day: str = option("", "number of training runs per day, for the break-even in days")
    kit: str = option("", "runs of the kit on other machines: SAMPLES.jsonl=MACHINE,…")
    line: bool = option(False, "print one line and write nothing")


@dataclass(frozen=True, kw_only=True, slots=True)
class ThroughputOptions:
    workloads: str = option("resnet50", f"{_NETS}; default: resnet50")
    workload: str = option("", _OWN)
    batches: str = option("16,32,64", "comma-separated batch sizes")
    image: str = option("", _IMAGE)
    augmentation: str = option("off", "off, on or both")
    arms: str = option("", _ARMS)
    vcpus: str = option("", _VCPUS)
    steps: str = option("100", "timed steps per process")
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
        "data set: digits (scikit-learn's), mnist or cifar10; default: digits",
    )
    data_file: str = option(
        "",
        "local copy of MNIST or CIFAR-10: an .npz like Keras's mnist.npz, or "
        "cifar-10-python.tar.gz",
    )
    reach: str = option("", "target test accuracy, for example 0.97", old=("target",))
    seeds: str = option("", "number of training runs per arm; default: 5")
    epochs: str = option("", "maximum number of epochs of a training run")
    batch: str = option("", "batch size; default: the model's own")
    arms: str = option("", f"{_ARMS}; default: stock")
    vcpus: str = option("", _VCPUS)
    seed: str = option("", "seed of the first training run; the next ones count up; default: 1")
    prices: str = option("", _PRICES)
    machine: str = option("", _MACHINE)
    mode: str = option("", _MODE)
    region: str = option("", _REGION)
    import_: str = option(
        "", "recorded curve instead: a DAWNBench TSV, or a CSV with epoch,seconds,accuracy"
    )
    column: str = option("", "accuracy column of the recorded curve, for example top5Accuracy")
    article: str = option("", "recompute an article's times and costs from its numbers: 2018")
    out: str = option("", _OUT)


@dataclass(frozen=True, kw_only=True, slots=True)
class SizingOptions:
    workloads: str = option("alexnet:batch=32,ptb_lstm_small", _NETS)
    workload: str = option("", _OWN)
    phases: str = option("train,infer,preprocess", "comma-separated: train, infer, preprocess")
    inputs: str = option(
        "memory,cached,cold",
        "comma-separated: memory, cached, cold, or a disk's speed such as 40MB/s@500IOPS",
    )
    data: str = option(
        "", "folder of your own images, with a subfolder per class; default: generated images"
    )
    image: str = option("", _IMAGE)
    vcpus: str = option("", "comma-separated numbers of vCPUs; default: 1,2,4 and so on")
    memory: str = option("", "memory limits in MB, for example 0,4000,1000; 0 means no limit")
    seconds: str = option("5", "seconds of timed steps per process")
    launches: str = option("2", _LAUNCHES)
    within: str = option("5", "speed loss, in percent, at which a size still counts as fastest")
    arms: str = option("", "wheel: stock, tuned, a path, NAME==VERSION")
    prices: str = option("", _PRICES)
    out: str = option("", _OUT)
    seed: str = option("1", _SEED)


@dataclass(frozen=True, kw_only=True, slots=True)
class StrategiesOptions:
    strategies: str = option(
        "",
        "central, server, ring, one_device, hierarchical, nccl, independent; default: all",
    )
    workloads: str = option(
        "", "workloads with sizes, batch size per device: alexnet:image=64:batch=16,…"
    )
    devices: str = option("", "comma-separated numbers of devices; default: 1,2")
    kind: str = option("auto", "devices: cpu (logical CPUs), gpu, or auto (GPUs if there are any)")
    launches: str = option("", f"{_LAUNCHES}; default: 3")
    seconds: str = option("", "seconds of timed steps per launch; default: 10")
    arms: str = option("", f"{_ARMS}; default: stock")
    out: str = option("", _OUT)
    seed: str = option("1", _SEED)


@dataclass(frozen=True, kw_only=True, slots=True)
class OverheadOptions:
    workload: str = option(
        "iris_mlp",
        f"{_ONE}; a name may have sizes: resnet50:image=64:batch=8",
        old=("for",),
    )
    arms: str = option("", _ARMS)
    device: str = option("", "device that runs the model, for example GPU:0; default: the CPU")
    epochs: str = option("20", "number of epochs of the script whose time is explained")
    vcpus: str = option("", _VCPUS)
    launches: str = option("5", "fresh processes per arm")
    out: str = option("", _OUT)
    seed: str = option("1", _SEED)


@dataclass(frozen=True, kw_only=True, slots=True)
class ArticlesOptions:
    quick: bool = option(False, "run small experiments: 20 minutes on 2 vCPUs")
    arms: str = option("", _ARMS)
    out: str = option("", _OUT)


@dataclass(frozen=True, kw_only=True, slots=True)
class KitOptions:
    out: str = option("", "output file")
    read: str = option("", "samples.jsonl files to show instead, comma-separated")
