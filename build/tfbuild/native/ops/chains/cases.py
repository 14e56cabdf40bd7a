"""Test programs of fused/chains: elementwise operations and sums, with their gradients."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from tfbuild.probe import float64
from tfbuild.probe.float64 import Program, create_case, draw_as
from tfbuild.probe.fusing import Case, Tensor, in_graph

RUNS = "chain executions"
SETTINGS: Mapping[str, str] = {}
difference, ulps = float64.difference, float64.ulps

Compute = Callable[..., Tensor]
"""Computes a tensor from the tensorflow module and tensors."""


def create_program(compute: Compute, *shapes: Sequence[int], is_static: bool = False) -> Program:
    """Create a program of `compute(tf, *tensors)` and its gradients, for tensors of these shapes.

    Their shapes are not known when TensorFlow prepares the graph, as those of a batch, unless
    `is_static`. Each tensor is the result of an op that is not fused, so that its buffer may be
    overwritten.
    """

    def run(tf: ModuleType, dtype: str) -> list[Tensor]:
        known = [shape if is_static else [None] * len(shape) for shape in shapes]

        @in_graph(tf, input_signature=[tf.TensorSpec(shape, dtype) for shape in known])
        def differentiate(*tensors: Tensor) -> list[Tensor]:
            copies = [tf.sin(tensor) for tensor in tensors]
            with tf.GradientTape() as tape:
                tape.watch(copies)
                result = compute(tf, *copies)
                loss = tf.reduce_sum(tf.sin(result))
            return [result, *tape.gradient(loss, copies, unconnected_gradients="zero")]

        return list(
            differentiate(*(draw_as(tf, dtype, shape, i) for i, shape in enumerate(shapes)))
        )

    return run


def create_layer(
    create: Callable[[Any], Any], shape: Sequence[int], *, calls: Callable[[Any, Tensor], Tensor]
) -> Program:
    """Create a program of `calls(layer, inputs)` and its gradients, where `create(tf.keras.layers)`
    makes the layer. The size of the first axis of `shape` is not known to TensorFlow.
    """

    def run(tf: ModuleType, dtype: str) -> list[Tensor]:
        with float64.use_float_type(tf, dtype):
            layer = create(tf.keras.layers)
            inputs = draw_as(tf, dtype, shape, 1)
            calls(layer, inputs)
        for seed, variable in enumerate(layer.trainable_variables):
            variable.assign(draw_as(tf, dtype, variable.shape, seed + 2))

        @in_graph(tf, input_signature=[tf.TensorSpec([None, *shape[1:]], dtype)])
        def differentiate(inputs: Tensor) -> list[Tensor]:
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                result = calls(layer, inputs)
                loss = tf.reduce_sum(tf.sin(result))
            return [result, *tape.gradient(loss, [inputs, *layer.trainable_variables])]

        return list(differentiate(inputs))

    return run


def _apply_gelu(tf: ModuleType, x: Tensor, bias: Tensor, *, approximate: bool) -> Tensor:
    return tf.nn.gelu(tf.nn.bias_add(x, bias), approximate=approximate)


def _normalize(tf: ModuleType, x: Tensor, scale: Tensor) -> Tensor:
    """Root mean square layer normalization (Zhang and Sennrich 2019, arXiv:1910.07467)."""
    square = tf.reduce_mean(tf.square(x), axis=-1, keepdims=True)
    return x * tf.math.rsqrt(square + 1e-3) * scale


def _attend(tf: ModuleType, scores: Tensor, mask: Tensor) -> Tensor:
    return tf.nn.softmax(scores * 0.3 + (1 - tf.cast(mask > 0, scores.dtype)) * -30)


def _drop(tf: ModuleType, x: Tensor, mask: Tensor, residual: Tensor) -> Tensor:
    """Dropout with a given mask, and a residual connection."""
    return residual + tf.where(mask > 0, x * 1.25, tf.zeros([], x.dtype))


def _use_functions(tf: ModuleType, x: Tensor, y: Tensor) -> Tensor:
    positive = tf.abs(x) + 0.5
    values = [
        tf.math.log(positive) * y,
        tf.sqrt(positive) / tf.exp(y),
        tf.math.rsqrt(positive) - tf.tanh(x),
        tf.sigmoid(y) * tf.math.erf(x),
        tf.sign(y) * tf.math.reciprocal(positive),
        tf.math.squared_difference(x, y) - tf.square(y),
    ]
    return tf.add_n(values)


def _rectify(tf: ModuleType, x: Tensor, y: Tensor) -> Tensor:
    return tf.nn.relu(x - 0.3) * tf.nn.relu6(7 * y) + tf.minimum(x, y) - tf.maximum(x, -y)


def _choose(tf: ModuleType, x: Tensor, y: Tensor) -> Tensor:
    low, high = x < y, y >= 0.2  # noqa: PLR2004
    either = tf.logical_or(tf.logical_and(low, high), tf.logical_not(x <= 0.1))  # noqa: PLR2004
    return tf.where(either, x * y, tf.where(x > y, -x, 3 * y)) + tf.cast(either, x.dtype)


def _broadcast(tf: ModuleType, x: Tensor, *others: Tensor) -> Tensor:
    for other in others:
        x = (x * other + 0.5) * 0.7 - other
    return tf.tanh(x)


def _raise_difference(tf: ModuleType, x: Tensor, column: Tensor) -> Tensor:
    return tf.exp(x - column) * 0.5 + tf.exp(column - x)


def _sum_rows(tf: ModuleType, x: Tensor) -> Tensor:
    total = tf.reduce_sum(x * 0.5, axis=-1, keepdims=True)
    largest = tf.reduce_max(x + 1, axis=-1, keepdims=True)
    return x * total - largest + tf.reduce_mean(x * x, axis=-1, keepdims=True)


def _sum_columns(tf: ModuleType, x: Tensor, y: Tensor) -> Tensor:
    product = x * y + y
    return tf.reduce_sum(product, axis=0) * tf.reduce_mean(product - 0.1, axis=0)


def _sum_all(tf: ModuleType, x: Tensor, y: Tensor) -> Tensor:
    return tf.reduce_sum(x * y + y) + tf.reduce_mean(tf.square(x - y))


def _reshape(tf: ModuleType, x: Tensor, y: Tensor) -> Tensor:
    rows = tf.reshape(x * 2 - 1, [-1, tf.shape(y)[1]])
    return tf.reshape(tf.nn.relu(rows * y + y), tf.shape(x)) * x


def _keep_values(tf: ModuleType, x: Tensor, y: Tensor) -> Tensor:
    """Values that are used again after others were computed from them."""
    first = x * 2 + y
    second = tf.nn.relu(first) - 0.1
    third = tf.linalg.matmul(first, second, transpose_b=True)
    return tf.linalg.matmul(third, x * first + second) + first * y


@functools.cache
def build_programs() -> Mapping[str, Program]:
    """Return the programs by name. Most sizes are no round numbers, so that blocks and vectors end
    early.
    """
    gelu = functools.partial(_apply_gelu, approximate=False)
    tanh_gelu = functools.partial(_apply_gelu, approximate=True)
    return {
        "GELU": create_program(gelu, (7, 33, 130), (130,)),
        "GELU, known shapes": create_program(gelu, (8, 16, 128), (128,), is_static=True),
        "GELU with tanh": create_program(tanh_gelu, (5, 29, 77), (77,)),
        "softmax with padding": create_program(_attend, (6, 3, 30, 53), (6, 1, 1, 53)),
        "softmax with causal mask": create_program(_attend, (6, 3, 64, 64), (1, 1, 64, 64)),
        "softmax, short rows": create_program(_attend, (900, 5), (1, 5)),
        "softmax, long rows": create_program(_attend, (3, 5000), (3, 5000)),
        "root mean square": create_program(_normalize, (7, 33, 130), (130,)),
        "dropout": create_program(_drop, (9, 31, 65), (9, 31, 65), (9, 31, 65)),
        "functions": create_program(_use_functions, (41, 67), (41, 67)),
        "rectifiers": create_program(_rectify, (41, 67), (41, 67)),
        "choices": create_program(_choose, (41, 67), (67,)),
        "rows and columns": create_program(_broadcast, (13, 11, 37), (37,), (13, 11, 1), (11, 37)),
        "axes between": create_program(_broadcast, (5, 7, 11, 33), (5, 1, 11, 1), (7, 1, 33)),
        "grows": create_program(_broadcast, (7, 1, 130), (1, 33, 130), (1,)),
        "powers": create_program(_raise_difference, (50, 100), (50, 1)),
        "sums of rows": create_program(_sum_rows, (60, 7, 49)),
        "sums of columns": create_program(_sum_columns, (700, 37), (700, 37)),
        "sums of wide columns": create_program(_sum_columns, (9, 40, 70), (9, 40, 70)),
        "sums of all": create_program(_sum_all, (300, 41), (300, 41)),
        "reshapes": create_program(_reshape, (6, 10, 35), (60, 35)),
        "values that stay": create_program(_keep_values, (33, 47), (33, 47)),
        "many elements": create_program(gelu, (64, 129, 131), (131,)),
        "layer normalization": create_layer(
            lambda layers: layers.LayerNormalization(epsilon=1e-4),
            (6, 35, 75),
            calls=lambda layer, x: layer(x * 3 + 2) * x,
        ),
        "normalization of matrices": create_layer(
            lambda layers: layers.LayerNormalization(center=False),
            (200, 64),
            calls=lambda layer, x: layer(x + 0.5),
        ),
        "attention": create_layer(
            lambda layers: layers.MultiHeadAttention(3, 16),
            (4, 37, 48),
            calls=lambda layer, x: layer(x, x, use_causal_mask=True) + x,
        ),
        "dense layer": create_layer(
            lambda layers: layers.Dense(70, activation="gelu"),
            (5, 23, 40),
            calls=lambda layer, x: layer(x * 0.5),
        ),
    }


def cases() -> Mapping[str, Case]:
    return {name: create_case(program) for name, program in build_programs().items()}
