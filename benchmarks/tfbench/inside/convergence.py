"""A process that trains one model on real images until it reaches the target test accuracy.

Started as `ARM_PYTHON -P -m tfbench.inside.convergence`; it uses the protocol of `worker`. This
file runs inside each arm's environment: it imports only the standard library, NumPy and TensorFlow.

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

from tfbench.inside.steps import OK, convert_error
from tfbench.inside.worker import (
    Answer,
    TensorFlow,
    build_model,
    create_dataset,
    create_responder,
    describe_environment,
    main,
    replace_nonfinite,
)

if TYPE_CHECKING:  # (they import NumPy, which must happen after the affinity is set)
    from tfbench.inside.synthetic import Array, Examples
    from tfbench.inside.workload import Workload

ARRAYS = ("x_train", "y_train", "x_test", "y_test")
"""Arrays in a file of examples, as in Keras's mnist.npz: 8-bit images and their classes."""

Step: TypeAlias = Callable[[], Any]
Model: TypeAlias = Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Learner:
    """A model with its traced training and test steps.

    `train` runs one batch and returns the mean loss since `restart`; `test` runs one batch
    and returns the number of examples classified correctly. An epoch has `training_steps`
    batches, a test `test_steps`.
    """

    train: Step
    test: Step
    restart: Step
    training_steps: int
    test_steps: int
    tested: int
    """Number of test examples."""


def run(request: Mapping[str, Any]) -> Answer:
    """Train the workload on the requested CPUs until it reaches the target accuracy.

    `seed` determines the order of the examples in each epoch. Training ends when the test accuracy
    is `target` or more, or after `epochs` epochs.

    `examples` is an .npz file with ARRAYS, whose digest is `sha256`; images are divided by
    `white`. The answer has an `outcome` and its `reason`, and for OK: `epochs`, each with
    `train_s` and `test_s`; the seconds before them, `import_s`, `read_s`, `build_s` and `trace_s`;
    `images` per epoch; and facts of the environment.
    """
    os.sched_setaffinity(0, request["vcpus"])
    try:
        return _run(request)
    except Exception as error:  # noqa: BLE001  (raised again unless it concerns the cell)
        return convert_error(error)


def _run(request: Mapping[str, Any]) -> Answer:
    began = time.perf_counter()
    tf = importlib.import_module("tensorflow")
    imported = time.perf_counter()
    from tfbench.inside.workloads import find_workload

    workload, seed = find_workload(request["workload"]), int(request["seed"])
    training, testing = load_examples(
        Path(request["examples"]), request["sha256"], workload, request
    )
    loaded = time.perf_counter()
    tf.keras.utils.set_random_seed(seed)
    model, _ = build_model(tf.keras, workload, seed)
    built = time.perf_counter()
    orders = shuffle_batches(len(training[0]), workload.batch, int(request["epochs"]), seed)
    learner = make_learner(tf, model, training, testing, orders)
    traced = time.perf_counter()
    epochs = list(train_epochs(learner, float(request["target"]), len(orders)))
    return {
        "outcome": OK,
        "reason": "",
        "epochs": epochs,
        "import_s": imported - began,
        "read_s": loaded - imported,
        "build_s": built - loaded,
        "trace_s": traced - built,
        "images": learner.training_steps * workload.batch,
        "parameters": model.count_params(),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
        **describe_environment(tf),
    }


def load_examples(
    path: Path, sha256: str, workload: Workload, request: Mapping[str, Any]
) -> tuple[Examples, Examples]:
    """Load the training and the test examples: images in the workload's shape, one-hot classes.

    Raises InputError if the file contains other examples than the requested ones.
    """
    import numpy as np

    from tfbench.inside.inputs import InputError
    from tfbench.inside.parameters import hash_arrays

    with np.load(path, allow_pickle=False) as archive:
        arrays = [archive[name] for name in ARRAYS]
    if hash_arrays(arrays) != sha256:
        raise InputError(f"{path.name} has changed since the run began")

    def prepare(images: Array, classes: Array) -> Examples:
        pixels = images.astype(workload.inputs_dtype) / np.float32(request["white"])
        one_hot = np.eye(workload.targets[-1], dtype=workload.targets_dtype)
        return pixels.reshape(-1, *workload.inputs[1:]), one_hot[classes]

    return prepare(*arrays[:2]), prepare(*arrays[2:])


def shuffle_batches(count: int, batch: int, epochs: int, seed: int) -> Array:
    """Return the numbers of the examples in each batch, shape (epochs, steps, batch).

    Every epoch shuffles all `count` examples again and drops those that do not fill a batch.
    """
    import numpy as np

    draw, steps = np.random.default_rng(seed), count // batch
    orders = [draw.permutation(count)[: steps * batch] for _ in range(epochs)]
    return np.reshape(orders, (epochs, steps, batch))


def make_learner(
    tf: TensorFlow, model: Model, training: Examples, testing: Examples, orders: Array
) -> Learner:
    """Trace the training and the test step of a model; nothing is trained yet.

    `orders` comes from `shuffle_batches`.
    """
    epochs, steps, batch = orders.shape
    inputs, targets = (tf.constant(array) for array in training)

    def gather_examples(rows: Any) -> Any:
        return tf.gather(inputs, rows), tf.gather(targets, rows)

    def train(batch: Any) -> Any:
        return model.train_step(batch)["loss"]

    def test(batch: Any) -> Any:
        images, classes, counts = batch
        correct = tf.argmax(model(images, training=False), axis=-1) == tf.argmax(classes, axis=-1)
        return tf.reduce_sum(tf.cast(correct, counts.dtype) * counts)

    test_batches = split_batches(testing, batch)
    rows = create_dataset(tf, orders.reshape(epochs * steps, batch))
    return Learner(
        train=_trace_step(tf, train, iter(rows.map(gather_examples))),
        test=_trace_step(tf, test, iter(create_dataset(tf, test_batches))),
        restart=model.reset_metrics,
        training_steps=steps,
        test_steps=len(test_batches[0]),
        tested=len(testing[0]),
    )


def split_batches(examples: Examples, batch: int) -> tuple[Array, Array, Array]:
    """Return inputs, targets and weights of all examples in whole batches; axis 0 counts batches.

    The last batch is filled with the first examples, which have the weight 0 there.
    """
    import numpy as np

    count = len(examples[0])
    rows = np.arange(-(-count // batch) * batch)
    shape = (-1, batch)
    inputs, targets = (array[rows % count].reshape(*shape, *array.shape[1:]) for array in examples)
    return inputs, targets, (rows < count).astype(np.float32).reshape(shape)


def _trace_step(tf: TensorFlow, step: Callable[[Any], Any], batches: Any) -> Step:
    """Trace a step as a graph that takes the next batch.

    Tracing happens here and not while the step is timed.
    """

    @tf.function  # type: ignore[untyped-decorator]
    def run_next(source: Any) -> Any:
        return step(next(source))

    graph = run_next.get_concrete_function(batches)
    return lambda: graph(batches)


def train_epochs(learner: Learner, target: float, epochs: int) -> Iterator[Answer]:
    """Yield the result of each epoch, tested at its end.

    Ends at `target` accuracy. Clocks are read only after the result is available.
    """
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
            "loss": replace_nonfinite([loss])[0],
        }
        if accuracy >= target:
            return


if __name__ == "__main__":
    main(create_responder(run))
