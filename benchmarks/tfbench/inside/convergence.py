"""A process that trains one model on real images until it tells enough of the others.

Started as `ARM_PYTHON -P -m tfbench.inside.convergence`; it talks as `worker` does. This file runs
inside each arm's own environment: the standard library, NumPy and TensorFlow only.

    {"do": "run", "workload": …, "examples": …, "target": …, "vcpus": […], …}    → see `run`
"""

from __future__ import annotations

import importlib
import os
import resource
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tfbench.inside.steps import OK, refused
from tfbench.inside.worker import (
    Answer,
    TensorFlow,
    dataset,
    environment,
    main,
    numbers,
    only,
    started,
)

if TYPE_CHECKING:  # (they import NumPy, which must come after the affinity)
    from tfbench.inside.synthetic import Array, Examples
    from tfbench.inside.workload import Workload

ARRAYS = ("x_train", "y_train", "x_test", "y_test")
"""What a file of examples holds, as Keras's mnist.npz does: images of 8 bits and their classes."""

Step: TypeAlias = Callable[[], Any]
Model: TypeAlias = Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Learner:
    """A model with its steps, both traced. `train` does one batch and returns the mean loss since
    `restart`, `test` one batch and returns how many it tells right; an epoch and a test have so
    many of them."""

    train: Step
    test: Step
    restart: Step
    training_steps: int
    test_steps: int
    tested: int
    """Examples of a test."""


def run(request: Mapping[str, Any]) -> Answer:
    """Train the workload on the asked CPUs, each epoch in an order of its own that `seed` decides,
    until the share of test examples that it tells is `target` or more, or `epochs` are over.

    `examples` is an .npz with ARRAYS of which `sha256` is the digest; images are divided by
    `white`. The answer has an `outcome` and its `reason`, and for OK: `epochs`, with `train_s` and
    `test_s` apart; the seconds before them, `import_s`, `read_s`, `build_s` and `trace_s`; `images`
    of an epoch; and facts of the environment.
    """
    os.sched_setaffinity(0, request["vcpus"])
    try:
        return _run(request)
    except Exception as error:  # noqa: BLE001  (goes on unless it says something of the cell)
        return refused(error)


def _run(request: Mapping[str, Any]) -> Answer:
    began = time.perf_counter()
    tf = importlib.import_module("tensorflow")
    imported = time.perf_counter()
    from tfbench.inside.workloads import find  # noqa: PLC0415  (NumPy, after the affinity)

    workload, seed = find(request["workload"]), int(request["seed"])
    training, testing = read(Path(request["examples"]), request["sha256"], workload, request)
    there = time.perf_counter()
    tf.keras.utils.set_random_seed(seed)
    model, _ = started(tf.keras, workload, seed)
    built = time.perf_counter()
    orders = shuffled(len(training[0]), workload.batch, int(request["epochs"]), seed)
    learner = make_learner(tf, model, training, testing, orders)
    traced = time.perf_counter()
    epochs = list(learn(learner, float(request["target"]), len(orders)))
    return {
        "outcome": OK,
        "reason": "",
        "epochs": epochs,
        "import_s": imported - began,
        "read_s": there - imported,
        "build_s": built - there,
        "trace_s": traced - built,
        "images": learner.training_steps * workload.batch,
        "parameters": model.count_params(),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
        **environment(tf),
    }


def read(
    path: Path, sha256: str, workload: Workload, request: Mapping[str, Any]
) -> tuple[Examples, Examples]:
    """What is trained on and what is tested: images as the workload takes them, classes one-hot.

    Raises InputError for a file of other examples than were asked for.
    """
    import numpy as np  # noqa: PLC0415  (the arm's own, after the affinity)

    from tfbench.inside.inputs import InputError  # noqa: PLC0415
    from tfbench.inside.parameters import digest  # noqa: PLC0415

    with np.load(path, allow_pickle=False) as held:
        arrays = [held[name] for name in ARRAYS]
    if digest(arrays) != sha256:
        raise InputError(f"{path.name} holds other examples than when the run began")

    def prepared(images: Array, classes: Array) -> Examples:
        pixels = images.astype(workload.inputs_dtype) / np.float32(request["white"])
        one_hot = np.eye(workload.targets[-1], dtype=workload.targets_dtype)
        return pixels.reshape(-1, *workload.inputs[1:]), one_hot[classes]

    return prepared(*arrays[:2]), prepared(*arrays[2:])


