"""A process that trains one workload with one TensorFlow, and times its steps.

Started as `ARM_PYTHON -P -m tfbench.inside.worker [PARENT]`, the same file for every arm. It reads
one JSON request per line from stdin, and writes one JSON answer per line. The process ends with
stdin, and at once if the process PARENT ends. This file runs inside each arm's environment: it
imports only the standard library, NumPy and TensorFlow. Variables that begin with TENSORWRIGHT_
change the steps, or name the user's model file.

    {"do": "load", "workload": …, "seed": …, "vcpus": […], "nudged": …}
                                                              → facts of the environment
    {"do": "check", "steps": n}                → {"losses": […], "predictions": […], …}, first
    {"do": "settle", "vcpus": […]}             → {"vcpus": […]}: other CPUs, as many
    {"do": "sample", "phase": …, "steps": n, "together": m}
                                                              → times and meters, see `Trainer`
    {"do": "profile", "steps": n}              → op times and executions of tuned kernels
    {"do": "try", "workload": …, "seed": …, "vcpus": […]}     → load and check, see `try_workload`
    {"do": "status"}                           → {"peak_mb": …}
    {"do": "quit"}                             → {}
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import importlib
import itertools
import json
import math
import os
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias

from tfbench.inside import meters, slices
from tfbench.inside.compile_arguments import JIT, TOGETHER
from tfbench.inside.epochs import FitTrainer, extract_loss, flatten_batches
from tfbench.inside.phases import AUGMENT, FIT, INFER, TRAIN, VALIDATE
from tfbench.inside.runtimes import JAX, convert_model, describe_runtime, find_runtime

if TYPE_CHECKING:  # (it imports NumPy, which must happen after the affinity is set)
    from tfbench.inside.server import Server
    from tfbench.inside.workload import Workload

TensorFlow: TypeAlias = Any
Model: TypeAlias = Any
Examples: TypeAlias = Any
Answer: TypeAlias = dict[str, Any]

KERNEL_FOLDER = "/core/kernels/tensorwright/"
"""Folder of a tuned wheel's kernel libraries, below the tensorflow package."""
OPENMP = ("/libiomp5", "/libomp", "/libgomp")
ENVIRONMENT = ("TF_", "OMP_", "KMP_", "ONEDNN_", "DNNL_", "TENSORFLOW_", "LD_PRELOAD", "MALLOC_")
"""Prefixes of variables that affect the measurement; the answer to `load` contains them."""
SLOWDOWN = "TENSORWRIGHT_SLOWDOWN"
"""Share of additional steps in each sample, for the self-check of the harness. They are ordinary
steps, so disturbances affect them in the same way."""
MOST_PREDICTIONS = 4096
PR_SET_PDEATHSIG = 1
TRIED_STEPS = 5

Step: TypeAlias = Callable[[], Any]
Respond: TypeAlias = Callable[[Any, Mapping[str, Any]], tuple[Any, Answer]]
"""A function of the worker's state, None at first, and a request; it returns the new state and the
answer."""


