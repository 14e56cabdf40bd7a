"""Four models of kinds that the six of 2017 lack; the fifth model of the set is `resnet18`.

This file runs inside each arm's environment: it imports only the standard library and NumPy, and
takes Keras as an argument.

Shapes are the papers'. Batch sizes are those of the papers that suit two CPUs. The data are
synthetic.

    bert_tiny       Turc, Chang, Lee and Toutanova, "Well-Read Students Learn Better" (2019,
                    arXiv:1908.08962): 2 layers, 128 units, 2 heads; the rest is BERT's (Devlin et
                    al. 2018, arXiv:1810.04805). Fine-tuned on pairs of sentences of 128 tokens
    crnn_keywords   Arik et al., "Convolutional Recurrent Neural Networks for Small-Footprint
                    Keyword Spotting" (Interspeech 2017, arXiv:1703.05390): the model of 230 000
                    parameters, one convolution and two layers of bidirectional GRU
    fcn_series      Wang, Yan and Oates, "Time Series Classification from Scratch with Deep Neural
                    Networks" (2016, arXiv:1611.06455): the FCN, on series as UCR's Two_Patterns
    neumf           He et al., "Neural Collaborative Filtering" (WWW 2017, arXiv:1708.05031): NeuMF
                    with 64 factors and three hidden layers, on the sizes of MovieLens 1M

The learning rates are among those that the papers try, and are constant.
"""

from __future__ import annotations

import functools
import math
from typing import Any, TypeAlias

from tfbench.inside.synthetic import (
    create_pair_sampler,
    create_rating_sampler,
    create_series_sampler,
)
from tfbench.inside.workload import Keras, Model, TrainingSchedule, Workload, is_keras_3

Tensor: TypeAlias = Any

PIECES, PLACES = 30_522, 512
"""Size of BERT's vocabulary of word pieces, and its maximum text length."""
TOKENS, UNITS, HEADS, LAYERS = 128, 128, 2, 2
_BERT_EPSILON, _DROPPED = 1e-12, 0.1
FRAMES, CHANNELS, GRU_UNITS = 151, 40, 32
"""1.5 seconds of speech: a frame every 10 ms, with 40 mel frequencies."""
SERIES, SHAPES = 128, 4
"""Length of a Two_Patterns series, and the number of classes."""
USERS, ITEMS, FACTORS = 6_040, 3_706, 64
RATINGS, NEGATIVES = 1_000_209, 4
"""Number of MovieLens 1M's ratings, and of unrated pairs that are drawn for each."""
HIDDEN = (256, 128, 64)


