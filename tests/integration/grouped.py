"""Runs inside TensorFlow: grouped convolutions, by the library and by XLA (held.py)."""

from __future__ import annotations

import functools
from collections.abc import Mapping
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


def cases() -> Mapping[str, Case]:
    more = (fitted, in_a_loop, refused, one_group, far_apart, compiled, saved)
    return {
        **grouped.cases(),
        **{case.__name__: float64.create_case(case) for case in more},
    }


if __name__ == "__main__":
    held.hold("grouped", cases())
