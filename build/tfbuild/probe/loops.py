"""While loops, fused and as TensorFlow has them: Keras's recurrent layers with their gradients, and
loops by hand.

Products and sums are added up in another order, so that results differ in their last bits. Each
case computes in float32 and, with the same numbers, in float64, which is never fused: fused loops
may lie no farther from that than four times what stock kernels do, or than _FLOOR where those are
exact.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from tfbuild.probe.fusing import Case, State, Tensor, as_arrays, drawn, in_graph

PART = "loops"
OPS = ("_TensorwrightLoop", "_TensorwrightStatelessLoop")
_FARTHER = 4.0
_FLOOR = 2.0**-21  # of the largest value of a tensor: what two orders of summing differ by
_ULP = 2.0**-23
_FEATURES = 5
_SHAPES = ((3, 7, _FEATURES), (32, 4, _FEATURES), (1, 1, _FEATURES))
"""Batch, steps and features. Units are no round numbers, so that vectors end early."""
_KEPT = 0.7
"""Of the steps of a mask."""

Program = Callable[[ModuleType, str], list[Tensor]]
"""What a program of this module and type of float computes."""


def _layer(make: Callable[[Any], Tensor], *, masked: bool = False) -> Program:
    """A layer's outputs and all its gradients: one graph for all shapes, one for the first."""

    def run(tf: ModuleType, dtype: str) -> list[Tensor]:
        layer = _built(tf, make, dtype)
        step = functools.partial(_outputs_and_gradients, tf, layer, masked=masked)
        every = in_graph(
            tf,
            input_signature=[
                tf.TensorSpec((None, None, _FEATURES), dtype),
                tf.TensorSpec((None, None), tf.bool),
            ],
        )(step)
        results: list[Tensor] = []
        for number, shape in enumerate((*_SHAPES, _SHAPES[0])):
            inputs = drawn_as(tf, dtype, shape, 10 + number)
            mask = np.random.default_rng(number).random(shape[:2]) < _KEPT
            mask[:, 0] = True
            function = every if number < len(_SHAPES) else in_graph(tf)(step)
            results += function(inputs, tf.constant(mask))
        return results

    return run


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


def _built(tf: ModuleType, make: Callable[[Any], Tensor], dtype: str) -> Tensor:
    """The layer, with the same weights for every type."""
    with floats(tf, dtype):
        layer = make(tf.keras.layers)
        layer.build((None, None, _FEATURES))
    shapes = [tuple(each.shape) for each in layer.weights]
    layer.set_weights(
        [
            np.asarray(drawn_as(tf, dtype, each, 3 + place)) * 0.3
            for place, each in enumerate(shapes)
        ]
    )
    return layer


def _outputs_and_gradients(
    tf: ModuleType, layer: Tensor, inputs: Tensor, mask: Tensor, *, masked: bool
) -> list[Tensor]:
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = tf.nest.flatten(layer(inputs, mask=mask) if masked else layer(inputs))
        loss = tf.add_n([tf.reduce_sum(tf.sin(each) * each) for each in outputs])
    return [*outputs, *tape.gradient(loss, [inputs, *layer.trainable_variables])]


def _by_hand(tf: ModuleType, dtype: str) -> list[Tensor]:
    """A cell that is no layer: rows and columns broadcast, a choice, joined and taken apart."""
    draw = functools.partial(drawn_as, tf, dtype)
    weights = [tf.Variable(draw(shape, 5)) for shape in ((5, 6), (6, 6), (6,), (4, 1))]

    @in_graph(tf)
    def run(inputs: Tensor) -> list[Tensor]:
        steps = tf.shape(inputs)[0]
        with tf.GradientTape() as tape:
            wrote = tf.TensorArray(dtype, size=steps, element_shape=(4, 6))

            def body(step: Tensor, state: Tensor, other: Tensor, wrote: Any) -> tuple[Any, ...]:  # noqa: ANN401
                left, right = tf.split(inputs[step] @ weights[0] + state @ weights[1], 2, axis=1)
                value = tf.concat([tf.nn.relu(left) * 0.5, tf.tanh(right)], 1) + weights[2]
                value = tf.where(value > state, value * weights[3], tf.abs(state) - other)
                mean = tf.reduce_sum(value, 1, keepdims=True) / 6
                return step + 1, value - mean, state, wrote.write(step, value[:, ::1])

            start = tf.zeros((4, 6), dtype)
            *_, last, before, wrote = tf.while_loop(
                lambda step, *_: step < steps, body, (0, start, start + 0.5, wrote)
            )
            stacked = wrote.stack()
            loss = tf.reduce_sum(stacked * stacked) + tf.reduce_sum(last * before)
        return [last, before, stacked, *tape.gradient(loss, weights)]

    return [each for steps in (1, 6) for each in run(draw((steps, 4, 5), steps))]


