"""Test programs of fused while loops: Keras's recurrent layers with their gradients, and
handwritten loops."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from tfbuild.probe import float64
from tfbuild.probe.float64 import Program, create_case, draw_as, use_float_type
from tfbuild.probe.fusing import Case, Tensor, in_graph

RUNS = "loop executions"
SETTINGS: Mapping[str, str] = {}
difference, ulps = float64.difference, float64.ulps
_FEATURES = 5
_SHAPES = ((3, 7, _FEATURES), (133, 4, _FEATURES), (1, 1, _FEATURES))
"""Batch, steps and features. Threads share the examples of the second shape. Most layers have a
number of units that is no multiple of a vector's width, so that vectors end early."""
_GRAPHS, _TIMES = 8, 3
_KEPT = 0.7
"""Share of the steps that a mask keeps."""


def _create_layer_program(make: Callable[[Any], Tensor], *, masked: bool = False) -> Program:
    """Create a program that computes a layer's outputs and all its gradients, with one graph for
    all shapes and one for the first.
    """

    def run(tf: ModuleType, dtype: str) -> list[Tensor]:
        layer = _build_layer(tf, make, dtype)
        step = functools.partial(_compute_outputs_and_gradients, tf, layer, masked=masked)
        shared_graph = in_graph(
            tf,
            input_signature=[
                tf.TensorSpec((None, None, _FEATURES), dtype),
                tf.TensorSpec((None, None), tf.bool),
            ],
        )(step)
        results: list[Tensor] = []
        for number, shape in enumerate((*_SHAPES, _SHAPES[0])):
            inputs = draw_as(tf, dtype, shape, 10 + number)
            mask = np.random.default_rng(number).random(shape[:2]) < _KEPT
            mask[:, 0] = True
            function = shared_graph if number < len(_SHAPES) else in_graph(tf)(step)
            results += function(inputs, tf.constant(mask))
        return results

    return run


def _build_layer(tf: ModuleType, make: Callable[[Any], Tensor], dtype: str) -> Tensor:
    """Build the layer, with the same weights for every type."""
    with use_float_type(tf, dtype):
        layer = make(tf.keras.layers)
        layer.build((None, None, _FEATURES))
    shapes = [tuple(weight.shape) for weight in layer.weights]
    layer.set_weights(
        [
            np.asarray(draw_as(tf, dtype, shape, 3 + place)) * 0.3
            for place, shape in enumerate(shapes)
        ]
    )
    return layer


def _compute_outputs_and_gradients(
    tf: ModuleType, layer: Tensor, inputs: Tensor, mask: Tensor, *, masked: bool
) -> list[Tensor]:
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = tf.nest.flatten(layer(inputs, mask=mask) if masked else layer(inputs))
        loss = tf.add_n([tf.reduce_sum(tf.sin(output) * output) for output in outputs])
    return [*outputs, *tape.gradient(loss, [inputs, *layer.trainable_variables])]


def _run_custom_cell(tf: ModuleType, dtype: str) -> list[Tensor]:
    """Run a cell that is no layer: broadcast rows and columns, a select, a concatenation and a
    split.
    """
    draw = functools.partial(draw_as, tf, dtype)
    weights = [tf.Variable(draw(shape, 5)) for shape in ((5, 6), (6, 6), (6,), (4, 1))]

    @in_graph(tf)
    def run(inputs: Tensor) -> list[Tensor]:
        steps = tf.shape(inputs)[0]
        with tf.GradientTape() as tape:
            wrote = tf.TensorArray(dtype, size=steps, element_shape=(4, 6))

            def body(step: Tensor, state: Tensor, offset: Tensor, wrote: Any) -> tuple[Any, ...]:
                left, right = tf.split(inputs[step] @ weights[0] + state @ weights[1], 2, axis=1)
                value = tf.concat([tf.nn.relu(left) * 0.5, tf.tanh(right)], 1) + weights[2]
                value = tf.where(value > state, value * weights[3], tf.abs(state) - offset)
                mean = tf.reduce_sum(value, 1, keepdims=True) / 6
                return step + 1, value - mean, state, wrote.write(step, value[:, ::1])

            start = tf.zeros((4, 6), dtype)
            *_, last, before, wrote = tf.while_loop(
                lambda step, *_: step < steps, body, (0, start, start + 0.5, wrote)
            )
            stacked = wrote.stack()
            loss = tf.reduce_sum(stacked * stacked) + tf.reduce_sum(last * before)
        return [last, before, stacked, *tape.gradient(loss, weights)]

    return [tensor for steps in (1, 6) for tensor in run(draw((steps, 4, 5), steps))]


