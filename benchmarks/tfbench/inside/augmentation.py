"""The augmentation of the article's CIFAR-10 script, which ran outside TensorFlow.

This file runs inside each arm's environment: it imports only the standard library and NumPy.
"""

from __future__ import annotations

import numpy as np

from tfbench.inside.synthetic import Array

SHIFT = 0.1


def augment(images: Array, draw: np.random.Generator) -> Array:
    """Shift each image by up to a tenth, and mirror it with probability 0.5.

    Images have the shape (batch, height, width, channels). The ranges are those of the
    script's ImageDataGenerator, which also draws for each image. This function shifts by whole
    pixels and repeats the edge. Keras called SciPy's affine transform, which takes longer.
    """
    return np.stack([_augment_one(image, draw) for image in images])


def _augment_one(image: Array, draw: np.random.Generator) -> Array:
    height, width, _ = image.shape
    down, right = (round(side * draw.uniform(-SHIFT, SHIFT)) for side in (height, width))
    rows = np.clip(np.arange(height) - down, 0, height - 1)
    columns = np.clip(np.arange(width) - right, 0, width - 1)
    shifted: Array = image[rows][:, columns]
    return shifted[:, ::-1] if draw.random() < 0.5 else shifted  # noqa: PLR2004  (a coin)
