"""Clicks from 26 columns of words and 13 of numbers: Deep & Cross (Wang et al. 2017)."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

layers = tf.keras.layers
COLUMNS, NUMBERS, WORDS, WIDTH = 26, 13, 20_000, 16


def build() -> Any:  # noqa: ANN401  (TensorFlow has no types)
    words = tf.keras.Input((COLUMNS,), dtype="int32")
    numbers = tf.keras.Input((NUMBERS,))
    embedded = layers.Flatten()(layers.Embedding(WORDS, WIDTH)(words))
    first = layers.Concatenate()([embedded, numbers])
    crossed, deep = first, first
    for _ in range(3):
        weighed = layers.Dense(1, use_bias=False)(crossed)
        scaled = layers.Multiply()([first, weighed])
        crossed = layers.Add()([scaled, crossed])
    for width in (256, 128):
        deep = layers.Dropout(0.2)(layers.Dense(width, "relu")(deep))
    clicked = layers.Dense(1, "sigmoid")(layers.Concatenate()([crossed, deep]))
    model = tf.keras.Model([words, numbers], clicked)
    model.compile(tf.keras.optimizers.Adagrad(0.01), "binary_crossentropy")
    return model


def data() -> Any:  # noqa: ANN401
    draw = np.random.default_rng(1)
    words = draw.integers(0, WORDS, (2048, COLUMNS), np.int32)
    numbers = draw.standard_normal((2048, NUMBERS), np.float32)
    clicked = draw.integers(0, 2, (2048, 1)).astype(np.float32)
    return tf.data.Dataset.from_tensor_slices(((words, numbers), clicked)).batch(128)
