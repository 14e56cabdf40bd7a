"""python -m tfbuild.probe.battery ANSWER: check TensorFlow's documented behaviour of its ops.

Writes one JSON object {"passed": [name, …], "failed": {name: error}}. It runs in any TensorFlow 2
environment, also in that of a tuned wheel. It compares values with NumPy's and gradients with
difference quotients, and mixes ops on one variable, list, table or stack, so that tuned and stock
kernels share state. TensorFlow's wheels do not contain TensorFlow's op tests.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tfbuild.probe import uncollected
from tfbuild.probe.cases import Array

_NEAR = 1e-5  # relative and absolute, for float32
_STEP = 1e-3  # of a difference quotient, in float64

_UNARY: dict[str, Callable[[Array], Array]] = {
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "exp": np.exp,
    "math.expm1": np.expm1,
    "math.log1p": lambda x: np.log1p(np.abs(x)),
    "sin": np.sin,
    "cos": np.cos,
    "sqrt": lambda x: np.sqrt(np.abs(x)),
    "square": np.square,
    "abs": np.abs,
    "floor": np.floor,
    "nn.relu": lambda x: np.maximum(x, 0),
    "nn.softplus": lambda x: np.log1p(np.exp(x)),
    "nn.elu": lambda x: np.where(x < 0, np.expm1(x), x),
}
_OF_MAGNITUDE = {"math.log1p", "sqrt"}
_SMOOTH = ("tanh", "sigmoid", "exp", "sin", "nn.softplus", "square")


def main(answer: Path) -> None:
    tf = uncollected.import_tensorflow()
    passed, failed = run_checks(tf)
    answer.write_text(json.dumps({"passed": passed, "failed": failed}), encoding="utf-8")


def run_checks(tf: Any) -> tuple[list[str], dict[str, str]]:
    """Return the names of the checks that passed, and the error of each check that failed."""
    passed, failed = [], {}
    for check in CHECKS:
        name = check.__name__
        try:
            check(tf)
        except Exception as error:  # noqa: BLE001  (any error is the result of this check)
            failed[name] = f"{type(error).__name__}: {error}".strip().splitlines()[0]
        else:
            passed.append(name)
    return passed, failed


def _get_function(tf: Any, name: str) -> Callable[[Any], Any]:
    module, _, last = name.rpartition(".")
    function = getattr(getattr(tf, module) if module else tf, last)
    return (lambda x: function(tf.abs(x))) if name in _OF_MAGNITUDE else function


def _check_equal(tensor: Any, expected: Any, label: str, near: float = 0.0) -> None:
    """Raise ValueError if a tensor's values are not the expected ones."""
    actual, reference = np.asarray(tensor), np.asarray(expected)
    if actual.shape != reference.shape:
        raise ValueError(f"{label}: shape {actual.shape}, not {reference.shape}")
    is_equal = (
        np.allclose(actual, reference, rtol=near, atol=near, equal_nan=True)
        if near
        else np.array_equal(actual, reference)
    )
    if not is_equal:
        raise ValueError(f"{label}: the values differ")


def values(tf: Any) -> None:
    """Check elementwise functions on ordinary and unusual sizes, in eager mode and in a
    tf.function.
    """
    for size in (0, 1, 3, 16, 1009):
        x = np.linspace(-4, 4, size, dtype=np.float32)
        for name, reference in _UNARY.items():
            function = _get_function(tf, name)
            expected = reference(x.astype(np.float64))
            _check_equal(function(tf.constant(x)), expected, name, 10 * _NEAR)
            _check_equal(
                tf.function(function)(tf.constant(x)), expected, f"{name} traced", 10 * _NEAR
            )


def odd_values(tf: Any) -> None:
    """Check that NaN stays NaN, that infinities have their limits, and that the sign of zero is
    kept.
    """
    x = tf.constant([np.nan, np.inf, -np.inf, 0.0, -0.0], tf.float32)
    _check_equal(tf.tanh(x), [np.nan, 1, -1, 0, 0], "tanh", _NEAR)
    _check_equal(tf.sigmoid(x), [np.nan, 1, 0, 0.5, 0.5], "sigmoid", _NEAR)
    _check_equal(tf.exp(x), [np.nan, np.inf, 0, 1, 1], "exp", _NEAR)
    _check_equal(np.signbit(tf.tanh(x)[3:]), [False, True], "signs of tanh's zeros")
    _check_equal(tf.abs(x)[1:], [np.inf, np.inf, 0, 0], "abs")


