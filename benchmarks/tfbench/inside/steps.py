"""A process that runs one phase of a workload and times every step.

Started as `ARM_PYTHON -P -m tfbench.inside.steps`: it reads one JSON request from stdin and writes
one JSON answer (see `worker.serve`). This file runs inside each arm's environment: it imports only
the standard library, NumPy and TensorFlow; or, with Keras 3, any of its backends.

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
from tfbench.inside.epochs import extract_loss
from tfbench.inside.phases import AUGMENT, INFER, PREPROCESS, TRAIN, VALIDATE
from tfbench.inside.worker import (
    Answer,
    build_model,
    create_responder,
    describe_environment,
    main,
    replace_nonfinite,
)

if TYPE_CHECKING:  # (it imports NumPy, which must happen after the affinity is set)
    from tfbench.inside.inputs import Reader
    from tfbench.inside.workload import Workload

Model: TypeAlias = Any
Batch: TypeAlias = Any
Step: TypeAlias = Callable[[Batch], Any]
"""A function of a batch that returns a number or a scalar tensor."""

PHASES = (TRAIN, INFER, PREPROCESS)
MEMORY, FILES = "memory", "files"
OK, OUT_OF_MEMORY, NOT_HERE, REFUSED = "ok", "out of memory", "not here", "refused"
_NO_MEMORY = ("ResourceExhausted", "OOM when", "out of memory", "RESOURCE_EXHAUSTED")
"""Messages of TensorFlow, JAX and PyTorch when a device runs out of memory."""
WARM_UP = 2
"""Untimed steps at the start: the first traces, the second fills caches."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Backend:
    """The Keras of this environment and its backend; `tf` is None without TensorFlow."""

    keras: Any
    tf: Any | None
    name: str


def run(request: Mapping[str, Any]) -> Answer:
    """Run the steps of a phase on the requested CPUs, within the requested memory.

    `steps` are timed, or as many as `seconds` allow, at least `least`. The answer has an
    `outcome` and its `reason`, and for OK: `step_s`, including `waited_s` for the batch;
    `rss_mb` after each step; `batch`, `parameters`, `losses`, and facts of the environment.
    """
    if request["vcpus"]:
        os.sched_setaffinity(0, request["vcpus"])
    limit_memory(request.get("memory_mb"), request.get("cgroup"))
    try:
        return _run(request)
    except (MemoryError, OSError) as error:
        if isinstance(error, OSError) and error.errno != errno.ENOMEM:
            raise
        return {"outcome": OUT_OF_MEMORY, "reason": f"{type(error).__name__}: {error}"}
    except (Exception, SystemExit) as error:  # noqa: BLE001  (other errors are raised again)
        return convert_error(error)


def convert_error(error: BaseException) -> Answer:
    """Convert an error to the answer of a cell that is refused or out of memory.

    Raises the error again if it neither concerns the cell nor comes from a user's file.
    """
    from tfbench.inside.inputs import InputError
    from tfbench.inside.programs import format_error
    from tfbench.inside.workloads import PROGRAM, UnknownWorkloadError

    if isinstance(error, InputError | UnknownWorkloadError):
        return {"outcome": REFUSED, "reason": str(error)}
    text = f"{type(error).__name__}: {error}"
    first = text.strip().splitlines()[0]
    if any(word in text for word in _NO_MEMORY):
        return {"outcome": OUT_OF_MEMORY, "reason": first}
    if PROGRAM in os.environ:
        return {"outcome": REFUSED, "reason": format_error(error, Path(os.environ[PROGRAM]))}
    raise error


def limit_memory(memory_mb: float | None, cgroup: str | None) -> None:
    """Limit the memory of this process.

    A control group limits all of its memory. Without one, RLIMIT_DATA limits its writable memory,
    which excludes mapped libraries.
    """
    if cgroup is not None:
        Path(cgroup, "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")
    elif memory_mb is not None:
        max_bytes = int(memory_mb * 1e6)
        resource.setrlimit(resource.RLIMIT_DATA, (max_bytes, max_bytes))


def _run(request: Mapping[str, Any]) -> Answer:
    began = time.perf_counter()
    backend = find_backend()
    backend.keras.utils.set_random_seed(int(request["seed"]))
    step, batches, reader, facts = _prepare_phase(backend, request)
    facts["start_s"] = time.perf_counter() - began
    timed = _time_steps(step, batches, reader, request)
    return {
        "outcome": OK,
        "reason": "",
        **facts,
        **timed,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
        "cached_bytes": reader.cached if reader else 0,
        "backend": backend.name,
        "device": describe_device(backend),
        **(
            describe_environment(backend.tf)
            if backend.tf is not None
            else describe_bare_environment(backend)
        ),
    }


