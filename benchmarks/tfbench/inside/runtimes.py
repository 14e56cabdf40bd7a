"""Other runtimes: ONNX Runtime, OpenVINO and JAX compute a model instead of TensorFlow.

ONNX Runtime and OpenVINO only answer requests. This file runs inside each arm's environment.
TensorFlow builds the model there, and the model is converted once, for the shapes and types of its
requests; JAX runs a model of Keras 3 as it is. Every runtime computes in float32, as TensorFlow
does. It imports only the standard library at the top, because --list imports it.
"""

from __future__ import annotations

import importlib
import os
import tempfile
import threading
from collections.abc import Callable
from importlib import metadata
from typing import Any, TypeAlias

TensorFlow: TypeAlias = Any
Model: TypeAlias = Any
Batch: TypeAlias = Any
Arrays: TypeAlias = list[Any]
Ask: TypeAlias = Callable[[Arrays], Arrays]
"""A function that sends a request: the arrays of a batch in, the arrays of its answer out."""

RUNTIME = "TENSORWRIGHT_RUNTIME"
"""Variable with the package that answers requests; TensorFlow answers them without it."""
ONNX, OPENVINO = "onnxruntime", "openvino"
BACKEND = "KERAS_BACKEND"
"""Keras 3's variable with the library that computes models."""
JAX = "jax"
_THREADS = "TF_NUM_INTRAOP_THREADS"
"""Threads per operation; every worker has this variable."""


def describe_runtime() -> str:
    """Return the name and the version of this process's runtime; empty for TensorFlow."""
    package = find_runtime()
    return f"{package} {metadata.version(package)}" if package else ""


def find_runtime() -> str:
    """Return the package that computes this process's model; empty for TensorFlow."""
    return os.environ.get(RUNTIME) or (JAX if os.environ.get(BACKEND) == JAX else "")


def convert_model(tf: TensorFlow, model: Model, batch: Batch, clients: int) -> Ask:
    """Convert a model for this process's runtime, and return the function that sends it a request.

    All requests have the shapes and types of `batch`; its arrays are flattened as `tf.nest` does.
    At most `clients` threads send requests at the same time. Raises the runtime's error for a
    model that it cannot run.
    """
    if find_runtime() == JAX:
        steps = importlib.import_module("tfbench.inside.jax_steps")
        ask: Ask = steps.create_ask(model, lambda arrays: tf.nest.pack_sequence_as(batch, arrays))
        return ask
    specs = [
        tf.TensorSpec(array.shape, array.dtype, name=_name_input(number))
        for number, array in enumerate(tf.nest.flatten(batch))
    ]

    @tf.function(input_signature=specs)  # type: ignore[untyped-decorator]
    def answer(*tensors: Any) -> Any:
        outputs = model(tf.nest.pack_sequence_as(batch, tensors), training=False)
        return {f"output_{n:03}": tensor for n, tensor in enumerate(tf.nest.flatten(outputs))}

    if os.environ[RUNTIME] == ONNX:
        return _load_onnx(answer, specs)
    return _load_openvino(tf, model, answer, clients)


def _name_input(number: int) -> str:
    return f"input_{number}"


def _load_onnx(answer: Any, specs: list[Any]) -> Ask:
    """Convert a function to ONNX and load it into ONNX Runtime; a session serves all threads."""
    converter = importlib.import_module("tf2onnx.convert")
    runtime = importlib.import_module("onnxruntime")
    converted, _ = converter.from_function(answer, specs)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = int(os.environ[_THREADS])
    session = runtime.InferenceSession(
        converted.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [row.name for row in session.get_inputs()]
    return lambda arrays: list(session.run(None, dict(zip(names, arrays, strict=True))))


def _load_openvino(tf: TensorFlow, model: Model, answer: Any, clients: int) -> Ask:
    """Load a function as a SavedModel into OpenVINO; each thread has a request of its own.

    It has a stream per client, so requests of several clients are computed at the same time.
    """
    runtime = importlib.import_module("openvino")
    module = tf.Module()
    module.kept = [  # (Keras 3 wraps TensorFlow's variables)
        variable if isinstance(variable, tf.Variable) else variable.value
        for variable in model.variables
    ]
    settings = {
        "INFERENCE_NUM_THREADS": int(os.environ[_THREADS]),
        "NUM_STREAMS": clients,
        "INFERENCE_PRECISION_HINT": "f32",  # (bfloat16 is the default on some CPUs)
        "ENABLE_CPU_PINNING": False,  # (the worker is pinned, and moves to other CPUs once)
    }
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder, signatures=answer)
        core = runtime.Core()
        compiled = core.compile_model(core.read_model(folder), "CPU", settings)
    outputs = sorted(compiled.outputs, key=lambda output: output.get_any_name())
    own = threading.local()

    def ask(arrays: Arrays) -> Arrays:
        if not hasattr(own, "request"):
            own.request = compiled.create_infer_request()
        named = {_name_input(number): array for number, array in enumerate(arrays)}
        answered = own.request.infer(named, share_inputs=True)
        return [answered[output] for output in outputs]

    return ask
