"""A process that goes through one phase of a workload and says how long every step took.

Started as `ARM_PYTHON -P -m tfbench.inside.steps`: one JSON request comes in on stdin, one JSON
answer goes out (see `worker.serve`). This file runs inside each arm's own environment: the standard
library, NumPy and TensorFlow only; or, with Keras 3, any backend that Keras has.

    {"do": "run", "workload": …, "phase": …, "vcpus": […], …}    → see `run`
"""

from __future__ import annotations

import errno
import importlib
import itertools
import os
import platform
import resource
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tfbench.inside import meters
from tfbench.inside.epochs import loss_of
from tfbench.inside.phases import AUGMENT, INFER, PREPROCESS, TRAIN, VALIDATE
from tfbench.inside.worker import Answer, environment, main, numbers, only, started

if TYPE_CHECKING:  # (it imports NumPy, which must come after the affinity)
    from tfbench.inside.inputs import Reader
    from tfbench.inside.workload import Workload

Model: TypeAlias = Any
Batch: TypeAlias = Any
Step: TypeAlias = Callable[[Batch], Any]
"""From a batch to a number, or a tensor of one."""

PHASES = (TRAIN, INFER, PREPROCESS)
MEMORY, FILES = "memory", "files"
OK, OUT_OF_MEMORY, NOT_HERE, REFUSED = "ok", "out of memory", "not here", "refused"
_NO_MEMORY = ("ResourceExhausted", "OOM when", "out of memory", "RESOURCE_EXHAUSTED")
"""What TensorFlow, JAX and PyTorch say of a device that is full."""
WARM_UP = 2
"""Steps before anything is timed: the first traces, the second fills caches."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Backend:
    """The Keras of this environment and what computes for it; `tf` is None without TensorFlow."""

    keras: Any
    tf: Any | None
    name: str


def run(request: Mapping[str, Any]) -> Answer:
    """Go through the steps on the asked CPUs, within the asked memory.

    `steps` are timed, or as many as `seconds` allow, at least `least`. The answer has an `outcome`
    and its `reason`, and for OK: `step_s`, of which `waited_s` went by until the batch was there,
    `rss_mb` after each step, `batch`, `parameters`, `losses`, and facts of the environment.
    """
    if request["vcpus"]:
        os.sched_setaffinity(0, request["vcpus"])
    limit(request.get("memory_mb"), request.get("cgroup"))
    try:
        return _run(request)
    except (MemoryError, OSError) as error:
        if isinstance(error, OSError) and error.errno != errno.ENOMEM:
            raise
        return {"outcome": OUT_OF_MEMORY, "reason": f"{type(error).__name__}: {error}"}
    except (Exception, SystemExit) as error:  # noqa: BLE001  (what says nothing goes on)
        return refused(error)


def refused(error: BaseException) -> Answer:
    """An error as a marked cell, where it says something of the cell, or comes from a user's own
    file. Raises it otherwise."""
    from tfbench.inside.inputs import InputError  # noqa: PLC0415
    from tfbench.inside.programs import error_line  # noqa: PLC0415
    from tfbench.inside.workloads import PROGRAM, UnknownWorkloadError  # noqa: PLC0415

    if isinstance(error, InputError | UnknownWorkloadError):
        return {"outcome": REFUSED, "reason": str(error)}
    text = f"{type(error).__name__}: {error}"
    first = text.strip().splitlines()[0]
    if any(word in text for word in _NO_MEMORY):
        return {"outcome": OUT_OF_MEMORY, "reason": first}
    if PROGRAM in os.environ:
        return {"outcome": REFUSED, "reason": error_line(error, Path(os.environ[PROGRAM]))}
    raise error


def limit(memory_mb: float | None, cgroup: str | None) -> None:
    """Hold this process to so much memory: all of it in a control group that was made for it, else
    what it may write to (RLIMIT_DATA), which leaves out mapped libraries."""
    if cgroup is not None:
        Path(cgroup, "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")
    elif memory_mb is not None:
        most = int(memory_mb * 1e6)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def _run(request: Mapping[str, Any]) -> Answer:
    began = time.perf_counter()
    backend = find_backend()
    backend.keras.utils.set_random_seed(int(request["seed"]))
    step, batches, reader, facts = _begun(backend, request)
    facts["start_s"] = time.perf_counter() - began
    timed = _timed(step, batches, reader, request)
    return {
        "outcome": OK,
        "reason": "",
        **facts,
        **timed,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
        "cached_bytes": reader.cached if reader else 0,
        "backend": backend.name,
        "device": device(backend),
        **(environment(backend.tf) if backend.tf is not None else bare_environment(backend)),
    }


def _begun(
    backend: Backend, request: Mapping[str, Any]
) -> tuple[Step, Iterator[Batch], Reader | None, Answer]:
    """A step of the phase, batches for it, and what there is to say of the workload."""
    from tfbench.inside.workloads import find, is_own  # noqa: PLC0415  (after the affinity)

    if is_own(request["workload"]):
        return _own(backend, request)
    workload, seed, phase = find(request["workload"]), int(request["seed"]), request["phase"]
    batches, reader = _batches(backend, workload, request)
    facts: Answer = {"batch": workload.batch}
    if phase == PREPROCESS:
        return float, batches, reader, facts
    if phase == AUGMENT:
        return augmenter(seed), batches, reader, facts
    model, _ = started(backend.keras, workload, seed)
    facts["parameters"] = model.count_params()
    return stepper(backend, model, phase), batches, reader, facts


def _own(
    backend: Backend, request: Mapping[str, Any]
) -> tuple[Step, Iterator[Batch], Reader | None, Answer]:
    """The user's file, with its own batches. Raises ProgramError for what is no such file."""
    from tfbench.inside.programs import read_program  # noqa: PLC0415
    from tfbench.inside.worker import dataset  # noqa: PLC0415
    from tfbench.inside.workloads import PROGRAM  # noqa: PLC0415

    own = read_program(backend.tf, Path(os.environ[PROGRAM]), int(request["seed"]))
    facts = {"batch": own.batch, "parameters": own.parameters}
    batches = iter(dataset(backend.tf, own.examples))
    return stepper(backend, own.model, request["phase"]), batches, None, facts


