"""Runs inside TensorFlow: grouped and depthwise convolutions, by the library, by XLA and by
TensorFlow's own kernels (held.py)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from tests.integration import held

from tfbuild.native.ops.grouped import cases as grouped
from tfbuild.probe import float64
from tfbuild.probe.float64 import draw_as
from tfbuild.probe.fusing import Case, Tensor, in_graph


def fitted(module: ModuleType, dtype: str) -> list[Tensor]:
    def create_layers(layers: Any) -> list[Any]:
        return [
            layers.Input((9, 9, 3)),
            layers.Conv2D(24, 3, activation="relu"),
            layers.Conv2D(24, 3, groups=6, padding="same"),
            layers.Conv2D(16, 3, groups=2, strides=2, activation="relu"),
            layers.Reshape((9, 16)),
            layers.Conv1D(8, 3, groups=8, use_bias=False),
            layers.Flatten(),
            layers.Dense(1),
        ]

    return held.train(module, dtype, create_layers, (9, 9, 3), batch=32)


def convolve(
    module: ModuleType, images: Tensor, filter_: Tensor, strides: int = 1, dilations: int = 1
) -> Tensor:
    """What Keras calls."""
    function = in_graph(module, jit_compile=True)(
        functools.partial(module.nn.conv2d, padding="SAME")
    )
    return function(images, filter_, strides=strides, dilations=dilations)


def in_a_loop(module: ModuleType, dtype: str) -> list[Tensor]:
    """In the body of a while loop, which is a function of the library."""

    @in_graph(module)
    def run(images: Tensor, filter_: Tensor) -> Tensor:
        state = images
        for _ in module.range(3):
            state = module.tanh(convolve(module, state, filter_))
        return state

    return [run(draw_as(module, dtype, (2, 7, 6, 12), 1), draw_as(module, dtype, (3, 3, 4, 12), 2))]


def refused(module: ModuleType, dtype: str) -> list[Tensor]:
    """Errors are TensorFlow's own."""
    any_shape = module.TensorSpec((None,) * 4, dtype)

    @in_graph(module, input_signature=[any_shape] * 2)
    def run(images: Tensor, filter_: Tensor) -> Tensor:
        return convolve(module, images, filter_)

    images = draw_as(module, dtype, (2, 7, 6, 12), 1)
    results = [run(images, draw_as(module, dtype, (3, 3, 4, 12), 2))]
    for shape in ((3, 3, 5, 12), (3, 3, 4, 13)):
        try:
            run(images, draw_as(module, dtype, shape, 2))
        except (module.errors.InvalidArgumentError, module.errors.UnimplementedError):
            results.append(module.constant(value=True))
    return results


def one_group(module: ModuleType, dtype: str) -> list[Tensor]:
    """One group, or no images: XLA computes these."""
    any_shape = module.TensorSpec((None,) * 4, dtype)

    @in_graph(module, input_signature=[any_shape] * 2)
    def run(images: Tensor, filter_: Tensor) -> Tensor:
        return convolve(module, images, filter_)

    filter_ = draw_as(module, dtype, (3, 3, 4, 12), 2)
    return [
        run(draw_as(module, dtype, shape, 1), filter_) for shape in ((2, 7, 6, 4), (0, 7, 6, 4))
    ]


def far_apart(module: ModuleType, dtype: str) -> list[Tensor]:
    """Taps or windows far apart would take too much memory: XLA computes these."""

    @in_graph(module)
    def run(images: Tensor, filter_: Tensor) -> list[Tensor]:
        outputs = [convolve(module, images, filter_, dilations=30_000)]
        return [*outputs, convolve(module, images, filter_, strides=50_000)]

    return list(
        run(draw_as(module, dtype, (1, 8, 8, 32), 1), draw_as(module, dtype, (3, 3, 1, 32), 2))
    )


def compiled(module: ModuleType, dtype: str) -> list[Tensor]:
    """In a larger function for XLA, and in one that does more than to convolve."""

    @in_graph(module, jit_compile=True)
    def run(images: Tensor, filter_: Tensor) -> Tensor:
        return module.tanh(convolve(module, images, filter_))

    @in_graph(module)
    def outer(images: Tensor, filter_: Tensor) -> Tensor:
        return run(images, filter_)

    drawn = (draw_as(module, dtype, shape, 1) for shape in ((2, 7, 6, 12), (3, 3, 4, 12)))
    return [outer(*drawn)]


