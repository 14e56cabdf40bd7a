"""Runs inside TensorFlow: variables are updated with fused updates and without.

python updates.py OUT THREADS LIBRARY [CASE...]

Writes what came out as JSON: per case what differs, and what the library counted meanwhile.
"""

from __future__ import annotations

import functools
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tests.integration import held

from tfbuild.native.ops.updates import cases as updates
from tfbuild.native.ops.updates.cases import DTYPES
from tfbuild.probe import fusing, registry
from tfbuild.probe.fusing import State, Tensor, convert_to_arrays, in_graph

STEPS = 3
SHAPES = ((), (1,), (7,), (1, 1, 5), (37, 61), (301, 701))
SPARSE = ((50, 3), (200, 16), (3000, 40))
KERAS_3 = metadata.version("keras").startswith("3")

Case = Callable[[], State]
drawn = functools.partial(fusing.draw_values, tf)
a_variable = functools.partial(updates.create_variable, tf)


def optimizers() -> Mapping[str, Callable[[], Any]]:
    make = tf.keras.optimizers
    return {
        "sgd": lambda: make.SGD(0.1),
        "momentum": lambda: make.SGD(0.1, momentum=0.9),
        "nesterov": lambda: make.SGD(0.1, momentum=0.9, nesterov=True),
        "rmsprop": lambda: make.RMSprop(0.01),
        "rmsprop centered": lambda: make.RMSprop(0.01, centered=True),
        "rmsprop momentum": lambda: make.RMSprop(0.01, momentum=0.9),
        "adam": lambda: make.Adam(0.01),
        "amsgrad": lambda: make.Adam(0.01, amsgrad=True),
        "adamw": lambda: make.AdamW(0.01, weight_decay=0.01),
        "adadelta": lambda: make.Adadelta(0.5),
        "adagrad": lambda: make.Adagrad(0.1),
        "adamax": lambda: make.Adamax(0.01),
        "nadam": lambda: make.Nadam(0.01),
        "ftrl": lambda: make.Ftrl(0.1, l1_regularization_strength=0.01),
        "clip by value": lambda: make.Adam(0.01, clipvalue=0.3),
        "clip by norm": lambda: make.Adam(0.01, clipnorm=0.7),
        "clip by global norm": lambda: make.Adam(0.01, global_clipnorm=0.7),
        "moving average": lambda: make.SGD(0.1, momentum=0.9, use_ema=True),
    }


def variables_of(optimizer: Tensor) -> list[Tensor]:
    variables = optimizer.variables
    return list(variables() if callable(variables) else variables)


def dense(name: str, dtype: str) -> State:
    """A step for variables of all shapes at once, scalars among them."""
    optimizer = optimizers()[name]()
    variables = [tf.Variable(drawn(shape, 1, dtype)) for shape in SHAPES]
    optimizer.build(variables)

    @in_graph(tf)
    def step(gradients: list[Tensor]) -> None:
        optimizer.apply_gradients(list(zip(gradients, variables, strict=True)))

    for number in range(STEPS):
        step([drawn(shape, 10 * number + 2, dtype) for shape in SHAPES])
    return convert_to_arrays([*variables, *variables_of(optimizer)])


def sparse(name: str, dtype: str, *, empty: bool = False) -> State:
    """Rows with indices that come twice and in no order."""
    optimizer = optimizers()[name]()
    variables = [tf.Variable(drawn(shape, 1, dtype)) for shape in SPARSE]
    optimizer.build(variables)

    @in_graph(tf)
    def step(values: list[Tensor], indices: list[Tensor]) -> None:
        slices = [
            tf.IndexedSlices(rows, places, shape)
            for rows, places, shape in zip(values, indices, SPARSE, strict=True)
        ]
        optimizer.apply_gradients(list(zip(slices, variables, strict=True)))

    for number in range(STEPS):
        count = 0 if empty else 30
        rng = np.random.default_rng(number)
        step(
            [drawn((count, shape[1]), 10 * number + 2, dtype) for shape in SPARSE],
            [tf.constant(rng.integers(0, shape[0], count), tf.int32) for shape in SPARSE],
        )
    return convert_to_arrays([*variables, *variables_of(optimizer)])


def compiled() -> State:
    weight, moment = a_variable(), a_variable(seed=2)

    @in_graph(tf, jit_compile=True)
    def step() -> None:
        moment.assign(moment * 0.5 + weight)
        weight.assign_sub(moment * 0.5)

    for _ in range(STEPS):
        step()
    return convert_to_arrays([weight, moment])


