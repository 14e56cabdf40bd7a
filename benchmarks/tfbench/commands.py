"""Options of the commands that measure, with their defaults and help texts.

An empty option means the default; lists are comma-separated. tfbench.options parses and checks the
values.
"""

from __future__ import annotations

from dataclasses import dataclass

from tfbench.arms.lever_table import BF16, SEARCHED
from tfcore.option import option

ALL = "all"
TRAIN = "train"
_ARMS = "comma-separated wheels: stock, tuned, the path of a .whl file, or PACKAGE==VERSION"
_SETS = "comma-separated workloads and sets: six (default, also called all), modern"
_NETS = "comma-separated workloads; sizes can be added: resnet50:image=64:batch=8"
_MODEL = "a .keras or .h5 file, a SavedModel, or a .py file with build()"
_ONE = f"name of a workload, or your own model: {_MODEL}"
_OWN = f"your own model, instead of --workloads: {_MODEL}"
_PHASE = "train, or infer (inference with 1 and with 32 examples per request)"
_VCPUS = "number of vCPUs; default: all usable ones"
_THREADS = "comma-separated numbers of vCPUs; kernels are timed with as many threads"
_OUT = "folder for samples and reports; an unfinished run in it is continued"
_TIMINGS = "folder for timings and selection; an unfinished run in it is continued"
_SEED = "seed of the data, the parameters and the order of samples"
_BUDGET = "time limit, for example 90s, 20m or 1h30m"
_ORDER = "seed of the random order of measurements"
_PROFILE = "file from invoke profile; default: the recorded profile of the six workloads"
_CANDIDATE = "tuned wheel; default: the newest that this CPU can run"
_CHANGES = ", ".join(SEARCHED).replace(BF16, f"{BF16} (with --allow-bf16)")
_LAUNCHES = "fresh processes for each combination that is measured"
_IMAGE = "image height and width in pixels; default: the size in the net's publication"
_PRICES = "price book: 2017-07-gce, 2018-04-riseml, or a .toml or .csv file"
_MACHINE = "with --prices: machine type in the price book"
_MODE = (
    "with --prices: payment mode, if the price book has several: on_demand, spot, reserved_1y or "
    "monthly"
)
_REGION = "with --prices: region, if the price book has several"


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileOptions:
    """The options of `invoke profile`; `out` is the output file."""

    workloads: str = option(ALL, _SETS)
    workload: str = option("", f"one model, instead of --workloads: {_ONE}", old=("for",))
    phase: str = option(TRAIN, _PHASE)
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
    phase: str = option(TRAIN, f"phase of the profile: {_PHASE}")
    vcpus: str = option("", _THREADS)
    launches: str = option("6", "processes per wheel and vCPU count, and as many again to confirm")
    rate: str = option("0.05", "maximum false discovery rate, for example 0.05")
    budget: str = option("", f"{_BUDGET}; default: none")
    out: str = option("", _TIMINGS)
    seed: str = option("1", _ORDER)


