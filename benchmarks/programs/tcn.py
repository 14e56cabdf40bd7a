"""A temporal convolutional network: causal convolutions, dilated (Bai et al. 2018)."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

layers = tf.keras.layers
LENGTH, CHANNELS, FILTERS = 256, 8, 32


def build() -> Any:  # noqa: ANN401  (TensorFlow has no types)
    series = tf.keras.Input((LENGTH, CHANNELS))
    x = layers.Conv1D(FILTERS, 1)(series)
    for dilation in (1, 2, 4, 8, 16):
        y = x
        for _ in range(2):
            y = layers.Conv1D(FILTERS, 3, padding="causal", dilation_rate=dilation)(y)
            y = layers.SpatialDropout1D(0.1)(layers.ReLU()(layers.LayerNormalization()(y)))
        x = layers.ReLU()(layers.Add()([x, y]))
    model = tf.keras.Model(series, layers.Dense(1)(x[:, -1]))
    model.compile(tf.keras.optimizers.Nadam(1e-3), "huber")
    return model


def data() -> Any:  # noqa: ANN401
    draw = np.random.default_rng(1)
    series = draw.standard_normal((256, LENGTH, CHANNELS), np.float32)
    return tf.data.Dataset.from_tensor_slices((series, series[:, :1, 0])).batch(16)
