"""The six models of the 2017 article.

This file runs inside each arm's own environment: it imports the standard library and NumPy only,
and TensorFlow's Keras comes in as an argument.

Layers, batch sizes, optimizers and losses are those of the scripts in
github.com/minimaxir/deep-learning-cpu-gpu-benchmark (July 2017). Where Keras has changed since, the
values that were in force then are spelled out: Adadelta's learning rate of 1, an epsilon of 1e-8,
LSTM's hard sigmoid as recurrent activation. LSTM's `implementation=0` no longer exists; Keras maps
it to 1, and so do we. CIFAR-10's augmentation ran outside TensorFlow: it is a phase of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from tfbench.inside.twins import (
    BIGRAMS,
    NIETZSCHE_CHARS,
    WORDS,
    Draw,
    Examples,
    images,
    reviews,
    text,
)

Keras: TypeAlias = Any
"""The `tf.keras` of the arm; TensorFlow has no types to import here."""
Model: TypeAlias = Any

BATCHES = 32
"""Distinct batches of a twin; training goes round them."""
EPSILON = 1e-8
"""Keras's default fuzz factor in mid-2017."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Course:
    """The article's training run in batches; its epoch's seconds hold the validation pass, too.

    `steps` and `validation` are batches per epoch, `augmented` says whether each training batch is
    augmented first.
    """

    epochs: int
    steps: int
    validation: int
    augmented: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """A model, its data and how many trainable numbers it has. Shapes are of one batch."""

    name: str
    batch: int
    inputs: tuple[int, ...]
    inputs_dtype: str
    targets: tuple[int, ...]
    targets_dtype: str
    parameters: int
    course: Course
    build: Callable[[Keras, int], Model]
    """From `tf.keras` and a seed for the dropout layers to a compiled model."""
    draw: Draw


def twin(workload: Workload, seed: int) -> Examples:
    """The workload's synthetic data in BATCHES batches. The same seed gives the same bytes."""
    inputs, targets = workload.draw(np.random.default_rng(seed), BATCHES * workload.batch)
    return (
        inputs.reshape(BATCHES, *workload.inputs).astype(workload.inputs_dtype, copy=False),
        targets.reshape(BATCHES, *workload.targets).astype(workload.targets_dtype, copy=False),
    )


def _compiled(keras: Keras, layers: Sequence[object], optimizer: object, loss: str) -> Model:
    model = keras.Sequential(list(layers))
    model.compile(optimizer=optimizer, loss=loss, metrics=["accuracy"])
    return model


def _mnist_mlp(keras: Keras, seed: int) -> Model:
    new = keras.layers
    layers = [
        keras.Input((784,)),
        new.Dense(512, activation="relu"),
        new.Dropout(0.2, seed=seed),
        new.Dense(512, activation="relu"),
        new.Dropout(0.2, seed=seed + 1),
        new.Dense(10, activation="softmax"),
    ]
    optimizer = keras.optimizers.RMSprop(0.001, rho=0.9, epsilon=EPSILON)
    return _compiled(keras, layers, optimizer, "categorical_crossentropy")


def _mnist_cnn(keras: Keras, seed: int) -> Model:
    new = keras.layers
    layers = [
        keras.Input((28, 28, 1)),
        new.Conv2D(32, 3, activation="relu"),
        new.Conv2D(64, 3, activation="relu"),
        new.MaxPooling2D(2),
        new.Dropout(0.25, seed=seed),
        new.Flatten(),
        new.Dense(128, activation="relu"),
        new.Dropout(0.5, seed=seed + 1),
        new.Dense(10, activation="softmax"),
    ]
    optimizer = keras.optimizers.Adadelta(1.0, rho=0.95, epsilon=EPSILON)
    return _compiled(keras, layers, optimizer, "categorical_crossentropy")


def _cifar10_cnn(keras: Keras, seed: int) -> Model:
    new = keras.layers
    layers: list[object] = [keras.Input((32, 32, 3))]
    for index, filters in enumerate((32, 64)):
        layers += [
            new.Conv2D(filters, 3, padding="same"),
            new.Activation("relu"),
            new.Conv2D(filters, 3),
            new.Activation("relu"),
            new.MaxPooling2D(2),
            new.Dropout(0.25, seed=seed + index),
        ]
    layers += [
        new.Flatten(),
        new.Dense(512),
        new.Activation("relu"),
        new.Dropout(0.5, seed=seed + 2),
        new.Dense(10),
        new.Activation("softmax"),
    ]
    # The article's lr=1e-4 with decay=1e-6: Keras divided by 1 + decay * steps.
    rate = keras.optimizers.schedules.InverseTimeDecay(1e-4, decay_steps=1, decay_rate=1e-6)
    optimizer = keras.optimizers.RMSprop(rate, rho=0.9, epsilon=EPSILON)
    return _compiled(keras, layers, optimizer, "categorical_crossentropy")


