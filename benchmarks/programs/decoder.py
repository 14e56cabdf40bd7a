"""The next token of each of a text's: blocks of a transformer's decoder (Radford et al. 2018)."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

layers = tf.keras.layers
TOKENS, LENGTH, WIDTH, HEADS, BLOCKS = 2_000, 128, 128, 4, 3


def build() -> Any:  # noqa: ANN401  (TensorFlow has no types)
    text = tf.keras.Input((LENGTH,), dtype="int32")
    place = tf.keras.Input((LENGTH,), dtype="int32")
    x = layers.Embedding(TOKENS, WIDTH)(text) + layers.Embedding(LENGTH, WIDTH)(place)
    for _ in range(BLOCKS):
        normal = layers.LayerNormalization()(x)
        attention = layers.MultiHeadAttention(HEADS, WIDTH // HEADS)
        x = layers.Add()([x, attention(normal, normal, use_causal_mask=True)])
        inner = layers.Dense(4 * WIDTH, "gelu")(layers.LayerNormalization()(x))
        x = layers.Add()([x, layers.Dropout(0.1)(layers.Dense(WIDTH)(inner))])
    logits = layers.Dense(TOKENS)(layers.LayerNormalization()(x))
    model = tf.keras.Model([text, place], logits)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.AdamW(3e-4), loss)
    return model


def data() -> Any:  # noqa: ANN401
    texts = np.random.default_rng(1).integers(0, TOKENS, (128, LENGTH + 1), np.int32)
    places = np.broadcast_to(np.arange(LENGTH, dtype=np.int32), (128, LENGTH))
    rows = ((texts[:, :-1], places), texts[:, 1:])
    return tf.data.Dataset.from_tensor_slices(rows).batch(16)
