"""Runs inside TensorFlow: slices, splits, choices and variables. Writes what came out as JSON.

python moved.py OUT LIBRARY..., with no library for the stock kernels
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

OPS = (
    *("StridedSlice", "StridedSliceGrad", "Split", "SelectV2"),
    *("ResourceScatterAdd", "AssignAddVariableOp"),
)
DTYPES = (tf.float32, tf.bfloat16, tf.complex128, tf.int8, tf.bool, tf.string)
LENGTHS = (0, 1, 2, 3, 7, 40)


def priorities() -> dict[str, int]:
    from tensorflow.python.framework import kernels  # noqa: PLC0415

    return {
        op: max(kernel.priority for kernel in kernels.get_registered_kernels_for_op(op).kernel)
        for op in OPS
    }


def numbered(shape: tuple[int, ...], dtype: Any) -> Any:
    """Elements that can be told apart, as far as the type goes."""
    count = tf.reshape(tf.range(1, int(np.prod(shape)) + 1), shape)
    return tf.strings.as_string(count) if dtype is tf.string else tf.cast(count, dtype)


def a_key(shape: tuple[int, ...], rng: random.Random) -> tuple[Any, ...]:
    """Something to index with: places, ranges in both directions, an ellipsis, new axes."""
    key: list[Any] = []
    for length in shape:
        if length and rng.random() < 0.25:
            key.append(rng.randrange(-length, length))
        else:
            start, stop = (rng.choice((None, rng.randint(-length - 1, length + 1))) for _ in "12")
            key.append(slice(start, stop, rng.choice((None, 1, 1, 2, 3, -1, -2))))
    if rng.random() < 0.25:
        key[rng.randrange(len(key)) :] = [...]
    if rng.random() < 0.25:
        key.insert(rng.randrange(len(key) + 1), tf.newaxis)
    return tuple(key)


def same(first: Any, second: Any) -> bool:
    """Bit for bit; NumPy's own bytes objects for strings."""
    left, right = np.asarray(first), np.asarray(second)
    if left.shape != right.shape:
        return False
    if left.dtype.hasobject or right.dtype.hasobject:
        return bool(np.all(left == right))
    return bool(left.tobytes() == right.tobytes())


def slices(dtype: Any, rng: random.Random) -> list[str]:
    """What differs from NumPy, of slices, their gradients and assignments to them."""
    shape = tuple(rng.choice(LENGTHS) for _ in range(rng.randint(1, 4)))
    key = a_key(shape, rng)
    x = numbered(shape, dtype)
    expected = np.asarray(x.numpy()[key])
    actual = [] if same(x[key].numpy(), expected) else [f"{dtype} {shape}[{key}]"]
    if dtype in {tf.float32, tf.bfloat16, tf.complex128}:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x[key]
        gradient = np.zeros_like(x.numpy())
        gradient[key] = expected
        if not same(tape.gradient(y, x, output_gradients=tf.constant(expected)), gradient):
            actual.append(f"gradient of {dtype} {shape}[{key}]")
    if expected.size:
        broadcast = [rng.choice((1, length)) for length in expected.shape]
        value = numbered(tuple(broadcast), dtype)
        variable = tf.Variable(tf.zeros(shape, dtype))
        variable[key].assign(value)
        whole = tf.zeros(shape, dtype).numpy()
        whole[key] = value.numpy()
        if not same(variable.numpy(), whole):
            actual.append(f"{dtype} {shape}[{key}] = {broadcast}")
    return actual


def splits(dtype: Any, rng: random.Random) -> list[str]:
    shape = [rng.choice(LENGTHS) for _ in range(rng.randint(1, 4))]
    axis, parts = rng.randrange(len(shape)), rng.choice((1, 2, 3, 4, 9))
    shape[axis] *= parts
    x = numbered(tuple(shape), dtype)
    pairs = zip(tf.split(x, parts, axis), np.split(x.numpy(), parts, axis), strict=True)
    return [] if all(same(a.numpy(), b) for a, b in pairs) else [f"{dtype} {shape} {axis} {parts}"]