@dataclass(kw_only=True, slots=True)
class Trainer:
    """A compiled model and its steps through the batches.

    It does not call `fit`, unless `fit` itself is measured (`epochs`): a short `fit` waits
    for tf.data's autotuner, see `create_dataset`.
    """

    phases: Mapping[str, Step]
    """Steps by phase ("train", "validate", …): each runs a batch and returns a scalar."""
    restart: Step
    """Resets the mean loss that "train" returns."""
    predict: Callable[[], list[float]]
    cpus: frozenset[int]
    resting: tuple[float, float]
    """Wall and CPU clock at the end of the last sample."""
    together: tuple[int, Step] | None = None
    """A second training step with several batches per call: their number, and the step."""
    server: Server | None = None
    """The server of a model that is measured in inference."""
    epochs: FitTrainer | None = None
    """The trainer of a model that is trained by `fit`."""

    @property
    def phase(self) -> str:
        """Return the phase of its steps."""
        return INFER if self.server else TRAIN

    def check(self, steps: int) -> Answer:
        """Return the losses of the first steps, and the predictions after them.

        A model in inference has no losses. A model that is trained by `fit` has the loss of its
        first epoch, in which TensorFlow traces it.
        """
        losses, began = [], time.perf_counter()
        if self.epochs is not None:
            losses.append(self.epochs.fit(1).loss)
        elif self.server is None:
            for _ in range(steps):
                self.restart()
                losses.append(float(self.phases[TRAIN]()))
        else:
            self.server.send_requests(steps)
        first_steps_s = time.perf_counter() - began
        return {
            "losses": replace_nonfinite(losses),
            "predictions": replace_nonfinite(self.predict()),
            "first_steps_s": first_steps_s,
        }

    def sample(self, phase: str, steps: int, together: int = 1) -> Answer:
        """Time `steps` steps in slices; each has its number of steps and its seconds.

        Slices consist of groups of `together` steps.
        """
        taken = steps + round(float(os.environ.get(SLOWDOWN, "0")) * steps)
        if self.server is not None:
            self.server.reset_counts()
        canary = meters.time_canary()
        before, idle_cpu = self._read_meters(), time.process_time() - self.resting[1]
        idle = time.perf_counter() - self.resting[0]
        if phase == FIT and self.epochs is not None:
            parts, beside_s, _ = self.epochs.fit(taken)
        else:
            calls = self._plan_calls(phase, taken)
            parts, beside_s = slices.time_calls(calls, taken, together), 0.0
        after = self._read_meters()
        canary += meters.time_canary()
        self.resting = time.perf_counter(), time.process_time()
        times = {
            "wall_s": math.fsum(part.wall_s for part in parts),
            "cpu_s": math.fsum(part.cpu_s for part in parts),
            "slices": [(part.steps / taken, *part[1:]) for part in parts],
            "idle_s": idle,
            "idle_cpu_s": idle_cpu,
            "beside_s": beside_s,
        }
        answered = {} if self.server is None else {"answered": dict(self.server.answered)}
        return times | meters.compute_growth(before, after) | {"canary_s": canary} | answered

    def _plan_calls(self, phase: str, steps: int) -> Iterator[slices.Call]:
        """Return the calls that make up `steps` steps.

        With concurrent clients all requests are one call.
        """
        if self.server is not None:
            if self.server.clients == 1:
                return itertools.repeat((1, self.server.send_request), steps)
            return iter([(steps, functools.partial(self.server.send_requests, steps))])
        single = (1, self.phases[phase])
        if phase != "train" or self.together is None:
            return itertools.repeat(single, steps)
        full, remainder = divmod(steps, self.together[0])
        return itertools.chain(
            itertools.repeat(self.together, full), itertools.repeat(single, remainder)
        )

    def _read_meters(self) -> Answer:
        return {
            "run_delay_s": meters.read_run_delay_s(),
            **meters.read_machine_counters(self.cpus),
            "switches": resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw,
        }


def replace_nonfinite(values: Iterable[float]) -> list[float | None]:
    """Return the values with None for NaN and infinity, which JSON lacks."""
    return [value if math.isfinite(value) else None for value in values]


def load(request: Mapping[str, Any]) -> tuple[Trainer, Answer]:
    """Import TensorFlow and build the workload; no step runs yet.

    The import uses all CPUs, because workers import at the same time. The rest uses only the
    requested CPUs.
    """
    nudge = bool(request.get("nudged"))
    with pause_garbage_collection():
        began = time.perf_counter()
        tf = importlib.import_module("tensorflow")
        set_affinity(request["vcpus"])
        imported = time.perf_counter()
        trainer, facts = build_trainer(tf, request["workload"], request["seed"], nudge=nudge)
        built = time.perf_counter()
    facts |= {"import_s": imported - began, "build_s": built - imported, "nudged": nudge}
    return trainer, facts | describe_environment(tf)


@contextlib.contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Disable Python's garbage collector within the context.

    It would scan a quarter of a million objects of TensorFlow repeatedly while they are created.
    It runs once afterwards, before any sample.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def set_affinity(cpus: Iterable[int]) -> None:
    """Bind every thread of this process to these CPUs.

    TensorFlow sets the sizes of its thread pools later from the number of these CPUs. The number
    of NumPy's threads comes from the environment.
    """
    for thread in os.listdir("/proc/self/task"):  # noqa: PTH208  (numbers)
        with contextlib.suppress(ProcessLookupError):  # (the thread has ended)
            os.sched_setaffinity(int(thread), cpus)


