"""Small Keras models, one per layer and activation: train, evaluate, predict, save and load each.

Run in an arm as `python layer_programs.py POLICY NAME...`: it prints a line of JSON per model, also
for one that raises. Without arguments it prints the names.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

VECTOR, SERIES, IMAGE, VOLUME = (16,), (12, 8), (12, 12, 3), (6, 6, 6, 2)
ACTIVATIONS = (
    *("linear", "relu", "tanh", "sigmoid", "gelu", "selu"),
    *("elu", "softmax", "swish", "softplus", "relu6"),
)


def programs(keras: Any) -> dict[str, tuple[tuple[int, ...], Callable[[Any], Any]]]:
    """Return, by name, the shape of an example and what is applied to the input."""
    layers = keras.layers

    def chain(*chained: Any) -> Callable[[Any], Any]:
        def apply(x: Any) -> Any:
            for layer in chained:
                x = layer(x)
            return x

        return apply

    def encoder(x: Any) -> Any:
        attended = layers.MultiHeadAttention(2, 4)(x, x)
        x = layers.LayerNormalization()(layers.Add()([x, attended]))
        hidden = layers.Dense(8)(layers.Dense(16, activation="gelu")(x))
        return layers.LayerNormalization()(layers.Add()([x, hidden]))

    def residual(x: Any) -> Any:
        y = layers.Conv2D(3, 3, padding="same")(x)
        y = layers.ReLU()(layers.BatchNormalization()(y))
        return layers.ReLU()(layers.Add()([layers.Conv2D(3, 3, padding="same")(y), x]))

    activated: dict[str, tuple[tuple[int, ...], Callable[[str], list[Any]]]] = {
        "dense": (VECTOR, lambda a: [layers.Dense(8, activation=a)]),
        "dense_series": (SERIES, lambda a: [layers.Dense(8, activation=a)]),
        "conv2d": (IMAGE, lambda a: [layers.Conv2D(8, 3, activation=a)]),
        "conv1d": (SERIES, lambda a: [layers.Conv1D(8, 3, activation=a)]),
        "conv3d": (VOLUME, lambda a: [layers.Conv3D(4, 3, activation=a)]),
        "depthwise": (IMAGE, lambda a: [layers.DepthwiseConv2D(3, activation=a)]),
        "separable": (IMAGE, lambda a: [layers.SeparableConv2D(6, 3, activation=a)]),
        "transposed": (IMAGE, lambda a: [layers.Conv2DTranspose(4, 3, activation=a)]),
        "padded_conv2d": (
            IMAGE,
            lambda a: [layers.ZeroPadding2D(1), layers.Conv2D(4, 3, strides=2, activation=a)],
        ),
        "conv2d_batch_norm": (
            IMAGE,
            lambda a: [
                layers.Conv2D(8, 3, use_bias=False),
                layers.BatchNormalization(),
                layers.Activation(a),
            ],
        ),
    }
    actual: dict[str, tuple[tuple[int, ...], Callable[[Any], Any]]] = {
        f"{name}_{activation}": (shape, chain(*make(activation)))
        for name, (shape, make) in activated.items()
        for activation in ACTIVATIONS
    }
    return actual | {
        "padded_conv3d": (VOLUME, chain(layers.ZeroPadding3D(1), layers.Conv3D(4, 3))),
        "lstm": (SERIES, chain(layers.LSTM(6))),
        "gru": (SERIES, chain(layers.GRU(6))),
        "simple_rnn": (SERIES, chain(layers.SimpleRNN(6))),
        "two_gru": (
            SERIES,
            chain(layers.Bidirectional(layers.GRU(6, return_sequences=True)), layers.GRU(4)),
        ),
        "bidirectional_lstm": (SERIES, chain(layers.Bidirectional(layers.LSTM(6)))),
        "conv_lstm": ((4, 8, 8, 2), chain(layers.ConvLSTM2D(3, 3))),
        "time_distributed": (SERIES, chain(layers.TimeDistributed(layers.Dense(5)))),
        "layer_norm": (SERIES, chain(layers.LayerNormalization())),
        "layer_norm_dense": (SERIES, chain(layers.Dense(8), layers.LayerNormalization())),
        "batch_norm": (IMAGE, chain(layers.BatchNormalization(), layers.ReLU())),
        "group_norm": (IMAGE, chain(layers.Conv2D(8, 3), layers.GroupNormalization(4))),
        "max_pool": (IMAGE, chain(layers.Conv2D(4, 3), layers.MaxPooling2D())),
        "average_pool": (IMAGE, chain(layers.Conv2D(4, 3), layers.AveragePooling2D(2))),
        "global_average": (IMAGE, chain(layers.Conv2D(4, 3), layers.GlobalAveragePooling2D())),
        "max_pool_3d": (VOLUME, chain(layers.MaxPooling3D())),
        "average_pool_3d": (VOLUME, chain(layers.AveragePooling3D(2))),
        "up_sampling": (IMAGE, chain(layers.UpSampling2D(), layers.Conv2D(3, 3))),
        "leaky_relu": (IMAGE, chain(layers.Conv2D(4, 3), layers.LeakyReLU())),
        "prelu": (VECTOR, chain(layers.Dense(8), layers.PReLU())),
        "softmax": (VECTOR, chain(layers.Dense(8), layers.Softmax())),
        "attention": (SERIES, lambda x: layers.Attention()([x, x])),
        "encoder": (SERIES, encoder),
        "residual": (IMAGE, residual),
    }


def run(keras: Any, np: Any, name: str) -> dict[str, Any]:
    """Return the losses of two epochs, the evaluation and the predictions of a new model."""
    keras.utils.set_random_seed(1)
    shape, apply = programs(keras)[name]
    inputs = keras.layers.Input(shape)
    wide = keras.mixed_precision.global_policy().variable_dtype
    outputs = keras.layers.Dense(3, dtype=wide)(keras.layers.Flatten()(apply(inputs)))
    model = keras.Model(inputs, outputs)
    random = np.random.RandomState(0)
    x, y = random.rand(16, *shape).astype(wide), random.rand(16, 3).astype(wide)
    model.compile(keras.optimizers.SGD(0.01), "mse")
    losses = model.fit(x, y, epochs=2, batch_size=8, verbose=0, shuffle=False).history["loss"]
    predicted = model.predict(x, verbose=0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.keras"
        model.save(path)
        again = keras.models.load_model(path, compile=False).predict(x, verbose=0)
    return {
        "losses": [float(loss) for loss in losses],
        "evaluated": float(model.evaluate(x, y, verbose=0)),
        "predicted": predicted.astype("float64").ravel().tolist(),
        "loaded": again.astype("float64").ravel().tolist(),
    }


def main() -> None:
    import numpy as np  # noqa: PLC0415  (this runs in an arm)
    import tensorflow as tf  # noqa: PLC0415  (as above)

    keras = tf.keras
    policy, *names = sys.argv[1:] or [""]
    if not policy:
        print(json.dumps(list(programs(keras))))
        return
    keras.mixed_precision.set_global_policy(policy)
    for name in names:
        try:
            record: dict[str, Any] = run(keras, np, name)
        except Exception as error:  # noqa: BLE001  (what fails is the finding)
            record = {"error": f"{type(error).__name__}: {error}"[:500]}
        print(json.dumps({"name": name, **record}), flush=True)


if __name__ == "__main__":
    main()
