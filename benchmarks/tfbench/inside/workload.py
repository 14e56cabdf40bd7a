"""A workload: a model, its data and how it is trained.

This file runs inside each arm's environment: it imports only the standard library and NumPy, and
takes Keras as an argument, the arm's `tf.keras` or Keras 3 with any backend.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tfbench.inside.phases import AUGMENT, TRAIN, VALIDATE
from tfbench.inside.synthetic import Draw, Examples

Keras: TypeAlias = Any
"""The Keras module, which has no types to import here."""
Model: TypeAlias = Any
Build: TypeAlias = Callable[[Keras, int], Model]
"""A function of Keras and a seed for the dropout layers that returns a compiled model."""

BATCHES = 32
"""Distinct batches of synthetic data; training cycles through them."""
_DATA_BYTES = 256_000_000
"""Maximum bytes of the synthetic inputs; if BATCHES batches are larger, there are fewer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingSchedule:
    """A published training run in batches; an epoch's seconds include its validation.

    `steps` and `validation` are batches per epoch, `augmented` is true if each training batch
    is augmented first.
    """

    epochs: int
    steps: int
    validation: int
    augmented: bool = False

    @property
    def phases(self) -> dict[str, int]:
        """Return the number of batches per epoch of each phase."""
        counts = {TRAIN: self.steps}
        if self.validation:
            counts[VALIDATE] = self.validation
        if self.augmented:
            counts[AUGMENT] = self.steps
        return counts


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """A model and its data.

    Shapes are those of one batch. `parameters` is the number of weights, None if it was not
    published for this size.
    """

    name: str
    inputs: tuple[int, ...]
    inputs_dtype: str
    targets: tuple[int, ...]
    targets_dtype: str
    parameters: int | None
    schedule: TrainingSchedule
    build: Build
    draw: Draw

    @property
    def batch(self) -> int:
        return self.inputs[0]

    @property
    def image(self) -> int | None:
        """Return the image height and width in pixels, None for other inputs."""
        return self.inputs[1] if len(self.inputs) == 4 else None  # noqa: PLR2004  (NHWC)

    @property
    def batches(self) -> int:
        """Return the number of distinct batches of synthetic data."""
        size = math.prod(self.inputs) * np.dtype(self.inputs_dtype).itemsize
        return max(1, min(BATCHES, _DATA_BYTES // size))


def draw_synthetic_data(workload: Workload, seed: int) -> Examples:
    """Draw the workload's synthetic data; the first axis counts batches.

    The same seed gives the same bytes.
    """
    count = workload.batches
    inputs, targets = workload.draw(np.random.default_rng(seed), count * workload.batch)
    return (
        inputs.reshape(count, *workload.inputs).astype(workload.inputs_dtype, copy=False),
        targets.reshape(count, *workload.targets).astype(workload.targets_dtype, copy=False),
    )


def is_keras_3(keras: Keras) -> bool:
    """Return whether this is Keras 3.

    `tf.keras` of TensorFlow 2.15 and older has no `ops` and no version.
    """
    return hasattr(keras, "ops")