def move_trainer(trainer: Trainer, cpus: Iterable[int]) -> tuple[Trainer, Answer]:
    """Move a trainer to other CPUs, as many as before, because its thread pools are fixed."""
    set_affinity(cpus)
    allowed = os.sched_getaffinity(0)
    return replace(trainer, cpus=frozenset(allowed)), {"vcpus": sorted(allowed)}


def build_trainer(
    tf: TensorFlow, name: str, seed: int, *, nudge: bool = False
) -> tuple[Trainer, Answer]:
    """Build the trainer of a workload; return it and the facts that must agree between arms.

    No step runs yet. With `nudge` its parameters differ from the common ones by one rounding.
    """
    from tfbench.inside.workload_name import parse_name

    tf.keras.utils.set_random_seed(seed)
    builder = _build_program_trainer if parse_name(name).own else _build_known_trainer
    return builder(tf, name, seed, nudge)


def _nudge_weights(weights: Iterable[Any], seed: int) -> None:
    from tfbench.inside.parameters import nudge_values

    for number, weight in enumerate(weights):
        weight.assign(nudge_values(weight.numpy(), seed + number))


def _build_known_trainer(
    tf: TensorFlow, name: str, seed: int, nudge: bool
) -> tuple[Trainer, Answer]:
    from tfbench.inside.parameters import hash_arrays
    from tfbench.inside.workload import draw_synthetic_data
    from tfbench.inside.workload_name import parse_name
    from tfbench.inside.workloads import find_workload

    workload = find_workload(name)
    examples = draw_synthetic_data(workload, seed)
    model, weights = build_model(tf.keras, workload, seed)
    if nudge:
        _nudge_weights(model.trainable_weights, seed)
    if parse_name(name).clients:
        trainer = _create_inference_trainer(tf, model, list(examples[0]), parse_name(name).clients)
    else:
        other_phases = create_other_phases(tf, model, examples, workload, seed)
        trainer = _create_trainer(tf, model, examples, examples[0][0], other_phases)
        if parse_name(name).fit:
            trainer.epochs = FitTrainer(
                tf, model, tuple(map(flatten_batches, examples)), workload.batch
            )
    return trainer, {
        "parameters": model.count_params(),
        "batch": workload.batch,
        "inputs_sha256": hash_arrays([*examples, *weights]),
    }


def build_model(keras: Any, workload: Workload, seed: int) -> tuple[Model, list[Any]]:
    """Return the compiled model and its initial parameters."""
    from tfbench.inside.parameters import draw_initial_parameters, get_weight_name

    model = workload.build(keras, seed)
    named = ((get_weight_name(weight), tuple(weight.shape)) for weight in model.weights)
    weights = draw_initial_parameters(named, seed)
    model.set_weights(weights)
    return model, weights


def _build_program_trainer(
    tf: TensorFlow, name: str, seed: int, nudge: bool
) -> tuple[Trainer, Answer]:
    """Build the trainer of a user's file.

    The file draws its parameters with the arm's random kernels, so their last bits may differ
    between arms. Shapes and data must agree, and the losses show differences of parameters.
    """
    from tfbench.inside.parameters import hash_arrays
    from tfbench.inside.programs import read_program
    from tfbench.inside.workload_name import parse_name
    from tfbench.inside.workloads import PROGRAM, find_batch_size

    clients = parse_name(name).clients
    program = read_program(tf, Path(os.environ[PROGRAM]), seed, trained=not clients)
    if nudge:
        _nudge_weights(program.trainable, seed)
    first = tf.nest.map_structure(lambda example: example[0], program.examples)
    inputs, *_ = tf.keras.utils.unpack_x_y_sample_weight(first)
    if clients:
        trainer = _create_inference_trainer(
            tf, program.model, _split_requests(tf, program.examples, find_batch_size(name)), clients
        )
    else:
        trainer = _create_trainer(
            tf, program.model, program.examples, inputs if program.predicts else None
        )
        if parse_name(name).fit:
            flattened = tf.nest.map_structure(flatten_batches, program.examples)
            data = flattened if program.given is None else program.given
            trainer.epochs = FitTrainer(tf, program.model, data, program.batch)
    # The weights include a TextVectorization's vocabulary, which has no shape.
    shapes = "".join(f"{weight.shape}" for weight in program.trainable)
    return trainer, {
        "parameters": program.parameters,
        "batch": find_batch_size(name) if clients else program.batch,
        "inputs_sha256": f"{hash_arrays(program.arrays)} {shapes}",
    }


