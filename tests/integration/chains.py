"""Runs inside TensorFlow: elementwise operations and sums, by the library and by TensorFlow's own
kernels (held.py)."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np
from tests.integration import held

from tfbuild.native.ops.chains import cases as chains
from tfbuild.probe import float64
from tfbuild.probe.choices import Choices
from tfbuild.probe.float64 import Program, draw_as
from tfbuild.probe.fusing import Case, Tensor, in_graph
from tfbuild.probe.random_programs import FAMILIES

RANDOM = 60


def fitted(tf: ModuleType, dtype: str) -> list[Tensor]:
    """A block of a transformer; the last batch is a smaller one."""

    def create_layers(layers: Any) -> list[Any]:
        return [
            layers.Input((12, 24)),
            layers.LayerNormalization(),
            layers.Dense(48, activation="gelu"),
            layers.Dense(24, activation="tanh"),
            layers.LayerNormalization(epsilon=1e-5),
            layers.Activation("softmax"),
            layers.Flatten(),
            layers.Dense(1),
        ]

    return held.train(tf, dtype, create_layers, (12, 24), batch=64)


def in_a_loop(tf: ModuleType, dtype: str) -> list[Tensor]:
    """In the body of a loop that ends when values are small, so that it stays a loop."""

    @in_graph(tf)
    def run(x: Tensor) -> list[Tensor]:
        count = tf.constant(0)
        while tf.reduce_max(tf.abs(x)) > 0.01:
            x = tf.tanh(x * 0.7) * 0.9 - 0.001 * x
            count += 1
        return [x, tf.cast(count, dtype)]

    return list(run(draw_as(tf, dtype, (17, 33), 1)))


def in_branches(tf: ModuleType, dtype: str) -> list[Tensor]:
    @in_graph(tf)
    def run(x: Tensor, is_first: Tensor) -> Tensor:
        y = x * 2 - 1
        z = tf.cond(is_first, lambda: tf.nn.relu(y * 3 + x) * y, lambda: tf.sigmoid(y - 0.5) * x)
        return z * x + y

    x = draw_as(tf, dtype, (41, 23), 1)
    return [run(x, tf.constant(value)) for value in (True, False)]


def refused(tf: ModuleType, dtype: str) -> list[Tensor]:
    """Errors are TensorFlow's own."""
    refuse = functools.partial(held.refuse, tf, dtype)
    axis, many = "nvalid reduction dimension", "Must provide as many biases"

    def reshape(x: Tensor, y: Tensor) -> Tensor:
        return tf.reshape(x * 2 + 1, tf.cast(y, tf.int64) * 2**32) * 3

    def total(x: Tensor, y: Tensor) -> Tensor:
        return tf.reduce_sum(x * 2 + 1, tf.cast(y, tf.int32)) * 3

    return [
        refuse("ncompatible shapes", lambda a, b: (a * b + 1) * 2, (30, 4), (30, 5)),
        refuse(many, lambda a, b: tf.nn.relu(tf.nn.bias_add(a * 2, b)), (30, 4), (5,)),
        refuse("same size and shape", lambda a, b: tf.add_n([a * 2, b]) * 3, (30, 4), (1, 4)),
        refuse("reshape", lambda a: tf.reshape(a * 2 + 1, [7, -1]) * 3, (30, 4)),
        refuse("hape", reshape, (30, 4), (3,)),
        refuse(axis, total, (30,), (1,)),
    ]


def original(tf: ModuleType, dtype: str) -> list[Tensor]:
    """No elements, rows too long, and sums over axes between others."""
    any_shape = tf.TensorSpec(None, dtype)

    @in_graph(tf, input_signature=[any_shape, any_shape])
    def run(x: Tensor, y: Tensor) -> Tensor:
        return tf.nn.softmax(x * y + y) * x

    @in_graph(tf, input_signature=[any_shape, tf.TensorSpec(None, tf.int32)])
    def sums(x: Tensor, axes: Tensor) -> Tensor:
        return tf.reduce_sum(x * 2 - 1, axes)

    draw = functools.partial(draw_as, tf, dtype)
    return [
        *(run(draw(shape, 1), draw(shape, 2)) for shape in ((0, 5), (2, 9000), (3, 4))),
        *(sums(draw((6, 7, 8), 1), axes) for axes in ([1], [0, 2], [0], [], [2, 0, 1])),
    ]


