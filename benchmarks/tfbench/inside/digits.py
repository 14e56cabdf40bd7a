"""A small convolutional net for scikit-learn's handwritten digits, and synthetic digits.

This file runs inside each arm's environment: it imports only the standard library and NumPy, and
takes Keras as an argument. The real images are read from a file, see `convergence`; the synthetic
images have their shape and their share of ink. The real ones are 1797 of the Optical Recognition of
Handwritten Digits (E. Alpaydin and C. Kaynak, UCI, 1998), 8 by 8 pixels of 0 to 16.
"""

from __future__ import annotations

from tfbench.inside.synthetic import create_image_sampler
from tfbench.inside.workload import Keras, Model, TrainingSchedule, Workload

IMAGES, TESTING = 1797, 450
"""Number of images, and of those for testing: a quarter."""
BATCH, EPOCHS = 32, 30
_INK = 0.51


def _build_model(keras: Keras, seed: int) -> Model:  # noqa: ARG001  (it has no dropout)
    new = keras.layers
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            new.Conv2D(32, 3, padding="same", activation="relu"),
            new.MaxPooling2D(2),
            new.Conv2D(64, 3, padding="same", activation="relu"),
            new.MaxPooling2D(2),
            new.Flatten(),
            new.Dense(64, activation="relu"),
            new.Dense(10, activation="softmax"),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(0.001),
        loss="categorical_crossentropy",
        metrics=["accuracy"],
    )
    return model


DIGITS = Workload(
    name="digits_cnn",
    inputs=(BATCH, 8, 8, 1),
    inputs_dtype="float32",
    targets=(BATCH, 10),
    targets_dtype="float32",
    parameters=(9 * 32 + 32) + (9 * 32 * 64 + 64) + (2 * 2 * 64 * 64 + 64) + (64 * 10 + 10),
    schedule=TrainingSchedule(
        epochs=EPOCHS, steps=-(-(IMAGES - TESTING) // BATCH), validation=-(-TESTING // BATCH)
    ),
    build=_build_model,
    draw=create_image_sampler((8, 8, 1), _INK),
)