def broadcasting(tf: Any) -> None:
    """Check binary ops on shapes that NumPy broadcasts too; sums and products of float32 are
    exact.
    """
    rng = np.random.default_rng(7)
    for left_shape, right_shape in (
        ((5, 7), (7,)),
        ((7, 1), (1, 11)),
        ((3, 1, 5), (4, 1)),
        ((4,), ()),
    ):
        a, b = (rng.normal(size=shape).astype(np.float32) for shape in (left_shape, right_shape))
        for tf_op, np_op in (
            (tf.add, np.add),
            (tf.subtract, np.subtract),
            (tf.multiply, np.multiply),
        ):
            _check_equal(tf_op(a, b), np_op(a, b), f"{tf_op.__name__} {left_shape} {right_shape}")
        _check_equal(tf.maximum(a, b), np.maximum(a, b), f"maximum {left_shape} {right_shape}")
        _check_equal(tf.less(a, b), np.less(a, b), f"less {left_shape} {right_shape}")


def movement(tf: Any) -> None:
    """Check ops that only move elements."""
    x = np.arange(210, dtype=np.float32).reshape(2, 3, 5, 7)
    _check_equal(tf.transpose(x, (3, 1, 0, 2)), x.transpose(3, 1, 0, 2), "transpose")
    _check_equal(tf.concat([x, x[:1]], 0), np.concatenate([x, x[:1]]), "concat")
    _check_equal(tf.gather(x, [4, 0, 4], axis=2), x[:, :, [4, 0, 4]], "gather")
    _check_equal(tf.pad(x[0, 0], ((1, 0), (2, 3))), np.pad(x[0, 0], ((1, 0), (2, 3))), "pad")
    _check_equal(tf.tile(x[0, 0], (2, 3)), np.tile(x[0, 0], (2, 3)), "tile")
    _check_equal(tf.constant(x)[:, ::-1, 1:4:2], x[:, ::-1, 1:4:2], "strided slice")
    _check_equal(tf.reverse(x, [1, 3]), x[:, ::-1, :, ::-1], "reverse")
    _check_equal(tf.stack(tf.unstack(x, axis=1), axis=1), x, "stack of unstack")
    _check_equal(tf.where(x > 9, x, -x), np.where(x > 9, x, -x), "where")  # noqa: PLR2004


def contractions(tf: Any) -> None:
    """Check products and sums over axes against float64."""
    rng = np.random.default_rng(8)
    a, b = rng.normal(size=(17, 29)), rng.normal(size=(29, 13))
    operands = (tf.constant(a, tf.float32), tf.constant(b, tf.float32))
    _check_equal(tf.matmul(*operands), a @ b, "matmul", 10 * _NEAR)
    _check_equal(tf.einsum("ij,jk->ki", *operands), (a @ b).T, "einsum", 10 * _NEAR)
    _check_equal(tf.reduce_sum(operands[0], 0), a.sum(0), "reduce_sum", 10 * _NEAR)
    _check_equal(tf.reduce_mean(operands[0]), a.mean(), "reduce_mean", _NEAR)
    _check_equal(tf.reduce_max(operands[0], 1), a.astype(np.float32).max(1), "reduce_max")
    total = tf.reduce_sum(tf.nn.softmax(operands[0]), -1)
    _check_equal(total, np.ones(len(a)), "sums of softmax's rows", _NEAR)


def gradients(tf: Any) -> None:
    """Check gradients against difference quotients in float64."""
    x = np.linspace(-2, 2, 33)
    for name in _SMOOTH:
        function = _get_function(tf, name)
        with tf.GradientTape() as tape:
            point = tf.constant(x)
            tape.watch(point)
            result = function(point)
        slope = (function(tf.constant(x + _STEP)) - function(tf.constant(x - _STEP))) / (2 * _STEP)
        _check_equal(tape.gradient(result, point), slope, f"gradient of {name}", _STEP)


def traced_loop(tf: Any) -> None:
    """Check a tf.while_loop in a tf.function with a TensorArray against Python's own loop."""

    def compute_powers(count: Any, factor: Any) -> Any:
        results = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
        value = tf.constant(1.0)
        for index in tf.range(count):
            value *= factor
            results = results.write(index, value)
        return results.stack()

    traced = tf.function(compute_powers)
    _check_equal(traced(tf.constant(5), tf.constant(2.0)), [2, 4, 8, 16, 32], "powers")


def saved_model(tf: Any) -> None:
    """Check that a saved and loaded module computes the same, bit for bit."""
    module = tf.Module()
    module.weight = tf.Variable(np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4))
    signature = tf.TensorSpec((None, 3), tf.float32)
    module.call = tf.function(
        lambda x: tf.nn.softmax(tf.tanh(x @ module.weight)), input_signature=[signature]
    )
    x = tf.constant(np.linspace(-3, 3, 15, dtype=np.float32).reshape(5, 3))
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder)
        loaded = tf.saved_model.load(folder)  # (a function does not keep its module alive)
        _check_equal(loaded.call(x), module.call(x), "loaded")


