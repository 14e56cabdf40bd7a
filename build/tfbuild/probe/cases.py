"""Handwritten test inputs of ops: shapes and values that have broken vectorised kernels before.

Inputs follow from the op's definition: the role of an argument follows from its type and its name,
by the naming of TensorFlow's training and random ops.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_NO_NUMBERS = {7, 11, 12, 13, 15, 16, 20, 21}  # text, quantised, resources, variants (types.proto)
_RESOURCE = 20  # DT_RESOURCE in tensorflow/core/framework/types.proto
_ROWS, _COLUMNS = 37, 29  # primes, so that no vector width divides them

KINDS = ("random", "tiny", "empty", "special")
_MATRIX_OPS = {"Softmax", "LogSoftmax", "SoftmaxCrossEntropyWithLogits"}
SEEDED = {
    "RandomUniform",
    "RandomStandardNormal",
    "TruncatedNormal",
    "RandomUniformInt",
    "RandomGamma",
}


@dataclass(frozen=True, slots=True)
class Argument:
    """One input of an op: `role` names how it is created, `type` is a number of types.proto."""

    name: str
    role: str
    type: int


def list_arguments(op: Any, types: Mapping[str, int]) -> tuple[Argument, ...]:
    """Return the inputs, with their roles, of an OpDef whose type attributes are fixed to
    `types`.

    Raises NotImplementedError for an op that this module cannot feed.
    """
    stateful = any(arg.is_ref or arg.type == _RESOURCE for arg in op.input_arg)
    listed = []
    for arg in op.input_arg:
        if arg.number_attr or arg.type_list_attr:
            raise NotImplementedError(f"no test inputs for {op.name}: {arg.name} is a list")
        number = arg.type or types[arg.type_attr]
        role = _choose_role(op.name, arg.name, stateful)
        if arg.type == _RESOURCE:
            role, number = "resource", types["T"]
        elif arg.is_ref:
            role = "reference"
        if number in _NO_NUMBERS:
            raise NotImplementedError(f"no test inputs for {op.name}: {arg.name} has type {number}")
        listed.append(Argument(arg.name, role, number))
    if op.name not in SEEDED and not stateful and not _is_supported(op):
        raise NotImplementedError(f"no test inputs for {op.name}")
    return tuple(listed)


def _is_supported(op: Any) -> bool:
    """Return whether all inputs have one type, and the op is among the known ones, whose one or
    two outputs are of that type (or booleans of a comparison).
    """
    inputs = {arg.type_attr for arg in op.input_arg}
    return len(inputs) == 1 and 0 < len(op.input_arg) <= 3 and op.name in _KNOWN  # noqa: PLR2004


# Ops for which arrays of one shape are valid inputs, by family in tensorflow/core/ops.
_KNOWN = {
    *("Tanh", "TanhGrad", "Sigmoid", "SigmoidGrad", "Exp", "Expm1", "Log", "Log1p", "Erf", "Erfc"),
    *("Softplus", "SoftplusGrad", "Softsign", "SoftsignGrad", "Sqrt", "SqrtGrad", "Rsqrt"),
    *("RsqrtGrad", "Square", "Neg", "Abs", "Sign", "Inv", "Reciprocal", "ReciprocalGrad"),
    *("Sin", "Cos", "Tan", "Sinh", "Cosh", "Asin", "Acos", "Atan", "Asinh", "Acosh", "Atanh"),
    *("Floor", "Ceil", "Rint", "Round", "Pow", "Atan2", "SquaredDifference", "Xlogy", "Xdivy"),
    *("Add", "AddV2", "Sub", "Mul", "MulNoNan", "Div", "RealDiv", "DivNoNan", "Maximum", "Minimum"),
    *("Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual"),
    *("Relu", "ReluGrad", "Relu6", "Relu6Grad", "LeakyRelu", "LeakyReluGrad"),
    *("Elu", "EluGrad", "Selu", "SeluGrad", "Softmax", "LogSoftmax"),
    "SoftmaxCrossEntropyWithLogits",
}


def has_sufficient_cases(op: str) -> bool:
    """Return whether the handwritten cases give values to compare. For other ops that could be
    fed, the stock kernel may refuse all cases.
    """
    return op in _KNOWN or op in SEEDED or "Apply" in op


def is_elementwise(op: str) -> bool:
    """Return whether each result depends on one element of each input, or on a broadcast pair."""
    return op in _KNOWN - _MATRIX_OPS


def _choose_role(op: str, name: str, stateful: bool) -> str:
    if op in SEEDED:
        return {"shape": "shape", "minval": "low", "maxval": "high"}.get(name, "positive")
    if not stateful:
        return "array"
    roles = {"grad": "gradient", "delta": "gradient", "indices": "indices", "global_step": "step"}
    return roles.get(name, "scalar")


def choose_shape(op: str, inputs: tuple[Argument, ...], kind: str) -> tuple[int, ...]:
    """Return the shape of the arrays of one case."""
    flat = {"random": (_ROWS * _COLUMNS,), "tiny": (3,), "empty": (0,), "special": (_ROWS * 8,)}
    square = {"random": (_ROWS, _COLUMNS), "tiny": (1, 3), "empty": (0, 3), "special": (8, _ROWS)}
    sparse = any(argument.role == "indices" for argument in inputs)
    return square[kind] if op in _MATRIX_OPS or sparse else flat[kind]


def create_feeds(
    op: str, inputs: tuple[Argument, ...], dtypes: Mapping[int, Any], kind: str
) -> tuple[Array, ...]:
    """Create the inputs of one case, the same in every process. `dtypes` maps numbers of
    types.proto to NumPy types.
    """
    seed = zlib.crc32(f"{op} {kind} {[argument.type for argument in inputs]}".encode())
    rng = np.random.default_rng(seed)
    shape = choose_shape(op, inputs, kind)
    return tuple(
        _draw_values(argument, dtypes[argument.type], shape, kind, rng) for argument in inputs
    )


def create_broadcasts(
    op: str, inputs: tuple[Argument, ...], dtypes: Mapping[int, Any]
) -> Iterator[tuple[Array, ...]]:
    """Yield pairs of arrays of different shapes, for ops of two arrays."""
    if len(inputs) != 2 or op in _MATRIX_OPS or any(a.role != "array" for a in inputs):  # noqa: PLR2004
        return
    rng = np.random.default_rng(zlib.crc32(f"{op} broadcast {inputs[0].type}".encode()))
    dtype = dtypes[inputs[0].type]
    for left_shape, right_shape in (
        ((5, _COLUMNS), (_COLUMNS,)),
        ((7, 1), (1, 11)),
        ((_COLUMNS,), ()),
    ):
        yield draw_numbers(dtype, left_shape, rng), draw_numbers(dtype, right_shape, rng)


def create_offset_arrays(
    op: str, inputs: tuple[Argument, ...], dtypes: Mapping[int, Any]
) -> Iterator[tuple[int, tuple[Array, ...]]]:
    """Yield offsets in elements, from 4 to 64 bytes, and arrays that the graph slices from that
    offset on.
    """
    if op in _MATRIX_OPS or any(argument.role != "array" for argument in inputs):
        return
    dtype = dtypes[inputs[0].type]
    step = max(1, 4 // np.dtype(dtype).itemsize)
    for offset in range(step, 64 // np.dtype(dtype).itemsize + 1, step):
        rng = np.random.default_rng(offset)
        yield offset, tuple(draw_numbers(dtype, (offset + 67,), rng) for _ in inputs)


def _draw_values(
    argument: Argument,
    dtype: Any,
    shape: tuple[int, ...],
    kind: str,
    rng: np.random.Generator,
) -> Array:
    fixed: dict[str, Any] = {"shape": shape, "low": -3, "high": 1000, "step": 3}
    if argument.role in fixed:
        return np.asarray(fixed[argument.role], dtype)
    if argument.role == "positive":
        return np.asarray(rng.uniform(0.1, 5.0, shape)).astype(dtype)
    if argument.role == "scalar":
        return np.asarray(rng.uniform(0.05, 0.95)).astype(dtype)
    if argument.role == "indices":
        return rng.permutation(shape[0]).astype(dtype)
    if argument.role in {"resource", "reference"}:
        start: Array = np.abs(draw_numbers(dtype, shape, rng)) + np.asarray(0.5).astype(dtype)
        return start
    return (draw_special if kind == "special" else draw_numbers)(dtype, shape, rng)


def draw_numbers(dtype: Any, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Draw ordinary values of any dtype."""
    kind = np.dtype(dtype).kind
    if kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    if kind in "iu":
        low = 0 if kind == "u" else -40
        return rng.integers(low, 40, shape).astype(dtype)
    if kind == "c":
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)
    real: Array = (rng.normal(size=shape) * 3).astype(dtype)
    return real


