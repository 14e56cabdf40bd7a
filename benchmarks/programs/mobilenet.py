"""MobileNetV2 (Sandler et al. 2018) with a width of 0.35, images of 96x96."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf


def build() -> Any:  # noqa: ANN401  (TensorFlow has no types)
    model = tf.keras.applications.MobileNetV2((96, 96, 3), alpha=0.35, weights=None, classes=10)
    optimizer = tf.keras.optimizers.SGD(0.01, momentum=0.9)
    model.compile(optimizer, "sparse_categorical_crossentropy")
    return model


def data() -> Any:  # noqa: ANN401
    draw = np.random.default_rng(1)
    images, classes = draw.random((64, 96, 96, 3), np.float32), draw.integers(0, 10, 64, np.int32)
    return tf.data.Dataset.from_tensor_slices((images, classes)).batch(8)