def _prepare_phase(
    backend: Backend, request: Mapping[str, Any]
) -> tuple[Step, Iterator[Batch], Reader | None, Answer]:
    """Return the step of a phase, its batches, their reader, and facts of the workload."""
    from tfbench.inside.workload_name import parse_name
    from tfbench.inside.workloads import find_workload

    if parse_name(request["workload"]).own:
        return _prepare_program(backend, request)
    workload, seed, phase = (
        find_workload(request["workload"]),
        int(request["seed"]),
        request["phase"],
    )
    batches, reader = _create_batches(backend, workload, request)
    facts: Answer = {"batch": workload.batch}
    if phase == PREPROCESS:
        return float, batches, reader, facts
    if phase == AUGMENT:
        return create_augmenter(seed), batches, reader, facts
    model, _ = build_model(backend.keras, workload, seed)
    facts["parameters"] = model.count_params()
    return create_step(backend, model, phase), batches, reader, facts


def _prepare_program(
    backend: Backend, request: Mapping[str, Any]
) -> tuple[Step, Iterator[Batch], Reader | None, Answer]:
    """Return the step of a phase of a user's file, the file's batches, no reader, and facts.

    Raises ProgramError if the file cannot be used.
    """
    from tfbench.inside.programs import read_program
    from tfbench.inside.worker import create_dataset
    from tfbench.inside.workloads import PROGRAM

    program = read_program(backend.tf, Path(os.environ[PROGRAM]), int(request["seed"]))
    facts = {"batch": program.batch, "parameters": program.parameters}
    batches = iter(create_dataset(backend.tf, program.examples))
    return create_step(backend, program.model, request["phase"]), batches, None, facts


def find_backend() -> Backend:
    """Return TensorFlow's own Keras, or the Keras 3 that KERAS_BACKEND selects."""
    name = os.environ.get("KERAS_BACKEND", "tensorflow")
    if name == "tensorflow":
        tf = importlib.import_module("tensorflow")
        return Backend(keras=tf.keras, tf=tf, name=name)
    return Backend(keras=importlib.import_module("keras"), tf=None, name=name)


def describe_device(backend: Backend) -> str:
    """Return the name of the hardware that computes the model."""
    if backend.tf is None:
        return _describe_backend_device(backend.name)
    gpus = backend.tf.config.list_physical_devices("GPU")
    if not gpus:
        return "CPU"
    details = backend.tf.config.experimental.get_device_details(gpus[0])
    return str(details.get("device_name", "GPU"))


def _describe_backend_device(name: str) -> str:
    if name == "jax":
        return str(importlib.import_module("jax").devices()[0].device_kind)
    torch = importlib.import_module("torch")
    return str(torch.cuda.get_device_name()) if torch.cuda.is_available() else "CPU"


def describe_bare_environment(backend: Backend) -> Answer:
    """Return facts of an environment without TensorFlow."""
    library = importlib.import_module(backend.name)
    return {
        "pid": os.getpid(),
        "python": platform.python_version(),
        "numpy": importlib.import_module("numpy").__version__,
        "keras": backend.keras.__version__,
        backend.name: library.__version__,
        "vcpus": read_affinity(),
    }


def read_affinity() -> list[int]:
    """Return the CPUs that this process may use; all if the system does not report them."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def create_step(backend: Backend, model: Model, phase: str) -> Step:
    """Return the step of a phase for one batch.

    It is Keras's own training or test step, which returns the loss, or inference, which
    returns the sum of the predictions.
    """
    tf = backend.tf
    if tf is None:
        return _create_keras_step(model, phase)

    @tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]
    def train(batch: Batch) -> Any:
        return extract_loss(model.train_step(batch))

    @tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]
    def infer(batch: Batch) -> Any:
        return tf.reduce_sum(model(batch[0], training=False))

    @tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]
    def validate(batch: Batch) -> Any:
        return extract_loss(model.test_step(batch))

    phase_steps: dict[str, Step] = {TRAIN: train, INFER: infer, VALIDATE: validate}
    return phase_steps[phase]


def create_augmenter(seed: int) -> Step:
    """Return a step with the augmentation of the article's CIFAR-10 script, which uses NumPy."""
    import numpy as np

    from tfbench.inside.augmentation import augment

    draw = np.random.default_rng(seed)
    return lambda batch: augment(np.asarray(batch[0]), draw)[0, 0, 0, 0]


