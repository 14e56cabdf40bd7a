"""What each pixel of an image belongs to: U-Net (Ronneberger et al. 2015), 16 to 128 filters."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

layers = tf.keras.layers
SIZE, CLASSES = 64, 4


def twice(x: Any, filters: int) -> Any:  # noqa: ANN401  (TensorFlow has no types)
    for _ in range(2):
        x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
    return x


def build() -> Any:  # noqa: ANN401
    image = tf.keras.Input((SIZE, SIZE, 3))
    x, levels = image, []
    for filters in (16, 32, 64):
        levels.append(twice(x, filters))
        x = layers.MaxPooling2D()(levels[-1])
    x = twice(x, 128)
    for level, filters in zip(reversed(levels), (64, 32, 16), strict=True):
        x = layers.Conv2DTranspose(filters, 2, strides=2)(x)
        x = twice(layers.Concatenate()([level, x]), filters)
    model = tf.keras.Model(image, layers.Conv2D(CLASSES, 1, activation="softmax")(x))
    model.compile(tf.keras.optimizers.Adam(1e-3), "sparse_categorical_crossentropy")
    return model


def data() -> Any:  # noqa: ANN401
    draw = np.random.default_rng(1)
    images = draw.random((32, SIZE, SIZE, 3), np.float32)
    classes = draw.integers(0, CLASSES, (32, SIZE, SIZE), np.int32)
    return tf.data.Dataset.from_tensor_slices((images, classes)).batch(4)
