"""Runs inside an arm: programs as users write them. Prints what they computed as JSON.

python program.py SCRATCH_FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf


def values(tensor: Any) -> list[float]:
    return [float(value) for value in np.asarray(tensor, np.float64).reshape(-1)]


def gradients() -> list[float]:
    """Through eager mode, and twice through the same op."""
    x = tf.constant(np.linspace(-3, 3, 101, dtype=np.float32))
    with tf.GradientTape(persistent=True) as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = tf.reduce_sum(tf.tanh(x) * tf.sigmoid(x))
        first = inner.gradient(y, x)
    return values(outer.gradient(first, x))


def saved(folder: Path) -> list[float]:
    """A SavedModel written and read back."""
    module = tf.Module()
    module.weight = tf.Variable(np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4))
    shape = tf.TensorSpec((None, 3), tf.float32)
    module.call = tf.function(
        lambda x: tf.sigmoid(tf.tanh(x @ module.weight)), input_signature=[shape]
    )
    tf.saved_model.save(module, str(folder / "model"))
    again = tf.saved_model.load(str(folder / "model"))
    return values(again.call(tf.constant(np.eye(3, dtype=np.float32))))


@tf.function  # type: ignore[untyped-decorator]
def looped(x: Any) -> Any:
    """Tuned and stock ops mixed on a TensorArray in a while loop."""
    states = tf.TensorArray(tf.float32, size=4, element_shape=x.shape)
    for step in tf.range(4):
        x = tf.tanh(x) + tf.sigmoid(tf.exp(-x))
        states = states.write(step, x)
    return states.stack()


def shared() -> list[float]:
    """Tuned and stock ops on one variable, a lookup table, and a list of tensors."""
    variable = tf.Variable(np.linspace(-2, 2, 33, dtype=np.float32))
    variable.assign(tf.tanh(variable))
    variable.assign_add(tf.sigmoid(variable))
    variable.scatter_nd_update([[0], [32]], tf.tanh([0.25, 0.5]))
    table = tf.lookup.experimental.DenseHashTable(tf.int64, tf.float32, 0.0, -1, -2)
    table.insert([1, 2], tf.sigmoid([1.0, 2.0]))
    parts = tf.unstack(tf.tanh(tf.reshape(variable, (3, 11))))
    return values(tf.concat([variable, table.lookup([2, 1, 5]), *parts], 0))


def trained() -> list[float]:
    """Losses of a small model under Adam: ResourceApplyAdam, its slots and its parameters."""
    tf.keras.utils.set_random_seed(7)
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Dense(16, activation="tanh", input_shape=(8,)),
            tf.keras.layers.Dense(1, activation="sigmoid"),
        ]
    )
    model.compile("adam", "binary_crossentropy")
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(64, 8)).astype("f"), rng.integers(0, 2, (64, 1))
    return [float(model.train_on_batch(x, y)) for _ in range(6)]


def main(folder: Path) -> None:
    tf.config.experimental.enable_op_determinism()
    tf.keras.utils.set_random_seed(1)
    start = tf.constant(np.linspace(-4, 4, 57, dtype=np.float32))
    actual = {
        "gradients": gradients(),
        "saved": saved(folder),
        "looped": values(looped(start)),
        "shared": shared(),
        "trained": trained(),
        "trained again": trained(),
    }
    print(json.dumps(actual))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
