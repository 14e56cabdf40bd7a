"""How results are compared under TENSORWRIGHT_VERIFY, and how its value is read."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.compiled_code import headers

pytestmark = pytest.mark.toolchain

SOURCE = """
#include "compute/difference.h"
#include "graph/switches.h"
extern "C" long find(const float* expected, const float* actual, const float* moved,
                     const float* before, long count, double absolute) {
  return tensorwright::FindDifference(expected, actual, moved, before, count, {1e-3, absolute})
      .index;
}
extern "C" long interval(const char* value) { return tensorwright::ReadInterval(value); }
"""
ULP = float(np.finfo(np.float32).eps)
NAN, INFINITY = math.nan, math.inf


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    loaded = headers(tmp_path_factory.mktemp("verification"), SOURCE)
    loaded.find.restype = loaded.interval.restype = ctypes.c_long
    return loaded


def find(
    native: ctypes.CDLL,
    expected: Sequence[float],
    actual: Sequence[float],
    moved: Sequence[float] | None = None,
    absolute: float = 0.0,
    before: Sequence[float] | None = None,
) -> int:
    """The index of the element that differs most, or -1."""
    rows = [
        None if row is None else (ctypes.c_float * len(row))(*row)
        for row in (expected, actual, moved, before)
    ]
    return int(native.find(*rows, ctypes.c_long(len(expected)), ctypes.c_double(absolute)))


@pytest.mark.parametrize(
    ("expected", "actual", "index"),
    [
        ([], [], -1),
        ([1.0, 2.0], [1.0, 2.0], -1),
        ([0.0, 1000.0], [0.9, 1000.0], -1),
        ([0.0, 1000.0], [1.1, 1000.0], 0),
        ([1.0, 1.0, 1.0], [1.1, 1.3, 1.2], 1),
        ([0.0], [1e-30], 0),
        ([0.0], [-0.0], -1),
        ([NAN, 1.0], [NAN, 1.0], -1),
        ([NAN, 1.0], [0.0, 1.0], 0),
        ([1.0, 1.0], [1.0, NAN], 1),
        ([INFINITY, 1.0], [INFINITY, 1.0], -1),
        ([INFINITY, 1.0], [-INFINITY, 1.0], 0),
        ([INFINITY, 1.0], [3e38, 1.0], 0),
        ([INFINITY, 1.0], [INFINITY, 1.1], 1),
        ([1.0, INFINITY], [1.1, NAN], 1),
    ],
)
def test_elements_that_differ(
    native: ctypes.CDLL, expected: list[float], actual: list[float], index: int
) -> None:
    assert find(native, expected, actual) == index


@pytest.mark.parametrize(
    ("moved", "allowed", "index"),
    [
        (None, 0.0, 0),
        ([1.0, 1.0], 0.0, 0),
        ([1.02, 1.0], 0.0, -1),
        ([1.0, 1.02], 0.0, -1),
        ([1.01, 1.0], 0.0, 0),
        ([NAN, 1.0], 0.0, 0),
        (None, 0.11, -1),
        (None, 0.09, 0),
    ],
)
def test_a_difference_that_rounding_explains(
    native: ctypes.CDLL, moved: list[float] | None, allowed: float, index: int
) -> None:
    assert find(native, [1.0, 1.0], [1.1, 1.0], moved, allowed) == index


@pytest.mark.parametrize(
    ("actual", "index"),
    [
        ([2.0 + 1e-3, 5.0], -1),
        ([2.0 + 1e-3 + ULP, 5.0 + 2 * ULP], -1),
        ([2.0 + 1e-3 * 1.01, 5.0], 0),
        ([2.0, 5.0], 0),  # the update was not applied
        ([2.0 - 1e-3, 5.0], 0),
        ([2.0 + 1e-3, NAN], 1),
    ],
)
def test_the_change_of_an_update_is_compared(
    native: ctypes.CDLL, actual: list[float], index: int
) -> None:
    assert find(native, [2.0 + 1e-3, 5.0], actual, before=[2.0, 5.0]) == index


@given(
    values=st.lists(st.floats(-(2.0**99), 2.0**99, width=32), min_size=1, max_size=40),
    data=st.data(),
)
def test_the_farthest_element_is_found(
    native: ctypes.CDLL, values: list[float], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(values) - 1))
    largest = max(map(abs, values))
    rounded = [value * (1 + ULP) for value in values]
    assert find(native, values, rounded) == -1
    wrong = [*rounded]
    wrong[at] += largest * 0.01 + 1e-30
    assert find(native, values, wrong) == at


@pytest.mark.parametrize(
    ("value", "interval"),
    [
        (None, 0),
        (b"", 0),
        (b"0", 0),
        (b"1", 1),
        (b"1000", 1000),
        (b"9" * 15, 10**15 - 1),
        (b"9" * 16, -1),
        (b"-1", -1),
        (b"1.5", -1),
        (b" 1", -1),
        (b"often", -1),
    ],
)
def test_values_of_the_variable(native: ctypes.CDLL, value: bytes | None, interval: int) -> None:
    assert native.interval(value) == interval