@dataclass(frozen=True, kw_only=True, slots=True)
class TuneOptions:
    workload: str = option("", _ONE, old=("for",))
    phase: str = option(
        TRAIN,
        "train, or infer: inference with one client and one example per request; for more "
        "examples, use --workload NAME:batch=32",
    )
    arms: str = option(
        "",
        f"{_ARMS}; the first is the baseline; default: stock, and tuned if there is one",
        old=("wheels",),
    )
    candidate: str = option("", _CANDIDATE)
    levers: str = option(
        "",
        f"comma-separated changes to try: {_CHANGES}; default: all",
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
        "comma-separated arms, the baseline first (stock:onednn=off, old=tensorflow-cpu==2.13.1, "
        "path.whl), the name of a list of arms (ladder, levers, mallocs, control, peers, backends, "
        "or runtimes with --phase infer), or the path of a .toml file; default: stock,tuned",
    )
    candidate: str = option("", _CANDIDATE)
    baseline: str = option(
        "stock",
        "baseline wheel if --arms is not given: stock, the path of a .whl file, or "
        "PACKAGE==VERSION",
    )
    workloads: str = option(ALL, _SETS)
    workload: str = option("", _OWN)
    phase: str = option(
        TRAIN,
        "what to time: train (training steps), fit (training steps and epochs of model.fit()) or "
        "infer (inference)",
    )
    vcpus: str = option("", "comma-separated numbers of vCPUs; default: all usable ones")
    out: str = option("", _OUT)
    thorough: bool = option(
        False,
        "measure each workload to ±0.5 % or for 5 minutes; also time the parts of a whole training "
        "run",
    )
    budget: str = option(
        "",
        "time limit of each cell (one workload on one number of vCPUs), for example 90s or 20m; "
        "default: 2m, or 5m with --thorough",
    )
    precision: str = option(
        "",
        "stop when all intervals of a workload are within ± this many percent; default: 1.5, or "
        "0.5 with --thorough",
    )
    threshold: str = option(
        "0", "smallest change that counts as faster or slower, in percent; default: 0"
    )
    margin: str = option(
        "2", "largest difference that counts as equivalent, in percent; default: 2"
    )
    gate: bool = option(
        False, "exit with code 31 if an arm is slower, with 32 if the result is inconclusive"
    )
    seed: str = option("1", _SEED)


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetOptions:
    hosts: str = option("hosts.toml", "table of the hosts, a TOML file; default: hosts.toml")
    candidate: str = option(
        "", "comma-separated tuned wheels to compare with stock; default: the newest in wheels/"
    )
    workloads: str = option(ALL, _SETS)
    phase: str = option(TRAIN, _PHASE)
    vcpus: str = option(
        "",
        "comma-separated numbers of vCPUs of the hosts whose table has none; default: all usable "
        "ones",
    )
    thorough: bool = option(
        False, "measure each workload to ±0.5 % or for 5 minutes, and whole training runs"
    )
    budget: str = option(
        "",
        "time limit of each cell (one workload on one number of vCPUs), for example 90s or 20m; "
        "default: 2m, or 5m with --thorough",
    )
    precision: str = option(
        "",
        "stop when all intervals of a workload are within ± this many percent; default: 1.5, or "
        "0.5 with --thorough",
    )
    prices: str = option("", f"{_PRICES}; hosts.toml names each host's machine in it")
    mode: str = option("", _MODE)
    region: str = option("", _REGION)
    prepare: str = option(
        "", "only write the files for the hosts to this folder, to run them with your own ReFrame"
    )
    out: str = option("", "folder for results and report; an unfinished fleet in it is continued")


@dataclass(frozen=True, kw_only=True, slots=True)
class StartupOptions:
    candidate: str = option("", _CANDIDATE)
    rounds: str = option("20", "rounds of two imports per wheel; default: 20, about 4 minutes")
    out: str = option("", "folder for startup.json; default: a new one in reports/")


@dataclass(frozen=True, kw_only=True, slots=True)
class SelfcheckOptions:
    quick: bool = option(False, "run for a few minutes, to try the command; proves nothing")
    results: bool = option(
        False,
        "instead, search for wrong results: run random programs with the fused ops of a tuned "
        "wheel, with its other kernels, and in float64",
    )
    candidate: str = option("", f"with --results: {_CANDIDATE}")
    budget: str = option("", "with --results: how long to search; default: 10m")
    out: str = option(
        "",
        "folder for trials and result; an unfinished check in it is continued (not with --results)",
    )
    seed: str = option("1", _SEED)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportOptions:
    comparison: str = option(
        "",
        "comma-separated comparison.json files or their folders, of machines of one kind; default: "
        "the newest comparison",
    )
    samples: str = option(
        "",
        "report a recorded run instead: its folder with run.json and samples.jsonl or "
        "samples.jsonl.xz",
    )
    totals: str = option(
        "",
        "report whole training runs instead: a CSV file, or 2017 for those of an article of 2017",
    )
    logs: str = option(
        "",
        "report training logs instead: MODEL/BUILD/MACHINE=LOG.csv,… with columns epoch and "
        "elapsed",
    )
    out: str = option("", "folder for the report; default: the comparison's folder")
    prices: str = option(
        "", "comma-separated price books: 2017-07-gce, 2018-04-riseml, or .toml or .csv files"
    )
    as_of: str = option("", "date of the prices in a .csv file, for example 2026-11-21")
    region: str = option("", "region of the prices")
    mode: str = option("", "payment mode of the prices: on_demand, spot, reserved_1y or monthly")
    mix_dates: bool = option(False, "allow price books of different dates")
    machines: str = option("", "price book's machine for each number of vCPUs: 1=NAME,2=NAME")
    relative_to: str = option("", "with --prices: compare times and costs with ARM or ARM@VCPUS")
    build_usd: str = option(
        "", "cost of a build in US dollars, to show after how many runs it pays off"
    )
    runs_per_day: str = option(
        "", "number of training runs per day, to show after how many days a build pays off"
    )
    kit: str = option(
        "", "also report results of invoke kit: SAMPLES.jsonl=MACHINE,… (machine in the price book)"
    )
    line: bool = option(False, "print the result in one line and write no report")


