"""Epochs of `fit`, as a user's script has them: with Keras's callbacks and tf.data's own settings.

This file runs inside each arm's own environment: the standard library and TensorFlow only.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from tfbench.inside.slices import Slice

TensorFlow: TypeAlias = Any
Model: TypeAlias = Any


def loss_of(logs: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """What a train_step returns, as one number: its loss, or the sum of all where none has that
    name, as of a GAN."""
    return logs["loss"] if "loss" in logs else sum(logs.values())


def rows(batches: Any) -> Any:  # noqa: ANN401  (an array)
    """(batches, rows, …) as (batches * rows, …)."""
    return batches.reshape(-1, *batches.shape[2:])


class Fit(NamedTuple):
    """A `fit`: what each epoch took, from its begin to its end as callbacks see them; the seconds
    before, between and after them; and the last epoch's loss."""

    epochs: list[Slice]
    beside_s: float
    loss: float


class Epochs:
    """A model that is trained by `fit`, on the same data in each epoch.

    `data` is what `fit` takes: a tf.data.Dataset, or arrays as (inputs, targets, weights), which
    are cut into batches of so many examples.
    """

    def __init__(self, tf: TensorFlow, model: Model, data: Any, batch: int) -> None:  # noqa: ANN401
        self._model, self._clock = model, _clock(tf)
        if isinstance(data, tf.data.Dataset):
            self._given: Mapping[str, Any] = {"x": data}
        else:
            x, y, weights = tf.keras.utils.unpack_x_y_sample_weight(data)
            self._given = {"x": x, "y": y, "sample_weight": weights, "batch_size": batch}

    def fit(self, epochs: int) -> Fit:
        """Train for so many epochs in one `fit`."""
        clock, began = self._clock(), time.perf_counter()
        self._model.fit(**self._given, epochs=epochs, verbose=0, callbacks=[clock])
        beside_s = time.perf_counter() - began - math.fsum(each.wall_s for each in clock.taken)
        return Fit(epochs=clock.taken, beside_s=beside_s, loss=clock.loss)


def _clock(tf: TensorFlow) -> Any:  # noqa: ANN401  (a class whose parent is Keras's)
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
            self.loss = float(loss_of(logs))

    return Clock
