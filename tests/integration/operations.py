"""Runs inside an arm: calls of single ops, gradients of functions, and random numbers.

python operations.py CALLS.json INPUTS.npz RESULTS.npz
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

BFLOAT16 = "bfloat16"


def tensor(array: Any, dtype: str) -> Any:
    """bfloat16 comes as its bits: NumPy's files do not know it."""
    if dtype == BFLOAT16:
        return tf.bitcast(tf.constant(array), tf.bfloat16)
    return tf.constant(array)


def array(result: Any) -> Any:
    return (tf.bitcast(result, tf.uint16) if result.dtype == tf.bfloat16 else result).numpy()


def gradient(op: str, values: list[Any]) -> Any:
    """Of the sum of a function's results, by its last input."""
    with tf.GradientTape() as tape:
        tape.watch(values[-1])
        result = getattr(tf.math, op)(*values)
    return tape.gradient(result, values[-1])


def random(call: dict[str, Any]) -> Any:
    kind = tf.as_dtype(call["dtype"])
    return getattr(tf.raw_ops, call["op"])(shape=call["shape"], dtype=kind, seed=7, seed2=11)


def answer(call: dict[str, Any], inputs: Any) -> Any:
    if call["kind"] == "random":
        return random(call)
    values = [tensor(inputs[name], call["dtype"]) for name in call["inputs"]]
    if call["kind"] == "gradient":
        return gradient(call["op"], values)
    words = dict(zip(call["names"], values, strict=True))
    return getattr(tf.raw_ops, call["op"])(**words)


def main() -> None:
    calls_file, inputs_file, results_file = sys.argv[1:]
    calls = json.loads(Path(calls_file).read_text(encoding="utf-8"))
    with np.load(inputs_file) as inputs:
        actual = {call["name"]: array(answer(call, inputs)) for call in calls}
    np.savez(results_file, **actual)


main()