def _create_keras_step(model: Model, phase: str) -> Step:
    """Return Keras's own step for one batch, for backends other than TensorFlow."""
    if phase == TRAIN:
        return lambda batch: model.train_on_batch(*batch, return_dict=True)["loss"]
    if phase == VALIDATE:
        return lambda batch: model.test_on_batch(*batch, return_dict=True)["loss"]
    return lambda batch: model.predict_on_batch(batch[0]).sum()


def _create_batches(
    backend: Backend, workload: Workload, request: Mapping[str, Any]
) -> tuple[Iterator[Batch], Reader | None]:
    """Return endless batches, and their reader if they come from files."""
    from tfbench.inside.workload import draw_synthetic_data

    source, seed = request.get("source", {"kind": MEMORY}), int(request["seed"])
    tf = backend.tf
    if source["kind"] == FILES:
        return _read_batches(tf, workload, source, request)
    if request["phase"] == PREPROCESS:
        raise ValueError("preprocessing needs files as input")
    inputs, targets = draw_synthetic_data(workload, seed)
    if tf is None:
        return itertools.cycle(zip(inputs, targets, strict=True)), None
    from tfbench.inside.worker import create_dataset

    batches = create_dataset(tf, (inputs, targets))
    if request.get("augmented"):
        from tfbench.inside.inputs import augment_batches

        batches = augment_batches(tf, batches, seed).prefetch(2)
    return iter(batches), None


def _read_batches(
    tf: Any,
    workload: Workload,
    source: Mapping[str, Any],
    request: Mapping[str, Any],
) -> tuple[Iterator[Batch], Reader | None]:
    from tfbench.inside import inputs

    reader = inputs.Reader(mb_s=source["mb_s"], iops=source["iops"], cold=source["cold"])
    folder = Path(source["folder"])
    if source.get("generate"):
        inputs.generate_examples(
            tf, workload, folder, int(source["generate"]), int(request["seed"])
        )
    example_source = inputs.find_source(folder, workload)
    if request["phase"] == PREPROCESS:
        sink = Path(source["sink"])
        converted = inputs.preprocess_examples(tf, workload, example_source, reader, sink)
        return inputs.check_batches(tf, example_source, converted), reader
    batches = inputs.create_batches(tf, workload, example_source, reader)
    if request.get("augmented"):
        batches = inputs.augment_batches(tf, batches, int(request["seed"]))
    return inputs.check_batches(tf, example_source, iter(batches)), reader


def _time_steps(
    step: Step, batches: Iterator[Batch], reader: Reader | None, request: Mapping[str, Any]
) -> Answer:
    """Time every step including the wait for its end, as in a session of TensorFlow 1."""
    record = _StepRecord()
    for _ in range(WARM_UP + int(request.get("warm_up", 0))):
        float(step(next(batches)))
    before, cpu = _read_meters(request["vcpus"], reader), time.process_time()
    end = time.perf_counter() + float(request.get("seconds") or "inf")
    max_steps = int(request["steps"]) if request.get("steps") else None
    while max_steps is None or len(record.step_s) < max_steps:
        if time.perf_counter() >= end and len(record.step_s) >= int(request.get("least", 1)):
            break
        record.run_step(step, batches)
    after = _read_meters(request["vcpus"], reader)
    return {
        "step_s": record.step_s,
        "waited_s": record.waited_s,
        "rss_mb": record.rss_mb,
        "losses": replace_nonfinite(record.losses[-3:]),
        "cpu_s": time.process_time() - cpu,
        "meters": meters.compute_growth(before, after),
    }


class _StepRecord:
    """The times, memory and losses of the steps so far."""

    def __init__(self) -> None:
        self.step_s: list[float] = []
        self.waited_s: list[float] = []
        self.rss_mb: list[float] = []
        self.losses: list[float] = []

    def run_step(self, step: Step, batches: Iterator[Batch]) -> None:
        began = time.perf_counter()
        batch = next(batches)
        ready = time.perf_counter()
        self.losses.append(float(step(batch)))
        self.step_s.append(time.perf_counter() - began)
        self.waited_s.append(ready - began)
        self.rss_mb.append(read_rss_mb())


def read_rss_mb() -> float:
    """Return this process's resident memory in MB, see proc(5); 0 if there is no such file."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _read_meters(vcpus: list[int], reader: Reader | None) -> Answer:
    """Return the machine's counters, and with a reader its counters as `read_…`."""
    counters = meters.read_machine_counters(frozenset(vcpus or read_affinity()))
    if reader is None:
        return counters
    return counters | {
        "read_s": reader.read_s,
        "read_bytes": reader.read_bytes,
        "reads": reader.reads,
    }


if __name__ == "__main__":
    main(create_responder(run))