def signatures() -> State:
    """One session asked for more or for less: what is fused of each is another program. Of no
    elements the original is run, in each."""
    results = []
    for shape, order in (((4,), (1, 0, 1)), ((4,), (0, 1, 0)), ((0,), (1, 0, 1))):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            weight = tf.compat.v1.get_variable(
                "weight", initializer=np.zeros(shape, "float32"), use_resource=True
            )
            factors = [tf.compat.v1.placeholder(tf.float32, shape) for _ in range(3)]
            product = factors[0] * factors[1]
            done = tf.compat.v1.assign_sub(weight, product * factors[2])
            fed = {factor: np.full(shape, place + 2.0) for place, factor in enumerate(factors)}
            session.run(tf.compat.v1.global_variables_initializer())
            for more in order:
                session.run([done.op, product] if more else done.op, fed)
                results.append(np.asarray(session.run(weight)))
    return results


def unlike() -> State:
    """What AddN adds has one shape; of others Add makes one, and that is an error here."""
    weight = a_variable((1, 5))
    any_shape = tf.TensorSpec(None)

    @in_graph(tf, input_signature=[any_shape, any_shape])
    def step(first: Tensor, second: Tensor) -> None:
        weight.assign_sub(tf.raw_ops.AddN(inputs=[first, second]) * 0.5)

    step(drawn((1, 5), 1), drawn((1, 5), 2))
    refused = False
    try:
        step(drawn((1, 5), 1), drawn((1,), 2))
    except tf.errors.InvalidArgumentError:
        refused = True
    return [*convert_to_arrays([weight]), np.asarray(refused)]


def traded() -> State:
    """Two of a loop's variables that begin as one and do not stay it."""
    first, second = a_variable(seed=1), a_variable(seed=2)

    @in_graph(tf)
    def step() -> None:
        def body(number: Tensor, weights: Tensor, moments: Tensor) -> tuple[Tensor, ...]:
            read = functools.partial(tf.raw_ops.ReadVariableOp, dtype=tf.float32)
            grown = read(resource=weights) * 2.0 + 1.0
            done = tf.raw_ops.AssignVariableOp(resource=weights, value=grown)
            with tf.control_dependencies([done]):
                shrunk = read(resource=moments) * 3.0 - 1.0
                tf.raw_ops.AssignVariableOp(resource=moments, value=shrunk)
            return number + 1, weights, second.handle

        tf.while_loop(lambda number, *_: number < 3, body, (0, first.handle, first.handle))

    step()
    return convert_to_arrays([first, second])


def sessions() -> State:
    """Two sessions of one graph, an assignment fetched by name, one that has no value yet."""
    with tf.Graph().as_default():
        values = np.random.default_rng(1).standard_normal((64, 65)).astype("float32")
        weight = tf.compat.v1.get_variable("weight", initializer=values, use_resource=True)
        moment = tf.compat.v1.get_variable("moment", initializer=values * 2, use_resource=True)
        moved = tf.compat.v1.assign(moment, moment * 0.9 + 0.1)
        with tf.control_dependencies([moved]):
            done = tf.compat.v1.assign_sub(weight, moment.read_value() * 0.1, name="done")
        first, second = tf.compat.v1.Session(), tf.compat.v1.Session()
        refused = False
        try:
            first.run(done.op)
        except tf.errors.FailedPreconditionError:
            refused = True
        for session in (first, second):
            session.run(tf.compat.v1.global_variables_initializer())
        for session in (first, second, first):
            session.run(done.op)
            session.run(done.op.name)
        results = [*first.run([weight, moment]), *second.run([weight, moment]), first.run(done)]
        return [*map(np.asarray, results), np.asarray(refused)]


def a_model() -> Tensor:
    tf.keras.utils.set_random_seed(1)
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.Input((20,), dtype="int32"),
            layers.Embedding(50, 8),
            layers.GlobalAveragePooling1D(),
            layers.Dense(16, "relu"),
            layers.BatchNormalization(),
            layers.Dense(1),
        ]
    )


def some_data() -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    return rng.integers(0, 50, (64, 20)), rng.standard_normal((64, 1)).astype("float32")


