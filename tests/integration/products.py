"""Runs inside TensorFlow: products and gradients of filters, by the library and by TensorFlow's own
kernels (held.py)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np
from tests.integration import held

from tfbuild.native.ops.products import cases as products
from tfbuild.probe import float64
from tfbuild.probe.float64 import draw_as
from tfbuild.probe.fusing import Case, Tensor, in_graph


def fitted(tf: ModuleType, dtype: str) -> list[Tensor]:
    def create_layers(layers: Any) -> list[Any]:
        return [
            layers.Input((9, 9, 3)),
            layers.Conv2D(16, 3, activation="relu"),
            layers.Conv2D(24, 3, strides=2, padding="same", activation="relu"),
            layers.Flatten(),
            layers.Dense(256, activation="relu"),
            layers.Dense(257, activation="tanh"),
            layers.Dense(1),
        ]

    return held.train(tf, dtype, create_layers, (9, 9, 3), batch=64)


def refused(tf: ModuleType, dtype: str) -> list[Tensor]:
    """Errors are TensorFlow's own."""
    refuse = functools.partial(held.refuse, tf, dtype)

    def sum_products(left: Tensor, right: Tensor) -> Tensor:
        return tf.einsum("ab,bc->ac", left, right)

    draw = [draw_as(tf, dtype, (256, 256), seed) for seed in (1, 2)]
    return [
        in_graph(tf)(tf.matmul)(*draw),
        refuse("Matrix size-incompatible", tf.matmul, (64, 256), (255, 256)),
        refuse("Matrix size-incompatible", tf.matmul, (3, 64, 25), (3, 24, 33)),
        refuse("compatible batch dimensions", tf.matmul, (3, 64, 25), (2, 25, 33)),
        refuse("Expected dimension 5", sum_products, (3, 5), (4, 5)),
    ]


def small(tf: ModuleType, dtype: str) -> list[Tensor]:
    """At these shapes the kernel that was there is as fast; of nothing there is nothing to sum."""
    programs = [products.create_product(3, 5, 7), products.create_product(0, 256, 256)]
    programs += [
        products.create_product_gradients((0, 4, 3), (0, 3, 5)),
        products.create_einsum("ab,bc->ac", (3, 0), (0, 5)),
        products.create_convolution_gradients((1, 5, 5, 3), 4, (3, 3), "SAME"),
    ]
    return [result for program in programs for result in program(tf, dtype)]


def channelless(tf: ModuleType, dtype: str) -> list[Tensor]:
    """Of no channels, and of too many positions: what TensorFlow's kernels make of it, or that it
    is an error."""
    any_shape = tf.TensorSpec((None,) * 4, dtype)
    nothing = functools.partial(tf.zeros, dtype=dtype)

    @in_graph(tf, input_signature=[any_shape] * 2)
    def outputs(images: Tensor, filter_: Tensor) -> Tensor:
        return tf.nn.conv2d(images, filter_, 1, "SAME")

    @in_graph(tf, input_signature=[any_shape] * 2)
    def back(images: Tensor, filter_: Tensor) -> Tensor:
        return tf.nn.conv2d_transpose(images, filter_, (4, 16, 16, 64), 1, "SAME")

    @in_graph(tf, input_signature=[any_shape] * 2)
    def gradient(images: Tensor, gradients: Tensor) -> Tensor:
        return tf.raw_ops.Conv2DBackpropFilter(
            input=images,
            filter_sizes=(3, 3, 0, 64),
            out_backprop=gradients,
            strides=[1] * 4,
            padding="SAME",
        )

    many = 2**31
    callables: tuple[Callable[[], Tensor], ...] = (
        lambda: back(nothing((4, 16, 16, 0)), nothing((3, 3, 64, 0))),
        lambda: gradient(nothing((4, 16, 16, 0)), draw_as(tf, dtype, (4, 16, 16, 64), 1)),
        lambda: outputs(nothing((4, 16, 16, 0)), nothing((3, 3, 0, 64))),
        lambda: outputs(nothing((1, many, many, 0)), nothing((1, 1, 0, 8))),
    )
    results = []
    for call in callables:
        try:
            results.append(call())
        except tf.errors.InvalidArgumentError:
            results.append(tf.constant(value=True))
    return results


def untouched(tf: ModuleType, dtype: str) -> list[Tensor]:
    """What is transposed on both sides, or goes on otherwise than with ReLU."""
    draw = [draw_as(tf, dtype, (256, 256), seed) for seed in (1, 2)]
    bias = draw_as(tf, dtype, (256,), 3)

    @in_graph(tf)
    def run(left: Tensor, right: Tensor) -> list[Tensor]:
        other_value = tf.nn.elu(tf.nn.bias_add(tf.matmul(left, right), bias))
        return [tf.matmul(left, right, transpose_a=True, transpose_b=True), other_value]

    return list(run(*draw))


def compiled(tf: ModuleType, dtype: str) -> list[Tensor]:
    """XLA's products are XLA's."""
    run = in_graph(tf, jit_compile=True)(tf.matmul)
    return [run(*(draw_as(tf, dtype, (256, 256), seed) for seed in (1, 2)))]


def lent(tf: ModuleType, dtype: str) -> list[Tensor]:
    """On threads that are lent to one run."""
    draws = [np.asarray(draw_as(tf, dtype, (256, 256), seed)) for seed in (1, 2)]
    with held.lent(tf, draws) as ((left, right), run):
        expected = [tf.matmul(left, right), tf.matmul(left, right, transpose_a=True)]
        return [result for _ in range(9) for result in run(expected)]


def saved(tf: ModuleType, dtype: str) -> list[Tensor]:
    module = tf.Module()
    module.weight = tf.Variable(draw_as(tf, dtype, (256, 256), 2))
    module.run = in_graph(tf, input_signature=[tf.TensorSpec((None, 256), dtype)])(
        lambda inputs: tf.matmul(inputs, module.weight)
    )
    return held.saved(tf, module, draw_as(tf, dtype, (64, 256), 1))


def cases() -> Mapping[str, Case]:
    more = (fitted, refused, small, channelless, untouched, compiled, lent, saved)
    return {
        **products.cases(),
        **{case.__name__: float64.create_case(case) for case in more},
    }


if __name__ == "__main__":
    held.hold("products", cases())
