"""Runs inside TensorFlow: cross entropies of many shapes. Writes what came out as JSON.

python crossed.py OUT THREADS LIBRARY..., with no library for the stock kernels
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

SPARSE, DENSE = "SparseSoftmaxCrossEntropyWithLogits", "SoftmaxCrossEntropyWithLogits"
DTYPES = (tf.float32, tf.float64, tf.float16, tf.bfloat16)
SHAPES = ((1, 1), (3, 1), (1, 5), (7, 10), (5, 33), (300, 57), (2, 3000), (700, 1000), (0, 4))
Array = Any


def priorities() -> dict[str, int]:
    from tensorflow.python.framework import kernels  # noqa: PLC0415

    return {
        op: max(kernel.priority for kernel in kernels.get_registered_kernels_for_op(op).kernel)
        for op in (SPARSE, DENSE)
    }


def expected(logits: Array, labels: Array) -> tuple[Array, Array]:
    """Loss and gradient in float64, of labels that are shares."""
    shifted = logits - logits.max(1, keepdims=True)
    raised = np.exp(shifted)
    total = raised.sum(1, keepdims=True)
    losses = np.where(labels == 0, 0.0, labels * (np.log(total) - shifted)).sum(1)
    return losses, raised / total - labels


def error(actual: Any, expected_value: tuple[Array, Array]) -> float:
    """The largest difference: of the losses relative to 1 and to the loss, of the gradients."""
    loss, gradient = (np.asarray(tensor).astype(np.float64) for tensor in actual)
    if loss.size == 0:
        return 0.0
    losses = np.abs(loss - expected_value[0]) / np.maximum(1, np.abs(expected_value[0]))
    return float(max(losses.max(), np.abs(gradient - expected_value[1]).max(initial=0)))


def cases() -> Iterator[tuple[str, Any, Any, tuple[Array, Array]]]:
    """The name, what the op is given, and what comes out in float64."""
    draw = np.random.default_rng(3)
    for dtype in DTYPES:
        for rows, columns in SHAPES:
            logits = tf.cast(4 * draw.standard_normal((rows, columns)), dtype)
            exact = tf.cast(logits, tf.float64).numpy()
            own_array = draw.integers(0, columns, rows)
            one_hot = np.eye(columns)[own_array]
            name = f"{dtype.name} {rows}x{columns}"
            for index in (tf.int32, tf.int64):
                arguments = (logits, tf.constant(own_array, index))
                yield f"sparse {name} {index.name}", SPARSE, arguments, expected(exact, one_hot)
            shares = tf.cast(draw.dirichlet(np.ones(columns), rows), dtype)
            expected_value = expected(exact, tf.cast(shares, tf.float64).numpy())
            yield f"dense {name}", DENSE, (logits, shares), expected_value


def repeated() -> Iterator[tuple[str, Any, Any, tuple[Array, Array]]]:
    """One row or one column of logits or of labels for all."""
    draw = np.random.default_rng(5)
    shapes = (((1, 6), (4, 6)), ((4, 6), (1, 6)), ((4, 1), (4, 6)), ((4, 6), (4, 1)))
    for first, second in (*shapes, ((1, 6), (4, 1)), ((4, 1), (1, 6))):
        logits, labels = draw.standard_normal(first), draw.random(second)
        expected_value = expected(*np.broadcast_arrays(logits, labels))
        arguments = (tf.constant(logits, tf.float32), tf.constant(labels, tf.float32))
        yield f"{first} and {second}", DENSE, arguments, expected_value


def asked(op: str, arguments: Any) -> Any:
    return getattr(tf.raw_ops, op)(features=arguments[0], labels=arguments[1])


def masked() -> float:
    """Logits that are left out as minus infinity, and very large ones."""
    logits = np.array([[0, -np.inf, 3], [1e30, -1e30, 0], [-np.inf, -np.inf, -7]])
    own_array = np.array([2, 0, 2])
    actual = asked(SPARSE, (tf.constant(logits, tf.float32), tf.constant(own_array)))
    shifted = np.where(np.isinf(logits), -1e300, logits)
    return error(actual, expected(shifted, np.eye(3)[own_array]))


def in_place() -> bool:
    """Logits that nothing else needs give their memory to the gradient."""
    x = tf.random.stateless_normal((64, 50), (1, 2))
    labels = tf.range(64) % 50

    @tf.function  # type: ignore[untyped-decorator]
    def loss(x: Any) -> Any:
        share = tf.nn.softmax(x)
        return asked(SPARSE, (2 * x, labels)), asked(DENSE, (3 * x, share))

    pairs = zip(
        tf.nest.flatten(loss(x)),
        tf.nest.flatten((asked(SPARSE, (2 * x, labels)), asked(DENSE, (3 * x, tf.nn.softmax(x))))),
        strict=True,
    )
    return all(first.numpy().tobytes() == second.numpy().tobytes() for first, second in pairs)


def refused() -> list[str]:
    """What is said of wrong input."""
    x = tf.zeros((2, 3))
    calls: list[Callable[[], object]] = [
        lambda: asked(SPARSE, (x, [0, 3])),
        lambda: asked(SPARSE, (x, [0, -1])),
        lambda: asked(SPARSE, (x, [0])),
        lambda: asked(SPARSE, (tf.zeros((2, 0)), [0, 0])),
        lambda: asked(DENSE, (x, tf.zeros((2, 4)))),
        lambda: asked(DENSE, (tf.zeros((2, 3, 4)), tf.zeros((2, 3, 4)))),
    ]
    messages = []
    for call in calls:
        try:
            call()
        except (tf.errors.OpError, ValueError) as problem:
            messages.append(str(problem))
    return messages


def main(out: str, threads: str, *libraries: str) -> None:
    tf.config.threading.set_intra_op_parallelism_threads(int(threads))
    for library in libraries:
        tf.load_library(library)
    errors, bits = {}, hashlib.sha256()
    for name, op, arguments, expected_value in (*cases(), *repeated()):
        actual = asked(op, arguments)
        errors[name] = error(actual, expected_value)
        bits.update(b"".join(tensor.numpy().tobytes() for tensor in actual))
    nothing = [
        output.shape.as_list() for output in asked(DENSE, (tf.zeros((3, 0)), tf.zeros((3, 0))))
    ]
    answer = {
        "priorities": priorities(),
        "errors": errors,
        "bits": bits.hexdigest(),
        "masked": masked(),
        "in place": in_place(),
        "no columns": nothing,
        "refused": refused(),
    }
    Path(out).write_text(json.dumps(answer), "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
