"""One language's words from another's: GRUs with attention (Luong et al. 2015)."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

layers = tf.keras.layers
WORDS, LENGTH, WIDTH = 3_000, 24, 128


def build() -> Any:  # noqa: ANN401  (TensorFlow has no types)
    theirs = tf.keras.Input((LENGTH,), dtype="int32")
    ours = tf.keras.Input((LENGTH,), dtype="int32")
    read, state = layers.GRU(WIDTH, return_sequences=True, return_state=True)(
        layers.Embedding(WORDS, WIDTH)(theirs)
    )
    written = layers.GRU(WIDTH, return_sequences=True)(
        layers.Embedding(WORDS, WIDTH)(ours), initial_state=state
    )
    attended = layers.Concatenate()([written, layers.Attention()([written, read])])
    logits = layers.Dense(WORDS)(layers.Dense(WIDTH, "tanh")(attended))
    model = tf.keras.Model([theirs, ours], logits)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.Adam(1e-3, clipnorm=1.0), loss)
    return model


def data() -> Any:  # noqa: ANN401
    draw = np.random.default_rng(1)
    theirs = draw.integers(0, WORDS, (512, LENGTH), np.int32)
    ours = draw.integers(0, WORDS, (512, LENGTH + 1), np.int32)
    rows = ((theirs, ours[:, :-1]), ours[:, 1:])
    return tf.data.Dataset.from_tensor_slices(rows).batch(32)
