"""Compares programs in float32, with fused ops and with stock kernels, with float64.

Fused ops sum in another order, so results differ in their last bits. Each case computes in float32
and, with the same numbers, in float64, which is never fused. The error of fused ops may be at most
four times the error of stock kernels, or _FLOOR where stock kernels are exact.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from tfbuild.probe.fusing import Case, State, Tensor, convert_to_arrays, draw_values

_FARTHER = 4.0
_FLOOR = 2.0**-21  # relative to a tensor's largest value: the difference of two summation orders
_ULP = 2.0**-23

Program = Callable[[ModuleType, str], list[Tensor]]
"""A program: takes the tensorflow module and the name of a float type, and returns its results."""


def draw_as(tf: ModuleType, dtype: str, shape: Sequence[int], seed: int) -> Tensor:
    """Draw the same numbers for every type."""
    return tf.cast(draw_values(tf, tuple(shape), seed), dtype)


@contextlib.contextmanager
def use_float_type(tf: ModuleType, dtype: str) -> Iterator[None]:
    """Make layers that are created inside compute in this type."""

    def set_type(name: str) -> None:
        tf.keras.backend.set_floatx(name)
        tf.keras.mixed_precision.set_global_policy(name)

    set_type(dtype)
    try:
        yield
    finally:
        set_type("float32")


@functools.cache
def _compute_exact(program: Program, tf: ModuleType) -> State:
    return convert_to_arrays(program(tf, "float64"))


def create_case(program: Program) -> Case:
    """Return a case with the program's results in float32, followed by those in float64."""
    return lambda tf: [*convert_to_arrays(program(tf, "float32")), *_compute_exact(program, tf)]


def difference(stock: State | str, fused: State | str) -> str:
    """Describe the first value that is too far from float64, or return an empty string if there
    is none.
    """
    if isinstance(stock, str) or isinstance(fused, str):
        return " or ".join(
            item[:200] if isinstance(item, str) else "values" for item in (stock, fused)
        )
    for number, (exact, expected, actual) in enumerate(_align_values(stock, fused)):
        if expected.shape != actual.shape:
            return f"value {number}: shape {actual.shape} instead of {expected.shape}"
        if np.isnan(expected).any() or np.isnan(actual).any():
            return f"value {number} is NaN"
        largest = float(np.max(np.abs(exact), initial=1e-30))
        fused_error, stock_error = (
            float(np.max(np.abs(item - exact), initial=0)) for item in (actual, expected)
        )
        if fused_error > max(_FARTHER * stock_error, _FLOOR * largest):
            return (
                f"value {number} of shape {expected.shape}: {fused_error:.3g} from float64, "
                f"stock kernels {stock_error:.3g}"
            )
    return ""


def ulps(stock: State | str, fused: State | str) -> float:
    """Return the largest distance from stock, in units in the last place of a tensor's largest
    value.
    """
    if isinstance(stock, str) or isinstance(fused, str):
        return float("inf")
    return max(
        float(np.max(np.abs(actual - expected), initial=0) / np.max(np.abs(exact), initial=1e-30))
        / _ULP
        for exact, expected, actual in _align_values(stock, fused)
    )


def _align_values(stock: State, fused: State) -> list[tuple[Any, Any, Any]]:
    """Return each value in float64 and, cast to float64, as computed by stock kernels and by
    fused ops.
    """
    half = len(stock) // 2
    rows = zip(stock[half:], stock[:half], fused[:half], strict=True)
    as_float64 = functools.partial(np.asarray, dtype="float64")
    return [
        (as_float64(exact), as_float64(expected), as_float64(actual))
        for exact, expected, actual in rows
    ]
