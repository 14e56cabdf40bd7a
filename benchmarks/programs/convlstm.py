"""The next frame of each of a film's (Shi et al. 2015)."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

layers = tf.keras.layers


def build() -> Any:  # noqa: ANN401  (TensorFlow has no types)
    film = tf.keras.Input((8, 32, 32, 1))
    frames = film
    for _ in range(2):
        frames = layers.ConvLSTM2D(16, 3, padding="same", return_sequences=True)(frames)
        frames = layers.BatchNormalization()(frames)
    following = layers.Conv3D(1, 3, padding="same", activation="sigmoid")(frames)
    model = tf.keras.Model(film, following)
    model.compile(tf.keras.optimizers.Adadelta(1.0), "binary_crossentropy")
    return model


def data() -> Any:  # noqa: ANN401
    films = np.random.default_rng(1).random((32, 9, 32, 32, 1), np.float32)
    return tf.data.Dataset.from_tensor_slices((films[:, :-1], films[:, 1:])).batch(2)
