"""Products, convolutions and their gradients, by the kernel library and by NumPy in float64."""

from __future__ import annotations

import ctypes
import math
import re
import string
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import assume, given
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
#include "tensorwright/ops/products/contraction_run.h"
#include "tensorwright/ops/products/filter_gradient.h"
#include "tensorwright/ops/products/winograd_gradient.h"
#include "tensorwright/ops/products/winograd_outputs.h"
using namespace tensorwright;
using Axis = Convolution::Axis;

extern "C" void gradient(const std::int64_t* n, const float* input, const float* back,
                         float* filter, float* bias) {
  const Convolution of = {n[0], n[1], n[2], Axis{n[3], n[4], n[5], n[6], n[7], n[8]},
                          Axis{n[9], n[10], n[11], n[12], n[13], n[14]}};
  const Guarded in(input, of.images * of.rows.in * of.columns.in * of.channels),
      out(back, of.images * of.rows.out * of.columns.out * of.filters);
  const FilterGradient run(of, in.data(), out.data(), filter, bias);
  for (const Part& part : SplitIntoParts(of, n[15])) run.Compute(part);
}
extern "C" int lanes() { return kLanes; }
template <class Scheme>
static Convolution Filtered(const std::int64_t* n) {
  return {n[0], n[1], n[2], Axis{n[3], n[4], Scheme::Down::kTaps, 1, 1, n[5]},
          Axis{n[6], n[7], Scheme::Across::kTaps, 1, 1, n[8]}};
}
template <class Scheme>
static void Outputs(const std::int64_t* n, const float* input, const float* filter,
                    const float* bias, float* output) {
  const Convolution of = Filtered<Scheme>(n);
  std::vector<Lanes> room(WinogradOutputs<Scheme>::TransformedSize(of) / kLanes);
  const Guarded in(input, of.images * of.rows.in * of.columns.in * of.channels),
      taps(filter, of.taps() * of.channels * of.filters);
  const WinogradOutputs<Scheme> run(of, in.data(), taps.data(), n[9] != 0, {bias, n[10] != 0},
                                    reinterpret_cast<float*>(room.data()), output);
  const std::int64_t lines = run.lines(), blocks = run.blocks();
  run.TransformFilters(0, lines / 3);
  run.TransformFilters(lines / 3, lines);
  run.Compute(blocks / 2, blocks);
  run.Compute(0, blocks / 2);
}
template <class Scheme>
static void Gradient(const std::int64_t* n, const float* input, const float* back, float* filter,
                     float* bias) {
  const Convolution of = Filtered<Scheme>(n);
  std::vector<Lanes> room(WinogradGradient<Scheme>::SumsSize(of) / kLanes);
  const Guarded in(input, of.images * of.rows.in * of.columns.in * of.channels),
      out(back, of.images * of.rows.out * of.columns.out * of.filters);
  const WinogradGradient<Scheme> run(of, n[9], in.data(), out.data(),
                                     reinterpret_cast<float*>(room.data()), filter, bias);
  const std::int64_t parts = run.parts() * n[9] / 8, lines = run.lines() / 3;
  run.Compute(parts, run.parts());
  run.Compute(0, parts);
  run.Finish(0, lines);
  run.Finish(lines, run.lines());
}
#define SCHEME(name, ...)                                                                       \
  extern "C" void name##_outputs(const std::int64_t* n, const float* input,                     \
                                 const float* filter, const float* bias, float* output) {       \
    Outputs<__VA_ARGS__>(n, input, filter, bias, output);                                       \
  }                                                                                             \
  extern "C" void name##_gradient(const std::int64_t* n, const float* input, const float* back, \
                                  float* filter, float* bias) {                                 \
    Gradient<__VA_ARGS__>(n, input, back, filter, bias);                                        \
  }
