"""Random programs for each part of the fused ops, and whole random Keras models.

Each is made from `Choices`. It computes in a float type that is given, from numbers that are the
same in all types. `nudge` multiplies these by 1 + nudge or 1 - nudge: so float64 shows how far
rounding of the inputs alone moves the results.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from tfbuild.probe import float64
from tfbuild.probe.choices import Choices
from tfbuild.probe.fusing import Tensor, draw_values, in_graph

Shape = tuple[int, ...]
RandomProgram = Callable[[ModuleType, str, float], list[Tensor]]
"""Takes the tensorflow module, the name of a float type and the nudge; returns its results."""

_SIZES = (1, 2, 3, 7, 16, 17, 33, 64, 65, 130)
_FEW = (1, 2, 3, 5, 8, 16, 17)
_STEPS = 2
_SPLIT = 0.1


@dataclass(frozen=True, kw_only=True)
class ProgramFamily:
    """A family of random programs: `make` makes one, for the `parts` of the fused ops.

    Programs of an `exact` family must leave the same bits as stock kernels in float32.
    """

    parts: tuple[str, ...]
    make: Callable[[Choices], RandomProgram]
    exact: bool = False


def draw(
    tf: ModuleType, dtype: str, shape: Sequence[int], seed: int, nudge: float, scale: float = 1.0
) -> Tensor:
    """Draw float32 numbers as a tensor of this type."""
    values = np.asarray(draw_values(tf, tuple(shape), seed)).astype("float32") * np.float32(scale)
    signs = np.where(np.random.default_rng(seed).integers(0, 2, shape), 1, -1)
    return tf.constant(values.astype("float64") * (1 + nudge * signs), dtype)


def _differentiate(
    tf: ModuleType,
    dtype: str,
    compute: Callable[..., Tensor],
    tensors: Sequence[Tensor],
    *,
    known: bool,
) -> list[Tensor]:
    """Return the result of `compute`, and all gradients in one tensor, each scaled to 1.

    In a tensor of few elements, the error of stock kernels may be small by chance. Without `known`,
    TensorFlow does not know the shapes when it prepares the graph.
    """
    shapes = [tensor.shape if known else [None] * len(tensor.shape) for tensor in tensors]

    @in_graph(tf, input_signature=[tf.TensorSpec(shape, dtype) for shape in shapes])
    def run(*inputs: Tensor) -> list[Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            result = compute(*inputs)
            loss = tf.reduce_sum(tf.sin(result))
        return [result, *tape.gradient(loss, inputs, unconnected_gradients="zero")]

    result, *gradients = run(*tensors)
    return [result, _join(gradients)]


def _join(values: Sequence[Tensor]) -> Tensor:
    arrays = [np.asarray(value) for value in values]
    return np.concatenate(
        [(array / max(np.max(np.abs(array), initial=0), 1e-30)).ravel() for array in arrays]
    )


# ---- elementwise operations and sums of rows ----


def _make_chain(choices: Choices) -> RandomProgram:
    full = tuple(choices.choose(_FEW) for _ in range(choices.draw_between(0, 3)))
    full = (*full, choices.choose((1, 5, 16, 64, 130, 257, 1000)))
    shapes = [full]
    for _ in range(choices.draw_below(4)):
        shape = tuple(1 if choices.decide(30) else size for size in full)
        shapes.append(shape[choices.draw_below(len(shape)) if choices.decide(30) else 0 :])
    steps = [
        (
            choices.draw_below(len(_BINARY) + len(_UNARY)),
            choices.draw_below(64),
            choices.draw_below(64),
        )
        for _ in range(choices.draw_between(1, 12))
    ]
    known, total = choices.decide(30), choices.decide(30)

    def compute(tf: ModuleType, *inputs: Tensor) -> Tensor:
        # Buffers of results may be overwritten. Conditions are of inputs, which are exact.
        values = [tf.sin(tensor) for tensor in inputs]
        for number, first, second in steps:
            left, right = values[first % len(values)], values[second % len(values)]
            if number < len(_BINARY):
                value = _BINARY[number](tf, left, right)
            else:
                value = _UNARY[number - len(_BINARY)](tf, left, inputs[second % len(inputs)])
            values.append(tf.tanh(value) if second % 3 == 0 else value)
        result = tf.tanh(functools.reduce(tf.add, values[len(inputs) :]))
        return tf.reduce_sum(result, axis=0) if total and len(result.shape) > 1 else result

    def run(tf: ModuleType, dtype: str, nudge: float) -> list[Tensor]:
        tensors = [draw(tf, dtype, shape, seed, nudge) for seed, shape in enumerate(shapes)]
        return _differentiate(tf, dtype, functools.partial(compute, tf), tensors, known=known)

    return run


_BINARY: tuple[Callable[[ModuleType, Tensor, Tensor], Tensor], ...] = (
    lambda tf, x, y: tf.add(x, y),
    lambda tf, x, y: tf.multiply(x, y),
    lambda tf, x, y: tf.subtract(x, y),
    lambda tf, x, y: tf.maximum(x, y),
    lambda tf, x, y: tf.minimum(x, y),
    lambda tf, x, y: tf.math.squared_difference(x, y),
    lambda tf, x, y: x / (tf.square(y) + 1),
)
_UNARY: tuple[Callable[[ModuleType, Tensor, Tensor], Tensor], ...] = (
    lambda tf, x, _: tf.nn.relu(x),
    lambda tf, x, _: tf.negative(x),
    lambda tf, x, _: tf.tanh(x),
    lambda tf, x, _: tf.sigmoid(x),
    lambda tf, x, _: tf.abs(x),
    lambda tf, x, _: tf.square(x),
    lambda tf, x, _: tf.math.erf(x),
    lambda tf, x, _: tf.nn.relu6(4 * x),
    lambda tf, x, _: tf.math.rsqrt(tf.square(x) + 1),
    lambda tf, x, _: tf.sqrt(tf.abs(x) + 0.5),
    lambda tf, x, _: tf.exp(-tf.square(x)),
    lambda tf, x, _: tf.math.log(tf.abs(x) + 0.5),
    lambda tf, x, _: tf.nn.softmax(x),
    lambda tf, x, _: tf.nn.gelu(x),
    lambda tf, x, _: tf.nn.gelu(x, approximate=True),
    lambda tf, x, _: tf.nn.elu(x),
    lambda tf, x, _: tf.nn.silu(x),
    lambda tf, x, _: tf.nn.leaky_relu(x),
    lambda tf, x, _: x - tf.reduce_mean(x, axis=-1, keepdims=True),
    lambda tf, x, _: x + tf.reduce_sum(x, axis=-1, keepdims=True) * 0.1,
    lambda tf, x, _: x * tf.reduce_max(x, axis=-1, keepdims=True),
    lambda tf, x, y: tf.where(y > _SPLIT, x, x * 0.5),
    lambda tf, x, y: tf.where(tf.logical_or(y > 1, y < -1), -x, x),
    lambda tf, x, _: tf.reshape(tf.reshape(x, [-1]) * 0.5 + 0.1, tf.shape(x)),
    lambda tf, x, _: tf.clip_by_value(x, -0.7, 0.7),
)


# ---- products ----


def _make_product(choices: Choices) -> RandomProgram:
    make = choices.choose((_make_matmul, _make_convolution, _make_einsum))
    shapes, compute = make(choices)
    scales = [choices.choose((1.0, 1.0, 1.0, 1e-3, 1e3, 1e-12, 1e12)) for _ in shapes]
    known = choices.decide(40)
    epilogue, width = choices.choose(_EPILOGUES), choices.decide(50)

    def finish(tf: ModuleType, *tensors: Tensor) -> Tensor:
        *operands, bias = tensors
        result = compute(tf, *operands)
        return epilogue(tf, tf.nn.bias_add(result, bias) if width else result)

    def run(tf: ModuleType, dtype: str, nudge: float) -> list[Tensor]:
        tensors = [
            draw(tf, dtype, shape, seed, nudge, scale)
            for seed, (shape, scale) in enumerate(zip(shapes, scales, strict=True))
        ]
        last = int(compute(tf, *tensors).shape[-1])
        tensors.append(draw(tf, dtype, (last,), 9, nudge, float(np.prod(scales))))
        return _differentiate(tf, dtype, functools.partial(finish, tf), tensors, known=known)

    return run


_EPILOGUES: tuple[Callable[[ModuleType, Tensor], Tensor], ...] = (
    lambda _, x: x,
    lambda tf, x: tf.nn.relu(x),
    lambda tf, x: tf.tanh(x),
    lambda tf, x: tf.nn.relu6(x),
    lambda tf, x: tf.nn.elu(x),
    lambda tf, x: tf.sigmoid(x),
    lambda tf, x: tf.nn.leaky_relu(x),
)
_Product = tuple[tuple[Shape, ...], Callable[..., Tensor]]


def _make_matmul(choices: Choices) -> _Product:
    rows, inner, columns = (choices.choose(_SIZES) for _ in range(3))
    batch = tuple(choices.choose(_FEW) for _ in range(choices.draw_below(3)))
    left, right = (choices.decide(30) for _ in range(2))
    one_matrix = choices.decide(30)
    if one_matrix:
        batch = batch[:1]  # with (x, 1), stock TensorFlow 2.20.0 crashes where oneDNN is on
    first = (*batch, inner, rows) if left else (*batch, rows, inner)
    second = (columns, inner) if right else (inner, columns)

    def compute(tf: ModuleType, x: Tensor, y: Tensor) -> Tensor:
        return tf.matmul(x, y, transpose_a=left, transpose_b=right)

    return (first, second if one_matrix else (*batch, *second)), compute


_EINSUMS = {
    "abc,cd->abd": "abc cd",
    "abc,cde->abde": "abc cde",
    "aecd,abcd->acbe": "aecd abcd",
    "acbe,aecd->abcd": "acbe aecd",
    "abd,acd->abc": "abd acd",
    "ab,bc->ca": "ab bc",
    "abc,abd->cd": "abc abd",
}


def _make_einsum(choices: Choices) -> _Product:
    equation = choices.choose(tuple(_EINSUMS))
    sizes = {letter: choices.choose(_FEW) for letter in sorted({*equation} - {*",->"})}
    shapes = tuple(tuple(sizes[letter] for letter in word) for word in _EINSUMS[equation].split())
    return shapes, lambda tf, x, y: tf.einsum(equation, x, y)


def _make_convolution(choices: Choices) -> _Product:
    window = choices.choose(((1, 1), (3, 3), (1, 3), (3, 1), (5, 5), (1, 5), (2, 2), (7, 7)))
    channels, filters = (choices.choose((1, 3, 4, 8, 16, 17, 32)) for _ in range(2))
    height, width = (choices.choose((7, 8, 9, 12, 15, 16, 24)) for _ in range(2))
    stride = choices.choose((1, 1, 2, 3))
    dilation = choices.choose((1, 1, 2)) if stride == 1 else 1
    padding = choices.choose(("SAME", "VALID"))
    batch = choices.choose(_FEW[:5])

    def compute(tf: ModuleType, x: Tensor, kernel: Tensor) -> Tensor:
        return tf.nn.conv2d(x, kernel, stride, padding, dilations=dilation)

    if (min(height, width) - 1) < dilation * (max(window) - 1):
        padding = "SAME"
    return ((batch, height, width, channels), (*window, channels, filters)), compute


def _make_grouped(choices: Choices) -> RandomProgram:
    group_size, groups, filters = (choices.choose((1, 2, 3, 4, 8)) for _ in range(3))
    window = choices.choose(((3, 3), (1, 1), (5, 5), (1, 3), (7, 7)))
    height, width, batch = (
        choices.choose((8, 9, 16)),
        choices.choose((7, 12)),
        choices.choose((1, 2, 5)),
    )
    stride, padding = choices.choose((1, 2)), choices.choose(("SAME", "VALID"))
    dilation = choices.choose((1, 2)) if stride == 1 and padding == "SAME" else 1
    depthwise, known = choices.decide(50), choices.decide(50)
    known = known or dilation > 1
    channels = group_size * groups
    kernel = (*window, channels, filters) if depthwise else (*window, group_size, filters * groups)
    padding = "SAME" if max(window) > min(height, width) else padding

    def compute(tf: ModuleType, x: Tensor, weights: Tensor) -> Tensor:
        if depthwise:
            strides = [1, stride, stride, 1]
            return tf.nn.depthwise_conv2d(x, weights, strides, padding, dilations=[dilation] * 2)

        @in_graph(tf, jit_compile=True)  # as Keras does
        def convolve(images: Tensor, filters: Tensor) -> Tensor:
            return tf.nn.conv2d(images, filters, stride, padding, dilations=dilation)

        return convolve(x, weights)

    def run(tf: ModuleType, dtype: str, nudge: float) -> list[Tensor]:
        shapes = ((batch, height, width, channels), kernel)
        tensors = [draw(tf, dtype, shape, seed, nudge) for seed, shape in enumerate(shapes)]
        return _differentiate(tf, dtype, functools.partial(compute, tf), tensors, known=known)

    return run


# ---- loops ----


def _make_loop(choices: Choices) -> RandomProgram:
    return choices.choose((_make_plain_loop, _make_recurrent))(choices)


def _make_plain_loop(choices: Choices) -> RandomProgram:
    rows, units, steps = choices.choose(_FEW), choices.choose(_FEW), choices.draw_between(0, 6)
    body = [
        (choices.draw_below(len(_BODY)), choices.draw_below(8), choices.draw_below(8))
        for _ in range(choices.draw_between(1, 8))
    ]
    states = choices.draw_between(1, 3)
    records, ends_early, nested = choices.decide(40), choices.decide(25), choices.decide(20)
    branches, gradient = choices.decide(25), choices.decide(60)

    def advance(tf: ModuleType, values: list[Tensor], weight: Tensor, step: Tensor) -> list[Tensor]:
        pool = list(values)
        for number, first, second in body:
            left, right = pool[first % len(pool)], pool[second % len(pool)]
            pool.append(_BODY[number](tf, left, right, weight))
        fresh = [tf.tanh(value) for value in pool[-states:]]
        fresh = [*fresh, *values][:states]
        if branches:
            fresh[0] = tf.cond(step % 2 == 0, lambda: fresh[0] * 0.5, lambda: values[0] - fresh[0])
        return fresh

    def compute(tf: ModuleType, *tensors: Tensor) -> Tensor:
        *values, weight = tensors
        array = tf.TensorArray(weight.dtype, max(steps, 1), element_shape=(rows, units))

        def is_before_end(step: Tensor, values: Any, *_: Tensor) -> Tensor:
            small = tf.reduce_sum(tf.abs(values[0])) > 0.05 * rows * units
            return tf.logical_and(step < steps, small) if ends_early else step < steps

        def run_step(step: Tensor, values: Any, array: Any) -> Any:
            fresh = advance(tf, list(values), weight, step)
            if nested:
                _, inner = tf.while_loop(
                    lambda number, _: number < _STEPS,
                    lambda number, value: (number + 1, tf.tanh(value * 0.9 + fresh[-1] * 0.1)),
                    (0, fresh[0]),
                )
                fresh[0] = inner
            return step + 1, tuple(fresh), array.write(step, fresh[0]) if records else array

        _, last, array = tf.while_loop(
            is_before_end, run_step, (0, tuple(values), array), maximum_iterations=steps
        )
        result = functools.reduce(tf.add, last)
        return result + tf.reduce_sum(array.stack(), 0) if records and steps else result

    def run(tf: ModuleType, dtype: str, nudge: float) -> list[Tensor]:
        tensors = [draw(tf, dtype, (rows, units), seed, nudge) for seed in range(states)]
        tensors.append(draw(tf, dtype, (units, units), 8, nudge, 0.3))
        bound = functools.partial(compute, tf)
        if gradient:
            return _differentiate(tf, dtype, bound, tensors, known=True)
        return [in_graph(tf)(bound)(*tensors)]

    return run


_BODY: tuple[Callable[[ModuleType, Tensor, Tensor, Tensor], Tensor], ...] = (
    lambda _, x, y, __: x + y * 0.5,
    lambda _, x, y, __: x * y,
    lambda _, x, y, __: x - y,
    lambda tf, x, _, weight: tf.matmul(x, weight),
    lambda tf, x, _, __: tf.tanh(x),
    lambda tf, x, _, __: tf.sigmoid(x),
    lambda tf, x, _, __: tf.nn.relu(x),
    lambda tf, x, y, __: tf.where(x > y, x, y * 0.5),
    lambda tf, x, _, __: x - tf.reduce_mean(x, axis=-1, keepdims=True),
    lambda tf, x, y, __: tf.concat([x, y], axis=-1)[:, : x.shape[-1]],
    lambda tf, x, y, __: tf.split(tf.concat([x, y], axis=0), 2, axis=0)[1],
    lambda tf, x, _, __: tf.transpose(tf.transpose(x)) * 0.9,
    lambda tf, x, y, __: tf.maximum(x, y) - tf.minimum(x, y),
)


def _make_recurrent(choices: Choices) -> RandomProgram:
    kind = choices.choose(("LSTM", "GRU", "SimpleRNN"))
    batch, length, width, units = (choices.choose(_FEW) for _ in range(4))
    options: dict[str, Any] = {
        "return_sequences": choices.decide(50),
        "go_backwards": choices.decide(25),
        "activation": choices.choose(("tanh", "relu", "sigmoid", "linear")),
        "use_bias": not choices.decide(20),
    }
    if kind != "SimpleRNN":
        options["recurrent_activation"] = choices.choose(("sigmoid", "hard_sigmoid", "tanh"))
    if kind == "LSTM":
        options["unit_forget_bias"] = not choices.decide(20)
    if kind == "GRU":
        options["reset_after"] = not choices.decide(40)
    both, masked, stacked = choices.decide(30), choices.decide(40), choices.decide(20)

    def create(tf: ModuleType) -> Callable[..., Tensor]:
        layers = tf.keras.layers
        cell = {"LSTM": layers.LSTMCell, "GRU": layers.GRUCell, "SimpleRNN": layers.SimpleRNNCell}
        if stacked:
            inner = {
                name: value
                for name, value in options.items()
                if name not in {"return_sequences", "go_backwards"}
            }
            cells = [cell[kind](units, **inner) for _ in range(2)]
            layer = layers.RNN(cells, return_sequences=options["return_sequences"])
        else:
            layer = getattr(layers, kind)(units, **options)
        built: Callable[..., Tensor] = layers.Bidirectional(layer) if both else layer
        return built

    def run(tf: ModuleType, dtype: str, nudge: float) -> list[Tensor]:
        inputs = draw(tf, dtype, (batch, length, width), 1, nudge)
        rng = np.random.default_rng(2)
        mask = tf.constant(rng.integers(0, 3, (batch, length)) > 0) if masked else None
        with float64.use_float_type(tf, dtype):
            layer: Any = create(tf)
            layer(inputs, mask=mask)
        _assign(tf, dtype, layer.trainable_variables, nudge, 0.4)
        return _differentiate_layer(
            tf, dtype, lambda x: layer(x, mask=mask), inputs, layer.trainable_variables
        )

    return run


def _assign(
    tf: ModuleType, dtype: str, variables: Sequence[Tensor], nudge: float, scale: float
) -> None:
    for seed, variable in enumerate(variables):
        variable.assign(draw(tf, dtype, tuple(variable.shape), seed + 20, nudge, scale))


def _differentiate_layer(
    tf: ModuleType,
    dtype: str,
    call: Callable[[Tensor], Tensor],
    inputs: Tensor,
    variables: Sequence[Tensor],
) -> list[Tensor]:
    @in_graph(tf, input_signature=[tf.TensorSpec([None, *inputs.shape[1:]], dtype)])
    def run(x: Tensor) -> list[Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            result = call(x)
            loss = tf.reduce_sum(tf.sin(result))
        sources = [x, *variables]
        return [result, *tape.gradient(loss, sources, unconnected_gradients="zero")]

    result, *gradients = run(inputs)
    return [result, _join([tf.convert_to_tensor(gradient) for gradient in gradients])]


# ---- updates ----


_OPTIMIZERS: Mapping[str, tuple[str, ...]] = {
    "SGD": ("momentum", "nesterov", "weight_decay"),
    "Adam": ("amsgrad", "weight_decay"),
    "RMSprop": ("momentum", "centered", "weight_decay"),
    "Adagrad": ("weight_decay",),
    "Adadelta": ("weight_decay",),
    "Adamax": ("weight_decay",),
    "Nadam": ("weight_decay",),
    "Ftrl": ("l1_regularization_strength", "l2_shrinkage_regularization_strength"),
    "AdamW": ("amsgrad",),
}
_VALUES: Mapping[str, Any] = {
    "momentum": 0.9,
    "nesterov": True,
    "amsgrad": True,
    "centered": True,
    "weight_decay": 0.01,
    "l1_regularization_strength": 0.01,
    "l2_shrinkage_regularization_strength": 0.1,
}


def _choose_optimizer(choices: Choices) -> tuple[str, dict[str, Any]]:
    """Choose an optimizer of Keras and its options."""
    name = choices.choose(tuple(_OPTIMIZERS))
    options: dict[str, Any] = {"learning_rate": choices.choose((0.01, 0.1, 1e-4))}
    options |= {key: _VALUES[key] for key in _OPTIMIZERS[name] if choices.decide(40)}
    if choices.decide(30):
        clip = choices.choose(("clipvalue", "clipnorm", "global_clipnorm"))
        options[clip] = choices.choose((0.5, 0.01))
    if choices.decide(30):
        options |= {"use_ema": True, "ema_momentum": choices.choose((0.9, 0.5))}
        options["ema_overwrite_frequency"] = choices.choose((None, 2))
    return name, options


def _make_update(choices: Choices) -> RandomProgram:
    name, options = _choose_optimizer(choices)
    shapes: list[Shape] = [
        tuple(choices.choose((1, 2, 7, 16, 61, 130)) for _ in range(choices.draw_below(4)))
        for _ in range(choices.draw_between(1, 4))
    ]
    sparse, averages = choices.decide(40), choices.decide(25)
    magnitude = choices.choose((1.0, 1e-20, 1e10, 1e-3))

    def run(tf: ModuleType, dtype: str, nudge: float) -> list[Tensor]:
        optimizer = getattr(tf.keras.optimizers, name)(**options)
        weights = [tf.Variable(draw(tf, dtype, shape, 1, nudge)) for shape in shapes]
        table = tf.Variable(draw(tf, dtype, (40, 5), 2, nudge))
        slow = tf.Variable(draw(tf, dtype, shapes[0], 3, nudge))
        variables = [*weights, *([table] if sparse else [])]
        if hasattr(optimizer, "build"):
            optimizer.build(variables)

        @in_graph(tf)
        def step(gradients: list[Tensor], rows: Tensor, indices: Tensor) -> None:
            pairs = list(zip(gradients, weights, strict=True))
            if sparse:
                pairs.append((tf.IndexedSlices(rows, indices, tf.constant((40, 5))), table))
            optimizer.apply_gradients(pairs)
            if averages:
                slow.assign_add((weights[0] - slow) * 0.1)

        for number in range(_STEPS + 1):
            rng = np.random.default_rng(number)
            gradients = [
                draw(tf, dtype, shape, 10 * number + 5, nudge, magnitude) for shape in shapes
            ]
            rows = draw(tf, dtype, (9, 5), number, nudge)
            step(gradients, rows, tf.constant(rng.integers(0, 40, 9)))
        kept = optimizer.variables
        slots = kept() if callable(kept) else kept
        return [*variables, slow, *slots]

    return run


# ---- models ----


def _make_model(choices: Choices) -> RandomProgram:
    kind = choices.choose(("vector", "image", "series", "tokens"))
    shapes: Mapping[str, Shape] = {
        "vector": (choices.choose(_FEW),),
        "image": (choices.choose((8, 9, 12)), choices.choose((8, 11)), choices.choose((1, 3, 8))),
        "series": (choices.choose((3, 8, 17)), choices.choose((1, 4, 9))),
        "tokens": (choices.choose((3, 8, 17)),),
    }
    plan = [
        (choices.draw_below(99), choices.choose((4, 8, 17)), choices.draw_below(99))
        for _ in range(choices.draw_between(1, 6))
    ]
    batch, classes = choices.choose((1, 5, 16)), choices.choose((1, 3, 10))
    name = choices.choose(("SGD", "Adam", "RMSprop"))

    def build(tf: ModuleType, dtype: str) -> Any:
        keras, layers = tf.keras, tf.keras.layers
        with float64.use_float_type(tf, dtype):
            inputs = keras.Input(shapes[kind], dtype="int32" if kind == "tokens" else dtype)
            x = layers.Embedding(30, 8)(inputs) if kind == "tokens" else inputs
            for number, units, option in plan:
                x = _add_layer(layers, x, number, units, option)
            x = layers.Flatten()(x)
            return keras.Model(inputs, layers.Dense(classes)(x))

    def run(tf: ModuleType, dtype: str, nudge: float) -> list[Tensor]:
        model = build(tf, dtype)
        _assign(tf, dtype, model.trainable_variables, nudge, 0.2)
        optimizer = getattr(tf.keras.optimizers, name)(1e-3)
        optimizer.build(model.trainable_variables)
        if kind == "tokens":
            rng = np.random.default_rng(1)
            inputs = tf.constant(rng.integers(0, 30, (batch, *shapes[kind])), "int32")
        else:
            inputs = draw(tf, dtype, (batch, *shapes[kind]), 1, nudge)
        targets = draw(tf, dtype, (batch, classes), 2, nudge)

        @in_graph(tf)
        def step(x: Tensor, y: Tensor) -> list[Tensor]:
            with tf.GradientTape() as tape:
                result = model(x, training=True)
                loss = tf.reduce_mean(tf.square(result - y))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return [result, *map(tf.convert_to_tensor, gradients)]

        result, *gradients = step(inputs, targets)
        if name == "SGD":  # the others divide by the size of a gradient, which may be near zero
            step(inputs, targets)
        return [result, _join(gradients), in_graph(tf)(model)(inputs)][: 3 if name == "SGD" else 2]

    return run


def _add_layer(layers: Any, x: Tensor, number: int, units: int, option: int) -> Tensor:
    """Return the output of a layer that fits the rank of `x`."""
    activation = ("linear", "relu", "tanh", "gelu", "sigmoid", "elu")[option % 6]
    general = (
        lambda: layers.Dense(units, activation=activation)(x),
        lambda: layers.Activation(activation)(x),
        lambda: layers.LayerNormalization()(x),
        lambda: layers.BatchNormalization()(x),
        lambda: layers.Add()([x, layers.Dense(x.shape[-1], activation=activation)(x)]),
    )
    image = (
        lambda: layers.Conv2D(units, 3, padding="same", activation=activation)(x),
        lambda: layers.Conv2D(units, 1, strides=1 + option % 2, use_bias=False)(x),
        lambda: layers.DepthwiseConv2D(3, padding="same", activation=activation)(x),
        lambda: layers.MaxPooling2D(2, padding="same")(x),
        lambda: layers.AveragePooling2D(2, padding="same")(x),
        lambda: layers.GlobalAveragePooling2D()(x),
        lambda: layers.SeparableConv2D(units, 3, padding="same")(x),
    )
    series = (
        lambda: layers.LSTM(units, return_sequences=option % 2 == 0)(x),
        lambda: layers.GRU(units, return_sequences=option % 2 == 0)(x),
        lambda: layers.Bidirectional(layers.SimpleRNN(units, return_sequences=True))(x),
        lambda: layers.Conv1D(units, 3, padding="causal", activation=activation)(x),
        lambda: layers.MultiHeadAttention(1 + option % 3, units)(x, x),
        lambda: layers.GlobalAveragePooling1D()(x),
    )
    by_rank = {4: (*general, *image), 3: (*general, *series)}
    fitting: Sequence[Callable[[], Tensor]] = by_rank.get(len(x.shape), general)
    return fitting[number % len(fitting)]()


FAMILIES: Mapping[str, ProgramFamily] = {
    "chains": ProgramFamily(parts=("chains",), make=_make_chain),
    "products": ProgramFamily(parts=("products",), make=_make_product),
    "grouped": ProgramFamily(parts=("grouped",), make=_make_grouped),
    "loops": ProgramFamily(parts=("loops",), make=_make_loop),
    "updates": ProgramFamily(parts=("updates",), make=_make_update, exact=True),
    "models": ProgramFamily(
        parts=("updates", "loops", "products", "grouped", "chains"), make=_make_model
    ),
}
