"""A process that trains one workload with one TensorFlow, and says how long the steps took.

Started as `ARM_PYTHON -P -m tfbench.inside.worker [PARENT]`, the same file for every arm. One JSON
request a line comes in on stdin, one JSON answer a line goes out; the end of stdin ends the
process, that of PARENT, a process id, at once. This file runs inside each arm's own environment:
the standard library, NumPy and TensorFlow only.
Variables that begin with TENSORWRIGHT_ change what a step is, or name the user's own workload.

    {"do": "load", "workload": …, "seed": …, "vcpus": […], "nudged": …}
                                                              → what TensorFlow this is
    {"do": "check", "steps": n}                → {"losses": […], "predictions": […], …}, first
    {"do": "settle", "vcpus": […]}             → {"vcpus": […]}: other CPUs, as many
    {"do": "sample", "phase": …, "steps": n}   → times and meters, see `Trainer.sample`
    {"do": "profile", "steps": n}              → op times and executions of tuned kernels
    {"do": "try", "workload": …, "seed": …, "vcpus": […]}     → the same, tried, see `tried`
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
from tfbench.inside.epochs import Epochs, loss_of, rows
from tfbench.inside.phases import AUGMENT, FIT, INFER, TRAIN, VALIDATE

if TYPE_CHECKING:  # (it imports NumPy, which must come after the affinity)
    from tfbench.inside.server import Server
    from tfbench.inside.workload import Workload

TensorFlow: TypeAlias = Any
Model: TypeAlias = Any
Examples: TypeAlias = Any
Answer: TypeAlias = dict[str, Any]

KERNEL_FOLDER = "/core/kernels/tensorwright/"
"""Where a tuned wheel keeps its kernel libraries, below the tensorflow package."""
OPENMP = ("/libiomp5", "/libomp", "/libgomp")
ENVIRONMENT = ("TF_", "OMP_", "KMP_", "ONEDNN_", "DNNL_", "TENSORFLOW_", "LD_PRELOAD", "MALLOC_")
"""Names with these beginnings change what is measured, so the answer to `load` repeats them."""
SLOWDOWN = "TENSORWRIGHT_SLOWDOWN"
"""A share of a sample's steps that are taken in addition to them: for proving the harness. It is
the same work, so that whatever disturbs the steps disturbs these."""
TOGETHER = "TENSORWRIGHT_STEPS_PER_EXECUTION"
"""Training batches that one call of a traced function goes through, as compile() has it."""
JIT = "TENSORWRIGHT_JIT_COMPILE"
"""Set to have XLA compile what a step is, or a request, as compile(jit_compile=True) does."""
MOST_PREDICTIONS = 4096
PR_SET_PDEATHSIG = 1
TRIED_STEPS = 5

Step: TypeAlias = Callable[[], Any]
Respond: TypeAlias = Callable[[Any, Mapping[str, Any]], tuple[Any, Answer]]
"""From what a worker keeps between requests, None at first, and a request to both anew."""


@dataclass(kw_only=True, slots=True)
class Trainer:
    """A compiled model on its way through its batches.

    Not by `fit`, unless that is what is asked (`epochs`): a short one waits for tf.data's autotuner
    to go to sleep, see `dataset`.
    """

    phases: Mapping[str, Step]
    """Each does one batch and returns a number or a tensor of one: "train", "validate", …"""
    restart: Step
    """Starts the mean loss that "train" returns anew."""
    predict: Callable[[], list[float]]
    cpus: frozenset[int]
    resting: tuple[float, float]
    """Wall and CPU clock at the end of the last sample."""
    together: tuple[int, Step] | None = None
    """How many training batches a second training step does in one call, and that step."""
    server: Server | None = None
    """Of a model that is not trained but asked."""
    epochs: Epochs | None = None
    """Of a model that is trained by `fit`."""

    @property
    def phase(self) -> str:
        """What its steps are."""
        return INFER if self.server else TRAIN

    def check(self, steps: int) -> Answer:
        """The first losses, and what the model predicts after them. One that is not trained has no
        losses, one of `fit` that of its first epoch, with which TensorFlow traces it."""
        losses, began = [], time.perf_counter()
        if self.epochs is not None:
            losses.append(self.epochs.fit(1).loss)
        elif self.server is None:
            for _ in range(steps):
                self.restart()
                losses.append(float(self.phases[TRAIN]()))
        else:
            self.server.requests(steps)
        first_steps_s = time.perf_counter() - began
        return {
            "losses": numbers(losses),
            "predictions": numbers(self.predict()),
            "first_steps_s": first_steps_s,
        }

    def sample(self, phase: str, steps: int) -> Answer:
        """Time `steps` steps, in slices: the share of each in the steps, and its seconds."""
        more = round(float(os.environ.get(SLOWDOWN, "0")) * steps)
        if self.server is not None:
            self.server.forget()
        canary = meters.canary_s()
        before, idle_cpu = self._meters(), time.process_time() - self.resting[1]
        idle = time.perf_counter() - self.resting[0]
        if phase == FIT and self.epochs is not None:
            found, beside_s, _ = self.epochs.fit(steps + more)
        else:
            found, beside_s = slices.timed(self._calls(phase, steps + more)), 0.0
        after = self._meters()
        canary += meters.canary_s()
        self.resting = time.perf_counter(), time.process_time()
        times = {
            "wall_s": math.fsum(each.wall_s for each in found),
            "cpu_s": math.fsum(each.cpu_s for each in found),
            "slices": [(each.steps / (steps + more), *each[1:]) for each in found],
            "idle_s": idle,
            "idle_cpu_s": idle_cpu,
            "beside_s": beside_s,
        }
        answered = {} if self.server is None else {"answered": dict(self.server.answered)}
        return times | meters.growth(before, after) | {"canary_s": canary} | answered

    def _calls(self, phase: str, steps: int) -> Iterator[slices.Call]:
        """The calls that make up so many steps. Clients that ask at the same time do it in one."""
        if self.server is not None:
            if self.server.clients == 1:
                return itertools.repeat((1, self.server.request), steps)
            return iter([(steps, functools.partial(self.server.requests, steps))])
        single = (1, self.phases[phase])
        if phase != "train" or self.together is None:
            return itertools.repeat(single, steps)
        whole, rest = divmod(steps, self.together[0])
        return itertools.chain(
            itertools.repeat(self.together, whole), itertools.repeat(single, rest)
        )

    def _meters(self) -> Answer:
        return {
            "run_delay_s": meters.run_delay_s(),
            **meters.of_machine(self.cpus),
            "switches": resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw,
        }


def numbers(values: Iterable[float]) -> list[float | None]:
    """JSON has no NaN and no infinity: None stands for them."""
    return [value if math.isfinite(value) else None for value in values]


def load(request: Mapping[str, Any]) -> tuple[Trainer, Answer]:
    """Import TensorFlow on all CPUs that there are, since workers import at the same time; build
    the workload on the asked ones. No step is taken yet."""
    nudge = bool(request.get("nudged"))
    with uncollected():
        started = time.perf_counter()
        tf = importlib.import_module("tensorflow")
        settle(request["vcpus"])
        imported = time.perf_counter()
        trainer, facts = build(tf, request["workload"], request["seed"], nudge=nudge)
        built = time.perf_counter()
    facts |= {"import_s": imported - started, "build_s": built - imported, "nudged": nudge}
    return trainer, facts | environment(tf)


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Without Python's garbage collector, which would go through a quarter of a million objects of
    TensorFlow again and again while they are made. It does so once afterwards, before any sample.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def settle(cpus: Iterable[int]) -> None:
    """Hold every thread to these CPUs. TensorFlow and its devices' threads count them later; those
    of NumPy have their number from the environment."""
    for thread in os.listdir("/proc/self/task"):  # noqa: PTH208  (numbers)
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.sched_setaffinity(int(thread), cpus)


def settled(trainer: Trainer, cpus: Iterable[int]) -> tuple[Trainer, Answer]:
    """A trainer that goes on on other CPUs, as many as it has, since its pools keep their sizes."""
    settle(cpus)
    held = os.sched_getaffinity(0)
    return replace(trainer, cpus=frozenset(held)), {"vcpus": sorted(held)}


def build(tf: TensorFlow, name: str, seed: int, *, nudge: bool = False) -> tuple[Trainer, Answer]:
    """The model at its first step, and what the arms must have in common. With `nudge` its
    parameters are one rounding away from that."""
    from tfbench.inside.workloads import is_own  # noqa: PLC0415

    tf.keras.utils.set_random_seed(seed)
    made = _own if is_own(name) else _known
    return made(tf, name, seed, nudge)


def _nudge(weights: Iterable[Any], seed: int) -> None:
    from tfbench.inside.parameters import nudged  # noqa: PLC0415

    for number, weight in enumerate(weights):
        weight.assign(nudged(weight.numpy(), seed + number))


def _known(tf: TensorFlow, name: str, seed: int, nudge: bool) -> tuple[Trainer, Answer]:
    from tfbench.inside.parameters import digest  # noqa: PLC0415
    from tfbench.inside.workload import synthetic_data  # noqa: PLC0415
    from tfbench.inside.workloads import clients_of, find, is_fitted  # noqa: PLC0415

    workload = find(name)
    examples = synthetic_data(workload, seed)
    model, weights = started(tf.keras, workload, seed)
    if nudge:
        _nudge(model.trainable_weights, seed)
    if clients_of(name):
        trainer = _served(tf, model, list(examples[0]), clients_of(name))
    else:
        others = phases(tf, model, examples, workload, seed)
        trainer = _trainer(tf, model, examples, examples[0][0], others)
        if is_fitted(name):
            trainer.epochs = Epochs(tf, model, tuple(map(rows, examples)), workload.batch)
    return trainer, {
        "parameters": model.count_params(),
        "batch": workload.batch,
        "inputs_sha256": digest([*examples, *weights]),
    }


def started(keras: Any, workload: Workload, seed: int) -> tuple[Model, list[Any]]:  # noqa: ANN401
    """The compiled model and the parameters that it starts from."""
    from tfbench.inside.parameters import initial_parameters, weight_name  # noqa: PLC0415

    model = workload.build(keras, seed)
    named = ((weight_name(each), tuple(each.shape)) for each in model.weights)
    weights = initial_parameters(named, seed)
    model.set_weights(weights)
    return model, weights


def _own(tf: TensorFlow, name: str, seed: int, nudge: bool) -> tuple[Trainer, Answer]:
    """The user's file. Its parameters are as it makes them, with the arm's own random kernels, so
    that their last bits may differ: the arms have shapes and data in common, and the losses tell.
    """
    from tfbench.inside.parameters import digest  # noqa: PLC0415
    from tfbench.inside.programs import read_program  # noqa: PLC0415
    from tfbench.inside.workloads import (  # noqa: PLC0415
        PROGRAM,
        batch_of,
        clients_of,
        is_fitted,
    )

    clients = clients_of(name)
    own = read_program(tf, Path(os.environ[PROGRAM]), seed, trained=not clients)
    if nudge:
        _nudge(own.trainable, seed)
    first = tf.nest.map_structure(lambda each: each[0], own.examples)
    inputs, *_ = tf.keras.utils.unpack_x_y_sample_weight(first)
    if clients:
        trainer = _served(tf, own.model, _requests(tf, own.examples, batch_of(name)), clients)
    else:
        trainer = _trainer(tf, own.model, own.examples, inputs if own.predicts else None)
        if is_fitted(name):
            made_up = tf.nest.map_structure(rows, own.examples)
            given = made_up if own.given is None else own.given
            trainer.epochs = Epochs(tf, own.model, given, own.batch)
    # A TextVectorization's vocabulary is among the weights and has no shape.
    shapes = "".join(f"{weight.shape}" for weight in own.trainable)
    return trainer, {
        "parameters": own.parameters,
        "batch": batch_of(name) if clients else own.batch,
        "inputs_sha256": f"{digest(own.arrays)} {shapes}",
    }


def _requests(tf: TensorFlow, examples: Examples, batch: int) -> list[Examples]:
    """The inputs of a user's examples, in batches of another size."""
    from tfbench.inside.server import rebatched  # noqa: PLC0415
    from tfbench.inside.workload import BATCHES  # noqa: PLC0415

    inputs, *_ = tf.keras.utils.unpack_x_y_sample_weight(examples)
    cut = tf.nest.map_structure(lambda each: rebatched(each, batch, BATCHES), inputs)
    count = len(tf.nest.flatten(cut)[0])
    return [tf.nest.map_structure(lambda each, at=at: each[at], cut) for at in range(count)]


