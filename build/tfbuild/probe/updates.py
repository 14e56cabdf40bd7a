"""Updates of variables, fused and as TensorFlow has them: the same bits, whatever the graph.

Each case builds its variables and functions, runs them, and returns all that can be seen. It is run
with fused updates and without.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Mapping
from types import ModuleType

import numpy as np

from tfbuild.probe.fusing import Case, State, Tensor, as_arrays, drawn, in_graph

PART = "updates"
OPS = ("_TensorwrightUpdate",)
RUNS = "update executions"
MULTIPLIED: tuple[str, ...] = ()
DTYPES = ("float32", "float64", "float16", "bfloat16")
_STEPS = 3
_SHAPES: tuple[tuple[int, ...], ...] = ((), (1,), (7,), (1, 1, 5), (37, 61), (301, 701))
_TABLE = (400, 7)
_MATRIX = (64, 65)
_GRAPHS = 12


def variable(
    tf: ModuleType, shape: tuple[int, ...] = _MATRIX, seed: int = 1, dtype: str = "float32"
) -> Tensor:
    return tf.Variable(drawn(tf, shape, seed, dtype))


def adam(tf: ModuleType, dtype: str) -> State:
    """Variables of all shapes at once, scalars among them; the rate is computed as they go."""
    weights = [variable(tf, shape, 1, dtype) for shape in _SHAPES]
    means = [tf.Variable(tf.zeros(shape, dtype)) for shape in _SHAPES]
    squares = [tf.Variable(tf.zeros(shape, dtype)) for shape in _SHAPES]
    largest = [tf.Variable(tf.zeros(shape, dtype)) for shape in _SHAPES]

    @in_graph(tf)
    def step(gradients: list[Tensor], rate: Tensor) -> None:
        rows = zip(weights, means, squares, largest, gradients, strict=True)
        for weight, mean, square, most, gradient in rows:
            mean.assign_add((gradient - mean) * tf.cast(0.1, dtype))
            square.assign_add((tf.square(gradient) - square) * tf.cast(0.001, dtype))
            most.assign(tf.maximum(most, square))
            own = rate * tf.cast(2, dtype)
            weight.assign_sub(mean * own / (tf.sqrt(most) + tf.cast(1e-3, dtype)))

    for number in range(_STEPS):
        gradients = [drawn(tf, shape, 10 * number + 2, dtype) for shape in _SHAPES]
        step(gradients, tf.cast(0.01, dtype))
    return as_arrays([*weights, *means, *squares, *largest])


def scattered(tf: ModuleType, dtype: str) -> State:
    """Rows whose indices come twice and in no order, few and none; of both types of index."""
    table, moments = variable(tf, _TABLE, 1, dtype), variable(tf, _TABLE, 2, dtype)

    @in_graph(tf)
    def step(indices: Tensor, rows: Tensor) -> None:
        moments.assign_add(-moments * tf.cast(0.1, dtype))
        moments.scatter_add(tf.IndexedSlices(rows * tf.cast(0.1, dtype), indices))
        table.scatter_sub(tf.IndexedSlices(rows * tf.cast(0.3, dtype), indices))
        table.assign_sub(moments * tf.cast(0.5, dtype))

    for kind in (tf.int32, tf.int64):
        for number, count in enumerate((300, 1, 0, 900)):
            places = np.random.default_rng(number).integers(0, _TABLE[0], count)
            step(tf.constant(places, kind), drawn(tf, (count, _TABLE[1]), number, dtype))
    return as_arrays([table, moments])


def summed(tf: ModuleType, dtype: str) -> State:
    """Rows that are added up to a gradient as large as the table, as optimizers of Keras 3 do.
    Those of negative numbers are dropped."""
    table, moments = variable(tf, _TABLE, 1, dtype), variable(tf, _TABLE, 2, dtype)

    @in_graph(tf)
    def step(indices: Tensor, rows: Tensor) -> None:
        gradient = tf.math.unsorted_segment_sum(rows, indices, _TABLE[0])
        moments.assign_add((gradient - moments) * tf.cast(0.1, dtype))
        table.assign_sub(moments * tf.cast(0.5, dtype) + tf.square(gradient))

    for kind in (tf.int32, tf.int64):
        for number, count in enumerate((300, 1, 0, 900)):
            places = np.random.default_rng(number).integers(-9, _TABLE[0], count)
            step(tf.constant(places, kind), drawn(tf, (count, _TABLE[1]), number, dtype))
    return as_arrays([table, moments])


def by_hand(tf: ModuleType) -> State:
    """Without an optimizer; a variable that is read and not written."""
    weights = [variable(tf, seed=seed) for seed in range(3)]
    slow = [variable(tf, seed=seed + 7) for seed in range(3)]

    @in_graph(tf)
    def step(rate: Tensor) -> None:
        for weight, average in zip(weights, slow, strict=True):
            weight.assign_sub(rate * (weight * weight + 0.1 * weight))
            average.assign_add((weight - average) * 0.01)

    for _ in range(_STEPS):
        step(tf.constant(0.1))
    return as_arrays(weights + slow)


def held(tf: ModuleType) -> State:
    """What was read before an update, and what is read in between, keeps its value."""
    weight, moment = variable(tf), variable(tf, seed=2)

    @in_graph(tf)
    def step(gradient: Tensor) -> Tensor:
        before = weight.read_value()
        moment.assign(moment * 0.9 + gradient)
        between = moment.read_value()
        weight.assign_sub(moment * 0.1)
        moment.assign_add(gradient)
        return before, between, weight.read_value()

    outside = weight.read_value()
    kept: list[Tensor] = []
    for number in range(_STEPS):
        kept += step(drawn(tf, _MATRIX, number))
    return as_arrays([weight, moment, outside, *kept])


def in_a_branch(tf: ModuleType) -> State:
    weight, moment = variable(tf), variable(tf, seed=2)

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
    return as_arrays([weight, moment])


def in_a_loop(tf: ModuleType) -> State:
    """With a branch in the loop, and loops that end at once."""
    weight, moment = variable(tf), variable(tf, seed=2)

    @in_graph(tf)
    def steps(times: Tensor) -> Tensor:
        total = tf.zeros(_MATRIX)
        for number in tf.range(times):
            moment.assign(moment * 0.9 + weight * tf.cast(number, tf.float32))
            if number % 2 == 0:
                weight.assign_sub(moment * 0.01 + weight * 0.1)
            total += weight
        weight.assign_add(total * 0.1 + moment)
        return total

    kept = [steps(tf.constant(times)) for times in (0, 3, 4)]
    return as_arrays([weight, moment, *kept])


def of_other_shapes(tf: ModuleType) -> State:
    """A factor as large as the variable, of one element, a row, a column."""
    weight = variable(tf)

    @in_graph(tf, input_signature=[tf.TensorSpec(None)])
    def step(factor: Tensor) -> None:
        weight.assign(weight * factor - factor)
        weight.assign_sub(weight * 0.5)

    for shape in (_MATRIX, (), (1,), (65,), (64, 1), (1, 1)):
        step(drawn(tf, shape, 3))
    return as_arrays([weight])


def one_after_the_other(tf: ModuleType) -> State:
    """Graphs that go before the next one comes, which may lie where they lay: all but the first one
    take the original way, each its own."""
    weight, whole, row = variable(tf), drawn(tf, _MATRIX, 3), drawn(tf, _MATRIX[1:], 3)

    def run(number: int) -> None:
        @in_graph(tf, input_signature=[tf.TensorSpec(None)])
        def step(factor: Tensor) -> None:
            weight.assign((-weight if number % 2 else weight) * factor - float(number))
            weight.assign_sub(weight * 0.5)

        step(row if number else whole)

    for number in range(_GRAPHS):
        run(number)
        gc.collect()
    return as_arrays([weight])


def failing(tf: ModuleType) -> State:
    """Errors are TensorFlow's own, and leave the variables as TensorFlow does."""
    table, other = variable(tf, (10, 4)), variable(tf, (10, 4), 2)

    @in_graph(tf)
    def step(indices: Tensor, rows: Tensor) -> None:
        other.assign_add(other * 0.5)
        table.assign_add(table * 0.5)
        table.scatter_add(tf.IndexedSlices(rows, indices))

    right = []
    for indices in ([1, 2], [3, 10], [-1, 4]):
        try:
            step(tf.constant(indices), drawn(tf, (2, 4), 5))
        except tf.errors.InvalidArgumentError as error:
            right.append("is not in [0, 10)" in str(error))
    return [*as_arrays([table, other]), np.asarray(right)]


