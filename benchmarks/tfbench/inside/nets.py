"""Image classifiers: those of keras.applications, and AlexNet, GoogLeNet and ResNet-18.

This file runs inside each arm's environment: it imports only the standard library and NumPy, and
takes Keras as an argument.

They have random weights and are trained as in tf_cnn_benchmarks: 1000 classes, SGD, its default
batch sizes. The learning rate is one with which all of them train from random weights. The momentum
is the papers'.

    AlexNet    Krizhevsky, Sutskever and Hinton, "ImageNet Classification with Deep Convolutional
               Neural Networks", NIPS 2012; its two groups of channels are two convolutions here
    GoogLeNet  Szegedy et al., "Going Deeper with Convolutions", CVPR 2015, table 1, without the
               two auxiliary classifiers
    ResNet-18  He, Zhang, Ren and Sun, "Deep Residual Learning for Image Recognition", CVPR 2016,
               table 1, with the paper's batch size; convolutions with stride 2 have Keras's
               padding "same"
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from tfbench.inside.synthetic import create_photo_sampler
from tfbench.inside.workload import Keras, Model, TrainingSchedule, Workload, is_keras_3

Tensor: TypeAlias = Any
Net: TypeAlias = Callable[[Keras, int, int], Model]
"""A function of Keras, the image size and a seed for the dropout layers that returns a model."""

CLASSES = 1000
TRAINING, VALIDATION = 1_281_167, 50_000
"""Number of images in ImageNet's challenge of 2012."""
EPOCHS = 90
"""Epochs of the training run whose cost the article of 2018 compares."""
RATE, MOMENTUM = 0.001, 0.9


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """A net that can be built for several image sizes.

    `image` (height and width in pixels) and `parameters` are the published values. `smallest` is
    the minimum image size.
    """

    name: str
    net: Net
    batch: int
    image: int
    smallest: int
    parameters: int

    def create_workload(self, name: str, *, batch: int, image: int) -> Workload:
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
            build=functools.partial(_build_model, self.net, image),
            draw=create_photo_sampler((image, image, 3), CLASSES),
        )