def _run_countdown(tf: ModuleType, dtype: str) -> list[Tensor]:
    """Run loops without lists or matrices: counters that go down by two, no iteration at all, a
    variable that is read.
    """
    rate = tf.Variable(draw_as(tf, dtype, (1, 33), 2))

    @in_graph(tf)
    def run(times: Tensor, value: Tensor) -> list[Tensor]:
        end, total = tf.while_loop(
            lambda remaining, _: remaining > 1,
            lambda remaining, total: (
                remaining - 2,
                total * 0.9 + tf.square(rate) - tf.sigmoid(total),
            ),
            (times, value),
        )
        return [tf.cast(end, dtype), total]

    value = draw_as(tf, dtype, (9, 33), 4)
    return [result for times in (8, 5, 1) for result in run(tf.constant(times), value)]


def _run_successive_graphs(tf: ModuleType, dtype: str) -> list[Tensor]:
    """Run graphs that are deleted before the next one is created, which may reuse their
    addresses: each falls back to its original loop if the shapes require it.
    """
    value = draw_as(tf, dtype, (2, 4, 3), 4)
    addends = [draw_as(tf, dtype, shape, 2) for shape in ((2, 4, 3), (2, 1, 3))]

    def run(number: int) -> list[Tensor]:
        @in_graph(tf, input_signature=[tf.TensorSpec((2, None, 3), dtype)])
        def run_loop(addend: Tensor) -> Tensor:
            return tf.while_loop(
                lambda step, _: step < _TIMES,
                lambda step, total: (step + 1, (-total if number % 2 else total) * 0.5 + addend),
                (0, value),
            )[1]

        return [run_loop(addend) for addend in addends]

    results = []
    for number in range(_GRAPHS):
        results += run(number)
        gc.collect()
    return results


def _run_indexed_layer(tf: ModuleType, dtype: str) -> list[Tensor]:
    """Run the usual layer written as a loop: a slice of the data in each step, and the gradient
    of the data.
    """

    @in_graph(tf)
    def run(inputs: Tensor, state: Tensor) -> list[Tensor]:
        with tf.GradientTape() as tape:
            tape.watch([inputs, state])
            last = tf.while_loop(
                lambda step, _: step < _TIMES,
                lambda step, state: (step + 1, tf.tanh(state + inputs[step])),
                (0, state),
            )[1]
            loss = tf.reduce_sum(last * last)
        return [last, *tape.gradient(loss, [inputs, state])]

    return list(run(draw_as(tf, dtype, (_TIMES, 4, 3), 1), draw_as(tf, dtype, (4, 3), 2)))


def _run_added_gradients(tf: ModuleType, dtype: str) -> list[Tensor]:
    """Run a loop over a list whose gradient is not only that of the loop: an iteration's addition
    to it shares memory with the gradient of the state.
    """
    item = (None, 3)

    @in_graph(
        tf, input_signature=[tf.TensorSpec((_TIMES, *item), dtype), tf.TensorSpec(item, dtype)]
    )
    def run(inputs: Tensor, state: Tensor) -> list[Tensor]:
        with tf.GradientTape() as tape:
            tape.watch([inputs, state])
            items = tf.TensorArray(dtype, _TIMES, clear_after_read=False, element_shape=item)
            _, items, last = tf.while_loop(
                lambda step, *_: step < _TIMES,
                lambda step, items, state: (step + 1, items, tf.tanh(state + items.read(step))),
                (0, items.unstack(inputs), state),
            )
            loss = tf.reduce_sum(last) + 100 * tf.reduce_sum(items.stack())
        return [last, *tape.gradient(loss, [inputs, state])]

    return list(run(draw_as(tf, dtype, (_TIMES, 4, 3), 1), draw_as(tf, dtype, (4, 3), 2)))


