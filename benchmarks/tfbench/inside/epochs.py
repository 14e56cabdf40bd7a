"""Epochs of `fit` as in a user's script, with Keras's callbacks and tf.data's default settings.

This file runs inside each arm's environment: it imports only the standard library and TensorFlow.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from tfbench.inside.slices import Slice

TensorFlow: TypeAlias = Any
Model: TypeAlias = Any


def extract_loss(logs: Mapping[str, Any]) -> Any:
    """Return the result of a train_step as one number.

    That is its loss, or the sum of all values if none has that name, as in a GAN.
    """
    return logs["loss"] if "loss" in logs else sum(logs.values())


def flatten_batches(batches: Any) -> Any:
    """Reshape an array from (batches, rows, …) to (batches * rows, …)."""
    return batches.reshape(-1, *batches.shape[2:])


class FitResult(NamedTuple):
    """The times and the loss of one `fit`.

    `epochs` is the seconds of each epoch between its begin and end callbacks, `beside_s` the
    seconds before, between and after the epochs, `loss` the loss of the last epoch.
    """

    epochs: list[Slice]
    beside_s: float
    loss: float


class FitTrainer:
    """Trains a model with `fit`, on the same data in each epoch.

    `data` is an argument of `fit`: a tf.data.Dataset, or arrays as (inputs, targets, weights),
    which `fit` splits into batches of `batch` examples.
    """

    def __init__(self, tf: TensorFlow, model: Model, data: Any, batch: int) -> None:
        self._model, self._clock = model, _create_clock_class(tf)
        if isinstance(data, tf.data.Dataset):
            self._given: Mapping[str, Any] = {"x": data}
        else:
            x, y, weights = tf.keras.utils.unpack_x_y_sample_weight(data)
            self._given = {"x": x, "y": y, "sample_weight": weights, "batch_size": batch}

    def fit(self, epochs: int) -> FitResult:
        """Train for `epochs` epochs in one `fit`."""
        clock, began = self._clock(), time.perf_counter()
        self._model.fit(**self._given, epochs=epochs, verbose=0, callbacks=[clock])
        beside_s = time.perf_counter() - began - math.fsum(epoch.wall_s for epoch in clock.taken)
        return FitResult(epochs=clock.taken, beside_s=beside_s, loss=clock.loss)


def _create_clock_class(tf: TensorFlow) -> Any:
    class Clock(tf.keras.callbacks.Callback):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.taken: list[Slice] = []
            self.loss = 0.0

        def on_epoch_begin(self, *_: object, **__: object) -> None:
            self._began = time.perf_counter(), time.process_time()

        def on_epoch_end(self, _: int, logs: Mapping[str, Any]) -> None:
            wall, cpu = self._began
            self.taken.append(Slice(1, time.perf_counter() - wall, time.process_time() - cpu))
            self.loss = float(extract_loss(logs))

    return Clock
