"""Grouped convolutions and their gradients, by the kernel library and by NumPy in float64."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.native_kernels import (
    INSTRUCTIONS,
    ROUNDING,
    axes,
    compile_kernels,
    drawn,
    floats,
    numbers,
    padded,
)

pytestmark = pytest.mark.toolchain

SOURCE = """
#include "tensorwright/ops/grouped/grouped_gradient.h"
#include "tensorwright/ops/grouped/grouped_outputs.h"
using namespace tensorwright;
using Axis = Convolution::Axis;

static Convolution Of(const std::int64_t* n) {
  return {n[0], n[1], n[2], Axis{n[3], n[4], n[5], n[6], n[7], n[8]},
          Axis{n[9], n[10], n[11], n[12], n[13], n[14]}};
}

extern "C" void sums(const std::int64_t* n, const float* from, const float* filter, float* to) {
  const Convolution of = Of(n);
  const std::int64_t groups = n[15];
  const bool back = n[16] != 0;
  const std::int64_t size = back ? of.rows.out * of.columns.out * of.filters
                                 : of.rows.in * of.columns.in * of.channels;
  const Guarded source(from, of.images * groups * size),
      taps(filter, of.taps() * of.channels * groups * of.filters);
  std::vector<float> weights(GroupedOutputs::WeightsSize(of, groups, back));
  const GroupedOutputs run(of, groups, back, source.data(), taps.data(), weights.data(), to);
  run.PackWeights(0, run.blocks());
  const std::int64_t half = run.boxes() / 2;
  run.Compute(half, run.boxes());
  run.Compute(0, half);
}

extern "C" void gradient(const std::int64_t* n, const float* input, const float* back,
                         float* filter) {
  const Convolution of = Of(n);
  const std::int64_t groups = n[15];
  const Guarded in(input, of.images * of.rows.in * of.columns.in * of.channels * groups),
      out(back, of.images * of.rows.out * of.columns.out * of.filters * groups);
  std::vector<float> room(GroupedGradient::SumsSize(of, groups));
  const GroupedGradient run(of, groups, in.data(), out.data(), room.data(), filter);
  const std::int64_t half = run.parts() / 2;
  run.Compute(half, run.parts());
  run.Compute(0, half);
  run.Finish(0, run.blocks());
}
"""


@pytest.fixture(scope="module", params=INSTRUCTIONS)
def native(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> ctypes.CDLL:
    return compile_kernels(tmp_path_factory.mktemp("grouped"), SOURCE, request.param)


def is_close(actual: Any, exact: Any, most: Any, terms: int) -> bool:
    """Compare with float64. `most` has the sums of the absolute values."""
    return bool((np.abs(actual - exact) <= ROUNDING * (terms + 1) * most).all())


@given(
    st.integers(1, 4),
    st.integers(2, 20),
    st.integers(1, 18),
    st.integers(1, 18),
    axes(),
    axes(),
    st.integers(0, 99),
)
def test_grouped_convolutions_and_gradients_are_those_of_the_definition(
    native: ctypes.CDLL,
    images: int,
    groups: int,
    channels: int,
    filters: int,
    rows: Sequence[int],
    columns: Sequence[int],
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    inputs = drawn(rng, images, rows[0], columns[0], groups * channels)
    taps = drawn(rng, rows[2], columns[2], channels, groups * filters)
    back = drawn(rng, images, rows[1], columns[1], groups * filters)
    outputs, input_gradient, filter_gradient = (
        np.full(array.shape, np.nan, "float32") for array in (back, inputs, taps)
    )
    sizes = (images, channels, filters, *rows, *columns, groups)
    native.sums(numbers((*sizes, 0)), *map(floats, (inputs, taps, outputs)))
    native.sums(numbers((*sizes, 1)), *map(floats, (back, taps, input_gradient)))
    native.gradient(numbers(sizes), *map(floats, (inputs, back, filter_gradient)))

    wide = padded(padded(inputs.astype("float64"), 1, rows), 2, columns)
    wide = wide.reshape(*wide.shape[:3], groups, channels)
    weights = taps.astype("float64").reshape(*taps.shape[:3], groups, filters)
    gradients = back.astype("float64").reshape(*back.shape[:3], groups, filters)
    exact_outputs, most_outputs = np.zeros(gradients.shape), np.zeros(gradients.shape)
    exact_inputs, most_inputs = np.zeros(wide.shape), np.zeros(wide.shape)
    exact_filter, most_filter = np.empty(weights.shape), np.empty(weights.shape)
    for row, column in np.ndindex(rows[2], columns[2]):
        lines = slice(row * rows[4], row * rows[4] + (rows[1] - 1) * rows[3] + 1, rows[3])
        first = column * columns[4]
        places = slice(first, first + (columns[1] - 1) * columns[3] + 1, columns[3])
        part, tap = wide[:, lines, places], weights[row, column]
        exact_outputs += np.einsum("nyxgc,cgf->nyxgf", part, tap)
        most_outputs += np.einsum("nyxgc,cgf->nyxgf", np.abs(part), np.abs(tap))
        exact_inputs[:, lines, places] += np.einsum("nyxgf,cgf->nyxgc", gradients, tap)
        most_inputs[:, lines, places] += np.einsum(
            "nyxgf,cgf->nyxgc", np.abs(gradients), np.abs(tap)
        )
        exact_filter[row, column] = np.einsum("nyxgc,nyxgf->cgf", part, gradients)
        most_filter[row, column] = np.einsum("nyxgc,nyxgf->cgf", np.abs(part), np.abs(gradients))

    inside = (
        slice(None),
        slice(rows[5], rows[5] + rows[0]),
        slice(columns[5], columns[5] + columns[0]),
    )
    count = rows[2] * columns[2]
    positions = images * rows[1] * columns[1]
    for actual, exact, most, terms in (
        (outputs, exact_outputs, most_outputs, count * channels),
        (input_gradient, exact_inputs[inside], most_inputs[inside], count * filters),
        (filter_gradient, exact_filter, most_filter, positions),
    ):
        shape = actual.shape
        assert is_close(actual, exact.reshape(shape), most.reshape(shape), terms)