def find_backend() -> Backend:
    """TensorFlow's own Keras, or the Keras 3 that KERAS_BACKEND asks for."""
    name = os.environ.get("KERAS_BACKEND", "tensorflow")
    if name == "tensorflow":
        tf = importlib.import_module("tensorflow")
        return Backend(keras=tf.keras, tf=tf, name=name)
    return Backend(keras=importlib.import_module("keras"), tf=None, name=name)


def device(backend: Backend) -> str:
    """What the model is computed on, in words."""
    if backend.tf is None:
        return _device_of(backend.name)
    found = backend.tf.config.list_physical_devices("GPU")
    if not found:
        return "CPU"
    details = backend.tf.config.experimental.get_device_details(found[0])
    return str(details.get("device_name", "GPU"))


def _device_of(name: str) -> str:
    if name == "jax":
        return str(importlib.import_module("jax").devices()[0].device_kind)
    torch = importlib.import_module("torch")
    return str(torch.cuda.get_device_name()) if torch.cuda.is_available() else "CPU"


def bare_environment(backend: Backend) -> Answer:
    """What there is to say where there is no TensorFlow."""
    library = importlib.import_module(backend.name)
    return {
        "pid": os.getpid(),
        "python": platform.python_version(),
        "numpy": importlib.import_module("numpy").__version__,
        "keras": backend.keras.__version__,
        backend.name: library.__version__,
        "vcpus": affinity(),
    }


def affinity() -> list[int]:
    """The CPUs that this process may use; all of them where the system does not tell."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def stepper(backend: Backend, model: Model, phase: str) -> Step:
    """One batch through the model: Keras's own training step, or the predictions' sum."""
    tf = backend.tf
    if tf is None:
        return _any_stepper(model, phase)

    @tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]
    def train(batch: Batch) -> Any:  # noqa: ANN401
        return loss_of(model.train_step(batch))

    @tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]
    def infer(batch: Batch) -> Any:  # noqa: ANN401
        return tf.reduce_sum(model(batch[0], training=False))

    @tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]
    def validate(batch: Batch) -> Any:  # noqa: ANN401
        return loss_of(model.test_step(batch))

    found: dict[str, Step] = {TRAIN: train, INFER: infer, VALIDATE: validate}
    return found[phase]


def augmenter(seed: int) -> Step:
    """The augmentation of the article's CIFAR-10 script, in NumPy as there."""
    import numpy as np  # noqa: PLC0415  (after the affinity)

    from tfbench.inside.augmentation import augment  # noqa: PLC0415

    draw = np.random.default_rng(seed)
    return lambda batch: augment(np.asarray(batch[0]), draw)[0, 0, 0, 0]