def _served(tf: TensorFlow, model: Model, batches: list[Examples], clients: int) -> Trainer:
    """A model that is asked: one step is one request."""
    from tfbench.inside.server import serve  # noqa: PLC0415

    asked = serve(tf, model, batches, clients, compiled=JIT in os.environ)
    return Trainer(
        phases={INFER: asked.request},
        restart=lambda: None,
        predict=_predictor(tf, model, batches[0]),
        cpus=frozenset(os.sched_getaffinity(0)),
        resting=(time.perf_counter(), time.process_time()),
        server=asked,
    )


def _predictor(tf: TensorFlow, model: Model, inputs: Examples) -> Callable[[], list[float]]:
    """What tells the first numbers that the model predicts from these inputs."""

    def predict() -> list[float]:
        outputs = tf.nest.flatten(model(inputs, training=False))
        values = itertools.chain.from_iterable(each.numpy().ravel() for each in outputs)
        return [float(value) for value in itertools.islice(values, MOST_PREDICTIONS)]

    return predict


def _trainer(
    tf: TensorFlow,
    model: Model,
    examples: Examples,
    inputs: Examples,
    others: Iterable[tuple[str, Step]] = (),
) -> Trainer:
    """`inputs` is the first batch's: what the model is asked to predict from, None for one that
    cannot. `others` are the phases beside training."""
    batches = iter(dataset(tf, examples))
    step = model.train_step
    if JIT in os.environ:
        step = tf.function(step, jit_compile=True, reduce_retracing=True)
    several = int(os.environ.get(TOGETHER, "1"))
    return Trainer(
        phases={TRAIN: traced(tf, step, batches), **dict(others)},
        restart=model.reset_metrics,
        predict=_predictor(tf, model, inputs) if inputs is not None else list,
        cpus=frozenset(os.sched_getaffinity(0)),
        resting=(time.perf_counter(), time.process_time()),
        together=(several, traced(tf, step, batches, several)) if several > 1 else None,
    )