def draw_special(dtype: Any, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Draw NaN, infinities, zeros of both signs, denormals and huge numbers among ordinary
    values.
    """
    values = draw_numbers(dtype, shape, rng).reshape(-1)
    if np.dtype(dtype).kind in "biu":
        return values.reshape(shape)
    real = values.real.dtype if np.dtype(dtype).kind == "c" else dtype
    _, tiny = get_precision(real)
    huge = float(get_limits(real).max)
    special_values = (
        np.nan,
        np.inf,
        -np.inf,
        0.0,
        -0.0,
        tiny,
        -tiny,
        tiny / 3,
        -tiny / 7,
        huge,
        -huge,
        1.0,
    )
    for index, value in zip(
        range(0, len(values), 3), itertools.cycle(special_values), strict=False
    ):
        values[index] = np.asarray(value).astype(real)
    return values.reshape(shape)


def get_precision(dtype: Any) -> tuple[float, float]:
    """Return the unit in the last place at 1.0, and the smallest normal number."""
    limits = get_limits(dtype)
    return float(limits.eps), float(limits.smallest_normal)


def get_limits(dtype: Any) -> Any:
    """Return np.finfo, for TensorFlow's own types too (ml_dtypes is a dependency of every
    TensorFlow).
    """
    if np.dtype(dtype).kind in "fc":
        return np.finfo(dtype)
    import ml_dtypes

    return ml_dtypes.finfo(dtype)
