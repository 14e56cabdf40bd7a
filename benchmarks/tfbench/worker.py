"""A process that trains one workload with one TensorFlow, and says how long the steps took.

Started as `ARM_PYTHON -P …/worker.py`, the same file for every arm. One JSON request a line comes
in on stdin, one JSON answer a line goes out; the end of stdin ends the process. This file runs
inside each arm's own environment: the standard library, NumPy and TensorFlow only.

    {"do": "load", "workload": …, "seed": …, "vcpus": […]}    → Facts
    {"do": "losses", "steps": n}    → {"losses": […]}          (before any sample)
    {"do": "sample", "steps": n}    → {"wall_s": …, "cpu_s": …, "run_delay_s": …}
    {"do": "quit"}                  → {}
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO, TypeAlias

TensorFlow: TypeAlias = Any
Answer: TypeAlias = dict[str, Any]

KERNEL_FOLDER = "/core/kernels/tensorwright/"
"""Where a tuned wheel keeps its kernel libraries, below the tensorflow package."""
ENVIRONMENT = ("TF_", "OMP_", "KMP_", "ONEDNN_", "DNNL_", "TENSORFLOW_", "LD_PRELOAD", "MALLOC_")
"""Names with these beginnings change what is measured, so the answer to `load` repeats them."""


@dataclass(kw_only=True, slots=True)
class Trainer:
    """A compiled model on its way through its batches.

    Never `fit()`: what that times is tf.data's autotuner going to sleep, see `dataset`.
    """

    step: Callable[[], Any]
    """Trains on the next batch and returns the mean loss since `restart`, as a tensor."""
    restart: Callable[[], None]
    losses: list[float] = field(default_factory=list)
    sampled: bool = False

    def first_losses(self, steps: int) -> list[float]:
        if self.sampled and len(self.losses) < steps:
            raise ValueError("losses must be asked for before samples are taken")
        while len(self.losses) < steps:
            self.restart()
            self.losses.append(float(self.step()))
        return self.losses[:steps]

    def sample(self, steps: int) -> Answer:
        """Time `steps` training steps. The last loss is read, so no step is still under way."""
        self.sampled = True
        delay, cpu, wall = run_delay_s(), time.process_time(), time.perf_counter()
        for _ in range(steps - 1):
            self.step()
        float(self.step())
        return {
            "wall_s": time.perf_counter() - wall,
            "cpu_s": time.process_time() - cpu,
            "run_delay_s": max(0.0, run_delay_s() - delay),
        }


def run_delay_s() -> float:
    """Seconds that this process's threads were ready and had no CPU; 0 where the kernel is silent.

    See "schedstat" in Linux's Documentation/scheduler/sched-stats.rst: the second number, in ns.
    """
    total = 0
    for thread in os.listdir("/proc/self/task"):  # noqa: PTH208  (cheaper than Path, and timed)
        try:
            with open(f"/proc/self/task/{thread}/schedstat", encoding="ascii") as stat:  # noqa: PTH123
                total += int(stat.read().split()[1])
        except OSError:  # the thread has ended, or there is no such file
            continue
    return total / 1e9


def load(request: Mapping[str, Any]) -> tuple[Trainer, Answer]:
    """Import TensorFlow on the asked CPUs, build the workload and run its first step."""
    os.sched_setaffinity(0, request["vcpus"])
    started = time.perf_counter()
    tf = importlib.import_module("tensorflow")
    imported = time.perf_counter()
    trainer, facts = build(tf, request["workload"], request["seed"])
    built = time.perf_counter()
    trainer.first_losses(1)
    facts |= {
        "import_s": imported - started,
        "build_s": built - imported,
        "first_step_s": time.perf_counter() - built,
    }
    return trainer, facts | environment(tf)


def build(tf: TensorFlow, name: str, seed: int) -> tuple[Trainer, Answer]:
    from tfbench.parameters import digest, initial_parameters  # noqa: PLC0415  (path set in main)
    from tfbench.workloads import WORKLOADS, twin  # noqa: PLC0415

    workload = WORKLOADS[name]
    tf.keras.utils.set_random_seed(seed)
    examples = twin(workload, seed)
    model = workload.build(tf.keras, seed)
    weights = initial_parameters(((w.name, tuple(w.shape)) for w in model.weights), seed)
    model.set_weights(weights)
    step = training_step(tf, model, dataset(tf, examples))
    trainer = Trainer(step=step, restart=model.reset_metrics)
    facts = {"parameters": model.count_params(), "inputs_sha256": digest([*examples, *weights])}
    return trainer, facts


def dataset(tf: TensorFlow, examples: object) -> Any:  # noqa: ANN401  (TensorFlow has no types)
    """Whole batches, in order, round and round.

    Without the autotuner: its thread sleeps in doubling periods, and the end of an iterator waits
    for it, which makes short runs take 0.34, 0.66, 1.30 or 2.58 s whatever the model.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    options.deterministic = True
    options.threading.private_threadpool_size = 1
    options.threading.max_intra_op_parallelism = 1
    return tf.data.Dataset.from_tensor_slices(examples).repeat().with_options(options)