SCHEME(squares, SquareTiles)
SCHEME(lines_3, LineTiles<3>)
SCHEME(lines_5, LineTiles<5>)
// Computes an einsum. `sizes` has those of the left, then of the right operand. Returns 0 if it is
// no batch of matrix products.
extern "C" int einsum(const char* equation, const std::int64_t* sizes, std::int64_t threads,
                      const float* a, const float* b, const float* bias, bool relu, float* out) {
  EinsumLabels labels;
  if (!labels.Parse(equation)) return 0;
  const char *comma = std::strchr(equation, ','), *arrow = std::strchr(equation, '-');
  const Sizes first(sizes, sizes + (comma - equation)),
      second(sizes + (comma - equation), sizes + (arrow - equation - 1));
  std::vector<ContractionAxis> axes;
  Sizes result;
  Contraction of;
  if (!labels.GetAxes(first, second, &axes, &result) || !MakeContraction(axes, &of) ||
      (bias != nullptr && (of.is_swapped || of.count() > 1))) {
    return 0;
  }
  const auto count = [](const Sizes& all) {
    std::size_t product = 1;
    for (const std::int64_t size : all) product *= size;
    return product;
  };
  const Guarded left(a, count(first)), right(b, count(second));
  const ContractionRun run(of, threads, of.is_swapped ? right.data() : left.data(),
                           of.is_swapped ? left.data() : right.data(), {bias, relu}, out);
  const std::int64_t half = run.parts() / 2;
  run.Compute(half, run.parts());
  run.Compute(0, half);
  return 1;
}
"""
FILTERED = 4 * ROUNDING
"""Of minimal filtering: of the largest sum, as what cancels in a tile is of its neighbours."""
ATTENTION = (
    *("abc,cde->abde", "abde,cde->abc", "abde,abc->cde", "abcd,cde->abe", "abe,cde->abcd"),
    *("abe,abcd->cde", "aecd,abcd->acbe", "acbe,aecd->abcd", "abcd,aecd->acbe"),
    *("abcd,acbe->aecd", "acbe,abcd->aecd"),
)
"""The einsums of Keras's MultiHeadAttention and of their gradients."""
SCHEMES = {"squares": (3, 3), "lines_3": (1, 3), "lines_5": (1, 5)}
"""Of minimal filtering (winograd.h): the taps along rows and columns."""


