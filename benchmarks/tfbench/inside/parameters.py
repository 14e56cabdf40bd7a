"""Initial parameters, drawn with NumPy and not with the arm's kernels.

This file runs inside each arm's environment: it imports only the standard library and NumPy.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]


def draw_initial_parameters(named: Iterable[tuple[str, tuple[int, ...]]], seed: int) -> list[Array]:
    """Draw Keras's default initial values for weights with these Keras names and shapes.

    They are drawn with NumPy, so that all arms start from equal parameters even if their random
    kernels differ.
    """
    return [
        _draw_initial(_parse_weight_kind(name), shape, np.random.default_rng([seed, index]))
        for index, (name, shape) in enumerate(named)
    ]


def get_weight_name(weight: Any) -> str:
    """Return a weight's name, with the names of its layers.

    Keras 3 has them in the weight's path, Keras 2 in its name.
    """
    return str(getattr(weight, "path", None) or weight.name)


def nudge_values(values: Array, seed: int) -> Array:
    """Move each float randomly to the next larger or smaller one.

    Zeros and other dtypes are unchanged. The results from nudged values show how much rounding
    alone changes them.
    """
    if values.dtype.kind != "f":
        return values
    sides = np.random.default_rng(seed).integers(0, 2, values.shape, np.int8)
    ends = np.array([-np.inf, np.inf], values.dtype)[sides]
    return np.where(values == 0, values, np.nextafter(values, ends))


def hash_arrays(arrays: Iterable[Array]) -> str:
    """Return the SHA-256 of shapes, dtypes and bytes, which must be the same in all arms."""
    sha256 = hashlib.sha256()
    for array in arrays:
        sha256.update(f"{array.dtype}{array.shape}".encode())
        sha256.update(np.ascontiguousarray(array).data)
    return sha256.hexdigest()


def _parse_weight_kind(name: str) -> str:
    kind = name.rsplit("/", 1)[-1].split(":", 1)[0]
    return "forget_bias" if kind == "bias" and "lstm_cell" in name else kind


def _draw_initial(kind: str, shape: tuple[int, ...], draw: np.random.Generator) -> Array:
    match kind:
        case "embeddings":
            values = draw.random(shape, dtype=np.float32)
            values -= np.float32(0.5)  # (in place: the largest table has 240 MB)
            values *= np.float32(0.1)
            return values
        case "recurrent_kernel":
            return _draw_orthogonal(shape, draw)
        case "kernel":
            receptive = math.prod(shape[:-2])
            limit = math.sqrt(6 / (receptive * (shape[-2] + shape[-1])))
            return draw.uniform(-limit, limit, shape).astype(np.float32)
        case "bias" | "beta" | "moving_mean":
            return np.zeros(shape, np.float32)
        case "gamma" | "moving_variance":
            return np.ones(shape, np.float32)
        case "forget_bias":  # the gates' order: input, forget, cell, output
            return np.repeat(np.array([0, 1, 0, 0], np.float32), shape[0] // 4)
        case _:
            raise ValueError(f"no known initial value for a weight named {kind}")


def _draw_orthogonal(shape: tuple[int, ...], draw: np.random.Generator) -> Array:
    """Draw orthonormal rows.

    They are rounded to 2^-20, so that two builds of LAPACK give the same bytes.
    """
    rows, columns = shape
    q, r = np.linalg.qr(draw.standard_normal((columns, rows)))
    grid = 2.0**20
    return (np.round((q * np.sign(np.diag(r))).T * grid) / grid).astype(np.float32)