def training_step(tf: TensorFlow, model: Any, batches: Any) -> Callable[[], Any]:  # noqa: ANN401
    """Keras's own train step, metrics included, as one traced function per batch."""
    iterator = iter(batches)

    @tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]
    def train(source: Any) -> Any:  # noqa: ANN401
        return model.train_step(next(source))["loss"]

    return lambda: train(iterator)


def environment(tf: TensorFlow) -> Answer:
    """What TensorFlow this is, and what it was started with."""
    return {
        "pid": os.getpid(),
        "python": sys.version.split()[0],
        "numpy": importlib.import_module("numpy").__version__,
        "tensorflow": tf.__version__,
        "tensorflow_file": str(Path(tf.__file__).resolve()),
        "git_version": tf.version.GIT_VERSION,
        "compiler_version": tf.version.COMPILER_VERSION,
        "vcpus": sorted(os.sched_getaffinity(0)),
        "raised_kernels": raised_kernels(),
        "kernel_library": kernel_library(Path("/proc/self/maps").read_text(encoding="utf-8")),
        "environment": {
            name: value
            for name, value in sorted(os.environ.items())
            if name.startswith(ENVIRONMENT)
        },
    }


def raised_kernels() -> dict[str, int]:
    """CPU kernels registered above priority 0, by op. The stock wheel has some of tf.data's."""
    registry = importlib.import_module("tensorflow.python.framework.kernels")
    kernels = registry.get_all_registered_kernels().kernel
    raised = (k.op for k in kernels if k.device_type == "CPU" and k.priority > 0)
    return dict(sorted(Counter(raised).items()))


def profiled(trainer: Trainer, steps: int) -> Answer:
    from tfbench.profiling import profile  # noqa: PLC0415  (path set in main)

    library = kernel_library(Path("/proc/self/maps").read_text(encoding="utf-8"))
    return profile(importlib.import_module("tensorflow"), trainer.step, steps, library)


def kernel_library(maps: str) -> str | None:
    """The library of tuned kernels among a process's mappings, the text of /proc/PID/maps."""
    paths = (line.split(maxsplit=5)[5] for line in maps.splitlines() if KERNEL_FOLDER in line)
    return next(paths, None)


def answer(trainer: Trainer | None, request: Mapping[str, Any]) -> tuple[Trainer | None, Answer]:
    match request["do"], trainer:
        case "load", None:
            return load(request)
        case "losses", Trainer():
            return trainer, {"losses": trainer.first_losses(request["steps"])}
        case "sample", Trainer():
            return trainer, trainer.sample(request["steps"])
        case "profile", Trainer():
            return trainer, profiled(trainer, request["steps"])
        case "quit", _:
            return None, {}
        case asked, _:
            raise ValueError(f"cannot {asked} now")


def serve(requests: TextIO, answers: TextIO) -> None:
    trainer: Trainer | None = None
    for line in requests:
        request = json.loads(line)
        trainer, reply = answer(trainer, request)
        answers.write(json.dumps(reply) + "\n")
        answers.flush()
        if request["do"] == "quit":
            return


def main() -> None:
    # TensorFlow and its plugins print to stdout; the answers keep a copy of it to themselves.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    # -P keeps this folder off the path, where `statistics` would hide Python's own.
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
