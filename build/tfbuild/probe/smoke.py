"""python -m tfbuild.probe.smoke ANSWER [promises]

A wheel as its user meets it, with nothing loaded by hand. Writes one JSON object: which target the
dispatcher chose, why not another, and how often tuned kernels ran in eager mode and in a
tf.function; and, if asked for `promises`, what of TensorFlow's documentation is not so.
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


def main(answer: Path, wanted: str = "") -> None:
    tf = uncollected.tensorflow()
    folder = Path(tf.__file__).parent / "core" / "kernels"
    found: dict[str, Any] = {"version": tf.__version__, "file": tf.__file__} | chosen(folder)
    library = registry.mapped(str(folder / "tensorwright"))
    if library is not None:
        found |= runs(tf, registry.Library(library))
    found["computes"] = computes(tf)
    if wanted:
        found["broken"] = battery.run(tf)[1]
    answer.write_text(json.dumps(found), encoding="utf-8")


def computes(tf: Any) -> bool:  # noqa: ANN401
    """Whether TensorFlow's answers are NumPy's, whichever kernels gave them."""
    x = np.linspace(-4, 4, 1001, dtype=np.float32)
    sigmoid = 1 / (1 + np.exp(-x.astype(np.float64)))
    near_tanh = np.allclose(tf.tanh(x).numpy(), np.tanh(x), rtol=1e-5, atol=1e-6)
    return near_tanh and np.allclose(tf.sigmoid(x).numpy(), sigmoid, rtol=1e-5, atol=1e-6)


def chosen(folder: Path) -> dict[str, str | None]:
    """The dispatcher's own word."""
    dispatcher = ctypes.CDLL(str(folder / "libtfkernel_tensorwright.so"))
    dispatcher.tensorwright_loaded.restype = ctypes.c_char_p
    dispatcher.tensorwright_reason.restype = ctypes.c_char_p
    loaded = dispatcher.tensorwright_loaded()
    reason = dispatcher.tensorwright_reason()
    return {"loaded": loaded.decode() if loaded else None, "reason": (reason or b"").decode()}


def runs(tf: Any, library: registry.Library) -> dict[str, dict[str, int]]:  # noqa: ANN401
    """Executions of tuned kernels per op, eager and in a graph, for the ops that are easily fed."""
    eager: dict[str, int] = {}
    graph: dict[str, int] = {}
    for op in sorted({op for op, _, _ in library.executions()} & registry.raised(_FLOAT)):
        inputs = _float_inputs(tf, op)
        if inputs is None:
            continue
        call = functools.partial(getattr(tf.raw_ops, op), **inputs)
        before = library.count(op)
        call()
        eager[op] = library.count(op) - before
        tf.function(lambda call=call: call())()
        graph[op] = library.count(op) - before - eager[op]
    return {"eager": eager, "function": graph}


def _float_inputs(tf: Any, op: str) -> dict[str, Any] | None:  # noqa: ANN401
    from tensorflow.python.framework import op_def_registry  # noqa: PLC0415

    definition = op_def_registry.get(op)
    try:
        arguments = cases.arguments(definition, {"T": _FLOAT})
    except (NotImplementedError, KeyError):
        return None
    if any(argument.role != "array" for argument in arguments):
        return None
    return {argument.name: tf.random.normal((16, 8)) for argument in arguments}


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
