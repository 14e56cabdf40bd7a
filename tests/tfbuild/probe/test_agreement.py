from __future__ import annotations

import dataclasses
import math
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import ArrayLike, DTypeLike

from tfbuild.probe.agreement import get_allowed_distance, iter_type_assignments, measure_distance
from tfbuild.probe.cases import (
    KINDS,
    Argument,
    Array,
    create_broadcasts,
    create_feeds,
    create_offset_arrays,
    draw_numbers,
    draw_special,
    get_precision,
)
from tfbuild.probe.registry import Kernel, find_registration_fault
from tfbuild.probe.tolerances import ELEMENTWISE, EXACT, MOVES, TERMS, ULPS, is_scaled_by_result

FLOAT, DOUBLE, INT32, COMPLEX64, BOOL, HALF = 1, 2, 3, 8, 10, 19  # numbers of types.proto
DTYPES = {
    FLOAT: np.float32,
    DOUBLE: np.float64,
    INT32: np.int32,
    COMPLEX64: np.complex64,
    BOOL: np.bool_,
    HALF: np.float16,
}
INF, NAN = math.inf, math.nan
TINY = float(np.finfo(np.float32).smallest_normal)
HUGE = float(np.finfo(np.float64).max)


def apart(
    first: ArrayLike, second: ArrayLike, *, op: str = "Tanh", dtype: DTypeLike = np.float32
) -> float:
    return measure_distance(op, (np.asarray(first, dtype),), (np.asarray(second, dtype),))


@example(np.array([9e307, 9e307, 9e307, 0.0]), "Softmax")  # a median of two would overflow
@given(
    st.sampled_from([np.float16, np.float32, np.float64, np.complex64, np.int32, np.bool_]).flatmap(
        lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=0, min_side=0))
    ),
    st.sampled_from(["Tanh", "Softmax"]),
)
def test_everything_agrees_with_itself(array: Array, op: str) -> None:
    assert measure_distance(op, (array,), (array.copy(),)) == 0.0


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@given(st.floats(0.125, 1000), st.integers(1, 8))
def test_steps_of_the_last_place_are_counted(dtype: type, start: float, steps: int) -> None:
    first: Array = np.asarray(start, dtype)
    second = first
    for _ in range(steps):
        second = np.nextafter(second, np.asarray(INF, dtype))
    actual = apart(first, second, dtype=dtype)
    assert steps / 2 <= actual <= steps  # (a unit is relative: half as much below a power of two)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([NAN, 1], [NAN, 1], 0),
        ([INF, -INF], [INF, -INF], 0),
        ([NAN], [1], INF),
        ([1], [NAN], INF),
        ([INF], [-INF], INF),
        ([INF], [NAN], INF),
        ([INF], [3e38], INF),
        ([0.0], [-0.0], 0),
        ([TINY / 3], [0.0], 0),  # one flushed to zero, the other not
        ([TINY / 3], [-TINY / 3], 0),
        ([TINY * 64], [0.0], 1 / 2**-23),
        ([], [], 0),
        ([1.0, NAN, 2.0], [1.0, NAN, 2.0 + 2**-22], 1),
    ],
)
def test_odd_numbers(first: list[float], second: list[float], expected: float) -> None:
    assert apart(first, second) == expected


def test_numbers_that_are_infinitely_far_apart_raise_no_warning() -> None:
    assert apart([HUGE], [-HUGE], dtype=np.float64) == INF


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (1 + 1j, 1 + 1j, 0),
        (1 + 1j, 1 + (1 + 2**-22) * 1j, 2 / math.sqrt(2)),  # two units of one part, over |1+1j|
        (complex(NAN, 1), complex(1, NAN), 0),  # undefined is undefined, whichever part
        (complex(INF, 1), complex(1, 1), INF),
        (complex(NAN, 1), complex(1, 1), INF),
        (1 + 0j, 1j, math.sqrt(2) * 2**23),
    ],
)
def test_complex_numbers(first: complex, second: complex, expected: float) -> None:
    assert apart(first, second, dtype=np.complex64) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.bool_])
def test_whole_numbers_and_truths_agree_or_do_not(dtype: type) -> None:
    assert apart([0, 1], [0, 1], dtype=dtype) == 0
    assert apart([0, 1], [0, 0], dtype=dtype) == INF