@dataclass(frozen=True, kw_only=True, slots=True)
class ThroughputOptions:
    workloads: str = option("resnet50", f"{_NETS}; default: resnet50")
    workload: str = option("", _OWN)
    batches: str = option("16,32,64", "comma-separated batch sizes")
    image: str = option("", _IMAGE)
    augmentation: str = option("off", "augment the training images: off, on or both")
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
    seed: str = option(
        "", "seed of the first training run, 1 more for each further run; default: 1"
    )
    prices: str = option("", _PRICES)
    machine: str = option("", _MACHINE)
    mode: str = option("", _MODE)
    region: str = option("", _REGION)
    import_: str = option(
        "",
        "do not train, but read an accuracy curve: a DAWNBench TSV file, or a CSV file with the "
        "columns epoch, seconds and accuracy",
    )
    column: str = option("", "with --import: name of the accuracy column, for example top5Accuracy")
    article: str = option(
        "", "do not train, but recompute the times and costs of an article: 2018 is the only one"
    )
    out: str = option("", _OUT)


@dataclass(frozen=True, kw_only=True, slots=True)
class SizingOptions:
    workloads: str = option("alexnet:batch=32,ptb_lstm_small", _NETS)
    workload: str = option("", _OWN)
    phases: str = option(
        "train,infer,preprocess", "comma-separated: train, infer, preprocess; default: all"
    )
    inputs: str = option(
        "memory,cached,cold",
        "where examples come from, comma-separated: memory, cached (files in the page cache), cold "
        "(files outside it), a disk's speed such as 40MB/s@500IOPS",
    )
    data: str = option(
        "", "folder of your own images, with a subfolder per class; default: generated images"
    )
    image: str = option("", _IMAGE)
    vcpus: str = option(
        "", "comma-separated numbers of vCPUs; default: 1, 2, 4, … and all usable ones"
    )
    memory: str = option("", "memory limits in MB, for example 0,4000,1000; 0 means no limit")
    seconds: str = option("5", "seconds of timed steps per process")
    launches: str = option("2", _LAUNCHES)
    within: str = option(
        "5", "largest speed loss, in percent, at which a machine counts as fast enough; default: 5"
    )
    arms: str = option("", "one wheel: stock, tuned, the path of a .whl file, or PACKAGE==VERSION")
    prices: str = option("", _PRICES)
    out: str = option("", _OUT)
    seed: str = option("1", _SEED)


@dataclass(frozen=True, kw_only=True, slots=True)
class StrategiesOptions:
    strategies: str = option(
        "",
        "comma-separated: central (CentralStorageStrategy), server (ParameterServerStrategy); "
        "ring, one_device, hierarchical, nccl (MirroredStrategy, by how gradients are combined); "
        "independent (a model per device); default: all",
    )
    workloads: str = option(
        "", "comma-separated workloads, with the batch size per device: alexnet:image=64:batch=16"
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
        f"{_ONE}; a name can have sizes: resnet50:image=64:batch=8",
        old=("for",),
    )
    arms: str = option("", _ARMS)
    device: str = option("", "device that runs the model, for example GPU:0; default: the CPU")
    epochs: str = option(
        "20",
        "number of epochs in your training script; the report divides their time into the costs of "
        "epochs, calls and steps",
    )
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
    read: str = option("", "comma-separated samples.jsonl files whose results to show instead")
