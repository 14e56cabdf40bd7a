"""Programs that are computed in float32, fused and as TensorFlow has them, held against float64.

Products and sums are added up in another order, so that results differ in their last bits. Each
case computes in float32 and, with the same numbers, in float64, which is never fused: what is fused
may lie no farther from that than four times what stock kernels do, or than _FLOOR where those are
exact.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from tfbuild.probe.fusing import Case, State, Tensor, as_arrays, drawn

_FARTHER = 4.0
_FLOOR = 2.0**-21  # of the largest value of a tensor: what two orders of summing differ by
_ULP = 2.0**-23

Program = Callable[[ModuleType, str], list[Tensor]]
"""What a program of this module and type of float computes."""


def drawn_as(tf: ModuleType, dtype: str, shape: Sequence[int], seed: int) -> Tensor:
    """The same numbers for every type."""
    return tf.cast(drawn(tf, tuple(shape), seed), dtype)


@contextlib.contextmanager
def floats(tf: ModuleType, dtype: str) -> Iterator[None]:
    """Layers that are made inside compute in this type."""

    def use(name: str) -> None:
        tf.keras.backend.set_floatx(name)
        tf.keras.mixed_precision.set_global_policy(name)

    use(dtype)
    try:
        yield
    finally:
        use("float32")


@functools.cache
def _exact(program: Program, tf: ModuleType) -> State:
    return as_arrays(program(tf, "float64"))


def in_both_types(program: Program) -> Case:
    """What it computes in float32, then the same of float64."""
    return lambda tf: [*as_arrays(program(tf, "float32")), *_exact(program, tf)]


def difference(stock: State | str, fused: State | str) -> str:
    """What lies too far away, in words; empty where nothing does."""
    if isinstance(stock, str) or isinstance(fused, str):
        return " or ".join(
            each[:200] if isinstance(each, str) else "values" for each in (stock, fused)
        )
    for number, (exact, one, other) in enumerate(_compared(stock, fused)):
        if one.shape != other.shape:
            return f"value {number}: {one.shape} or {other.shape}"
        if np.isnan(one).any() or np.isnan(other).any():
            return f"value {number} is no number"
        largest = float(np.max(np.abs(exact), initial=1e-30))
        far, near = (float(np.max(np.abs(each - exact), initial=0)) for each in (other, one))
        if far > max(_FARTHER * near, _FLOOR * largest):
            return (
                f"value {number} of {one.shape}: {far:.3g} from float64, stock kernels {near:.3g}"
            )
    return ""


def ulps(stock: State | str, fused: State | str) -> float:
    """The largest distance from stock, in units in the last place of a tensor's largest value."""
    if isinstance(stock, str) or isinstance(fused, str):
        return float("inf")
    return max(
        float(np.max(np.abs(other - one), initial=0) / np.max(np.abs(exact), initial=1e-30)) / _ULP
        for exact, one, other in _compared(stock, fused)
    )


def _compared(stock: State, fused: State) -> list[tuple[Any, Any, Any]]:
    """In float64 and, as float64, by stock kernels and fused: value by value."""
    half = len(stock) // 2
    rows = zip(stock[half:], stock[:half], fused[:half], strict=True)
    wide = functools.partial(np.asarray, dtype="float64")
    return [(wide(exact), wide(one), wide(other)) for exact, one, other in rows]