def in_turn(tf: ModuleType, dtype: str) -> list[Tensor]:
    """One graph with many shapes: more than the plans that are kept."""

    @in_graph(tf, input_signature=[tf.TensorSpec((None, None), dtype)])
    def run(x: Tensor) -> Tensor:
        return tf.nn.softmax(x * 2 + 1) * x

    return [run(draw_as(tf, dtype, (rows, 50 - rows // 2), 1)) for rows in (*range(1, 80), 3, 70)]


def other_types(tf: ModuleType, dtype: str) -> list[Tensor]:
    @in_graph(tf)
    def run(x: Tensor) -> Tensor:
        y = tf.cast(x, tf.float16)
        return tf.cast(tf.nn.relu(y * 2 - 1) * y, dtype) + tf.cast(tf.cast(x, tf.int32) * 3, dtype)

    return [run(draw_as(tf, dtype, (30, 31), 1))]


def compiled(tf: ModuleType, dtype: str) -> list[Tensor]:
    @in_graph(tf, jit_compile=True)
    def run(x: Tensor) -> Tensor:
        return tf.nn.relu(x * 2 - 1) * x

    return [run(draw_as(tf, dtype, (30, 31), 1))]


def lent(tf: ModuleType, dtype: str) -> list[Tensor]:
    """On threads that are lent to one run."""
    draws = [np.asarray(draw_as(tf, dtype, (600, 256), seed)) for seed in (1, 2)]
    with held.lent(tf, draws) as ((left, right), run):
        product = left * right + right
        expected = [tf.nn.relu(product) * left, tf.reduce_sum(product, axis=0)]
        return [result for _ in range(9) for result in run(expected)]


def saved(tf: ModuleType, dtype: str) -> list[Tensor]:
    module = tf.Module()
    module.weight = tf.Variable(draw_as(tf, dtype, (256,), 2))
    module.run = in_graph(tf, input_signature=[tf.TensorSpec((None, 256), dtype)])(
        lambda inputs: tf.nn.relu(inputs * module.weight - 0.1) * inputs
    )
    return held.saved(tf, module, draw_as(tf, dtype, (64, 256), 1))


def not_numbers(tf: ModuleType, dtype: str) -> list[Tensor]:
    """A maximum is NaN if an element is."""

    @in_graph(tf, input_signature=[tf.TensorSpec((None, None), dtype)])
    def run(x: Tensor) -> Tensor:
        return tf.reduce_max(x * 2 - 1, axis=-1, keepdims=True) + 0 * x

    x = np.random.default_rng(1).standard_normal((9, 70))
    x[1, 0] = x[3, 17] = x[5, 69] = np.nan
    return [tf.cast(tf.math.is_nan(run(tf.constant(x, dtype))), dtype)]


def through_a_queue(tf: ModuleType, dtype: str) -> list[Tensor]:
    """In one step, a value of a chain comes back through a queue. In parts of a step, another one
    is fed when the first has been fetched.
    """
    old = tf.compat.v1
    values = np.linspace(-2, 2, 1200).reshape(40, 30)
    with tf.Graph().as_default(), old.Session() as session:
        x, y = (old.placeholder(dtype, (None, 30)) for _ in range(2))
        first = tf.nn.relu(x * 2 + 1)
        queue = tf.queue.FIFOQueue(1, dtype, (40, 30))
        back = queue.dequeue() * first + 1
        results = list(session.run([back, queue.enqueue(first + 1)], {x: values})[:1])
        second = first * y + 1
        handle = session.partial_run_setup([first, second], [x, y])
        results.append(session.partial_run(handle, first, {x: values}))
        return [*results, session.partial_run(handle, second, {y: values})]


def extended(tf: ModuleType, dtype: str) -> list[Tensor]:
    """A session whose graph grows between runs."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(dtype, (None, 30))
        fed = {x: np.linspace(-2, 2, 1200).reshape(40, 30)}
        values, results = [tf.sin(x)], []
        for _ in range(3):
            values.append(tf.nn.softmax(values[-1] * 3 - 1) * x)
            results.extend(session.run(values, fed))
        return results


def create_random_program(seed: int) -> Program:
    """A program of `selfcheck --results`, by the rule of the conformance test."""
    program = FAMILIES["chains"].make(Choices(seed=f"chains {seed}"))
    return lambda tf, dtype: program(tf, dtype, 0.0)


def cases() -> Mapping[str, Case]:
    more = (
        *(fitted, in_a_loop, in_branches, refused, original, in_turn, other_types, compiled),
        *(lent, saved, not_numbers, through_a_queue, extended),
    )
    return {
        **chains.cases(),
        **{case.__name__: float64.create_case(case) for case in more},
        **{
            f"random {seed}": float64.create_case(create_random_program(seed))
            for seed in range(RANDOM)
        },
    }


if __name__ == "__main__":
    held.hold("chains", cases())
