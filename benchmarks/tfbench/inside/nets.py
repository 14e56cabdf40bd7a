"""Image classifiers: those of keras.applications without weights, AlexNet, GoogLeNet and ResNet-18
from their papers.

This file runs inside each arm's own environment: it imports the standard library and NumPy only,
and Keras comes in as an argument.

Trained as tf_cnn_benchmarks trains them: 1000 classes, SGD, batches of its defaults. The learning
rate is one that all of them bear from random weights; momentum is the papers'.

    AlexNet    Krizhevsky, Sutskever and Hinton, "ImageNet Classification with Deep Convolutional
               Neural Networks", NIPS 2012; its two groups of channels are two convolutions here
    GoogLeNet  Szegedy et al., "Going Deeper with Convolutions", CVPR 2015, table 1, without the
               two classifiers that only help its training
    ResNet-18  He, Zhang, Ren and Sun, "Deep Residual Learning for Image Recognition", CVPR 2016,
               table 1, in the paper's batches; a step of 2 is padded as Keras pads "same"
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from tfbench.inside.synthetic import pictures
from tfbench.inside.workload import Keras, Model, TrainingSchedule, Workload, is_keras_3

Tensor: TypeAlias = Any
Net: TypeAlias = Callable[[Keras, int, int], Model]
"""From Keras, the pixels of a side and a seed for the dropout layers to a model."""

CLASSES = 1000
TRAINING, VALIDATION = 1_281_167, 50_000
"""Images of ImageNet's challenge of 2012."""
EPOCHS = 90
"""Of the training whose cost the article of 2018 compares."""
RATE, MOMENTUM = 0.001, 0.9


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """One net at any size. `image` pixels and `parameters` are the published ones; a side has
    `smallest` pixels or more."""

    name: str
    net: Net
    batch: int
    image: int
    smallest: int
    parameters: int

    def workload(self, name: str, *, batch: int, image: int) -> Workload:
        return Workload(
            name=name,
            inputs=(batch, image, image, 3),
            inputs_dtype="float32",
            targets=(batch,),
            targets_dtype="int64",
            parameters=self.parameters if image == self.image else None,
            schedule=TrainingSchedule(
                epochs=EPOCHS,
                steps=math.ceil(TRAINING / batch),
                validation=math.ceil(VALIDATION / batch),
            ),
            build=functools.partial(_built, self.net, image),
            draw=pictures((image, image, 3), CLASSES),
        )