def _run_integers(tf: ModuleType, dtype: str) -> list[Tensor]:  # noqa: ARG001  (these have no floats)
    """Run loops of integers: read from the list that they are written to, with items of one and
    of two elements, and multiplied until they overflow.
    """

    def create_items(size: Tensor, *shape: int) -> Any:
        return tf.TensorArray(tf.int32, size, clear_after_read=False, element_shape=shape)

    def write_items(into: Any, first: int, size: Tensor, item: Callable[..., Tensor]) -> Tensor:
        return tf.while_loop(
            lambda step, _: step < size,
            lambda step, into: (step + 1, into.write(step, item(step, into))),
            (first, into),
        )[1].stack()

    @in_graph(tf)
    def run(first: Tensor, size: Tensor) -> list[Tensor]:
        ones = create_items(size).unstack(tf.ones((size,), tf.int32))
        return [
            write_items(ones, 2, size, lambda step, of: of.read(step - 1) + of.read(step - 2)),
            write_items(create_items(size, 1), 0, size, lambda step, _: tf.stack([step])),
            write_items(create_items(size, 2), 0, size, lambda step, _: tf.stack([step, step * 2])),
            *tf.while_loop(lambda _, x: x > 0, lambda step, x: (step + 1, -(x * -3)), (0, first)),
        ]

    return list(run(tf.constant(1), tf.constant(9)))


def _run_views(tf: ModuleType, dtype: str) -> list[Tensor]:
    """Run products of matrices that begin at one element, as they are and with one column
    repeated; and sums of rows: of none, of few and of many elements.
    """
    matrix = draw_as(tf, dtype, (4, 4), 2)

    @in_graph(tf, input_signature=[tf.TensorSpec((None, width), dtype) for width in (4, None)])
    def run(start: Tensor, rows: Tensor) -> list[Tensor]:
        def repeat_column(of: Tensor) -> Tensor:
            return tf.tile(of[:, :1], [1, 4])

        def body(step: Tensor, state: Tensor, *sums: Tensor) -> tuple[Tensor, ...]:
            value = tf.tanh(state @ matrix) + state @ repeat_column(matrix)
            left, right = (
                tf.matmul(of(state), value, transpose_a=True) for of in (tf.identity, repeat_column)
            )
            return step + 1, value * 0.1, sums[0] + left, sums[1] + right

        return [
            *tf.while_loop(lambda step, *_: step < _TIMES, body, (0, start, matrix, matrix)),
            tf.while_loop(
                lambda step, _: step < _TIMES,
                lambda step, total: (step + 1, total * 0.5 + tf.reduce_sum(rows, 1)),
                (0, start[:, 0]),
            )[1],
        ]

    start = draw_as(tf, dtype, (5, 4), 1)
    sizes = (0, 3, 5000)
    return [output for size in sizes for output in run(start, draw_as(tf, dtype, (5, size), 3))]


def _run_sums_of_products(tf: ModuleType, dtype: str) -> list[Tensor]:
    """Run products that are added to other products, to other values and to themselves; that are
    used twice; that get a bias; and whose width fills no whole vectors.
    """
    draw = functools.partial(draw_as, tf, dtype)
    weights = [tf.Variable(draw((33, 33), number) * 0.1) for number in range(5)]
    bias = tf.Variable(draw((33,), 5))

    @in_graph(tf)
    def run(start: Tensor) -> list[Tensor]:
        def body(step: Tensor, state: Tensor, wrote: Any) -> tuple[Any, ...]:
            first, second, third, fourth, fifth = (state @ weight for weight in weights)
            value = tf.nn.bias_add(first + start @ weights[1], bias)
            value = tf.tanh(value) + tf.sigmoid(second) * (third + third)
            value += (tf.square(state) + fourth) + (fifth + tf.tanh(fifth))
            combined = (state @ weights[2] + value @ weights[3]) + state @ weights[4]
            value += tf.nn.bias_add(combined, bias) * tf.nn.bias_add(combined, -bias)
            return step + 1, tf.tanh(value), wrote.write(step, combined)

        with tf.GradientTape() as tape:
            wrote = tf.TensorArray(dtype, size=_TIMES, element_shape=(5, 33))
            _, last, wrote = tf.while_loop(lambda step, *_: step < _TIMES, body, (0, start, wrote))
            stacked = wrote.stack()
            loss = tf.reduce_sum(stacked * 0.1) + tf.reduce_sum(last * last)
        return [last, stacked, *tape.gradient(loss, [*weights, bias])]

    return list(run(draw((5, 33), 7)))