def choices(dtype: Any, rng: random.Random) -> list[str]:
    """Condition and both values of the whole shape, of some of its dimensions, or single."""
    shape = tuple(rng.choice(LENGTHS) for _ in range(rng.randint(0, 3)))
    ways = (shape, shape, (), tuple(rng.choice((1, length)) for length in shape))
    cond, then, other_numbers = (rng.choice(ways) for _ in range(3))
    coins = [rng.random() < 0.5 for _ in range(int(np.prod(cond)))]
    mask = tf.reshape(tf.constant(coins, tf.bool), cond)
    yes, no = (
        numbered(then, dtype),
        tf.reverse(tf.reshape(numbered(other_numbers, dtype), [-1]), [0]),
    )
    no = tf.reshape(no, other_numbers)
    expected = np.where(mask.numpy(), yes.numpy(), no.numpy())
    right = same(tf.where(mask, yes, no).numpy(), expected)
    return [] if right else [f"{dtype} {cond} ? {then} : {other_numbers}"]


def large() -> list[str]:
    """What is shared out among threads."""
    x = tf.reshape(tf.range(3_000_000), (1000, 30, 100))
    parts = zip(tf.split(x, 3, 1), np.split(x.numpy(), 3, 1), strict=True)
    actual = [f"part {i} of a large split" for i, (a, b) in enumerate(parts) if not same(a, b)]
    key = (slice(None, None, -1), slice(1, -1), slice(3, 90))
    y = tf.cast(x, tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(y)
        z = y[key]
    gradient = np.zeros_like(y.numpy())
    gradient[key] = z.numpy()
    actual += [] if same(z, y.numpy()[key]) else ["a large slice"]
    actual += [] if same(tape.gradient(z, y, z), gradient) else ["a large gradient"]
    masked = tf.where(x % 3 == 0, y, 0.0)
    expected = np.where(x.numpy() % 3 == 0, y.numpy(), np.float32(0))
    return actual + ([] if same(masked, expected) else ["a large choice"])


def address(tensor: Any) -> int:
    return int(tensor._numpy().ctypes.data)  # numpy() would copy


def copies() -> dict[str, bool]:
    """Where the variable is after each of these, told by what is read."""
    variable = tf.Variable(tf.zeros((64, 8)))
    row = tf.IndexedSlices(tf.ones((1, 8)), tf.constant([3]))
    variable.scatter_add(row)
    first, second = variable.read_value(), variable.read_value()
    facts = {"two reads share": address(first) == address(second)}
    held, at = first.numpy().copy(), address(first)
    variable.scatter_add(row)
    now = variable.read_value()
    facts["a held value stays"] = same(first, held) and address(now) != at
    facts["the sum is right"] = float(tf.reduce_sum(now)) == 16.0
    at = address(now)
    del first, second, now
    variable.scatter_add(row)
    facts["a scatter is in place"] = address(variable.read_value()) == at
    gathered = tf.Variable(tf.zeros((64, 8)))
    tf.gather(gathered, [1, 2])
    handle = gathered.handle
    tf.raw_ops.DisableCopyOnRead(resource=handle)
    at = address(gathered.read_value())
    tf.gather(gathered, [1, 2])
    tf.raw_ops.AssignSubVariableOp(resource=handle, value=tf.ones((64, 8)))
    tf.raw_ops.AssignAddVariableOp(resource=handle, value=tf.ones((64, 8)))
    tf.raw_ops.DisableCopyOnRead(resource=handle)
    facts["a gathered one is updated in place"] = address(gathered.read_value()) == at
    return facts


def crowded() -> list[float]:
    """Scatters, additions, gathers and reads at once: 1 for each torn read, then what is left."""
    variable = tf.Variable(tf.zeros((500, 16)))
    ones = tf.ones((500, 16))
    indexed_slices = tf.IndexedSlices(ones, tf.range(500))
    torn: list[float] = []

    def read() -> None:
        if np.unique(variable.read_value().numpy()).size != 1:
            torn.append(1.0)

    works: list[Callable[[], object]] = [
        lambda: variable.scatter_add(indexed_slices),
        lambda: variable.assign_add(ones),
        lambda: tf.gather(variable, [0, 499]),
        read,
    ]
    threads = [threading.Thread(target=repeated, args=(work,)) for work in works * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [*torn, *np.unique(variable.numpy()).tolist()]


def repeated(work: Callable[[], object]) -> None:
    for _ in range(100):
        work()


def functional() -> list[Any]:
    variable = tf.Variable(np.linspace(-1, 1, 24, dtype=np.float32).reshape(6, 4))

    @tf.function  # type: ignore[untyped-decorator]
    def step(rows: Any) -> Any:
        before = variable.read_value()
        variable.scatter_sub(tf.IndexedSlices(tf.gather(variable, rows) * 0.5, rows))
        middle = variable.read_value()
        variable.assign_sub(middle * 0.25)
        variable.scatter_update(tf.IndexedSlices(tf.ones((1, 4)), rows[:1]))
        return before, middle, variable.read_value()

    return [part.numpy().tolist() for _ in range(3) for part in step(tf.constant([1, 4, 4]))]


def mixed() -> list[Any]:
    """With stock kernels that switch the mode on, and checkpoints that switch it off."""
    variable = tf.Variable(np.linspace(-1, 1, 24, dtype=np.float32).reshape(6, 4))
    slot = tf.Variable(tf.ones((6, 4)))
    rows = tf.constant([0, 3])
    tape = []
    with tempfile.TemporaryDirectory() as folder:
        for step in range(4):
            tf.raw_ops.ResourceSparseApplyAdagrad(
                var=variable.handle, accum=slot.handle, lr=0.1, grad=tf.ones((2, 4)), indices=rows
            )
            held = variable.read_value()
            variable.scatter_mul(tf.IndexedSlices(tf.fill((2, 4), 1.5), rows))
            variable.assign_add(tf.ones((6, 4)))
            saved = tf.train.Checkpoint(variable=variable).write(f"{folder}/{step}")
            variable.scatter_div(tf.IndexedSlices(tf.fill((2, 4), 3.0), rows))
            tape += [held.numpy().tolist(), variable.numpy().tolist()]
            tf.train.Checkpoint(variable=variable).read(saved)
    return [*tape, variable.numpy().tolist()]


def trained() -> list[float]:
    """A small embedding under Adam: what Keras does with sparse gradients."""
    tf.keras.utils.set_random_seed(5)
    model = tf.keras.Sequential(
        [tf.keras.layers.Embedding(50, 8), tf.keras.layers.LSTM(8), tf.keras.layers.Dense(1)]
    )
    model.compile(tf.keras.optimizers.Adam(0.01), "mse")
    x = np.random.default_rng(1).integers(0, 50, (16, 6))
    losses = [float(model.train_on_batch(x, x[:, :1] / 50)) for _ in range(5)]
    return losses + [float(np.sum(weight)) for weight in model.get_weights()]


def refused() -> list[str]:
    """What is said of wrong input."""
    variable = tf.Variable(tf.zeros((4, 2)))
    handle = variable.handle
    calls: list[Callable[[], object]] = [
        lambda: tf.raw_ops.ResourceScatterAdd(resource=handle, indices=[7], updates=[[1.0, 1.0]]),
        lambda: tf.raw_ops.ResourceScatterAdd(resource=handle, indices=[1], updates=[1.0, 1.0]),
        lambda: tf.raw_ops.ResourceScatterDiv(resource=handle, indices=[1], updates=[[1.0, 0.0]]),
        lambda: tf.raw_ops.AssignAddVariableOp(resource=handle, value=[1.0]),
        lambda: tf.raw_ops.Split(axis=0, value=tf.zeros((3, 2)), num_split=2),
        lambda: tf.zeros((3, 2))[:, 5],
    ]
    messages = []
    for call in calls:
        try:
            call()
        except (tf.errors.OpError, ValueError) as error:
            messages.append(str(error))
    return [*messages, str(variable.numpy().tolist())]


def main(out: str, *libraries: str) -> None:
    tf.config.threading.set_intra_op_parallelism_threads(2)
    tf.config.experimental.enable_op_determinism()
    for library in libraries:
        tf.load_library(library)
    rng = random.Random(11)  # noqa: S311
    wrong = [text for dtype in DTYPES for _ in range(60) for text in slices(dtype, rng)]
    wrong += [text for dtype in DTYPES for _ in range(40) for text in splits(dtype, rng)]
    wrong += [text for dtype in DTYPES for _ in range(60) for text in choices(dtype, rng)]
    answer = {
        "priorities": priorities(),
        "wrong": wrong + large(),
        "copies": copies(),
        "crowded": crowded(),
        "values": {"function": functional(), "mixed": mixed(), "trained": trained()},
        "refused": refused(),
    }
    Path(out).write_text(json.dumps(answer), "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