def saved(module: ModuleType, dtype: str) -> list[Tensor]:
    own = module.Module()
    own.weight = module.Variable(draw_as(module, dtype, (3, 3, 4, 12), 2))
    signature = [module.TensorSpec((None, 7, 6, 12), dtype)]
    own.run = in_graph(module, input_signature=signature)(
        lambda images: convolve(module, images, own.weight)
    )
    return held.saved(module, own, draw_as(module, dtype, (2, 7, 6, 12), 1))


def separable(module: ModuleType, dtype: str) -> list[Tensor]:
    """Training. For prediction, TensorFlow adds biases and ReLU in the convolution."""

    def create_layers(layers: Any) -> list[Any]:
        return [
            layers.Input((9, 9, 3)),
            layers.DepthwiseConv2D(3, depth_multiplier=4, activation="relu"),
            layers.DepthwiseConv2D(3, depth_multiplier=2, strides=2, padding="same"),
            layers.SeparableConv2D(8, 3, depth_multiplier=2, activation="relu"),
            layers.DepthwiseConv2D(2, activation="relu"),
            layers.Flatten(),
            layers.Dense(1),
        ]

    return held.train(module, dtype, create_layers, (9, 9, 3), batch=32)


def other_filters(module: ModuleType, dtype: str) -> list[Tensor]:
    """One filter or many for each channel, or only one channel: TensorFlow computes these."""
    programs = [
        grouped.create_depthwise((2, 7, 8, 12), 1, (3, 3), "SAME"),
        grouped.create_depthwise((2, 7, 8, 12), 9, (3, 3), "SAME"),
        grouped.create_depthwise((2, 7, 8, 1), 3, (3, 3), "SAME", stride=2),
    ]
    return [result for program in programs for result in program(module, dtype)]


def depthwise_refused(module: ModuleType, dtype: str) -> list[Tensor]:
    """Errors are TensorFlow's own."""
    any_shape = module.TensorSpec((None,) * 4, dtype)
    images, filter_ = (2, 7, 6, 4), (3, 3, 4, 2)

    def name_error(compute: Callable[[Tensor, Tensor], Tensor], *shapes: Sequence[int]) -> str:
        run = in_graph(module, input_signature=[any_shape] * 2)(compute)
        try:
            run(*(module.ones(shape, dtype) for shape in shapes))
        except module.errors.OpError as error:
            return str(error)
        return ""

    def convolve_depthwise(images: Tensor, filter_: Tensor) -> Tensor:
        return module.nn.depthwise_conv2d(images, filter_, [1] * 4, "VALID")

    def differentiate(filter_: Tensor, back: Tensor) -> Tensor:
        return module.nn.depthwise_conv2d_backprop_input(images, filter_, back, [1] * 4, "VALID")

    errors = [
        name_error(convolve_depthwise, images, (3, 3, 5, 2)),
        name_error(convolve_depthwise, images, (8, 3, 4, 2)),
        name_error(differentiate, filter_, (2, 5, 5, 8)),
        name_error(differentiate, filter_, (2, 5, 4, 7)),
    ]
    run = in_graph(module, input_signature=[any_shape] * 2)(convolve_depthwise)
    draws = (draw_as(module, dtype, shape, 1) for shape in (images, filter_))
    return [run(*draws), *(module.constant(bool(error)) for error in errors)]


def depthwise_untouched(module: ModuleType, dtype: str) -> list[Tensor]:
    """With explicit padding, in a function for XLA, and followed by ReLU6."""
    draws = [
        draw_as(module, dtype, shape, seed)
        for seed, shape in enumerate([(2, 7, 6, 4), (3, 3, 4, 2), (8,)])
    ]

    def convolve_depthwise(images: Tensor, filter_: Tensor, bias: Tensor) -> Tensor:
        outputs = module.nn.depthwise_conv2d(images, filter_, [1] * 4, "SAME")
        return module.nn.relu6(module.nn.bias_add(outputs, bias))

    @in_graph(module)
    def pad(images: Tensor, filter_: Tensor, _: Tensor) -> Tensor:
        padding = [[0, 0], [1, 2], [3, 0], [0, 0]]
        return module.nn.depthwise_conv2d(images, filter_, [1] * 4, padding)

    clip, compiled = (in_graph(module, jit_compile=on)(convolve_depthwise) for on in (None, True))
    return [run(*draws) for run in (clip, compiled, pad)]


def cases() -> Mapping[str, Case]:
    more = (
        *(fitted, in_a_loop, refused, one_group, far_apart, compiled, saved),
        *(separable, other_filters, depthwise_refused, depthwise_untouched),
    )
    return {
        **grouped.cases(),
        **{case.__name__: float64.create_case(case) for case in more},
    }


if __name__ == "__main__":
    held.hold("grouped", cases())