def _imdb_fasttext(keras: Keras, seed: int) -> Model:  # noqa: ARG001  (it has no dropout)
    layers = [
        keras.Input((400,), dtype="int32"),
        keras.layers.Embedding(WORDS + 1 + BIGRAMS, 50),
        keras.layers.GlobalAveragePooling1D(),
        keras.layers.Dense(1, activation="sigmoid"),
    ]
    return _compiled(keras, layers, _adam(keras), "binary_crossentropy")


def _imdb_bilstm(keras: Keras, seed: int) -> Model:
    new = keras.layers
    lstm = new.LSTM(64, recurrent_activation="hard_sigmoid", implementation=1)
    layers = [
        keras.Input((100,), dtype="int32"),
        new.Embedding(WORDS, 128),
        new.Bidirectional(lstm),
        new.Dropout(0.5, seed=seed),
        new.Dense(1, activation="sigmoid"),
    ]
    return _compiled(keras, layers, _adam(keras), "binary_crossentropy")


def _lstm_text(keras: Keras, seed: int) -> Model:  # noqa: ARG001  (it has no dropout)
    new = keras.layers
    layers = [
        keras.Input((40, NIETZSCHE_CHARS)),
        new.LSTM(128, recurrent_activation="hard_sigmoid", implementation=2),
        new.Dense(NIETZSCHE_CHARS),
        new.Activation("softmax"),
    ]
    optimizer = keras.optimizers.RMSprop(0.01, rho=0.9, epsilon=EPSILON)
    return _compiled(keras, layers, optimizer, "categorical_crossentropy")


def _adam(keras: Keras) -> object:
    return keras.optimizers.Adam(0.001, beta_1=0.9, beta_2=0.999, epsilon=EPSILON)


# --- the table ----------------------------------------------------------------------------------


def _workload(
    name: str,
    inputs: tuple[int, ...],
    targets: tuple[int, ...],
    *,
    dtypes: tuple[str, str],
    parameters: int,
    course: Course,
    build: Callable[[Keras, int], Model],
    draw: Draw,
) -> Workload:
    return Workload(
        name=name,
        batch=inputs[0],
        inputs=inputs,
        inputs_dtype=dtypes[0],
        targets=targets,
        targets_dtype=dtypes[1],
        parameters=parameters,
        course=course,
        build=build,
        draw=draw,
    )


_FLOATS = ("float32", "float32")
_NUMBERS = ("int32", "int64")
_FLAGS = ("bool", "bool")
_ALL = (
    _workload(
        "mnist_mlp",
        (128, 784),
        (128, 10),
        dtypes=_FLOATS,
        parameters=669_706,
        course=Course(epochs=20, steps=469, validation=79),
        build=_mnist_mlp,
        draw=images((784,), 0.19),
    ),
    _workload(
        "mnist_cnn",
        (128, 28, 28, 1),
        (128, 10),
        dtypes=_FLOATS,
        parameters=1_199_882,
        course=Course(epochs=12, steps=469, validation=79),
        build=_mnist_cnn,
        draw=images((28, 28, 1), 0.19),
    ),
    _workload(
        "cifar10_cnn",
        (32, 32, 32, 3),
        (32, 10),
        dtypes=_FLOATS,
        parameters=1_250_858,
        course=Course(epochs=20, steps=1562, validation=313, augmented=True),
        build=_cifar10_cnn,
        draw=images((32, 32, 3), 1.0),
    ),
    _workload(
        "imdb_fasttext",
        (32, 400),
        (32,),
        dtypes=_NUMBERS,
        parameters=(WORDS + 1 + BIGRAMS) * 50 + 51,
        course=Course(epochs=5, steps=782, validation=782),
        build=_imdb_fasttext,
        draw=reviews(400, bigrams=True),
    ),
    _workload(
        "imdb_bilstm",
        (32, 100),
        (32,),
        dtypes=_NUMBERS,
        parameters=2_658_945,
        course=Course(epochs=4, steps=782, validation=782),
        build=_imdb_bilstm,
        draw=reviews(100, bigrams=False),
    ),
    _workload(
        "lstm_text",
        (128, 40, NIETZSCHE_CHARS),
        (128, NIETZSCHE_CHARS),
        dtypes=_FLAGS,
        parameters=102_585,
        course=Course(epochs=10, steps=1565, validation=0),
        build=_lstm_text,
        draw=text,
    ),
)
WORKLOADS: Mapping[str, Workload] = MappingProxyType({each.name: each for each in _ALL})


# --- a user's own ---------------------------------------------------------------------------------

PROGRAM = "TENSORWRIGHT_PROGRAM"
"""The worker's variable with the path of the user's file."""
_OWN = "own:"


def own_name(file: str) -> str:
    """What a user's file is called among workloads; its path is in the worker's environment."""
    return f"{_OWN}{file}"


def is_own(name: str) -> bool:
    return name.startswith(_OWN)


def batch_of(name: str) -> int:
    """Examples in a batch; 0 where only a worker knows, which has read the user's file."""
    return 0 if is_own(name) else WORKLOADS[name].batch


def course_of(name: str) -> Course:
    """The whole training run; of a user's file one batch, as it has no other phase."""
    return Course(epochs=1, steps=1, validation=0) if is_own(name) else WORKLOADS[name].course