def _countdown(tf: ModuleType, dtype: str) -> list[Tensor]:
    """No list, no matrix: numbers that go down by two, none at all, a variable that is read."""
    rate = tf.Variable(drawn_as(tf, dtype, (1, 33), 2))

    @in_graph(tf)
    def run(times: Tensor, value: Tensor) -> list[Tensor]:
        end, total = tf.while_loop(
            lambda left, _: left > 1,
            lambda left, total: (left - 2, total * 0.9 + tf.square(rate) - tf.sigmoid(total)),
            (times, value),
        )
        return [tf.cast(end, dtype), total]

    value = drawn_as(tf, dtype, (9, 33), 4)
    return [each for times in (8, 5, 1) for each in run(tf.constant(times), value)]


def trained(tf: ModuleType, dtype: str, *, steps: int = 50) -> list[Tensor]:
    """Steps of gradient descent: what errors grow to."""
    layer = _built(tf, lambda new: new.LSTM(24), dtype)
    inputs, wanted = drawn_as(tf, dtype, (16, 10, _FEATURES), 1), drawn_as(tf, dtype, (16, 24), 2)

    @in_graph(tf)
    def step() -> Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(layer(inputs) - tf.tanh(wanted)))
        gradients = tape.gradient(loss, layer.trainable_variables)
        for variable, gradient in zip(layer.trainable_variables, gradients, strict=True):
            variable.assign_sub(gradient * 0.5)
        return loss

    return [*(step() for _ in range(steps)), *layer.trainable_variables]


def drawn_as(tf: ModuleType, dtype: str, shape: Sequence[int], seed: int) -> Tensor:
    """The same numbers for every type."""
    return tf.cast(drawn(tf, tuple(shape), seed), dtype)


@functools.cache
def _exact(program: Program, tf: ModuleType) -> State:
    return as_arrays(program(tf, "float64"))


def in_both_types(program: Program) -> Case:
    """What it computes in float32, then the same of float64."""
    return lambda tf: [*as_arrays(program(tf, "float32")), *_exact(program, tf)]


@functools.cache
def programs() -> Mapping[str, Program]:
    """By name; those of Keras have its layers' names."""
    return {
        "lstm": _layer(lambda new: new.LSTM(17)),
        "lstm hard": _layer(lambda new: new.LSTM(16, recurrent_activation="hard_sigmoid")),
        "lstm backwards": _layer(
            lambda new: new.LSTM(9, go_backwards=True, return_sequences=True, use_bias=False)
        ),
        "lstm masked": _layer(
            lambda new: new.LSTM(9, return_sequences=True, return_state=True), masked=True
        ),
        "gru": _layer(lambda new: new.GRU(17, return_sequences=True)),
        "gru reset before": _layer(lambda new: new.GRU(16, reset_after=False)),
        "gru masked": _layer(lambda new: new.GRU(9), masked=True),
        "simple": _layer(lambda new: new.SimpleRNN(33)),
        "both ways": _layer(lambda new: new.Bidirectional(new.LSTM(8))),
        "stacked": _layer(lambda new: new.RNN([new.LSTMCell(9), new.GRUCell(5)])),
        "by hand": _by_hand,
        "countdown": _countdown,
        "trained": trained,
    }


def cases() -> Mapping[str, Case]:
    return {name: in_both_types(each) for name, each in programs().items()}


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
