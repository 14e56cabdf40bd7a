"""Large arrays, which tuned kernels share among threads and store past the caches.

Of a small array's copies an elementwise kernel must make copies of what it makes of the small one,
bit for bit: whole packets, no rest, so that nothing else is lawful. The stock kernel is not needed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from tfbuild.probe import cases
from tfbuild.probe.calls import Caller, Outcome
from tfbuild.probe.cases import Array
from tfbuild.probe.proposals import STRING, Case, Input

_BYTES = 20 << 20  # more than native/improved/elementwise.h takes for large
_SMALL = 1024  # elements: whole packets of every type
_THREADS = 2


def use_threads() -> None:
    """Before TensorFlow computes anything: more than one thread, on a machine with one CPU too."""
    import tensorflow as tf  # noqa: PLC0415

    tf.config.threading.set_intra_op_parallelism_threads(_THREADS)


def difference(op: str, known: Iterable[Case], call: Caller) -> str:
    """How a kernel computes large arrays otherwise than small ones; empty where it does not, or
    where the op is not elementwise. `known` are cases whose attributes are lawful."""
    case = next(filter(_of_one_shape, known), None)
    if case is None or not cases.elementwise(op):
        return ""
    small = [_numbers(given, seed) for seed, given in enumerate(case.inputs)]
    copies = _BYTES // max(array.nbytes for array in small)
    one = call(_fed(case, small))
    for memory in ("fresh", "used"):
        many = call(_fed(case, [np.tile(array, copies) for array in small]))
        if not _copies(one, many, copies):
            return f"{case.op} of {copies} copies in {memory} memory makes something else"
    return ""


def _of_one_shape(case: Case) -> bool:
    """Whether it is a plain call with arrays of one shape, so that no values are broadcast."""
    plain = not case.gradient and not case.sliced and bool(case.inputs)
    arrays = all(given.role == "array" and given.type != STRING for given in case.inputs)
    return plain and arrays and len({given.array.shape for given in case.inputs}) == 1


def _numbers(given: Input, seed: int) -> Array:
    return cases.numbers(given.array.dtype, (_SMALL,), np.random.default_rng(seed))


def _fed(case: Case, arrays: Sequence[Array]) -> Case:
    pairs = zip(case.inputs, arrays, strict=True)
    inputs = tuple(dataclasses.replace(given, array=array) for given, array in pairs)
    return dataclasses.replace(case, inputs=inputs)


def _copies(one: Outcome, many: Outcome, copies: int) -> bool:
    if isinstance(one, str) or isinstance(many, str):
        return one == many
    return all(
        np.array_equal(_bytes(large).reshape(copies, -1), np.tile(_bytes(small), (copies, 1)))
        for small, large in zip(one, many, strict=True)
    )


def _bytes(array: Array) -> Array:
    return np.ascontiguousarray(array).view(np.uint8).reshape(-1)