@pytest.fixture(scope="module", params=INSTRUCTIONS)
def native(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> ctypes.CDLL:
    return compile_kernels(tmp_path_factory.mktemp("products"), SOURCE, request.param)


@given(
    st.integers(1, 40), st.integers(1, 30), st.integers(1, 40), axes(), axes(), st.integers(1, 5)
)
def test_gradients_of_filters_are_those_of_the_definition(
    native: ctypes.CDLL,
    images: int,
    channels: int,
    filters: int,
    rows: tuple[int, ...],
    columns: tuple[int, ...],
    threads: int,
) -> None:
    rng = np.random.default_rng(images)
    inputs = drawn(rng, images, rows[0], columns[0], channels)
    back = drawn(rng, images, rows[1], columns[1], filters)
    arrays = [
        np.full((rows[2], columns[2], channels, filters), np.nan, "float32") for _ in range(2)
    ]
    sums = [np.full(filters, np.nan, "float32") for _ in range(2)]
    for result, bias, shared in zip(arrays, sums, (1, threads), strict=True):
        sizes = (images, channels, filters, *rows, *columns, shared)
        native.gradient(numbers(sizes), *(floats(array) for array in (inputs, back, result, bias)))
    wide = padded(padded(inputs.astype("float64"), 1, rows), 2, columns)
    exact, most = np.empty(arrays[0].shape), np.empty(arrays[0].shape)
    for row, column in np.ndindex(rows[2], columns[2]):
        top, left = row * rows[4], column * columns[4]
        part = wide[:, top :: rows[3], left :: columns[3]][:, : rows[1], : columns[1]]
        exact[row, column] = np.einsum("nyxc,nyxf->cf", part, back)
        most[row, column] = np.einsum("nyxc,nyxf->cf", np.abs(part), np.abs(back))
    rounded = ROUNDING * images * rows[1] * columns[1]
    assert (np.abs(arrays[0] - exact) <= rounded * most).all()
    flat = back.astype("float64").reshape(-1, filters)
    assert (np.abs(sums[0] - flat.sum(0)) <= rounded * np.abs(flat).sum(0)).all()
    for first, second in (arrays, sums):
        assert first.tobytes() == second.tobytes(), "threads change no bit"


def contract(
    native: ctypes.CDLL, equation: str, operands: Sequence[Any], threads: int, bias: Any = None
) -> Any:
    """Compute an einsum, with ReLU if there is a bias; None if the library does not support it."""
    left, right, result = re.split(",|->", equation)
    sizes = dict(zip(left + right, (*operands[0].shape, *operands[1].shape), strict=True))
    array = np.full([sizes[label] for label in result], np.nan, "float32")
    shapes = numbers([sizes[label] for label in left + right])
    given_bias = None if bias is None else floats(bias)
    tensors = (*(floats(operand) for operand in operands), given_bias, bias is not None)
    done = native.einsum(
        equation.encode(), shapes, ctypes.c_int64(threads), *tensors, floats(array)
    )
    return array if done else None


def is_near(actual: Any, equation: str, operands: Sequence[Any], terms: int) -> bool:
    exact = np.einsum(equation, *(operand.astype("float64") for operand in operands))
    most = np.einsum(equation, *(np.abs(operand).astype("float64") for operand in operands))
    return bool((np.abs(actual - exact) <= ROUNDING * (terms + 1) * most).all())


@given(st.integers(1, 40), st.integers(1, 600), st.integers(2, 1100), st.integers(1, 5))
def test_products_are_those_of_the_definition(
    native: ctypes.CDLL, rows: int, depth: int, columns: int, threads: int
) -> None:
    rng = np.random.default_rng(depth)
    left, right, bias = drawn(rng, rows, depth), drawn(rng, depth, columns), drawn(rng, columns)
    array = contract(native, "ab,bc->ac", (left, right), threads, bias)
    ones = np.concatenate([left, np.ones((rows, 1), "float32")], 1)
    both = np.concatenate([right, bias[None]])
    exact = np.maximum(ones.astype("float64") @ both, 0)
    most = np.abs(ones).astype("float64") @ np.abs(both)
    assert (np.abs(array - exact) <= ROUNDING * (depth + 1) * most).all()


@st.composite
def einsums(draw: st.DrawFn) -> tuple[str, dict[str, int]]:
    """Draw an equation with one summed axis at least, its labels in any order, and their sizes."""
    kinds = [draw(st.lists(st.sampled_from("abcdefgh"), max_size=3, unique=True)) for _ in range(4)]
    batch, rows, columns, depth = (
        [label + kind for label in labels] for kind, labels in zip("0123", kinds, strict=True)
    )
    depth = depth or ["a3"]
    letters = dict(zip([*batch, *rows, *columns, *depth], string.ascii_letters, strict=False))
    parts = (
        "".join(letters[label] for label in draw(st.permutations(labels)))
        for labels in (batch + rows + depth, batch + columns + depth, batch + rows + columns)
    )
    left, right, result = parts
    most = draw(st.sampled_from((3, 3, 9)))
    sizes = {label: draw(st.integers(1, most)) for label in letters.values()}
    return f"{left},{right}->{result}", sizes


@given(einsums(), st.integers(1, 5), st.integers(0, 10**6))
def test_einsums_are_those_of_the_definition(
    native: ctypes.CDLL, drawn_einsum: tuple[str, dict[str, int]], threads: int, seed: int
) -> None:
    equation, sizes = drawn_einsum
    left, right, result = re.split(",|->", equation)
    terms = math.prod(sizes[label] for label in {*left} & {*right} - {*result})
    assume(math.prod(sizes.values()) < 1e6)
    rng = np.random.default_rng(seed)
    operands = [drawn(rng, *(sizes[label] for label in labels)) for labels in (left, right)]
    array = contract(native, equation, operands, 1)
    assume(array is not None)
    assert is_near(array, equation, operands, terms)
    assert contract(native, equation, operands, threads).tobytes() == array.tobytes()


@pytest.mark.parametrize("equation", ATTENTION)
def test_the_einsums_of_attention_are_supported(native: ctypes.CDLL, equation: str) -> None:
    sizes = {"a": 3, "b": 19, "c": 5, "d": 23, "e": 37}
    rng = np.random.default_rng(1)
    left, right, _ = re.split(",|->", equation)
    operands = [drawn(rng, *(sizes[label] for label in labels)) for labels in (left, right)]
    assert is_near(contract(native, equation, operands, 2), equation, operands, 500)


@pytest.mark.parametrize(
    "equation",
    ["ab,bc->ca", "ab,b->a", "b,bc->c", "ab,cb->ac", "ba,bc->ac", "zab,zbc->zac", "ab,cz->abcz"],
)
def test_every_layout_of_a_product_is_supported(native: ctypes.CDLL, equation: str) -> None:
    sizes = {"a": 50, "b": 70, "c": 90, "z": 3}
    rng = np.random.default_rng(2)
    left, right, _ = re.split(",|->", equation)
    operands = [drawn(rng, *(sizes[label] for label in labels)) for labels in (left, right)]
    assert is_near(contract(native, equation, operands, 3), equation, operands, 70)


@pytest.mark.parametrize(
    "equation",
    [
        *("ab,bc->", "abc,bd->ad", "...a,ab->...b", "aab,bc->ac", "ab->ba"),
        *("abz,bcz->acz", "abcd,bd->ac", "ab,bc->aac"),
    ],
)
def test_other_einsums_are_left(native: ctypes.CDLL, equation: str) -> None:
    count = equation.partition("->")[0].replace(",", "")
    sizes, room = numbers([2] * len(count)), floats(np.zeros(64, "float32"))
    arguments = (sizes, ctypes.c_int64(1), room, room, None, False, room)
    assert not native.einsum(equation.encode(), *arguments)


Side: TypeAlias = tuple[int, int, int]
Convolved: TypeAlias = tuple[str, Side, Side]


@st.composite
def sides(draw: st.DrawFn, taps: int) -> Side:
    """Positions in and out along one axis of a filter, and padding before."""
    before, after = draw(st.integers(0, taps - 1)), draw(st.integers(0, taps - 1))
    size = draw(st.integers(max(taps - before - after, 1), 13))
    return size, size + before + after - taps + 1, before


@st.composite
def convolved(draw: st.DrawFn) -> Convolved:
    scheme = draw(st.sampled_from([*SCHEMES]))
    rows, columns = (draw(sides(taps)) for taps in SCHEMES[scheme])
    return scheme, rows, columns


def shifted(images: Any, convolution: Convolved) -> list[Any]:
    """By tap of the filter what each output gets, in float64."""
    scheme, rows, columns = convolution
    wide = np.pad(images.astype("float64"), [(0, 0), (4, 4), (4, 4), (0, 0)])
    top, left = 4 - rows[2], 4 - columns[2]
    return [
        wide[:, top + row :, left + column :][:, : rows[1], : columns[1]]
        for row, column in np.ndindex(SCHEMES[scheme])
    ]


@given(
    st.integers(1, 5),
    st.integers(1, 5),
    st.integers(1, 5),
    convolved(),
    st.booleans(),
    st.booleans(),
)
def test_minimal_filtering_is_a_convolution(
    native: ctypes.CDLL,
    images: int,
    channels: int,
    filters: int,
    convolution: Convolved,
    turned: bool,
    relu: bool,
) -> None:
    """Turned around, its filter gives the gradient of inputs."""
    channels, filters = channels * native.lanes(), filters * native.lanes()
    scheme, rows, columns = convolution
    rng = np.random.default_rng(images)
    inputs, bias = drawn(rng, images, rows[0], columns[0], channels), drawn(rng, filters)
    taps = drawn(rng, math.prod(SCHEMES[scheme]), channels, filters)
    given_taps = np.ascontiguousarray(taps[::-1].transpose(0, 2, 1)) if turned else taps
    array = np.full((images, rows[1], columns[1], filters), np.nan, "float32")
    sizes = (images, channels, filters, *rows, *columns, turned, relu)
    run = getattr(native, f"{scheme}_outputs")
    run(numbers(sizes), *(floats(tensor) for tensor in (inputs, given_taps, bias, array)))
    exact, most = bias.astype("float64"), np.abs(bias).astype("float64")
    for part, tap in zip(shifted(inputs, convolution), taps, strict=True):
        exact = exact + part @ tap
        most = most + np.abs(part) @ np.abs(tap)
    if relu:
        exact = np.maximum(exact, 0)
    assert (np.abs(array - exact) <= FILTERED * channels * most.max()).all()


@given(convolved(), st.sampled_from([1e9, 3e38, np.inf, np.nan]), st.integers(0, 10**6))
def test_an_output_depends_on_nothing_that_its_taps_do_not_reach(
    native: ctypes.CDLL, convolution: Convolved, value: float, at: int
) -> None:
    """Inputs that cancel in a tile would leave their rounding errors, or no numbers."""
    count = native.lanes()
    scheme, rows, columns = convolution
    rng = np.random.default_rng(at)
    inputs, bias = drawn(rng, 1, rows[0], columns[0], count), drawn(rng, count)
    taps = drawn(rng, math.prod(SCHEMES[scheme]), count, count)
    second, reached = inputs.copy(), np.zeros_like(inputs)
    row, column = divmod(at % (rows[0] * columns[0]), columns[0])
    second[0, row, column], reached[0, row, column] = value, 1
    sizes, outputs = numbers((1, count, count, *rows, *columns, 0, 0)), []
    for images in (inputs, second):
        outputs.append(np.full((1, rows[1], columns[1], count), np.nan, "float32"))
        run = getattr(native, f"{scheme}_outputs")
        run(sizes, *(floats(array) for array in (images, taps, bias, outputs[-1])))
    foreign = sum(part[..., 0] for part in shifted(reached, convolution)) == 0
    assert outputs[0][foreign].tobytes() == outputs[1][foreign].tobytes()


@given(st.integers(1, 9), st.integers(1, 5), st.integers(1, 5), convolved(), st.integers(0, 8))
def test_minimal_filtering_gives_gradients_of_filters(
    native: ctypes.CDLL,
    images: int,
    channels: int,
    filters: int,
    convolution: Convolved,
    threads: int,
) -> None:
    channels, filters = channels * native.lanes(), filters * native.lanes()
    scheme, rows, columns = convolution
    rng = np.random.default_rng(images)
    inputs = drawn(rng, images, rows[0], columns[0], channels)
    back = drawn(rng, images, rows[1], columns[1], filters)
    shape = (math.prod(SCHEMES[scheme]), channels, filters)
    arrays = [np.full(shape, np.nan, "float32") for _ in range(2)]
    sums = [np.full(filters, np.nan, "float32") for _ in range(2)]
    run = getattr(native, f"{scheme}_gradient")
    for result, bias, number in zip(arrays, sums, (0, threads), strict=True):
        sizes = numbers((images, channels, filters, *rows, *columns, number))
        run(sizes, *(floats(array) for array in (inputs, back, result, bias)))
    flat = back.astype("float64").reshape(-1, filters)
    wide = [part.reshape(-1, channels) for part in shifted(inputs, convolution)]
    most = max((np.abs(part).T @ np.abs(flat)).max() for part in wide)
    for part, tap in zip(wide, arrays[0], strict=True):
        assert (np.abs(tap - part.T @ flat) <= FILTERED * (len(flat) + 4) * most).all()
    assert (np.abs(sums[0] - flat.sum(0)) <= FILTERED * len(flat) * np.abs(flat).sum(0)).all()
    for first, second in (arrays, sums):
        assert first.tobytes() == second.tobytes(), "threads change no bit"