def seeds(tf: Any) -> None:
    """Check that a seed gives one stream, that stateless ops depend on their seed alone, and
    that bounds hold.
    """
    streams = []
    for _ in range(2):
        tf.random.set_seed(3)
        streams.append([tf.random.uniform((99,)).numpy(), tf.random.normal((99,)).numpy()])
    _check_equal(streams[0], streams[1], "two streams of one seed")
    first, second = (tf.random.stateless_normal((99,), seed=(1, last)) for last in (2, 3))
    _check_equal(first, tf.random.stateless_normal((99,), seed=(1, 2)), "a stateless stream")
    if np.array_equal(first, second):
        raise ValueError("two seeds give the same stream")
    uniform = tf.random.uniform((4096,), 2.0, 3.0).numpy()
    _check_equal([uniform.min() >= 2, uniform.max() < 3], [True, True], "bounds")  # noqa: PLR2004


def one_variable(tf: Any) -> None:
    """Check assignments, scattered updates and an optimizer's step on one variable."""
    variable = tf.Variable(np.zeros((5, 3), np.float32))
    variable.assign_add(np.ones((5, 3), np.float32))
    variable.scatter_add(tf.IndexedSlices(np.full((2, 3), 2, np.float32), [1, 3]))
    variable.scatter_update(tf.IndexedSlices(np.full((1, 3), 9, np.float32), [0]))
    tf.raw_ops.ResourceApplyGradientDescent(
        var=variable.handle, alpha=0.5, delta=np.full((5, 3), 2, np.float32)
    )
    variable[4, 1].assign(7.0)
    expected = np.repeat([[8.0], [2], [0], [2], [0]], 3, axis=1)
    expected[4, 1] = 7
    _check_equal(variable, expected, "values of the variable")


def one_array(tf: Any) -> None:
    """Check writes, gathers, scatters and splits of one TensorArray."""
    array = tf.TensorArray(tf.float32, size=4, clear_after_read=False, element_shape=(2,))
    array = array.write(0, [1.0, 2.0]).scatter([1, 3], [[3.0, 4.0], [7.0, 8.0]])
    array = array.write(2, [5.0, 6.0])
    _check_equal(array.stack(), [[1, 2], [3, 4], [5, 6], [7, 8]], "stack")
    _check_equal(array.gather([3, 0]), [[7, 8], [1, 2]], "gather")
    _check_equal(array.concat(), np.arange(1, 9), "concat")


def one_list(tf: Any) -> None:
    """Check pushes, sets and pops of one tensor list."""
    raw = tf.raw_ops
    handle = raw.TensorListFromTensor(tensor=[[1.0, 2.0], [3.0, 4.0]], element_shape=[2])
    handle = raw.TensorListPushBack(input_handle=handle, tensor=[5.0, 6.0])
    handle = raw.TensorListSetItem(input_handle=handle, index=0, item=[9.0, 9.0])
    shape = tf.constant([2])
    remaining, last = raw.TensorListPopBack(
        input_handle=handle, element_shape=shape, element_dtype=tf.float32
    )
    stacked = raw.TensorListStack(
        input_handle=remaining, element_shape=shape, element_dtype=tf.float32
    )
    _check_equal(last, [5, 6], "the popped element")
    _check_equal(stacked, [[9, 9], [3, 4]], "the remaining elements")


def one_table(tf: Any) -> None:
    """Check inserts, look-ups and removals of one table."""
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, default_value=-1)
    table.insert(tf.constant(["a", "b"]), np.array([1, 2]))
    table.insert(tf.constant(["b", "c"]), np.array([5, 3]))
    table.remove(tf.constant(["a"]))
    _check_equal(table.lookup(tf.constant(["a", "b", "c"])), [-1, 5, 3], "found")
    _check_equal(table.size(), 2, "size")


def one_stack(tf: Any) -> None:
    """Check pushes and pops of one stack."""
    raw = tf.raw_ops
    stack = raw.StackV2(max_size=-1, elem_type=tf.float32, stack_name="battery")
    for value in (1.0, 2.0):
        raw.StackPushV2(handle=stack, elem=value)
    popped = [raw.StackPopV2(handle=stack, elem_type=tf.float32).numpy() for _ in range(2)]
    _check_equal(popped, [2, 1], "popped")


def determinism(tf: Any) -> None:
    """Check that with op determinism enabled a step of a small model is the same twice, bit for
    bit.

    This check runs last, as no public function disables determinism.
    """
    tf.config.experimental.enable_op_determinism()
    rng = np.random.default_rng(9)
    x, w = (tf.constant(rng.normal(size=size), tf.float32) for size in ((64, 31), (31, 17)))
    ids = tf.constant(np.sort(rng.integers(0, 5, 64)))

    def run_step() -> tuple[Any, Any]:
        with tf.GradientTape() as tape:
            tape.watch(w)
            sums = tf.math.unsorted_segment_sum(tf.nn.relu(x @ w), ids, 5)
            loss = tf.reduce_mean(tf.nn.log_softmax(sums))
        return loss, tape.gradient(loss, w)

    for first, second in zip(run_step(), run_step(), strict=True):
        _check_equal(first, second, "twice")


CHECKS = (
    *(values, odd_values, broadcasting, movement, contractions, gradients, traced_loop),
    *(saved_model, seeds, one_variable, one_array, one_list, one_table, one_stack, determinism),
)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