def _split_requests(tf: TensorFlow, examples: Examples, batch: int) -> list[Examples]:
    """Return the inputs of a user's examples in batches of size `batch`."""
    from tfbench.inside.server import resize_batches
    from tfbench.inside.workload import BATCHES

    inputs, *_ = tf.keras.utils.unpack_x_y_sample_weight(examples)
    batches = tf.nest.map_structure(lambda tensor: resize_batches(tensor, batch, BATCHES), inputs)
    count = len(tf.nest.flatten(batches)[0])
    return [tf.nest.map_structure(lambda tensor, at=at: tensor[at], batches) for at in range(count)]


def _create_inference_trainer(
    tf: TensorFlow, model: Model, batches: list[Examples], clients: int
) -> Trainer:
    """Return a trainer of a model that serves requests: one step is one request."""
    from tfbench.inside.server import Server, create_server

    predict: Callable[[], list[float]]
    if find_runtime():
        ask = convert_model(tf, model, batches[0], clients)
        requests = [tf.nest.flatten(batch) for batch in batches]
        server = Server(ask, requests, clients)
        predict = functools.partial(_list_predictions, lambda: ask(requests[0]))
    else:
        server = create_server(tf, model, batches, clients, compiled=JIT in os.environ)
        predict = _create_predictor(tf, model, batches[0])
    return Trainer(
        phases={INFER: server.send_request},
        restart=lambda: None,
        predict=predict,
        cpus=frozenset(os.sched_getaffinity(0)),
        resting=(time.perf_counter(), time.process_time()),
        server=server,
    )


def _create_predictor(tf: TensorFlow, model: Model, inputs: Examples) -> Callable[[], list[float]]:
    """Return a function that predicts from these inputs and returns the first numbers."""

    def predict() -> list[Any]:
        return [output.numpy() for output in tf.nest.flatten(model(inputs, training=False))]

    return functools.partial(_list_predictions, predict)


def _list_predictions(predict: Callable[[], Iterable[Any]]) -> list[float]:
    """Return the first numbers of the arrays that `predict` returns."""
    values = itertools.chain.from_iterable(array.ravel() for array in predict())
    return [float(value) for value in itertools.islice(values, MOST_PREDICTIONS)]


def _create_trainer(
    tf: TensorFlow,
    model: Model,
    examples: Examples,
    inputs: Examples,
    other_phases: Iterable[tuple[str, Step]] = (),
) -> Trainer:
    """Create the trainer of a model.

    `inputs` are the first batch's inputs, which it predicts from; None for a model that cannot
    predict. `other_phases` are the phases other than training.
    """
    if find_runtime() == JAX:
        return _create_jax_trainer(model, examples, inputs, dict(other_phases))
    batches = iter(create_dataset(tf, examples))
    step = model.train_step
    if JIT in os.environ:
        step = tf.function(step, jit_compile=True, reduce_retracing=True)
    several = int(os.environ.get(TOGETHER, "1"))
    return Trainer(
        phases={TRAIN: trace_step(tf, step, batches), **dict(other_phases)},
        restart=model.reset_metrics,
        predict=_create_predictor(tf, model, inputs) if inputs is not None else list,
        cpus=frozenset(os.sched_getaffinity(0)),
        resting=(time.perf_counter(), time.process_time()),
        together=(several, trace_step(tf, step, batches, several)) if several > 1 else None,
    )


def _create_jax_trainer(
    model: Model, examples: Examples, inputs: Examples, other_phases: Mapping[str, Step]
) -> Trainer:
    from tfbench.inside.jax_steps import JaxTrainer

    trainer = JaxTrainer(model, examples)
    predict = functools.partial(_list_predictions, functools.partial(trainer.predict, inputs))
    phases = {TRAIN: trainer.train, **other_phases}
    if VALIDATE in phases:
        phases[VALIDATE] = trainer.validate
    return Trainer(
        phases=phases,
        restart=trainer.reset_metrics,
        predict=predict if inputs is not None else list,
        cpus=frozenset(os.sched_getaffinity(0)),
        resting=(time.perf_counter(), time.process_time()),
    )