def phases(
    tf: TensorFlow, model: Model, examples: Examples, workload: Workload, seed: int
) -> Iterator[tuple[str, Step]]:
    """What there is beside training, one batch a step. Nothing of it is made before its first."""
    import numpy as np  # noqa: PLC0415  (the arm's own)

    from tfbench.inside.augmentation import augment  # noqa: PLC0415

    if VALIDATE in workload.schedule.phases:
        yield VALIDATE, later(lambda: traced(tf, model.test_step, iter(dataset(tf, examples))))
    if AUGMENT in workload.schedule.phases:
        draw, images = np.random.default_rng(seed), itertools.cycle(examples[0])
        yield AUGMENT, lambda: augment(next(images), draw)[0, 0, 0, 0]


def later(make: Callable[[], Step]) -> Step:
    """The step that `make` gives, made when it is first taken."""
    made = functools.cache(make)

    def step() -> Any:  # noqa: ANN401
        return made()()

    return step


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


def traced(tf: TensorFlow, step: Any, batches: Any, several: int = 1) -> Step:  # noqa: ANN401
    """Keras's own train or test step, metrics included, as one traced function per batch, or per
    `several` of them, as `Model.make_train_function` loops over them."""

    @tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]
    def run(source: Any) -> Any:  # noqa: ANN401
        return loss_of(step(next(source)))

    @tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]
    def run_several(source: Any) -> Any:  # noqa: ANN401
        loss = loss_of(step(next(source)))
        for _ in tf.range(several - 1):
            loss = loss_of(step(next(source)))
        return loss

    if several == 1:
        return lambda: run(batches)
    traced_now = run_several.get_concrete_function(batches)  # (not while it is timed)
    return lambda: traced_now(batches)


