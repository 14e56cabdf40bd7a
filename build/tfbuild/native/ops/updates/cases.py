"""Test programs of fused updates, which must give the same bits as stock kernels in every graph.

Each case builds its variables and functions, runs them, and returns all visible results. It runs
with fused updates and without.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Mapping
from types import ModuleType

import numpy as np

from tfbuild.probe.fusing import Case, State, Tensor, convert_to_arrays, draw_values, in_graph

RUNS = "update executions"
SETTINGS: Mapping[str, str] = {}
DTYPES = ("float32", "float64", "float16", "bfloat16")
_STEPS = 3
_SHAPES: tuple[tuple[int, ...], ...] = ((), (1,), (7,), (1, 1, 5), (37, 61), (301, 701))
_TABLE = (400, 7)
_MATRIX = (64, 65)
_GRAPHS = 12


def create_variable(
    tf: ModuleType, shape: tuple[int, ...] = _MATRIX, seed: int = 1, dtype: str = "float32"
) -> Tensor:
    return tf.Variable(draw_values(tf, shape, seed, dtype))


def update_with_adam(tf: ModuleType, dtype: str) -> State:
    """Update variables of all shapes at once, scalars among them; the rate is computed within
    the step.
    """
    weights = [create_variable(tf, shape, 1, dtype) for shape in _SHAPES]
    means = [tf.Variable(tf.zeros(shape, dtype)) for shape in _SHAPES]
    squares = [tf.Variable(tf.zeros(shape, dtype)) for shape in _SHAPES]
    largest = [tf.Variable(tf.zeros(shape, dtype)) for shape in _SHAPES]

    @in_graph(tf)
    def step(gradients: list[Tensor], rate: Tensor) -> None:
        rows = zip(weights, means, squares, largest, gradients, strict=True)
        for weight, mean, square, maximum, gradient in rows:
            mean.assign_add((gradient - mean) * tf.cast(0.1, dtype))
            square.assign_add((tf.square(gradient) - square) * tf.cast(0.001, dtype))
            maximum.assign(tf.maximum(maximum, square))
            scaled_rate = rate * tf.cast(2, dtype)
            weight.assign_sub(mean * scaled_rate / (tf.sqrt(maximum) + tf.cast(1e-3, dtype)))

    for number in range(_STEPS):
        gradients = [draw_values(tf, shape, 10 * number + 2, dtype) for shape in _SHAPES]
        step(gradients, tf.cast(0.01, dtype))
    return convert_to_arrays([*weights, *means, *squares, *largest])


def update_scattered_rows(tf: ModuleType, dtype: str) -> State:
    """Update rows whose indices are repeated and unsorted, few and none; with both types of
    index.
    """
    table, moments = create_variable(tf, _TABLE, 1, dtype), create_variable(tf, _TABLE, 2, dtype)

    @in_graph(tf)
    def step(indices: Tensor, rows: Tensor) -> None:
        moments.assign_add(-moments * tf.cast(0.1, dtype))
        moments.scatter_add(tf.IndexedSlices(rows * tf.cast(0.1, dtype), indices))
        table.scatter_sub(tf.IndexedSlices(rows * tf.cast(0.3, dtype), indices))
        table.assign_sub(moments * tf.cast(0.5, dtype))

    for kind in (tf.int32, tf.int64):
        for number, count in enumerate((300, 1, 0, 900)):
            row_indices = np.random.default_rng(number).integers(0, _TABLE[0], count)
            step(tf.constant(row_indices, kind), draw_values(tf, (count, _TABLE[1]), number, dtype))
    return convert_to_arrays([table, moments])


def update_with_summed_rows(tf: ModuleType, dtype: str) -> State:
    """Sum rows into a gradient as large as the table, as optimizers of Keras 3 do. Rows with
    negative indices are dropped.
    """
    table, moments = create_variable(tf, _TABLE, 1, dtype), create_variable(tf, _TABLE, 2, dtype)

    @in_graph(tf)
    def step(indices: Tensor, rows: Tensor) -> None:
        gradient = tf.math.unsorted_segment_sum(rows, indices, _TABLE[0])
        moments.assign_add((gradient - moments) * tf.cast(0.1, dtype))
        table.assign_sub(moments * tf.cast(0.5, dtype) + tf.square(gradient))

    for kind in (tf.int32, tf.int64):
        for number, count in enumerate((300, 1, 0, 900)):
            row_indices = np.random.default_rng(number).integers(-9, _TABLE[0], count)
            step(tf.constant(row_indices, kind), draw_values(tf, (count, _TABLE[1]), number, dtype))
    return convert_to_arrays([table, moments])


def update_with_extremes(tf: ModuleType, dtype: str) -> State:
    """Take maxima and minima of zeros of both signs, for all shapes and for single elements."""
    zeros = np.asarray([0.0, -0.0, 1.0, -1.0])
    draws = [
        [tf.Variable(tf.cast(zeros[np.random.default_rng(seed).integers(0, 4, shape)], dtype))]
        for seed in range(3)
        for shape in _SHAPES
    ]
    variables = [variable for (variable,) in draws]
    count = len(_SHAPES)

    @in_graph(tf)
    def step(one: Tensor, zero: Tensor) -> None:
        for first, second, third in zip(
            variables[:count], variables[count : 2 * count], variables[2 * count :], strict=True
        ):
            first.assign(tf.maximum(first * one, second * one))
            second.assign(tf.minimum(zero, second * -one))
            third.assign(tf.maximum(tf.minimum(third * -one, first * one), zero))

    for zero in (0.0, -0.0):
        step(tf.cast(1.0, dtype), tf.cast(zero, dtype))
    return convert_to_arrays(variables)


def of_three_terms(tf: ModuleType) -> State:
    """Add up three terms, in the order that stock kernels choose."""
    first, second, third = (create_variable(tf, seed=seed) for seed in range(3))
    total = create_variable(tf, seed=3)

    @in_graph(tf)
    def step(rate: Tensor) -> None:
        total.assign(first + second + rate * third)
        third.assign_sub(total * rate + second)

    for _ in range(_STEPS):
        step(tf.constant(0.9))
    return convert_to_arrays([total, third])


def by_hand(tf: ModuleType) -> State:
    """Update variables without an optimizer, with one variable that is only read."""
    weights = [create_variable(tf, seed=seed) for seed in range(3)]
    slow = [create_variable(tf, seed=seed + 7) for seed in range(3)]

    @in_graph(tf)
    def step(rate: Tensor) -> None:
        for weight, average in zip(weights, slow, strict=True):
            weight.assign_sub(rate * (weight * weight + 0.1 * weight))
            average.assign_add((weight - average) * 0.01)

    for _ in range(_STEPS):
        step(tf.constant(0.1))
    return convert_to_arrays(weights + slow)


def held(tf: ModuleType) -> State:
    """Check that a value read before an update, or between two updates, stays unchanged."""
    weight, moment = create_variable(tf), create_variable(tf, seed=2)

    @in_graph(tf)
    def step(gradient: Tensor) -> Tensor:
        before = weight.read_value()
        moment.assign(moment * 0.9 + gradient)
        between = moment.read_value()
        weight.assign_sub(moment * 0.1)
        moment.assign_add(gradient)
        return before, between, weight.read_value()

    outside = weight.read_value()
    values: list[Tensor] = []
    for number in range(_STEPS):
        values += step(draw_values(tf, _MATRIX, number))
    return convert_to_arrays([weight, moment, outside, *values])


def in_a_branch(tf: ModuleType) -> State:
    weight, moment = create_variable(tf), create_variable(tf, seed=2)

    @in_graph(tf)
    def step(flag: Tensor) -> None:
        if flag:
            moment.assign(moment * 0.9 + weight)
            weight.assign_sub(moment * 0.1)
        else:
            moment.assign_sub(moment * 0.5)
        weight.assign_add(moment * 0.25)

    for flag in (True, False, True, True):
        step(tf.constant(flag))
    return convert_to_arrays([weight, moment])


def in_a_loop(tf: ModuleType) -> State:
    """Update variables in a loop with a branch, and in loops that end at once."""
    weight, moment = create_variable(tf), create_variable(tf, seed=2)

    @in_graph(tf)
    def run_steps(times: Tensor) -> Tensor:
        total = tf.zeros(_MATRIX)
        for number in tf.range(times):
            moment.assign(moment * 0.9 + weight * tf.cast(number, tf.float32))
            if number % 2 == 0:
                weight.assign_sub(moment * 0.01 + weight * 0.1)
            total += weight
        weight.assign_add(total * 0.1 + moment)
        return total

    totals = [run_steps(tf.constant(times)) for times in (0, 3, 4)]
    return convert_to_arrays([weight, moment, *totals])


def of_other_shapes(tf: ModuleType) -> State:
    """Multiply by a factor as large as the variable, of one element, of a row, and of a column."""
    weight = create_variable(tf)

    @in_graph(tf, input_signature=[tf.TensorSpec(None)])
    def step(factor: Tensor) -> None:
        weight.assign(weight * factor - factor)
        weight.assign_sub(weight * 0.5)

    for shape in (_MATRIX, (), (1,), (65,), (64, 1), (1, 1)):
        step(draw_values(tf, shape, 3))
    return convert_to_arrays([weight])


def one_after_the_other(tf: ModuleType) -> State:
    """Update in graphs that are deleted before the next one is created, which may reuse their
    addresses: all but the first fall back to their own original ops.
    """
    weight, matrix, row = (
        create_variable(tf),
        draw_values(tf, _MATRIX, 3),
        draw_values(tf, _MATRIX[1:], 3),
    )

    def run(number: int) -> None:
        @in_graph(tf, input_signature=[tf.TensorSpec(None)])
        def step(factor: Tensor) -> None:
            weight.assign((-weight if number % 2 else weight) * factor - float(number))
            weight.assign_sub(weight * 0.5)

        step(row if number else matrix)

    for number in range(_GRAPHS):
        run(number)
        gc.collect()
    return convert_to_arrays([weight])


def failing(tf: ModuleType) -> State:
    """Check that errors are TensorFlow's own, and that the variables are left as TensorFlow
    leaves them.
    """
    table, other_table = create_variable(tf, (10, 4)), create_variable(tf, (10, 4), 2)

    @in_graph(tf)
    def step(indices: Tensor, rows: Tensor) -> None:
        other_table.assign_add(other_table * 0.5)
        table.assign_add(table * 0.5)
        table.scatter_add(tf.IndexedSlices(rows, indices))

    has_message = []
    for indices in ([1, 2], [3, 10], [-1, 4]):
        try:
            step(tf.constant(indices), draw_values(tf, (2, 4), 5))
        except tf.errors.InvalidArgumentError as error:
            has_message.append("is not in [0, 10)" in str(error))
    return [*convert_to_arrays([table, other_table]), np.asarray(has_message)]


def failing_sums(tf: ModuleType) -> State:
    """Check errors of summed rows with wrong indices, and with fewer rows than indices."""
    table = create_variable(tf, (10, 4))
    signature = [tf.TensorSpec((None,), tf.int32), tf.TensorSpec((None, 4))]

    @in_graph(tf, input_signature=signature)
    def step(indices: Tensor, rows: Tensor) -> None:
        gradient = tf.math.unsorted_segment_sum(rows, indices, 10)
        table.assign_sub(gradient * 0.5 + gradient)

    has_message = []
    for indices in ([1, 2], [3, 10], [0, 1, 2]):
        try:
            step(tf.constant(indices), draw_values(tf, (2, 4), 5))
        except tf.errors.InvalidArgumentError as error:
            has_message.append("out of range [0, 10)" in str(error))
    return [*convert_to_arrays([table]), np.asarray(has_message)]


def out_of_bounds(tf: ModuleType) -> State:
    """Check that infinities and NaN propagate as in TensorFlow."""
    weight, moment = create_variable(tf), create_variable(tf, seed=2)
    special_values = np.random.default_rng(1).choice(
        [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0], _MATRIX
    )

    @in_graph(tf)
    def step(gradient: Tensor) -> None:
        clipped = tf.clip_by_value(gradient, -0.0, 0.0) + tf.minimum(gradient, moment)
        moment.assign(tf.maximum(moment * 0.9, tf.abs(clipped)))
        weight.assign_sub(gradient * tf.math.rsqrt(moment + 0.0) + tf.sqrt(moment) / weight)

    step(tf.constant(special_values, tf.float32))
    return convert_to_arrays([weight, moment])


def cases() -> Mapping[str, Case]:
    by_name: dict[str, Case] = {}
    for dtype in DTYPES:
        by_name[f"adam {dtype}"] = functools.partial(update_with_adam, dtype=dtype)
        by_name[f"scattered {dtype}"] = functools.partial(update_scattered_rows, dtype=dtype)
        by_name[f"extremes {dtype}"] = functools.partial(update_with_extremes, dtype=dtype)
        by_name[f"summed {dtype}"] = functools.partial(update_with_summed_rows, dtype=dtype)
    valid = (by_hand, of_three_terms, held, in_a_branch, in_a_loop, of_other_shapes)
    special = (one_after_the_other, failing, failing_sums, out_of_bounds)
    return by_name | {program.__name__.replace("_", " "): program for program in (*valid, *special)}


def difference(stock: State | str, fused: State | str) -> str:
    """Describe the first difference, or return an empty string if all bits are equal except those
    of NaN. Two errors count as equal.
    """
    if isinstance(stock, str) or isinstance(fused, str):
        both_failed = isinstance(stock, str) and isinstance(fused, str)
        return "" if both_failed else f"stock {str(stock)[:200]}, fused {str(fused)[:200]}"
    for number, (left, right) in enumerate(zip(stock, fused, strict=True)):
        if (left.dtype, left.shape) != (right.dtype, right.shape):
            return (
                f"value {number}: stock {left.dtype}{left.shape}, fused {right.dtype}{right.shape}"
            )
        left_values, right_values = (item.astype(np.float64) for item in (left, right))
        differs = (left_values != right_values) | (
            np.signbit(left_values) != np.signbit(right_values)
        )
        differs &= ~(np.isnan(left_values) & np.isnan(right_values))
        if differs.any():
            place = tuple(int(item) for item in np.argwhere(differs)[0])
            detail = f"stock {left_values[place]!r}, fused {right_values[place]!r}"
            return (
                f"value {number} of shape {left.shape}: {int(differs.sum())} elements differ, "
                f"first at {place}: {detail}"
            )
    return ""


def ulps(stock: State | str, fused: State | str) -> float:  # noqa: ARG001
    """Return 0.0: outcomes without a difference have the same bits."""
    return 0.0