def create_other_phases(
    tf: TensorFlow, model: Model, examples: Examples, workload: Workload, seed: int
) -> Iterator[tuple[str, Step]]:
    """Yield the phases other than training with their steps, one batch each.

    A step is created only when it first runs.
    """
    import numpy as np

    from tfbench.inside.augmentation import augment

    if VALIDATE in workload.schedule.phases:
        yield (
            VALIDATE,
            defer_step(lambda: trace_step(tf, model.test_step, iter(create_dataset(tf, examples)))),
        )
    if AUGMENT in workload.schedule.phases:
        draw, images = np.random.default_rng(seed), itertools.cycle(examples[0])
        yield AUGMENT, lambda: augment(next(images), draw)[0, 0, 0, 0]


def defer_step(make: Callable[[], Step]) -> Step:
    """Return a step that calls `make` for the actual step when it first runs."""
    cached_make = functools.cache(make)

    def step() -> Any:
        return cached_make()()

    return step


def create_dataset(tf: TensorFlow, examples: object) -> Any:
    """Return an endless dataset of whole batches in order.

    Its autotuner is off. The autotuner's thread sleeps in doubling periods, and the end of an
    iterator waits for it, so that short runs would take 0.34, 0.66, 1.30 or 2.58 s with any model.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    options.deterministic = True
    options.threading.private_threadpool_size = 1
    options.threading.max_intra_op_parallelism = 1
    return tf.data.Dataset.from_tensor_slices(examples).repeat().with_options(options)


def trace_step(tf: TensorFlow, step: Any, batches: Any, several: int = 1) -> Step:
    """Trace Keras's own train or test step, metrics included, as one function per batch.

    With `several`, a function loops over that number of batches, as
    `Model.make_train_function` does.
    """

    @tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]
    def run(source: Any) -> Any:
        return extract_loss(step(next(source)))

    @tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]
    def run_several(source: Any) -> Any:
        loss = extract_loss(step(next(source)))
        for _ in tf.range(several - 1):
            loss = extract_loss(step(next(source)))
        return loss

    if several == 1:
        return lambda: run(batches)
    traced_now = run_several.get_concrete_function(batches)  # (not while it is timed)
    return lambda: traced_now(batches)


def describe_environment(tf: TensorFlow) -> Answer:
    """Return the versions and the settings of this TensorFlow and its process."""
    from tfbench.inside.workload import is_keras_3

    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    return {
        "pid": os.getpid(),
        "python": sys.version.split()[0],
        "numpy": importlib.import_module("numpy").__version__,
        "tensorflow": tf.__version__,
        "keras": 3 if is_keras_3(tf.keras) else 2,
        "tensorflow_file": str(Path(tf.__file__).resolve()),
        "git_version": tf.version.GIT_VERSION,
        "compiler_version": tf.version.COMPILER_VERSION,
        "vcpus": sorted(os.sched_getaffinity(0)),
        "raised_kernels": count_raised_kernels(),
        "kernel_library": find_kernel_library(maps),
        "threading": describe_runtime() or detect_threading(maps),
        "environment": {
            name: value
            for name, value in sorted(os.environ.items())
            if name.startswith(ENVIRONMENT)
        },
    }


def count_raised_kernels() -> dict[str, int]:
    """Return the number of CPU kernels registered above priority 0, by op.

    The stock wheel has some for tf.data.
    """
    registry = importlib.import_module("tensorflow.python.framework.kernels")
    kernels = registry.get_all_registered_kernels().kernel
    raised = (k.op for k in kernels if k.device_type == "CPU" and k.priority > 0)
    return dict(sorted(Counter(raised).items()))


def try_workload(request: Mapping[str, Any]) -> Answer:
    """Load the workload and run its first steps.

    Returns the facts, the losses, and `step_s`, the seconds of the fastest step after them.
    `problem` is empty, or the reason why the user's file cannot be trained.
    """
    from tfbench.inside.workloads import PROGRAM

    try:
        trainer, facts = load(request)
        facts |= trainer.check(TRIED_STEPS)
        samples = (trainer.sample(trainer.phase, 1) for _ in range(TRIED_STEPS))
        facts["step_s"] = min(sample["wall_s"] for sample in samples)
    except (Exception, SystemExit) as error:
        if PROGRAM not in os.environ:
            raise
        from tfbench.inside.programs import format_error

        return {"problem": format_error(error, Path(os.environ[PROGRAM]))}
    port = importlib.import_module("tensorflow.python.util._pywrap_util_port")
    return facts | {"problem": "", "onednn": bool(port.IsMklEnabled())}


def profile_trainer(trainer: Trainer, steps: int) -> Answer:
    from tfbench.inside.profiling import profile_steps

    library = find_kernel_library(Path("/proc/self/maps").read_text(encoding="utf-8"))
    step = trainer.phases[trainer.phase]
    return profile_steps(importlib.import_module("tensorflow"), step, steps, library)


def detect_threading(maps: str) -> str:
    """Return the library whose threads run the kernels.

    It is Eigen in the stock wheel, and OpenMP in MKL builds.
    """
    return "OpenMP" if any(name in maps for name in OPENMP) else "Eigen"


def find_kernel_library(maps: str) -> str | None:
    """Return the path of the library of tuned kernels in the text of /proc/PID/maps, or None."""
    paths = (line.split(maxsplit=5)[5] for line in maps.splitlines() if KERNEL_FOLDER in line)
    return next(paths, None)


def handle_request(
    trainer: Trainer | None, request: Mapping[str, Any]
) -> tuple[Trainer | None, Answer]:
    """Handle one request; return the trainer that is kept and the answer."""
    match request["do"], trainer:
        case "load", None:
            return load(request)
        case "check", Trainer():
            return trainer, trainer.check(request["steps"])
        case "settle", Trainer():
            return move_trainer(trainer, request["vcpus"])
        case "sample", Trainer():
            return trainer, trainer.sample(
                request["phase"], request["steps"], request.get("together", 1)
            )
        case "profile", Trainer():
            return trainer, profile_trainer(trainer, request["steps"])
        case "try", None:
            return None, try_workload(request)
        case "status", _:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            return trainer, {"peak_mb": peak / 1000}
        case "quit", _:
            return None, {}
        case unexpected, _:
            raise ValueError(f"cannot handle request {unexpected!r} now")


def create_responder(run: Callable[[Mapping[str, Any]], Answer]) -> Respond:
    """Return a responder that only handles `run` and quit, for a process with one task."""

    def respond(state: Any, request: Mapping[str, Any]) -> tuple[Any, Answer]:
        match request["do"]:
            case "run":
                return state, run(request)
            case "quit":
                return state, {}
            case unexpected:
                raise ValueError(f"invalid request {unexpected!r}")

    return respond


def serve(requests: TextIO, answers: TextIO, respond: Respond = handle_request) -> None:
    """Answer requests, one line of JSON each, until they end or one of them is quit."""
    state: Any = None
    for line in requests:
        request = json.loads(line)
        state, reply = respond(state, request)
        answers.write(json.dumps(reply) + "\n")
        answers.flush()
        if request["do"] == "quit":
            return


def exit_with_parent(parent: int) -> None:
    """Make Linux kill this process when its parent ends, even in the middle of a step.

    A process that continued to train would disturb the next run. (tfbuild.probe.parent does the
    same.)
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # (the parent ended before the prctl call)
        os.kill(os.getpid(), signal.SIGKILL)


def main(respond: Respond = handle_request) -> None:
    """Serve requests on standard input.

    The first argument, if any, is the parent's process id: this process ends with its parent.
    """
    if sys.argv[1:]:
        exit_with_parent(int(sys.argv[1]))
    serve_standard(respond)


def serve_standard(respond: Respond) -> None:
    """Serve requests from standard input, with answers to standard output."""
    # TensorFlow and its plugins print to stdout, so the answers use a copy of the original stdout.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(sys.stdin, answers, respond)


if __name__ == "__main__":
    main()
