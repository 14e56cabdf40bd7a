"""python -m tfbuild.probe.smoke ANSWER [promises]

Tests a wheel like a user, without loading a library explicitly. Writes one JSON object: the target
that the dispatcher chose, why it chose no other, and how often tuned kernels ran in eager mode and
in a tf.function. With `promises` it adds the failed checks of tfbuild.probe.battery.
"""

from __future__ import annotations

import ctypes
import functools
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tfbuild.probe import battery, cases, registry, uncollected

_FLOAT = 1  # DT_FLOAT in tensorflow/core/framework/types.proto


def main(answer: Path, battery_flag: str = "") -> None:
    tf = uncollected.import_tensorflow()
    folder = Path(tf.__file__).parent / "core" / "kernels"
    results: dict[str, Any] = {"version": tf.__version__, "file": tf.__file__} | read_dispatcher(
        folder
    )
    library = registry.find_mapped_library(str(folder / "tensorwright"))
    if library is not None:
        results |= count_executions(tf, registry.Library(library))
    results["computes"] = has_correct_values(tf)
    if battery_flag:
        results["broken"] = battery.run_checks(tf)[1]
    answer.write_text(json.dumps(results), encoding="utf-8")


def has_correct_values(tf: Any) -> bool:
    """Return whether TensorFlow's results match NumPy's, whichever kernels computed them."""
    x = np.linspace(-4, 4, 1001, dtype=np.float32)
    sigmoid = 1 / (1 + np.exp(-x.astype(np.float64)))
    near_tanh = np.allclose(tf.tanh(x).numpy(), np.tanh(x), rtol=1e-5, atol=1e-6)
    return near_tanh and np.allclose(tf.sigmoid(x).numpy(), sigmoid, rtol=1e-5, atol=1e-6)


def read_dispatcher(folder: Path) -> dict[str, str | None]:
    """Read from the dispatcher which target it loaded, and its reason."""
    dispatcher = ctypes.CDLL(str(folder / "libtfkernel_tensorwright.so"))
    dispatcher.tensorwright_loaded.restype = ctypes.c_char_p
    dispatcher.tensorwright_reason.restype = ctypes.c_char_p
    loaded = dispatcher.tensorwright_loaded()
    reason = dispatcher.tensorwright_reason()
    return {"loaded": loaded.decode() if loaded else None, "reason": (reason or b"").decode()}


def count_executions(tf: Any, library: registry.Library) -> dict[str, dict[str, int]]:
    """Count the executions of tuned kernels per op, eager and in a graph, for ops with simple
    inputs.
    """
    eager: dict[str, int] = {}
    graph: dict[str, int] = {}
    for op in sorted(
        {op for op, _, _ in library.list_executions()} & registry.list_raised_ops(_FLOAT)
    ):
        inputs = _create_float_inputs(tf, op)
        if inputs is None:
            continue
        call = functools.partial(getattr(tf.raw_ops, op), **inputs)
        before = library.count_executions(op)
        call()
        eager[op] = library.count_executions(op) - before
        tf.function(lambda call=call: call())()
        graph[op] = library.count_executions(op) - before - eager[op]
    return {"eager": eager, "function": graph}


def _create_float_inputs(tf: Any, op: str) -> dict[str, Any] | None:
    from tensorflow.python.framework import op_def_registry

    definition = op_def_registry.get(op)
    try:
        arguments = cases.list_arguments(definition, {"T": _FLOAT})
    except (NotImplementedError, KeyError):
        return None
    if any(argument.role != "array" for argument in arguments):
        return None
    return {argument.name: tf.random.normal((16, 8)) for argument in arguments}


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