def fitted(*, scaled: bool = False) -> State:
    """Keras's own training, stopped in the middle, its file loaded, then as before."""
    if scaled:
        tf.keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        model = a_model()
        inputs, outputs = some_data()
        compiling: dict[str, Any] = {"loss": "mse", "jit_compile": False}
        model.compile(tf.keras.optimizers.Adam(0.01), **compiling)
        model.fit(inputs, outputs, 16, epochs=2, verbose=0, shuffle=False)
        with tempfile.TemporaryDirectory() as folder:
            kept_path = Path(folder) / "weights.weights.h5"
            model.save_weights(kept_path)
            model.load_weights(kept_path)
            model.fit(inputs, outputs, 16, epochs=1, verbose=0, shuffle=False)
        return convert_to_arrays([*model.variables, *variables_of(model.optimizer)])
    finally:
        tf.keras.mixed_precision.set_global_policy("float32")


def saved() -> State:
    """A saved function has TensorFlow's operations, and runs when it is loaded."""

    class Module(tf.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            self.weight, self.moment = a_variable(), a_variable(seed=2)

        @in_graph(tf, input_signature=[tf.TensorSpec((64, 65))])
        def step(self, gradient: Tensor) -> None:
            self.moment.assign(self.moment * 0.9 + gradient)
            self.weight.assign_sub(self.moment * 0.1)

    module = Module()
    module.step(drawn((64, 65), 3, "float32"))
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder)
        if b"ensorwright" in (Path(folder) / "saved_model.pb").read_bytes():
            raise AssertionError("an operation of ours was saved")
        loaded = tf.saved_model.load(folder)
        for number in range(STEPS):
            loaded.step(drawn((64, 65), number, "float32"))
        return convert_to_arrays([loaded.weight, loaded.moment])


def mirrored() -> State:
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        model = a_model()
        model.compile(tf.keras.optimizers.Adam(0.01), loss="mse", jit_compile=False)
    inputs, outputs = some_data()
    model.fit(inputs, outputs, 16, epochs=2, verbose=0, shuffle=False)
    return convert_to_arrays([np.asarray(weight) for weight in model.get_weights()])


def legacy() -> State:
    optimizer = tf.keras.optimizers.legacy.Adam(0.01)
    weight = a_variable()

    @in_graph(tf)
    def step(gradient: Tensor) -> None:
        optimizer.apply_gradients([(gradient, weight)])

    for number in range(STEPS):
        step(drawn((64, 65), number, "float32"))
    return convert_to_arrays([weight])


def deterministic() -> State:
    """The last case: nothing turns this off again."""
    tf.config.experimental.enable_op_determinism()
    tf.random.set_seed(1)
    return [*sparse("adam", "float32"), *dense("adam", "float32")]


def cases() -> Mapping[str, Case]:
    cases_by_name: dict[str, Case] = {
        name: functools.partial(case, tf) for name, case in updates.cases().items()
    }
    for name in optimizers():
        for dtype in DTYPES:
            cases_by_name[f"{name} dense {dtype}"] = functools.partial(dense, name, dtype)
            cases_by_name[f"{name} sparse {dtype}"] = functools.partial(sparse, name, dtype)
        cases_by_name[f"{name} empty"] = functools.partial(sparse, name, "float32", empty=True)
    cases_by_name |= {
        "compiled": compiled,
        "sessions": sessions,
        "signatures": signatures,
        "unlike": unlike,
        "traded": traded,
        "fitted": fitted,
        "scaled": functools.partial(fitted, scaled=True),
        "saved": saved,
        "mirrored": mirrored,
    }
    cases_by_name |= {} if KERAS_3 else {"legacy": legacy}
    return cases_by_name | {"deterministic": deterministic}


def main() -> None:
    out, threads, library = sys.argv[1:4]
    tf.get_logger().setLevel("ERROR")  # (functions are traced again and again, as is meant here)
    tf.config.threading.set_intra_op_parallelism_threads(int(threads))
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    fused = registry.Library(Path(library))
    chosen = sys.argv[4:]
    answer: dict[str, Any] = {}
    for name, case in cases().items():
        if chosen and not any(word in name for word in chosen):
            continue
        before = fused.count_fused_events()
        expected, got = held.run_both(case, "updates")
        after = fused.count_fused_events()
        answer[name] = {
            "unlike": updates.difference(expected, got),
            "error": expected if isinstance(expected, str) else "",
            "events": {key: after[key] - before[key] for key in after if after[key] != before[key]},
        }
    Path(out).write_text(json.dumps(answer), "utf-8")


if __name__ == "__main__":
    main()