def _build_bert_tiny(keras: Keras, seed: int) -> Model:
    new = keras.layers
    inputs = keras.Input((2, TOKENS), dtype="int32")
    x = new.Embedding(PIECES, UNITS)(inputs[:, 0]) + new.Embedding(2, UNITS)(inputs[:, 1])
    x = _finish_sublayer(keras, _create_position_class(keras)()(x), seed)
    for layer in range(LAYERS):
        attended = _create_attention(keras, seed + 10 * layer + 1)(x, x)
        x = _finish_sublayer(keras, attended, seed + 10 * layer + 2, x)
        wide = new.Dense(4 * UNITS, activation="gelu")(x)
        x = _finish_sublayer(keras, new.Dense(UNITS)(wide), seed + 10 * layer + 3, x)
    pooled = new.Dense(UNITS, activation="tanh")(x[:, 0])
    dropped = new.Dropout(_DROPPED, seed=seed + 100)(pooled)
    model = keras.Model(inputs, new.Dense(2, activation="softmax")(dropped))
    model.compile(
        optimizer=keras.optimizers.AdamW(3e-4, weight_decay=0.01, global_clipnorm=1.0),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return model


def _create_attention(keras: Keras, seed: int) -> Any:
    """Create a layer of multi-head attention.

    Keras 2's layer takes no seed: its dropout uses the global seed of the process.
    """
    options = {"seed": seed} if is_keras_3(keras) else {}
    return keras.layers.MultiHeadAttention(HEADS, UNITS // HEADS, dropout=_DROPPED, **options)


def _finish_sublayer(keras: Keras, x: Tensor, seed: int, past: Tensor | None = None) -> Tensor:
    """Apply the end of BERT's sub-layers: dropout, residual connection, layer normalization.

    The embeddings have no residual connection and are normalized before dropout.
    """
    normalise = keras.layers.LayerNormalization(epsilon=_BERT_EPSILON)
    drop = keras.layers.Dropout(_DROPPED, seed=seed)
    return drop(normalise(x)) if past is None else normalise(past + drop(x))


@functools.cache
def _create_position_class(keras: Keras) -> Any:
    """Return a layer class that adds a learnt vector for each position of a text.

    Keras has no such layer.
    """

    class Positions(keras.layers.Layer):  # type: ignore[misc]
        def build(self, shape: tuple[int | None, ...]) -> None:
            self.table = self.add_weight(name="embeddings", shape=(PLACES, shape[-1]))

        def call(self, x: Tensor) -> Tensor:
            return x + self.table[: x.shape[1]]

    return Positions


def _build_crnn_keywords(keras: Keras, seed: int) -> Model:  # noqa: ARG001  (it has no dropout)
    new = keras.layers
    layers = [
        keras.Input((FRAMES, CHANNELS)),
        new.Reshape((FRAMES, CHANNELS, 1)),
        new.Conv2D(32, (20, 5), strides=(8, 2), padding="same", activation="relu"),
        new.Reshape((math.ceil(FRAMES / 8), CHANNELS // 2 * 32)),
        new.Bidirectional(new.GRU(GRU_UNITS, return_sequences=True)),
        new.Bidirectional(new.GRU(GRU_UNITS, return_sequences=True)),
        new.Flatten(),
        new.Dense(64, activation="relu"),
        new.Dense(2, activation="softmax"),
    ]
    return _compile_model(keras, layers)


def _build_fcn_series(keras: Keras, seed: int) -> Model:  # noqa: ARG001  (it has no dropout)
    new = keras.layers
    layers: list[object] = [keras.Input((SERIES, 1))]
    for filters, size in ((128, 8), (256, 5), (128, 3)):
        layers += [
            new.Conv1D(filters, size, padding="same"),
            new.BatchNormalization(),
            new.Activation("relu"),
        ]
    layers += [new.GlobalAveragePooling1D(), new.Dense(SHAPES, activation="softmax")]
    return _compile_model(keras, layers)


def _compile_model(keras: Keras, layers: list[object]) -> Model:
    model = keras.Sequential(layers)
    model.compile(
        optimizer=keras.optimizers.Adam(0.001),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return model


def _build_neumf(keras: Keras, seed: int) -> Model:  # noqa: ARG001  (it has no dropout)
    new = keras.layers
    inputs = keras.Input((2,), dtype="int32")
    user, item = inputs[:, 0], inputs[:, 1]
    factors = new.Embedding(USERS, FACTORS)(user) * new.Embedding(ITEMS, FACTORS)(item)
    half = HIDDEN[0] // 2
    x = new.Concatenate()([new.Embedding(USERS, half)(user), new.Embedding(ITEMS, half)(item)])
    for units in HIDDEN:
        x = new.Dense(units, activation="relu")(x)
    rated = new.Dense(1, activation="sigmoid")(new.Concatenate()([factors, x]))
    model = keras.Model(inputs, rated)
    model.compile(
        optimizer=keras.optimizers.Adam(0.001), loss="binary_crossentropy", metrics=["accuracy"]
    )
    return model


def _create_schedule(epochs: int, training: int, validation: int, batch: int) -> TrainingSchedule:
    return TrainingSchedule(
        epochs=epochs, steps=math.ceil(training / batch), validation=math.ceil(validation / batch)
    )


MODERN = (
    Workload(
        name="bert_tiny",
        inputs=(8, 2, TOKENS),
        inputs_dtype="int32",
        targets=(8,),
        targets_dtype="int64",
        parameters=4_386_178,
        # GLUE's MRPC (3668 and 408 pairs of sentences), with the number of epochs of Turc et al.
        schedule=_create_schedule(4, 3_668, 408, 8),
        build=_build_bert_tiny,
        draw=create_pair_sampler(PIECES, TOKENS),
    ),
    Workload(
        name="crnn_keywords",
        inputs=(64, FRAMES, CHANNELS),
        inputs_dtype="float32",
        targets=(64,),
        targets_dtype="int64",
        parameters=229_474,
        # About 16 000 samples, six eighths of them for training; the paper does not state epochs.
        schedule=_create_schedule(1, 12_000, 2_000, 64),
        build=_build_crnn_keywords,
        draw=create_series_sampler((FRAMES, CHANNELS), 2, 0.01),
    ),
    Workload(
        name="fcn_series",
        inputs=(16, SERIES, 1),
        inputs_dtype="float32",
        targets=(16,),
        targets_dtype="int64",
        parameters=266_244,
        # Two_Patterns' series, with the number of epochs in the authors' code.
        schedule=_create_schedule(2_000, 1_000, 4_000, 16),
        build=_build_fcn_series,
        draw=create_series_sampler((SERIES, 1), SHAPES, 0.2),
    ),
    Workload(
        name="neumf",
        inputs=(256, 2),
        inputs_dtype="int32",
        targets=(256,),
        targets_dtype="int64",
        parameters=1_978_305,
        # The last rating of each user is held out, and ranked among 99 unrated items. Batch size
        # and epochs are the defaults of the authors' code.
        schedule=_create_schedule(20, (RATINGS - USERS) * (1 + NEGATIVES), 100 * USERS, 256),
        build=_build_neumf,
        draw=create_rating_sampler(USERS, ITEMS, NEGATIVES),
    ),
)