def shuffled(count: int, batch: int, epochs: int, seed: int) -> Array:
    """Numbers of examples, (epochs, steps, batch): every epoch mixes all `count` anew and leaves
    out what makes no whole batch."""
    import numpy as np  # noqa: PLC0415

    draw, steps = np.random.default_rng(seed), count // batch
    mixed = [draw.permutation(count)[: steps * batch] for _ in range(epochs)]
    return np.reshape(mixed, (epochs, steps, batch))


def make_learner(
    tf: TensorFlow, model: Model, training: Examples, testing: Examples, orders: Array
) -> Learner:
    """`orders` as `shuffled` gives them. Nothing is trained yet."""
    epochs, steps, batch = orders.shape
    inputs, targets = (tf.constant(each) for each in training)

    def examples(rows: Any) -> Any:  # noqa: ANN401  (tensors)
        return tf.gather(inputs, rows), tf.gather(targets, rows)

    def train(batch: Any) -> Any:  # noqa: ANN401
        return model.train_step(batch)["loss"]

    def test(batch: Any) -> Any:  # noqa: ANN401
        images, classes, counts = batch
        correct = tf.argmax(model(images, training=False), axis=-1) == tf.argmax(classes, axis=-1)
        return tf.reduce_sum(tf.cast(correct, counts.dtype) * counts)

    whole = batches_of(testing, batch)
    rows = dataset(tf, orders.reshape(epochs * steps, batch))
    return Learner(
        train=_traced(tf, train, iter(rows.map(examples))),
        test=_traced(tf, test, iter(dataset(tf, whole))),
        restart=model.reset_metrics,
        training_steps=steps,
        test_steps=len(whole[0]),
        tested=len(testing[0]),
    )


def batches_of(examples: Examples, batch: int) -> tuple[Array, Array, Array]:
    """All examples in whole batches, the first axis counting them, and what each counts: the last
    batch is filled with the first examples, which count 0 there."""
    import numpy as np  # noqa: PLC0415

    count = len(examples[0])
    rows = np.arange(-(-count // batch) * batch)
    shape = (-1, batch)
    inputs, targets = (each[rows % count].reshape(*shape, *each.shape[1:]) for each in examples)
    return inputs, targets, (rows < count).astype(np.float32).reshape(shape)


def _traced(tf: TensorFlow, step: Callable[[Any], Any], batches: Any) -> Step:  # noqa: ANN401
    """The step as a graph that takes the next batch; traced here, and not while it is timed."""

    @tf.function  # type: ignore[untyped-decorator]
    def following(source: Any) -> Any:  # noqa: ANN401
        return step(next(source))

    graph = following.get_concrete_function(batches)
    return lambda: graph(batches)


def learn(learner: Learner, target: float, epochs: int) -> Iterator[Answer]:
    """Epoch by epoch, each tested at its end. Every result is awaited before a clock is read."""
    for number in range(1, epochs + 1):
        learner.restart()
        began = time.perf_counter()
        loss: Any = None
        for _ in range(learner.training_steps):
            loss = learner.train()
        loss = float(loss)
        trained = time.perf_counter()
        correct = sum(float(learner.test()) for _ in range(learner.test_steps))
        accuracy = correct / learner.tested
        yield {
            "epoch": number,
            "train_s": trained - began,
            "test_s": time.perf_counter() - trained,
            "accuracy": accuracy,
            "loss": numbers([loss])[0],
        }
        if accuracy >= target:
            return


if __name__ == "__main__":
    main(only(run))
