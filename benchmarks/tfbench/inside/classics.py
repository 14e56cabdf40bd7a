"""The six models of the 2017 article.

This file runs inside each arm's environment: it imports only the standard library and NumPy, and
takes Keras as an argument.

Layers, batch sizes, optimizers and losses are those of the scripts in
github.com/minimaxir/deep-learning-cpu-gpu-benchmark (July 2017). Where Keras's defaults have
changed since, the models set the old values: Adadelta's learning rate of 1, an epsilon of 1e-8,
LSTM's hard sigmoid as recurrent activation. LSTM's `implementation=0` no longer exists; Keras 2
maps it to 1, and so do these models. Keras 3 has one implementation, and another slope of the hard
sigmoid. CIFAR-10's augmentation ran outside TensorFlow, so it is a separate phase.
"""

from __future__ import annotations

from collections.abc import Sequence

from tfbench.inside.synthetic import (
    BIGRAMS,
    NIETZSCHE_CHARS,
    WORDS,
    create_image_sampler,
    create_review_sampler,
    draw_text,
)
from tfbench.inside.workload import Keras, Model, TrainingSchedule, Workload, is_keras_3

EPSILON = 1e-8
"""Keras's default fuzz factor in mid-2017."""


def _compile_model(keras: Keras, layers: Sequence[object], optimizer: object, loss: str) -> Model:
    model = keras.Sequential(list(layers))
    model.compile(optimizer=optimizer, loss=loss, metrics=["accuracy"])
    return model


def _build_mnist_mlp(keras: Keras, seed: int) -> Model:
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
    return _compile_model(keras, layers, optimizer, "categorical_crossentropy")


def _build_mnist_cnn(keras: Keras, seed: int) -> Model:
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
    return _compile_model(keras, layers, optimizer, "categorical_crossentropy")


def _build_cifar10_cnn(keras: Keras, seed: int) -> Model:
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
    # The article's lr=1e-4 with decay=1e-6: Keras divided the rate by 1 + decay * steps.
    rate = keras.optimizers.schedules.InverseTimeDecay(1e-4, decay_steps=1, decay_rate=1e-6)
    optimizer = keras.optimizers.RMSprop(rate, rho=0.9, epsilon=EPSILON)
    return _compile_model(keras, layers, optimizer, "categorical_crossentropy")


def _build_imdb_fasttext(keras: Keras, seed: int) -> Model:  # noqa: ARG001  (it has no dropout)
    layers = [
        keras.Input((400,), dtype="int32"),
        keras.layers.Embedding(WORDS + 1 + BIGRAMS, 50),
        keras.layers.GlobalAveragePooling1D(),
        keras.layers.Dense(1, activation="sigmoid"),
    ]
    return _compile_model(keras, layers, _create_adam(keras), "binary_crossentropy")


def _build_imdb_bilstm(keras: Keras, seed: int) -> Model:
    new = keras.layers
    lstm = _create_lstm(keras, 64, implementation=1)
    layers = [
        keras.Input((100,), dtype="int32"),
        new.Embedding(WORDS, 128),
        new.Bidirectional(lstm),
        new.Dropout(0.5, seed=seed),
        new.Dense(1, activation="sigmoid"),
    ]
    return _compile_model(keras, layers, _create_adam(keras), "binary_crossentropy")


def _build_lstm_text(keras: Keras, seed: int) -> Model:  # noqa: ARG001  (it has no dropout)
    new = keras.layers
    layers = [
        keras.Input((40, NIETZSCHE_CHARS)),
        _create_lstm(keras, 128, implementation=2),
        new.Dense(NIETZSCHE_CHARS),
        new.Activation("softmax"),
    ]
    optimizer = keras.optimizers.RMSprop(0.01, rho=0.9, epsilon=EPSILON)
    return _compile_model(keras, layers, optimizer, "categorical_crossentropy")


def _create_lstm(keras: Keras, units: int, *, implementation: int) -> object:
    options = {} if is_keras_3(keras) else {"implementation": implementation}
    return keras.layers.LSTM(units, recurrent_activation="hard_sigmoid", **options)


def _create_adam(keras: Keras) -> object:
    return keras.optimizers.Adam(0.001, beta_1=0.9, beta_2=0.999, epsilon=EPSILON)


SIX = (
    Workload(
        name="mnist_mlp",
        inputs=(128, 784),
        inputs_dtype="float32",
        targets=(128, 10),
        targets_dtype="float32",
        parameters=669_706,
        schedule=TrainingSchedule(epochs=20, steps=469, validation=79),
        build=_build_mnist_mlp,
        draw=create_image_sampler((784,), 0.19),
    ),
    Workload(
        name="mnist_cnn",
        inputs=(128, 28, 28, 1),
        inputs_dtype="float32",
        targets=(128, 10),
        targets_dtype="float32",
        parameters=1_199_882,
        schedule=TrainingSchedule(epochs=12, steps=469, validation=79),
        build=_build_mnist_cnn,
        draw=create_image_sampler((28, 28, 1), 0.19),
    ),
    Workload(
        name="cifar10_cnn",
        inputs=(32, 32, 32, 3),
        inputs_dtype="float32",
        targets=(32, 10),
        targets_dtype="float32",
        parameters=1_250_858,
        schedule=TrainingSchedule(epochs=20, steps=1562, validation=313, augmented=True),
        build=_build_cifar10_cnn,
        draw=create_image_sampler((32, 32, 3), 1.0),
    ),
    Workload(
        name="imdb_fasttext",
        inputs=(32, 400),
        inputs_dtype="int32",
        targets=(32,),
        targets_dtype="int64",
        parameters=(WORDS + 1 + BIGRAMS) * 50 + 51,
        schedule=TrainingSchedule(epochs=5, steps=782, validation=782),
        build=_build_imdb_fasttext,
        draw=create_review_sampler(400, bigrams=True),
    ),
    Workload(
        name="imdb_bilstm",
        inputs=(32, 100),
        inputs_dtype="int32",
        targets=(32,),
        targets_dtype="int64",
        parameters=2_658_945,
        schedule=TrainingSchedule(epochs=4, steps=782, validation=782),
        build=_build_imdb_bilstm,
        draw=create_review_sampler(100, bigrams=False),
    ),
    Workload(
        name="lstm_text",
        inputs=(128, 40, NIETZSCHE_CHARS),
        inputs_dtype="bool",
        targets=(128, NIETZSCHE_CHARS),
        targets_dtype="bool",
        parameters=102_585,
        schedule=TrainingSchedule(epochs=10, steps=1565, validation=0),
        build=_build_lstm_text,
        draw=draw_text,
    ),
)
