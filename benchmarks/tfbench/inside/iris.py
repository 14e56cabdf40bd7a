"""The tiny classifier of the article on dispatch, for Fisher's irises.

Its few parameters take little time compared with the start of each step.

This file runs inside each arm's environment: it imports only the standard library and NumPy, and
takes Keras as an argument. `iris.csv` is the set that scikit-learn ships (R. A. Fisher, "The Use of
Multiple Measurements in Taxonomic Problems", 1936; UCI, CC BY 4.0).
"""

from __future__ import annotations

import functools
import pkgutil

import numpy as np

from tfbench.inside.synthetic import Array, Examples
from tfbench.inside.workload import Keras, Model, TrainingSchedule, Workload

BATCH = 20
TRAINING, TESTING = 105, 45
EPOCHS = 20
_DATA = "iris.csv"


@functools.cache
def load_flowers() -> tuple[Array, Array]:
    """Return the four measurements in cm (150, 4), float32, and the species 0, 1 or 2 (150,).

    The rows are in the order of the data set, sorted by species.
    """
    text = pkgutil.get_data(__package__, _DATA)
    assert text is not None  # noqa: S101  (the file is in this package)
    rows = np.loadtxt(text.decode().splitlines(), delimiter=",", dtype=np.float32)
    return rows[:, :4], rows[:, 4].astype(np.int64)


def split_flowers() -> tuple[Examples, Examples]:
    """Return the training and the test examples; targets are one-hot.

    The set is shuffled first, always in the same order. Otherwise the model would be trained on
    two species and tested on the third.
    """
    measures, species = load_flowers()
    order = np.random.default_rng(0).permutation(len(species))
    targets = np.eye(3, dtype=np.float32)[species]
    shuffled = measures[order], targets[order]
    return tuple(array[:TRAINING] for array in shuffled), tuple(
        array[TRAINING:] for array in shuffled
    )  # type: ignore[return-value]


def create_workload(name: str, *, batch: int) -> Workload:
    return Workload(
        name=name,
        inputs=(batch, 4),
        inputs_dtype="float32",
        targets=(batch, 3),
        targets_dtype="float32",
        parameters=4 * 32 + 32 + 32 * 3 + 3,
        schedule=TrainingSchedule(
            epochs=EPOCHS, steps=-(-TRAINING // batch), validation=-(-TESTING // batch)
        ),
        build=build_model,
        draw=_draw_flowers,
    )


def build_model(keras: Keras, seed: int) -> Model:  # noqa: ARG001  (it has no dropout)
    model = keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(32, activation="relu"),
            keras.layers.Dense(3, activation="softmax"),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(0.1), loss=keras.losses.LogCosh(), metrics=["accuracy"]
    )
    return model


def _draw_flowers(generator: np.random.Generator, count: int) -> Examples:
    """Return `count` of the real training examples, shuffled and repeated as needed."""
    measures, targets = split_flowers()[0]
    order = np.concatenate([generator.permutation(TRAINING) for _ in range(-(-count // TRAINING))])
    return measures[order[:count]], targets[order[:count]]