def environment(tf: TensorFlow) -> Answer:
    """What TensorFlow this is, and what it was started with."""
    from tfbench.inside.workload import is_keras_3  # noqa: PLC0415  (NumPy, after the affinity)

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
        "raised_kernels": raised_kernels(),
        "kernel_library": kernel_library(maps),
        "threading": threading_of(maps),
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


def tried(request: Mapping[str, Any]) -> Answer:
    """Load the workload and take its first steps: the facts, the losses, and `step_s`, the seconds
    of the fastest step after them. `problem` is empty, or why the user's file cannot be trained."""
    from tfbench.inside.workloads import PROGRAM  # noqa: PLC0415

    try:
        trainer, facts = load(request)
        facts |= trainer.check(TRIED_STEPS)
        samples = (trainer.sample(trainer.phase, 1) for _ in range(TRIED_STEPS))
        facts["step_s"] = min(each["wall_s"] for each in samples)
    except (Exception, SystemExit) as error:
        if PROGRAM not in os.environ:
            raise
        from tfbench.inside.programs import error_line  # noqa: PLC0415

        return {"problem": error_line(error, Path(os.environ[PROGRAM]))}
    port = importlib.import_module("tensorflow.python.util._pywrap_util_port")
    return facts | {"problem": "", "onednn": bool(port.IsMklEnabled())}


