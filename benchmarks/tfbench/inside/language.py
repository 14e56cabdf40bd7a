"""The language models of Zaremba, Sutskever and Vinyals, "Recurrent Neural Network Regularization"
(2014, arXiv:1409.2329), on the shapes of the Penn Treebank.

This file runs inside each arm's environment: it imports only the standard library and NumPy, and
takes Keras as an argument.

Two layers of LSTM, 10 000 words, plain SGD with clipped gradients. Each window starts from a state
of zeros; the paper passes the state on from one window to the next.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from tfbench.inside.synthetic import create_sentence_sampler
from tfbench.inside.workload import Keras, Model, TrainingSchedule, Workload

WORDS = 10_000
BATCH = 20
TRAINING, VALIDATION = 929_589, 73_760
"""Words in the parts of the Penn Treebank, as the paper's code reads them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """One of the paper's three models.

    `steps` is the number of words that it is unrolled over, `dropout` the rate between layers,
    `norm` the global norm to which gradients are clipped.
    """

    name: str
    units: int
    steps: int
    dropout: float
    norm: float
    epochs: int
    parameters: int

    def create_workload(self, name: str, *, batch: int) -> Workload:
        return Workload(
            name=name,
            inputs=(batch, self.steps),
            inputs_dtype="int32",
            targets=(batch, self.steps),
            targets_dtype="int64",
            parameters=self.parameters,
            schedule=TrainingSchedule(
                epochs=self.epochs,
                steps=self._count_windows(TRAINING, batch),
                validation=self._count_windows(VALIDATION, batch),
            ),
            build=functools.partial(_build_model, self),
            draw=create_sentence_sampler(WORDS, self.steps),
        )

    def _count_windows(self, words: int, batch: int) -> int:
        """Return the number of windows in one row of the text.

        The text is split into as many rows as a batch has, and each row into windows of `steps`
        words.
        """
        return max(1, (words // batch - 1) // self.steps)


def _build_model(size: Size, keras: Keras, seed: int) -> Model:
    new = keras.layers
    layers: list[object] = [
        keras.Input((size.steps,), dtype="int32"),
        new.Embedding(WORDS, size.units),
    ]
    for index in range(2):
        layers += [
            *_create_dropout(keras, size, seed + index),
            new.LSTM(size.units, return_sequences=True),
        ]
    layers += [*_create_dropout(keras, size, seed + 2), new.Dense(WORDS, activation="softmax")]
    model = keras.Sequential(layers)
    model.compile(
        optimizer=keras.optimizers.SGD(1.0, global_clipnorm=size.norm),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return model


def _create_dropout(keras: Keras, size: Size, seed: int) -> list[object]:
    return [keras.layers.Dropout(size.dropout, seed=seed)] if size.dropout else []


SIZES = (
    Size(
        name="ptb_lstm_small",
        units=200,
        steps=20,
        dropout=0.0,
        norm=5.0,
        epochs=13,
        parameters=4_651_600,
    ),
    Size(
        name="ptb_lstm_medium",
        units=650,
        steps=35,
        dropout=0.5,
        norm=5.0,
        epochs=39,
        parameters=19_775_200,
    ),
    Size(
        name="ptb_lstm_large",
        units=1500,
        steps=35,
        dropout=0.65,
        norm=10.0,
        epochs=55,
        parameters=66_022_000,
    ),
)