def failing_sums(tf: ModuleType) -> State:
    """The same of rows that are added up, and where they are fewer than their numbers."""
    table = variable(tf, (10, 4))
    signature = [tf.TensorSpec((None,), tf.int32), tf.TensorSpec((None, 4))]

    @in_graph(tf, input_signature=signature)
    def step(indices: Tensor, rows: Tensor) -> None:
        gradient = tf.math.unsorted_segment_sum(rows, indices, 10)
        table.assign_sub(gradient * 0.5 + gradient)

    right = []
    for indices in ([1, 2], [3, 10], [0, 1, 2]):
        try:
            step(tf.constant(indices), drawn(tf, (2, 4), 5))
        except tf.errors.InvalidArgumentError as error:
            right.append("out of range [0, 10)" in str(error))
    return [*as_arrays([table]), np.asarray(right)]


def out_of_bounds(tf: ModuleType) -> State:
    """Infinities and what is no number go the same ways."""
    weight, moment = variable(tf), variable(tf, seed=2)
    odd = np.random.default_rng(1).choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0], _MATRIX)

    @in_graph(tf)
    def step(gradient: Tensor) -> None:
        clipped = tf.clip_by_value(gradient, -0.0, 0.0) + tf.minimum(gradient, moment)
        moment.assign(tf.maximum(moment * 0.9, tf.abs(clipped)))
        weight.assign_sub(gradient * tf.math.rsqrt(moment + 0.0) + tf.sqrt(moment) / weight)

    step(tf.constant(odd, tf.float32))
    return as_arrays([weight, moment])


