"""A stacked denoising autoencoder of images of 28x28 (Vincent et al. 2010)."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

layers = tf.keras.layers


def build() -> Any:  # noqa: ANN401  (TensorFlow has no types)
    image = tf.keras.Input((784,))
    code = layers.GaussianNoise(0.3)(image)
    for width in (512, 256, 64, 256, 512):
        code = layers.Dense(width, "elu")(code)
        code = layers.BatchNormalization()(code)
    model = tf.keras.Model(image, layers.Dense(784, "sigmoid")(code))
    model.compile(tf.keras.optimizers.RMSprop(1e-3), "binary_crossentropy")
    return model


def data() -> Any:  # noqa: ANN401
    images = np.random.default_rng(1).random((1024, 784), np.float32)
    return tf.data.Dataset.from_tensor_slices((images, images)).batch(64)
