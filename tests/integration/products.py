"""Runs inside TensorFlow: products and gradients of filters, by the library and by TensorFlow's own
kernels (held.py)."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import numpy as np
from tests.integration import held

from tfbuild.probe import float64, products
from tfbuild.probe.float64 import drawn_as
from tfbuild.probe.fusing import Case, Tensor, in_graph


def fitted(tf: ModuleType, dtype: str) -> list[Tensor]:
    """Keras's own training and prediction; the last batch is a smaller one."""
    tf.keras.utils.set_random_seed(1)
    with float64.floats(tf, dtype):
        layers = tf.keras.layers
        model = tf.keras.Sequential(
            [
                layers.Input((9, 9, 3)),
                layers.Conv2D(16, 3, activation="relu"),
                layers.Conv2D(24, 3, strides=2, padding="same", activation="relu"),
                layers.Flatten(),
                layers.Dense(256, activation="relu"),
                layers.Dense(257, activation="tanh"),
                layers.Dense(1),
            ]
        )
        rng = np.random.default_rng(3)
        for variable in model.trainable_variables:
            variable.assign(rng.standard_normal(variable.shape) * 0.05)
        model.compile(tf.keras.optimizers.SGD(0.01), "mse", jit_compile=False)
        inputs, outputs = (rng.standard_normal((150, *each)) for each in ((9, 9, 3), (1,)))
        model.fit(inputs, outputs, 64, epochs=2, verbose=0, shuffle=False)
        predicted = model.predict(inputs, batch_size=100, verbose=0)
        return [*(np.asarray(each) for each in model.trainable_variables), predicted]


def refused(tf: ModuleType, dtype: str) -> list[Tensor]:
    """Errors are TensorFlow's own."""

    @in_graph(tf, input_signature=[tf.TensorSpec((None, None), dtype)] * 2)
    def run(left: Tensor, right: Tensor) -> Tensor:
        return tf.matmul(left, right)

    draw = [drawn_as(tf, dtype, shape, 1) for shape in ((64, 256), (256, 256), (255, 256))]
    try:
        run(draw[0], draw[2])
    except tf.errors.InvalidArgumentError as error:
        return [run(*draw[:2]), tf.constant("incompatible" in str(error))]
    return []


def small(tf: ModuleType, dtype: str) -> list[Tensor]:
    """At these shapes the kernel that was there is as fast; of nothing there is nothing to sum."""
    every = [products.product(3, 5, 7), products.product(0, 256, 256)]
    every += [products.transposed(9, 4, 3), products.convolved((1, 5, 5, 3), 4, (3, 3), "SAME")]
    return [each for program in every for each in program(tf, dtype)]


def elsewhere(tf: ModuleType, dtype: str) -> list[Tensor]:
    """What is transposed on the right, or goes on otherwise than with ReLU."""
    draw = [drawn_as(tf, dtype, (256, 256), seed) for seed in (1, 2)]
    bias = drawn_as(tf, dtype, (256,), 3)

    @in_graph(tf)
    def run(left: Tensor, right: Tensor) -> list[Tensor]:
        other = tf.nn.elu(tf.nn.bias_add(tf.matmul(left, right), bias))
        return [tf.matmul(left, right, transpose_b=True), other]

    return list(run(*draw))


def compiled(tf: ModuleType, dtype: str) -> list[Tensor]:
    """XLA's products are XLA's."""
    run = in_graph(tf, jit_compile=True)(tf.matmul)
    return [run(*(drawn_as(tf, dtype, (256, 256), seed) for seed in (1, 2)))]


def session(tf: ModuleType, dtype: str) -> list[Tensor]:
    """A graph that is run by a session, on threads that are lent to one run."""
    draws = [np.asarray(drawn_as(tf, dtype, (256, 256), seed)) for seed in (1, 2)]
    old = tf.compat.v1
    config = old.ConfigProto(intra_op_parallelism_threads=4, inter_op_parallelism_threads=2)
    options = old.RunOptions()
    options.experimental.use_run_handler_pool = True
    with tf.Graph().as_default(), old.Session(config=config) as run:
        left, right = (old.placeholder(dtype, each.shape) for each in draws)
        wanted = [tf.matmul(left, right), tf.matmul(left, right, transpose_a=True)]
        fed = dict(zip((left, right), draws, strict=True))
        return [each for _ in range(9) for each in run.run(wanted, fed, options=options)]


def saved(tf: ModuleType, dtype: str) -> list[Tensor]:
    """A saved function has TensorFlow's operations, and runs when it is loaded."""
    made, weight = tf.Module(), tf.Variable(drawn_as(tf, dtype, (256, 256), 2))
    made.weight = weight
    made.run = in_graph(tf, input_signature=[tf.TensorSpec((None, 256), dtype)])(
        lambda inputs: tf.matmul(inputs, weight)
    )
    inputs = drawn_as(tf, dtype, (64, 256), 1)
    before = made.run(inputs)
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(made, folder)
        if b"ensorwright" in (Path(folder) / "saved_model.pb").read_bytes():
            raise AssertionError("an operation of ours was saved")
        loaded = tf.saved_model.load(folder)
        return [before, loaded.run(inputs)]


def cases() -> Mapping[str, Case]:
    more = (fitted, refused, small, elsewhere, compiled, session, saved)
    held_to = {each.__name__: float64.in_both_types(each) for each in more}
    return {**products.cases(), **held_to}


if __name__ == "__main__":
    held.hold(products.PART, cases())