def _any_stepper(model: Model, phase: str) -> Step:
    """With other backends than TensorFlow, what Keras has for one batch."""
    if phase == TRAIN:
        return lambda batch: model.train_on_batch(*batch, return_dict=True)["loss"]
    if phase == VALIDATE:
        return lambda batch: model.test_on_batch(*batch, return_dict=True)["loss"]
    return lambda batch: model.predict_on_batch(batch[0]).sum()


def _batches(
    backend: Backend, workload: Workload, request: Mapping[str, Any]
) -> tuple[Iterator[Batch], Reader | None]:
    """Batches without end, and what reads them if they come from files."""
    from tfbench.inside.workload import synthetic_data  # noqa: PLC0415

    source, seed = request.get("source", {"kind": MEMORY}), int(request["seed"])
    tf = backend.tf
    if source["kind"] == FILES:
        return _from_files(tf, workload, source, request)
    if request["phase"] == PREPROCESS:
        raise ValueError("preprocessing reads files")
    inputs, targets = synthetic_data(workload, seed)
    if tf is None:
        return itertools.cycle(zip(inputs, targets, strict=True)), None
    from tfbench.inside.worker import dataset  # noqa: PLC0415

    batches = dataset(tf, (inputs, targets))
    if request.get("augmented"):
        from tfbench.inside.inputs import augmented  # noqa: PLC0415

        batches = augmented(tf, batches, seed).prefetch(2)
    return iter(batches), None


def _from_files(
    tf: Any,  # noqa: ANN401
    workload: Workload,
    source: Mapping[str, Any],
    request: Mapping[str, Any],
) -> tuple[Iterator[Batch], Reader | None]:
    from tfbench.inside import inputs  # noqa: PLC0415

    reader = inputs.Reader(mb_s=source["mb_s"], iops=source["iops"], cold=source["cold"])
    folder = Path(source["folder"])
    if source.get("generate"):
        inputs.generate(tf, workload, folder, int(source["generate"]), int(request["seed"]))
    found = inputs.find_source(folder, workload)
    if request["phase"] == PREPROCESS:
        sink = Path(source["sink"])
        converted = inputs.preprocessed(tf, workload, found, reader, sink)
        return inputs.checked(tf, found, converted), reader
    batches = inputs.batches(tf, workload, found, reader)
    if request.get("augmented"):
        batches = inputs.augmented(tf, batches, int(request["seed"]))
    return inputs.checked(tf, found, iter(batches)), reader


def _timed(
    step: Step, batches: Iterator[Batch], reader: Reader | None, request: Mapping[str, Any]
) -> Answer:
    """Every step with its end awaited, as a session of TensorFlow 1 did."""
    taken = _Taken()
    for _ in range(WARM_UP + int(request.get("warm_up", 0))):
        float(step(next(batches)))
    before, cpu = _meters(request["vcpus"], reader), time.process_time()
    end = time.perf_counter() + float(request.get("seconds") or "inf")
    most = int(request["steps"]) if request.get("steps") else None
    while most is None or len(taken.step_s) < most:
        if time.perf_counter() >= end and len(taken.step_s) >= int(request.get("least", 1)):
            break
        taken.step(step, batches)
    after = _meters(request["vcpus"], reader)
    return {
        "step_s": taken.step_s,
        "waited_s": taken.waited_s,
        "rss_mb": taken.rss_mb,
        "losses": numbers(taken.losses[-3:]),
        "cpu_s": time.process_time() - cpu,
        "meters": meters.growth(before, after),
    }


class _Taken:
    """The times of the steps taken so far."""

    def __init__(self) -> None:
        self.step_s: list[float] = []
        self.waited_s: list[float] = []
        self.rss_mb: list[float] = []
        self.losses: list[float] = []

    def step(self, step: Step, batches: Iterator[Batch]) -> None:
        began = time.perf_counter()
        batch = next(batches)
        there = time.perf_counter()
        self.losses.append(float(step(batch)))
        self.step_s.append(time.perf_counter() - began)
        self.waited_s.append(there - began)
        self.rss_mb.append(rss_mb())


def rss_mb() -> float:
    """Resident memory of this process now, in MB, see proc(5); 0 where there is no such file."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _meters(vcpus: list[int], reader: Reader | None) -> Answer:
    """What goes on while steps are timed; `read_…` are of the reader, where there is one."""
    found = meters.of_machine(frozenset(vcpus or affinity()))
    if reader is None:
        return found
    return found | {
        "read_s": reader.read_s,
        "read_bytes": reader.read_bytes,
        "reads": reader.reads,
    }


if __name__ == "__main__":
    main(only(run))