def test_other_shapes_types_and_counts_are_not_comparable() -> None:
    single_array = np.zeros((2, 3), np.float32)
    assert measure_distance("Tanh", (single_array,), (single_array.reshape(3, 2),)) == INF
    assert measure_distance("Tanh", (single_array,), (single_array.astype(np.float64),)) == INF
    assert measure_distance("Tanh", (single_array,), (single_array, single_array)) == INF
    assert (
        measure_distance("Tanh", (single_array[:0],), (single_array[:0].astype(np.float16),)) == INF
    )
    assert measure_distance("NoOp", (), ()) == 0


def test_errors_agree_by_their_names() -> None:
    single_array = np.zeros(3, np.float32)
    assert measure_distance("Div", "InvalidArgumentError", "InvalidArgumentError") == 0
    assert measure_distance("Div", "InvalidArgumentError", "InternalError") == INF
    assert measure_distance("Div", "InvalidArgumentError", (single_array,)) == INF
    assert measure_distance("Div", (single_array,), "InvalidArgumentError") == INF


def test_sums_are_measured_at_the_size_of_the_whole_result() -> None:
    """A row's small terms carry the error of its large ones."""
    first, second = [1.0, 1.0, 1e-6], [1.0, 1.0, 1e-6 + 2**-23]
    assert apart(first, second, op="Softmax") == pytest.approx(1, rel=1e-3)
    assert apart(first, second, op="Tanh") > 1e5


def test_the_worst_of_several_results_counts() -> None:
    good, bad = np.ones(2, np.float32), np.asarray([1, 1 + 2**-22], np.float32)
    assert measure_distance("Adam", (good, good, good), (good, bad, good)) == measure_distance(
        "Adam", (good,), (bad,)
    )
    assert measure_distance("Tanh", (good, good), (good, bad)) == 2


def test_terms_that_cancel_are_measured_at_the_sum_of_their_magnitudes() -> None:
    """1e6 - 1e6 + 1: one unit of the million, not of the one."""
    stock, tuned, terms = ((np.array([value], np.float32),) for value in (1.0, 1.0625, 2e6))
    assert measure_distance("Sum", stock, tuned, terms) < 1
    assert measure_distance("Sum", stock, tuned) > ULPS
    assert (
        measure_distance("Sum", stock, tuned, "InvalidArgumentError") > ULPS
    )  # (no scale: none is used)
    assert measure_distance("Sum", stock, tuned, (np.zeros(2, np.float32),)) > ULPS


def test_words_are_the_same_or_are_not() -> None:
    first, second = (np.array([word, b""], object) for word in (b"a", b"b"))
    assert measure_distance("StringUpper", (first,), (first.copy(),)) == 0
    assert measure_distance("StringUpper", (first,), (second,)) == INF


def test_every_op_has_one_tolerance() -> None:
    assert not EXACT & ELEMENTWISE
    assert not EXACT & TERMS
    assert not TERMS & ELEMENTWISE
    assert not any(is_scaled_by_result(op) for op in EXACT | ELEMENTWISE)
    assert is_scaled_by_result("FusedBatchNormV3")
    assert is_scaled_by_result("gradient of Tanh")
    assert {get_allowed_distance(op, REAL) for op in MOVES} == {0.0}
    assert get_allowed_distance("gradient of Mul", REAL) == ULPS  # (a sum over what was broadcast)


def attr(name: str, *lawful: int) -> SimpleNamespace:
    allowed_values = SimpleNamespace(list=SimpleNamespace(type=list(lawful)))
    return SimpleNamespace(name=name, type="type", allowed_values=allowed_values)


def test_types_are_assigned_within_what_the_op_allows() -> None:
    op = SimpleNamespace(name="Any", attr=[attr("T"), attr("Tidx", INT32, 9), attr("U", DOUBLE)])
    assert list(iter_type_assignments(op, {"T": (FLOAT, DOUBLE)})) == [
        {"T": FLOAT, "Tidx": INT32, "U": DOUBLE},
        {"T": DOUBLE, "Tidx": INT32, "U": DOUBLE},
    ]
    cast = SimpleNamespace(name="Cast", attr=[attr("SrcT"), attr("DstT", FLOAT, BOOL)])
    assert (
        len(list(iter_type_assignments(cast, {}))) == 9 * 2
    )  # (one kernel: every pair of common types)
    assert (
        list(iter_type_assignments(op, {"Tidx": (5,)})) == []
    )  # (registered, but no program reaches it)
    complex_abs = SimpleNamespace(name="ComplexAbs", attr=[attr("T"), attr("Tout", FLOAT, DOUBLE)])
    assert list(iter_type_assignments(complex_abs, {"T": (18,)})) == [{"T": 18, "Tout": DOUBLE}]