def _build_model(net: Net, image: int, keras: Keras, seed: int) -> Model:
    model = net(keras, image, seed)
    model.compile(
        optimizer=keras.optimizers.SGD(RATE, momentum=MOMENTUM),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return model


def _build_application(name: str, keras: Keras, image: int, seed: int) -> Model:  # noqa: ARG001
    constructor = getattr(keras.applications, name)
    return constructor(weights=None, input_shape=(image, image, 3), classes=CLASSES)


def _build_alexnet(keras: Keras, image: int, seed: int) -> Model:
    new = keras.layers
    inputs = keras.Input((image, image, 3))
    x = new.Conv2D(96, 11, strides=4, activation="relu")(inputs)
    x = _pool_maxima(keras, _normalise_responses(keras, x), padding="valid")
    x = _convolve_groups(keras, x, 256, 5)
    x = _pool_maxima(keras, _normalise_responses(keras, x), padding="valid")
    x = new.Conv2D(384, 3, padding="same", activation="relu")(x)
    x = _convolve_groups(keras, x, 384, 3)
    x = _convolve_groups(keras, x, 256, 3)
    x = new.Flatten()(_pool_maxima(keras, x, padding="valid"))
    for index in range(2):
        x = new.Dropout(0.5, seed=seed + index)(new.Dense(4096, activation="relu")(x))
    return keras.Model(inputs, new.Dense(CLASSES, activation="softmax")(x))


def _convolve_groups(keras: Keras, x: Tensor, filters: int, size: int) -> Tensor:
    """Apply a convolution in two groups, as on the paper's two GPUs.

    On CPUs TensorFlow supports gradients of grouped convolutions only with XLA, so each group is a
    separate convolution.
    """
    half = x.shape[-1] // 2
    groups = (x[..., :half], x[..., half:])
    convolved = [
        keras.layers.Conv2D(filters // 2, size, padding="same", activation="relu")(group)
        for group in groups
    ]
    return keras.layers.Concatenate()(convolved)


def _pool_maxima(keras: Keras, x: Tensor, *, padding: str) -> Tensor:
    """Apply overlapping max pooling, 3 by 3 with stride 2.

    Feature maps that are smaller than the window, as with small images, are padded.
    """
    padding = padding if x.shape[1] >= 3 else "same"  # noqa: PLR2004  (the window)
    return keras.layers.MaxPooling2D(3, 2, padding=padding)(x)


def _build_googlenet(keras: Keras, image: int, seed: int) -> Model:
    new = keras.layers
    inputs = keras.Input((image, image, 3))
    x = new.Conv2D(64, 7, strides=2, padding="same", activation="relu")(inputs)
    x = _normalise_responses(keras, _pool_maxima(keras, x, padding="same"))
    x = new.Conv2D(64, 1, activation="relu")(x)
    x = new.Conv2D(192, 3, padding="same", activation="relu")(x)
    x = _pool_maxima(keras, _normalise_responses(keras, x), padding="same")
    for stage in _INCEPTIONS:
        for widths in stage:
            x = _apply_inception(keras, x, *widths)
        if stage is not _INCEPTIONS[-1]:
            x = _pool_maxima(keras, x, padding="same")
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


def _apply_inception(keras: Keras, x: Tensor, *widths: int) -> Tensor:
    def convolve(filters: int, size: int, on: Tensor) -> Tensor:
        return keras.layers.Conv2D(filters, size, padding="same", activation="relu")(on)

    one, three_reduced, three, five_reduced, five, projected = widths
    pooled = keras.layers.MaxPooling2D(3, 1, padding="same")(x)
    return keras.layers.Concatenate()(
        [
            convolve(one, 1, x),
            convolve(three, 3, convolve(three_reduced, 1, x)),
            convolve(five, 5, convolve(five_reduced, 1, x)),
            convolve(projected, 1, pooled),
        ]
    )


def _build_resnet18(keras: Keras, image: int, seed: int) -> Model:  # noqa: ARG001  (it has no dropout)
    new = keras.layers
    inputs = keras.Input((image, image, 3))
    x = new.Activation("relu")(_convolve_normalised(keras, inputs, 64, 7, 2))
    x = new.MaxPooling2D(3, 2, padding="same")(x)
    for stage, filters in enumerate((64, 128, 256, 512)):
        x = _apply_residual(keras, x, filters, 2 if stage else 1)
        x = _apply_residual(keras, x, filters, 1)
    x = new.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, new.Dense(CLASSES, activation="softmax")(x))


def _apply_residual(keras: Keras, x: Tensor, filters: int, strides: int) -> Tensor:
    """Apply two convolutions and their shortcut.

    The shortcut is projected if the convolutions halve the map (option B).
    """
    new = keras.layers
    main_path = new.Activation("relu")(_convolve_normalised(keras, x, filters, 3, strides))
    main_path = _convolve_normalised(keras, main_path, filters, 3, 1)
    shortcut = _convolve_normalised(keras, x, filters, 1, strides) if strides > 1 else x
    return new.Activation("relu")(new.Add()([main_path, shortcut]))


def _convolve_normalised(keras: Keras, x: Tensor, filters: int, size: int, strides: int) -> Tensor:
    """Apply a convolution without bias, then batch normalization, which has a bias."""
    new = keras.layers
    x = new.Conv2D(filters, size, strides=strides, padding="same", use_bias=False)(x)
    return new.BatchNormalization()(x)


def _normalise_responses(keras: Keras, x: Tensor) -> Tensor:
    return _create_normalisation_class(keras)()(x)


@functools.cache
def _create_normalisation_class(keras: Keras) -> Any:
    """Return the layer class of both papers' normalization across channels.

    It computes x / (2 + 1e-4 Σ x²) ** 0.75 over 5 channels. Keras has no such layer. With other
    backends than TensorFlow it is a sum of shifted squares in Keras's ops.
    """

    class LocalResponseNormalization(keras.layers.Layer):  # type: ignore[misc]
        def call(self, x: Tensor) -> Tensor:
            if not is_keras_3(keras) or keras.backend.backend() == "tensorflow":
                import tensorflow as tf

                return tf.nn.local_response_normalization(x, 2, bias=2.0, alpha=1e-4, beta=0.75)
            channels = x.shape[-1]
            padded = keras.ops.pad(x * x, [(0, 0), (0, 0), (0, 0), (2, 2)])
            total = sum(padded[..., shift : shift + channels] for shift in range(5))
            return x / (2.0 + 1e-4 * total) ** 0.75

    return LocalResponseNormalization


def _create_family(
    name: str, net: Net, batch: int, image: int, smallest: int, parameters: int
) -> Family:
    return Family(
        name=name, net=net, batch=batch, image=image, smallest=smallest, parameters=parameters
    )


FAMILIES = (
    _create_family(
        "resnet50", functools.partial(_build_application, "ResNet50"), 64, 224, 32, 25_636_712
    ),
    _create_family(
        "resnet152", functools.partial(_build_application, "ResNet152"), 32, 224, 32, 60_419_944
    ),
    _create_family(
        "inception_v3",
        functools.partial(_build_application, "InceptionV3"),
        32,
        299,
        75,
        23_851_784,
    ),
    _create_family(
        "vgg16", functools.partial(_build_application, "VGG16"), 64, 224, 32, 138_357_544
    ),
    _create_family("alexnet", _build_alexnet, 512, 227, 32, 60_965_224),
    _create_family("googlenet", _build_googlenet, 32, 224, 32, 6_998_552),
    _create_family("resnet18", _build_resnet18, 256, 224, 32, 11_699_112),
)
