"""Test programs of fused/grouped: grouped convolutions compiled by XLA, and depthwise convolutions,
with their gradients.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from tfbuild.probe import float64
from tfbuild.probe.float64 import Program, create_case, draw_as
from tfbuild.probe.fusing import Case, Tensor, in_graph

RUNS = "grouped executions"
SETTINGS: Mapping[str, str] = {}
difference, ulps = float64.difference, float64.ulps


def create_convolution(
    inputs: Sequence[int],
    filters: int,
    taps: Sequence[int],
    groups: int,
    padding: str,
    *,
    steps: Sequence[int] = (1, 1),
    dilations: Sequence[int] = (1, 1),
) -> Program:
    """Create a program of a grouped convolution and both gradients, as Keras computes it. `inputs`
    are images, rows, columns and channels of all groups, `taps` rows and columns, `steps` strides.
    """

    def run(tf: ModuleType, dtype: str) -> list[Tensor]:
        draw = functools.partial(draw_as, tf, dtype)

        @in_graph(tf, jit_compile=True)
        def convolve(images: Tensor, filter_: Tensor) -> Tensor:
            return tf.nn.conv2d(images, filter_, steps, padding, dilations=dilations)

        @in_graph(tf)
        def compute(images: Tensor, filter_: Tensor) -> list[Tensor]:
            with tf.GradientTape() as tape:
                tape.watch([images, filter_])
                output = convolve(images, filter_)
                loss = tf.reduce_sum(tf.sin(output))
            return [output, *tape.gradient(loss, [images, filter_])]

        channels = inputs[-1] // groups
        return list(compute(draw(inputs, 1), draw((*taps, channels, filters), 2)))

    return run


def create_depthwise(
    inputs: Sequence[int], multiplier: int, taps: Sequence[int], padding: str, *, stride: int = 1
) -> Program:
    """Create a program of a depthwise convolution and both gradients. `inputs` are images, rows,
    columns and channels, `multiplier` the filters of each channel.
    """

    def run(tf: ModuleType, dtype: str) -> list[Tensor]:
        draw = functools.partial(draw_as, tf, dtype)

        @in_graph(tf)
        def compute(images: Tensor, filter_: Tensor) -> list[Tensor]:
            with tf.GradientTape() as tape:
                tape.watch([images, filter_])
                output = tf.nn.depthwise_conv2d(images, filter_, (1, stride, stride, 1), padding)
                loss = tf.reduce_sum(tf.sin(output))
            return [output, *tape.gradient(loss, [images, filter_])]

        return list(compute(draw(inputs, 1), draw((*taps, inputs[-1], multiplier), 2)))

    return run


def create_layer(inputs: Sequence[int], kind: str, *options: int, **more: Any) -> Program:
    """Create a program of a layer of Keras and its gradients. `kind` is the layer's class, followed
    by its arguments.
    """

    def run(tf: ModuleType, dtype: str) -> list[Tensor]:
        layer = getattr(tf.keras.layers, kind)(*options, **more, dtype=dtype)
        images = draw_as(tf, dtype, inputs, 1)
        layer.build(images.shape)
        for seed, variable in enumerate(layer.trainable_variables):
            variable.assign(draw_as(tf, dtype, variable.shape, seed + 2))

        @in_graph(tf)
        def compute(images: Tensor) -> list[Tensor]:
            with tf.GradientTape() as tape:
                tape.watch(images)
                output = layer(images)
                loss = tf.reduce_sum(tf.sin(output))
            return [output, *tape.gradient(loss, [images, *layer.trainable_variables])]

        return list(compute(images))

    return run


@functools.cache
def build_programs() -> Mapping[str, Program]:
    """Return the programs by name. Sizes are no round numbers, so that tiles and vectors end
    early.
    """
    return {
        "narrow": create_convolution((3, 9, 7, 44), 44, (3, 3), 11, "SAME"),
        "single": create_convolution((2, 8, 9, 37), 37, (3, 3), 37, "VALID"),
        "eight": create_convolution((2, 13, 15, 72), 72, (3, 3), 9, "SAME"),
        "sixteen": create_convolution((2, 9, 26, 48), 48, (3, 3), 3, "VALID"),
        "wide": create_convolution((2, 7, 6, 42), 118, (3, 2), 2, "SAME"),
        "deep": create_convolution((1, 5, 4, 400), 66, (3, 3), 2, "SAME"),
        "odd": create_convolution((2, 6, 11, 35), 21, (2, 4), 7, "SAME"),
        "strided": create_convolution((2, 11, 10, 24), 40, (3, 5), 4, "SAME", steps=(2, 2)),
        "strided, valid": create_convolution((2, 14, 9, 12), 36, (3, 3), 3, "VALID", steps=(3, 3)),
        "one tap": create_convolution((3, 9, 8, 36), 60, (1, 1), 12, "SAME", steps=(2, 2)),
        "dilated": create_convolution((2, 12, 9, 20), 30, (3, 3), 5, "SAME", dilations=(2, 3)),
        "one row": create_convolution((3, 1, 301, 24), 40, (1, 7), 8, "SAME"),
        "many rows": create_convolution((1, 150, 130, 32), 32, (3, 3), 8, "SAME"),
        "many images": create_convolution((70, 3, 3, 18), 48, (3, 3), 6, "SAME"),
        "layer": create_layer(
            (4, 9, 8, 24), "Conv2D", 36, 3, groups=6, padding="same", activation="relu"
        ),
        "layer of lines": create_layer((4, 45, 24), "Conv1D", 36, 5, groups=4, activation="tanh"),
        "causal layer": create_layer((4, 45, 24), "Conv1D", 36, 5, groups=4, padding="causal"),
        "depthwise": create_depthwise((2, 9, 11, 21), 2, (3, 3), "SAME"),
        "depthwise, strided": create_depthwise((2, 14, 13, 10), 2, (5, 3), "VALID", stride=2),
        "depthwise, wide": create_depthwise((3, 7, 8, 5), 7, (3, 2), "SAME", stride=2),
        "depthwise, one column": create_depthwise((3, 22, 41, 8), 2, (7, 1), "VALID"),
        "depthwise layer": create_layer(
            (4, 9, 8, 13),
            "DepthwiseConv2D",
            3,
            depth_multiplier=2,
            padding="same",
            activation="relu",
        ),
        "separable layer": create_layer(
            (4, 13, 12, 7), "SeparableConv2D", 20, 5, strides=2, depth_multiplier=4, padding="same"
        ),
    }


def cases() -> Mapping[str, Case]:
    return {name: create_case(program) for name, program in build_programs().items()}