def _built(net: Net, image: int, keras: Keras, seed: int) -> Model:
    model = net(keras, image, seed)
    model.compile(
        optimizer=keras.optimizers.SGD(RATE, momentum=MOMENTUM),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return model


def _application(name: str, keras: Keras, image: int, seed: int) -> Model:  # noqa: ARG001
    make = getattr(keras.applications, name)
    return make(weights=None, input_shape=(image, image, 3), classes=CLASSES)


def _alexnet(keras: Keras, image: int, seed: int) -> Model:
    new = keras.layers
    inputs = keras.Input((image, image, 3))
    x = new.Conv2D(96, 11, strides=4, activation="relu")(inputs)
    x = _pooled(keras, _normalised(keras, x), padding="valid")
    x = _grouped(keras, x, 256, 5)
    x = _pooled(keras, _normalised(keras, x), padding="valid")
    x = new.Conv2D(384, 3, padding="same", activation="relu")(x)
    x = _grouped(keras, x, 384, 3)
    x = _grouped(keras, x, 256, 3)
    x = new.Flatten()(_pooled(keras, x, padding="valid"))
    for index in range(2):
        x = new.Dropout(0.5, seed=seed + index)(new.Dense(4096, activation="relu")(x))
    return keras.Model(inputs, new.Dense(CLASSES, activation="softmax")(x))


def _grouped(keras: Keras, x: Tensor, filters: int, size: int) -> Tensor:
    """A convolution in two groups, as on the paper's two GPUs. TensorFlow has gradients of grouped
    convolutions on CPUs through XLA only, so each group is one of its own."""
    half = x.shape[-1] // 2
    groups = (x[..., :half], x[..., half:])
    convolved = [
        keras.layers.Conv2D(filters // 2, size, padding="same", activation="relu")(group)
        for group in groups
    ]
    return keras.layers.Concatenate()(convolved)


def _pooled(keras: Keras, x: Tensor, *, padding: str) -> Tensor:
    """Overlapping maxima, 3 by 3 in steps of 2. Maps smaller than that, which no image of the
    papers' size has, are padded."""
    padding = padding if x.shape[1] >= 3 else "same"  # noqa: PLR2004  (the window)
    return keras.layers.MaxPooling2D(3, 2, padding=padding)(x)


def _googlenet(keras: Keras, image: int, seed: int) -> Model:
    new = keras.layers
    inputs = keras.Input((image, image, 3))
    x = new.Conv2D(64, 7, strides=2, padding="same", activation="relu")(inputs)
    x = _normalised(keras, _pooled(keras, x, padding="same"))
    x = new.Conv2D(64, 1, activation="relu")(x)
    x = new.Conv2D(192, 3, padding="same", activation="relu")(x)
    x = _pooled(keras, _normalised(keras, x), padding="same")
    for stage in _INCEPTIONS:
        for widths in stage:
            x = _inception(keras, x, *widths)
        if stage is not _INCEPTIONS[-1]:
            x = _pooled(keras, x, padding="same")
    x = new.Dropout(0.4, seed=seed)(new.GlobalAveragePooling2D()(x))
    return keras.Model(inputs, new.Dense(CLASSES, activation="softmax")(x))


_INCEPTIONS = (
    ((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)),
    (
        (192, 96, 208, 16, 48, 64),
        (160, 112, 224, 24, 64, 64),
        (128, 128, 256, 24, 64, 64),
        (112, 144, 288, 32, 64, 64),
        (256, 160, 320, 32, 128, 128),
    ),
    ((256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)),
)
"""Table 1 of the paper: #1x1, #3x3 reduce, #3x3, #5x5 reduce, #5x5, pool proj."""


def _inception(keras: Keras, x: Tensor, *widths: int) -> Tensor:
    def convolution(filters: int, size: int, on: Tensor) -> Tensor:
        return keras.layers.Conv2D(filters, size, padding="same", activation="relu")(on)

    one, three_reduced, three, five_reduced, five, projected = widths
    pooled = keras.layers.MaxPooling2D(3, 1, padding="same")(x)
    return keras.layers.Concatenate()(
        [
            convolution(one, 1, x),
            convolution(three, 3, convolution(three_reduced, 1, x)),
            convolution(five, 5, convolution(five_reduced, 1, x)),
            convolution(projected, 1, pooled),
        ]
    )


def _resnet18(keras: Keras, image: int, seed: int) -> Model:  # noqa: ARG001  (it has no dropout)
    new = keras.layers
    inputs = keras.Input((image, image, 3))
    x = new.Activation("relu")(_unbiased(keras, inputs, 64, 7, 2))
    x = new.MaxPooling2D(3, 2, padding="same")(x)
    for stage, filters in enumerate((64, 128, 256, 512)):
        x = _residual(keras, x, filters, 2 if stage else 1)
        x = _residual(keras, x, filters, 1)
    x = new.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, new.Dense(CLASSES, activation="softmax")(x))


def _residual(keras: Keras, x: Tensor, filters: int, strides: int) -> Tensor:
    """Two convolutions and what goes past them: projected where they halve the map (option B)."""
    new = keras.layers
    on = new.Activation("relu")(_unbiased(keras, x, filters, 3, strides))
    on = _unbiased(keras, on, filters, 3, 1)
    past = _unbiased(keras, x, filters, 1, strides) if strides > 1 else x
    return new.Activation("relu")(new.Add()([on, past]))


def _unbiased(keras: Keras, x: Tensor, filters: int, size: int, strides: int) -> Tensor:
    """A convolution whose bias is batch normalisation's."""
    new = keras.layers
    x = new.Conv2D(filters, size, strides=strides, padding="same", use_bias=False)(x)
    return new.BatchNormalization()(x)


def _normalised(keras: Keras, x: Tensor) -> Tensor:
    return _response_normalisation(keras)()(x)


@functools.cache
def _response_normalisation(keras: Keras) -> Any:  # noqa: ANN401  (a class of a Keras layer)
    """Both papers' normalisation across channels: x / (2 + 1e-4 Σ x²) ** 0.75 over 5 of them.

    Keras has no such layer: a sum of shifted squares, in the words of the Keras at hand.
    """

    class LocalResponseNormalization(keras.layers.Layer):  # type: ignore[misc]
        def call(self, x: Tensor) -> Tensor:
            if not is_keras_3(keras) or keras.backend.backend() == "tensorflow":
                import tensorflow as tf  # noqa: PLC0415  (not with other backends)

                return tf.nn.local_response_normalization(x, 2, bias=2.0, alpha=1e-4, beta=0.75)
            channels = x.shape[-1]
            padded = keras.ops.pad(x * x, [(0, 0), (0, 0), (0, 0), (2, 2)])
            total = sum(padded[..., shift : shift + channels] for shift in range(5))
            return x / (2.0 + 1e-4 * total) ** 0.75

    return LocalResponseNormalization


def _family(name: str, net: Net, batch: int, image: int, smallest: int, parameters: int) -> Family:
    return Family(
        name=name, net=net, batch=batch, image=image, smallest=smallest, parameters=parameters
    )


FAMILIES = (
    _family("resnet50", functools.partial(_application, "ResNet50"), 64, 224, 32, 25_636_712),
    _family("resnet152", functools.partial(_application, "ResNet152"), 32, 224, 32, 60_419_944),
    _family(
        "inception_v3", functools.partial(_application, "InceptionV3"), 32, 299, 75, 23_851_784
    ),
    _family("vgg16", functools.partial(_application, "VGG16"), 64, 224, 32, 138_357_544),
    _family("alexnet", _alexnet, 512, 227, 32, 60_965_224),
    _family("googlenet", _googlenet, 32, 224, 32, 6_998_552),
    _family("resnet18", _resnet18, 256, 224, 32, 11_699_112),
)