def _run_split_weights(tf: ModuleType, dtype: str) -> list[Tensor]:
    """Run loops that split the weights in each iteration: by columns, by rows, overlapping, with
    one part unused.
    """
    draw = functools.partial(draw_as, tf, dtype)

    def run(take: Callable[[Tensor], list[Tensor]]) -> list[Tensor]:
        weight = tf.Variable(draw((6, 18), 1) * 0.2)

        @in_graph(tf)
        def step(start: Tensor) -> list[Tensor]:
            def body(step: Tensor, state: Tensor, before: Tensor) -> tuple[Tensor, ...]:
                first, *further = take(weight)
                value = tf.tanh(state[:, : first.shape[0]] @ first)
                for part in further:
                    value += tf.sigmoid(before[:, : part.shape[0]] @ part) * 0.1
                return step + 1, value, state

            with tf.GradientTape() as tape:
                _, last, _ = tf.while_loop(lambda step, *_: step < _TIMES, body, (0, start, start))
                loss = tf.reduce_sum(last * last)
            return [last, tape.gradient(loss, weight)]

        return list(step(draw((5, 6), 7)))

    takes: list[Callable[[Tensor], list[Tensor]]] = [
        lambda weight: tf.split(weight, 3, axis=1),
        lambda weight: [weight[:, :6], weight[:, 12:], weight[:, 12:]],
        lambda weight: [weight[:, 1:7], weight[:, 4:10]],
        lambda weight: [weight[:3, :6], weight[3:, :6]],
        lambda weight: tf.split(weight[:, 6:12], 2, axis=0),
    ]
    return [result for take in takes for result in run(take)]


def train_layer(tf: ModuleType, dtype: str, *, steps: int = 50) -> list[Tensor]:
    """Train a layer by steps of gradient descent, to see how far errors grow."""
    layer = _build_layer(tf, lambda new: new.LSTM(24), dtype)
    inputs, target = draw_as(tf, dtype, (16, 10, _FEATURES), 1), draw_as(tf, dtype, (16, 24), 2)

    @in_graph(tf)
    def run_step() -> Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(layer(inputs) - tf.tanh(target)))
        gradients = tape.gradient(loss, layer.trainable_variables)
        for variable, gradient in zip(layer.trainable_variables, gradients, strict=True):
            variable.assign_sub(gradient * 0.5)
        return loss

    return [*(run_step() for _ in range(steps)), *layer.trainable_variables]


@functools.cache
def build_programs() -> Mapping[str, Program]:
    """Return the programs by name; those of Keras have the names of its layers."""
    return {
        "lstm": _create_layer_program(lambda new: new.LSTM(17)),
        "lstm hard": _create_layer_program(
            lambda new: new.LSTM(16, recurrent_activation="hard_sigmoid")
        ),
        "lstm by gates": _create_layer_program(
            lambda new: new.RNN(new.LSTMCell(17, implementation=1))
        ),
        "gru by gates": _create_layer_program(
            lambda new: new.RNN(new.GRUCell(16, implementation=1))
        ),
        "lstm backwards": _create_layer_program(
            lambda new: new.LSTM(9, go_backwards=True, return_sequences=True, use_bias=False)
        ),
        "lstm masked": _create_layer_program(
            lambda new: new.LSTM(9, return_sequences=True, return_state=True), masked=True
        ),
        "gru": _create_layer_program(lambda new: new.GRU(17, return_sequences=True)),
        "gru reset before": _create_layer_program(lambda new: new.GRU(16, reset_after=False)),
        "gru masked": _create_layer_program(lambda new: new.GRU(9), masked=True),
        "simple": _create_layer_program(lambda new: new.SimpleRNN(33)),
        "both ways": _create_layer_program(lambda new: new.Bidirectional(new.LSTM(8))),
        "stacked": _create_layer_program(lambda new: new.RNN([new.LSTMCell(9), new.GRUCell(5)])),
        "by hand": _run_custom_cell,
        "countdown": _run_countdown,
        "one after the other": _run_successive_graphs,
        "by index": _run_indexed_layer,
        "added to": _run_added_gradients,
        "numbers": _run_integers,
        "views": _run_views,
        "sums of products": _run_sums_of_products,
        "by parts": _run_split_weights,
        "trained": train_layer,
    }


def cases() -> Mapping[str, Case]:
    return {name: create_case(program) for name, program in build_programs().items()}