REAL = (np.zeros(1, np.float32),)


def test_what_the_standard_fixes_must_agree_to_the_bit() -> None:
    assert get_allowed_distance("Mul", (np.zeros(1, np.complex64),)) == ULPS
    assert get_allowed_distance("Transpose", (np.zeros(1, np.complex64),)) == 0
    assert {get_allowed_distance(op, REAL) for op in EXACT} == {0.0}
    assert get_allowed_distance("Tanh", REAL) == ULPS
    assert (
        get_allowed_distance("Mul", REAL)
        < get_allowed_distance("Tanh", REAL)
        <= get_allowed_distance("ResourceApplyCenteredRMSProp", REAL)
    )


def inputs(*roles: str, type: int = FLOAT) -> tuple[Argument, ...]:  # noqa: A002
    return tuple(Argument(f"in{index}", role, type) for index, role in enumerate(roles))


ROLES = ("array", "positive", "scalar", "gradient", "resource", "reference")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", [FLOAT, DOUBLE, INT32, COMPLEX64, BOOL, HALF])
def test_the_same_case_has_the_same_inputs_in_every_process(kind: str, number: int) -> None:
    once = create_feeds("Tanh", inputs("array", "array", type=number), DTYPES, kind)
    again = create_feeds("Tanh", inputs("array", "array", type=number), DTYPES, kind)
    for first, second in zip(once, again, strict=True):
        assert first.tobytes() == second.tobytes()
        assert first.dtype == DTYPES[number]


def test_other_ops_types_and_kinds_have_other_inputs() -> None:
    def first(op: str, kind: str, number: int = FLOAT) -> bytes:
        (array,) = create_feeds(op, inputs("array", type=number), DTYPES, kind)
        return array.astype(np.float64).tobytes()

    rows = [
        *(first(op, kind) for op in ("Tanh", "Exp") for kind in ("random", "tiny", "special")),
        first("Tanh", "random", DOUBLE),
    ]
    assert len(set(rows)) == len(rows)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("role", ROLES)
def test_every_role_gets_lawful_values(role: str, kind: str) -> None:
    (array,) = create_feeds("ResourceApplyAdam", inputs(role), DTYPES, kind)
    shape = {"random": (37 * 29,), "tiny": (3,), "empty": (0,), "special": (37 * 8,)}[kind]
    assert array.shape == (() if role == "scalar" else shape)
    if role in {"positive", "resource", "reference", "scalar"}:
        assert (array > 0).all()  # (accumulators and rates; a root is taken of them)
    if role not in {"array", "gradient"} or kind != "special":
        assert np.isfinite(array).all()


def test_indices_address_every_row_once() -> None:
    arguments = (*inputs("resource", "gradient"), Argument("indices", "indices", INT32))
    variable, gradient, indices = create_feeds(
        "ResourceSparseApplyAdagrad", arguments, DTYPES, "random"
    )
    assert sorted(indices) == list(range(len(variable)))
    assert gradient.shape == variable.shape


def test_random_ops_get_a_shape_and_bounds() -> None:
    arguments = inputs("shape", "low", "high", type=INT32)
    shape, low, high = create_feeds("RandomUniformInt", arguments, DTYPES, "random")
    assert list(shape) == [37 * 29]
    assert low < high
    (shape,) = create_feeds("RandomUniform", inputs("shape", type=INT32), DTYPES, "empty")
    assert list(shape) == [0]


def test_matrix_ops_get_matrices() -> None:
    logits, labels = create_feeds(
        "SoftmaxCrossEntropyWithLogits", inputs("array", "array"), DTYPES, "tiny"
    )
    assert logits.shape == labels.shape == (1, 3)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_special_inputs_hold_every_odd_number(dtype: type) -> None:
    special = draw_special(dtype, (37, 8), np.random.default_rng(1))
    _, tiny = get_precision(dtype)
    assert special.shape == (37, 8)
    assert np.isnan(special).any()
    assert np.isposinf(special).any()
    assert np.isneginf(special).any()
    assert ((special == 0) & np.signbit(special)).any()
    assert ((np.abs(special) > 0) & (np.abs(special) < tiny)).any()
    assert (special == np.finfo(dtype).max).any()
    assert np.isfinite(special).sum() > special.size / 2


