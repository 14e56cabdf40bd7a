"""Programs with a model and data, as users name them with --workload."""

from __future__ import annotations

import contextlib
import os
import textwrap
from collections.abc import Iterator
from pathlib import Path

from tfbench.arms.arm import Arm, build_environment
from tfbench.engine.workers import Session, start_session
from tfbench.inside.workloads import PROGRAM

LIMIT_S = 300.0

HEAD = """
import numpy as np
import tensorflow as tf
layers = tf.keras.layers
"""

MODEL = """
def build():
    model = tf.keras.Sequential(
        [tf.keras.Input((8,)), layers.Dense(16, "tanh"), layers.Dropout(0.2), layers.Dense(3)]
    )
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss)
    return model
"""

DATA = """
def data():
    draw = np.random.default_rng(1)
    return draw.standard_normal((70, {width})).astype("float32"), draw.integers(0, 3, 70)
"""

DATASET = """
def data():
    rows = tf.data.Dataset.from_tensor_slices((tf.random.normal((100, 8)), tf.zeros(100, tf.int32)))
    return rows.shuffle(100).batch(16)
"""

TEXTS = """
def build():
    words = layers.TextVectorization(max_tokens=20, output_sequence_length=5)
    words.adapt(["a b c", "c d"])
    model = tf.keras.Sequential([words, layers.Embedding(20, 4), layers.Flatten(), layers.Dense(1)])
    model.compile("sgd", "mse")
    return model
def data():
    return np.array([["a b"], ["c d e"]], object), [0.0, 1.0]
"""

TWO_INPUTS = """
def build():
    one, two = tf.keras.Input((4,)), tf.keras.Input((6,), dtype="int32")
    both = layers.Concatenate()([one, layers.Flatten()(layers.Embedding(9, 2)(two))])
    model = tf.keras.Model([one, two], layers.Dense(2, "softmax")(both))
    model.compile("adam", "categorical_crossentropy")
    return model
"""


def plain_arm(name: str, python: Path, **env: str) -> Arm:
    return Arm(name=name, python=python, label="stock", env=tuple(env.items()))


def arm(python: Path, file: Path, **env: str) -> Arm:
    settings = ((PROGRAM, str(file)), *env.items())
    return Arm(name="stock", python=python, label="stock", env=settings)


@contextlib.contextmanager
def opened(first: Arm, folder: Path) -> Iterator[Session]:
    env = build_environment(first, vcpus=1, home=folder, padding=0, inherited=os.environ)
    with start_session(first, env, folder / "worker.log") as started:
        yield started


def cpus() -> tuple[int, ...]:
    return (min(os.sched_getaffinity(0)),)


def written(folder: Path, content: str) -> Path:
    path = folder / "model.py"
    path.write_text(HEAD + textwrap.dedent(content))
    return path
