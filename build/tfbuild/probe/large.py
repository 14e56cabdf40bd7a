"""Tests large arrays, which tuned kernels divide among threads and store past the caches.

A large array repeats a small one. An elementwise kernel must give the repeated results of the small
array, bit for bit: the size is a whole number of vectors, so no other result is valid. The test
does not need the stock kernel.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from tfbuild.probe import cases
from tfbuild.probe.calls import Caller, Outcome
from tfbuild.probe.cases import Array
from tfbuild.probe.proposals import STRING, Case, Input

_BYTES = 20 << 20  # above the limit for large arrays in native/replacements/elementwise.h
_SMALL = 1024  # elements: whole vectors of every type
_THREADS = 2


def use_threads() -> None:
    """Set more than one thread, on a machine with one CPU too. Must run before TensorFlow
    computes anything.
    """
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(_THREADS)


def find_difference(op: str, known: Iterable[Case], call: Caller) -> str:
    """Describe how a kernel computes large arrays differently from small ones.

    Returns an empty string if it does not, or if the op is not elementwise. `known` are cases
    with valid attributes.
    """
    case = next(filter(_has_one_shape, known), None)
    if case is None or not cases.is_elementwise(op):
        return ""
    small = [_draw_numbers(source, seed) for seed, source in enumerate(case.inputs)]
    copies = _BYTES // max(array.nbytes for array in small)
    small_outcome = call(_replace_inputs(case, small))
    for memory in ("fresh", "used"):
        large_outcome = call(_replace_inputs(case, [np.tile(array, copies) for array in small]))
        if not _is_repeated(small_outcome, large_outcome, copies):
            return f"{case.op} of {copies} copies in {memory} memory gives other results"
    return ""


def _has_one_shape(case: Case) -> bool:
    """Return whether the case is a plain call with arrays of one shape, so that no values are
    broadcast.
    """
    plain = not case.gradient and not case.sliced and bool(case.inputs)
    arrays = all(source.role == "array" and source.type != STRING for source in case.inputs)
    return plain and arrays and len({source.array.shape for source in case.inputs}) == 1


def _draw_numbers(op_input: Input, seed: int) -> Array:
    return cases.draw_numbers(op_input.array.dtype, (_SMALL,), np.random.default_rng(seed))


def _replace_inputs(case: Case, arrays: Sequence[Array]) -> Case:
    pairs = zip(case.inputs, arrays, strict=True)
    inputs = tuple(dataclasses.replace(source, array=array) for source, array in pairs)
    return dataclasses.replace(case, inputs=inputs)


def _is_repeated(single: Outcome, many: Outcome, copies: int) -> bool:
    if isinstance(single, str) or isinstance(many, str):
        return single == many
    return all(
        np.array_equal(
            _view_bytes(large).reshape(copies, -1), np.tile(_view_bytes(small), (copies, 1))
        )
        for small, large in zip(single, many, strict=True)
    )


def _view_bytes(array: Array) -> Array:
    return np.ascontiguousarray(array).view(np.uint8).reshape(-1)