def profiled(trainer: Trainer, steps: int) -> Answer:
    from tfbench.inside.profiling import profile  # noqa: PLC0415

    library = kernel_library(Path("/proc/self/maps").read_text(encoding="utf-8"))
    step = trainer.phases[trainer.phase]
    return profile(importlib.import_module("tensorflow"), step, steps, library)


def threading_of(maps: str) -> str:
    """Whose threads run the kernels. The stock wheel's are Eigen's; MKL builds bring OpenMP."""
    return "OpenMP" if any(name in maps for name in OPENMP) else "Eigen"


def kernel_library(maps: str) -> str | None:
    """The library of tuned kernels among a process's mappings, the text of /proc/PID/maps."""
    paths = (line.split(maxsplit=5)[5] for line in maps.splitlines() if KERNEL_FOLDER in line)
    return next(paths, None)


def answer(trainer: Trainer | None, request: Mapping[str, Any]) -> tuple[Trainer | None, Answer]:
    match request["do"], trainer:
        case "load", None:
            return load(request)
        case "check", Trainer():
            return trainer, trainer.check(request["steps"])
        case "settle", Trainer():
            return settled(trainer, request["vcpus"])
        case "sample", Trainer():
            return trainer, trainer.sample(request["phase"], request["steps"])
        case "profile", Trainer():
            return trainer, profiled(trainer, request["steps"])
        case "try", None:
            return None, tried(request)
        case "status", _:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            return trainer, {"peak_mb": peak / 1000}
        case "quit", _:
            return None, {}
        case asked, _:
            raise ValueError(f"cannot {asked} now")


def only(run: Callable[[Mapping[str, Any]], Answer]) -> Respond:
    """Requests to `run`, and to quit: for a process that does one thing."""

    def respond(state: Any, request: Mapping[str, Any]) -> tuple[Any, Answer]:  # noqa: ANN401
        match request["do"]:
            case "run":
                return state, run(request)
            case "quit":
                return state, {}
            case asked:
                raise ValueError(f"cannot {asked}")

    return respond


def serve(requests: TextIO, answers: TextIO, respond: Respond = answer) -> None:
    state: Any = None
    for line in requests:
        request = json.loads(line)
        state, reply = respond(state, request)
        answers.write(json.dumps(reply) + "\n")
        answers.flush()
        if request["do"] == "quit":
            return


def end_with(parent: int) -> None:
    """Have Linux end this process once its parent has ended, in the middle of a step, too: what
    trains on would disturb the next run. (As tfbuild.probe.parent does.)"""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it had ended before Linux knew
        os.kill(os.getpid(), signal.SIGKILL)


def main(respond: Respond = answer) -> None:
    """Serve the process whose number is the first argument, if there is one, and end with it."""
    if sys.argv[1:]:
        end_with(int(sys.argv[1]))
    serve_standard(respond)


def serve_standard(respond: Respond) -> None:
    """Requests on standard input, answers on standard output."""
    # TensorFlow and its plugins print to stdout; the answers keep a copy of it to themselves.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(sys.stdin, answers, respond)


if __name__ == "__main__":
    main()