def test_special_complex_numbers_and_integers() -> None:
    assert np.isnan(draw_special(np.complex64, (99,), np.random.default_rng(1))).any()
    whole = draw_special(np.int32, (99,), np.random.default_rng(1))
    assert whole.dtype == np.int32


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int8, np.int64, np.float16, np.complex64])
def test_ordinary_numbers_of_any_type(dtype: type) -> None:
    numbers = draw_numbers(dtype, (50, 40), np.random.default_rng(1))
    assert (numbers.dtype, numbers.shape) == (dtype, (50, 40))
    assert np.isfinite(numbers).all()
    assert len(np.unique(numbers)) > 1


def test_broadcasts_are_pairs_that_numpy_broadcasts_too() -> None:
    pairs = list(create_broadcasts("Add", inputs("array", "array"), DTYPES))
    assert len(pairs) == 3
    for first, second in pairs:
        assert first.shape != second.shape
        assert (first + second).size >= first.size
    assert list(create_broadcasts("Tanh", inputs("array"), DTYPES)) == []
    assert list(create_broadcasts("Softmax", inputs("array", "array"), DTYPES)) == []
    assert list(create_broadcasts("ResourceApplyAdam", inputs("resource", "scalar"), DTYPES)) == []


@pytest.mark.parametrize("number", [FLOAT, DOUBLE, COMPLEX64, BOOL, HALF])
def test_offsets_cover_four_to_sixty_four_bytes(number: int) -> None:
    size = np.dtype(DTYPES[number]).itemsize
    offset_arrays = list(create_offset_arrays("Tanh", inputs("array", type=number), DTYPES))
    bytes_in = [offset * size for offset, _ in offset_arrays]
    assert bytes_in == list(range(max(size, 4), 65, max(size, 4)))
    assert all(len(array) - offset == 67 for offset, (array,) in offset_arrays)
    assert list(create_offset_arrays("Softmax", inputs("array"), DTYPES)) == []
    assert list(create_offset_arrays("ResourceApplyAdam", inputs("resource"), DTYPES)) == []


STOCK = (
    Kernel("Tanh", "CPU", 'op: "Tanh" T: float', 0),
    Kernel("Tanh", "CPU", 'op: "Tanh" T: half', 0),
    Kernel("Tanh", "GPU", 'op: "Tanh" T: float', 0),
    Kernel("Exp", "CPU", 'op: "Exp" T: float', 2),
)


def raised(*kernels: Kernel) -> tuple[Kernel, ...]:
    return tuple(dataclasses.replace(kernel, priority=kernel.priority + 1) for kernel in kernels)


FOREIGN = Kernel("Tanh", "CPU", 'op: "Tanh" T: double', 1)
OURS = Kernel("_TensorwrightUpdate", "CPU", 'op: "_TensorwrightUpdate" T: float', 1)


@pytest.mark.parametrize(
    ("after", "message"),
    [
        ((*STOCK, *raised(*STOCK[:2])), ""),
        ((*STOCK, *raised(STOCK[3])), ""),
        ((*STOCK, OURS), ""),
        ((*STOCK, OURS, OURS), "it registers a kernel twice"),
        (STOCK, "it registers no CPU kernel"),
        ((*STOCK[1:], *raised(STOCK[0])), "a stock registration disappeared"),
        ((*STOCK, *raised(STOCK[0])), 'it lacks a stock kernel: op: "Tanh" T: half'),
        (
            (*STOCK, *raised(*STOCK[:2]), FOREIGN),
            'no stock kernel has the definition: op: "Tanh" T',
        ),
        ((*STOCK, *raised(*raised(*STOCK[:2]))), "no stock kernel has the definition"),
        ((*STOCK, *raised(*STOCK[:2], STOCK[0])), "it registers a kernel twice"),
        ((*STOCK, STOCK[0]), "no stock kernel has the definition"),
    ],
)
def test_only_stock_registrations_raised_by_one_are_admitted(
    after: tuple[Kernel, ...], message: str
) -> None:
    reason = find_registration_fault(Counter(STOCK), Counter(after))
    assert message in reason
    assert bool(message) == bool(reason)