def cases() -> Mapping[str, Case]:
    every: dict[str, Case] = {}
    for dtype in DTYPES:
        every[f"adam {dtype}"] = functools.partial(adam, dtype=dtype)
        every[f"scattered {dtype}"] = functools.partial(scattered, dtype=dtype)
        every[f"summed {dtype}"] = functools.partial(summed, dtype=dtype)
    plain = (by_hand, held, in_a_branch, in_a_loop, of_other_shapes)
    odd = (one_after_the_other, failing, failing_sums, out_of_bounds)
    return every | {each.__name__.replace("_", " "): each for each in (*plain, *odd)}


def difference(one: State | str, other: State | str) -> str:
    """What differs, in words; empty where every bit is the same but those of what is no number."""
    if isinstance(one, str) or isinstance(other, str):
        alike = isinstance(one, str) and isinstance(other, str)
        return "" if alike else f"{str(one)[:200]} or {str(other)[:200]}"
    for number, (left, right) in enumerate(zip(one, other, strict=True)):
        if (left.dtype, left.shape) != (right.dtype, right.shape):
            return f"value {number}: {left.dtype}{left.shape} or {right.dtype}{right.shape}"
        wide, plain = (each.astype(np.float64) for each in (left, right))
        apart = (wide != plain) | (np.signbit(wide) != np.signbit(plain))
        apart &= ~(np.isnan(wide) & np.isnan(plain))
        if apart.any():
            place = tuple(int(each) for each in np.argwhere(apart)[0])
            shown = f"{wide[place]!r} or {plain[place]!r}"
            return f"value {number} of {left.shape}: {int(apart.sum())}, at {place} {shown}"
    return ""


def ulps(stock: State | str, fused: State | str) -> float:  # noqa: ARG001
    """Outcomes that are not unlike have the same bits."""
    return 0.0
