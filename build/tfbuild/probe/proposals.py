"""Inputs and attributes for any op, guessed from its definition (OpDef).

A guess is a seeded draw: the same op, types and index give the same case in every process, and
other types give the same shapes. The stock kernel shows whether a guess is valid
(tfbuild.probe.trials). The draw depends on the names of arguments in TensorFlow's op definitions:
axis, perm, paddings, segment_ids and similar names.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfbuild.probe import cases
from tfbuild.probe.cases import Array
from tfbuild.probe.draws import HINTS, Draw, create_draw

# Numbers of tensorflow/core/framework/types.proto.
FLOAT, INT32, STRING, INT64, BOOL, RESOURCE, VARIANT = 1, 3, 7, 9, 10, 20, 21
QUANTIZED = {11: np.int8, 12: np.uint8, 13: np.int32, 15: np.int16, 16: np.uint16}
_PLAIN = {
    1: np.float32,
    2: np.float64,
    3: np.int32,
    4: np.uint8,
    5: np.int16,
    6: np.int8,
    8: np.complex64,
    9: np.int64,
    10: np.bool_,
    17: np.uint16,
    18: np.complex128,
    19: np.float16,
    22: np.uint32,
    23: np.uint64,
}
_BFLOAT16 = 14
_WORDS = np.array([b"a", b"bc", b"", b"12", b"-3.5", b"A b", b"\xc3\xa4\xc3\x9f", b"z,y"], object)


@dataclass(frozen=True, slots=True)
class Input:
    """One tensor that an op gets: `role` is "array", or the kind of object that is created with
    the array as its content.
    """

    role: str
    type: int
    array: Array


@dataclass(frozen=True, slots=True)
class Case:
    """One call of an op. With `sliced`, arrays reach the op as slices of larger tensors; with
    `gradient`, the results are the gradients of the op's results by its inputs.
    """

    op: str
    attributes: tuple[tuple[str, Any], ...]
    inputs: tuple[Input, ...]
    sliced: bool = False
    gradient: bool = False

    def __str__(self) -> str:
        types = [str(value) for _, value in self.attributes if isinstance(value, int)]
        shapes = [str(source.array.shape) for source in self.inputs]
        flags = [word for word in ("sliced", "gradient") if getattr(self, word)]
        return " ".join([self.op, *types, *shapes, *flags])


def propose(op: Any, types: Mapping[str, int], index: int) -> Case:
    """Create the index-th proposal for an OpDef whose type attributes are fixed to `types`.

    Raises NotImplementedError for an op that takes a function.
    """
    rng = np.random.default_rng(zlib.crc32(f"{op.name} {index}".encode()))
    draw = create_draw(rng, index)
    attributes = {attr.name: _choose_attribute(op, attr, types, draw, index) for attr in op.attr}
    inputs: list[Input] = []
    sparse = _draw_sparse(op, draw)
    for position, arg in enumerate(op.input_arg):
        numbers = _list_types(arg, attributes)
        inputs += [_create_input(op, arg, number, position, sparse, draw) for number in numbers]
    return Case(op.name, tuple(attributes.items()), tuple(inputs))


def _list_types(arg: Any, attributes: Mapping[str, Any]) -> list[int]:
    if arg.type_list_attr:
        return list(attributes[arg.type_list_attr])
    number = int(arg.type or attributes[arg.type_attr])
    return [number] * (int(attributes[arg.number_attr]) if arg.number_attr else 1)


# --- attributes ----------------------------------------------------------------------------------

_STRINGS = {
    "equation": ("ij,jk->ik", "ij->ji", "bij,bjk->bik", "ij->i", "i->", "abcd->dcba", "ij,ij->"),
    "pattern": ("[a-z]+",),
    "rewrite": ("x",),
    "output_encoding": ("UTF-8",),
    "input_encoding": ("UTF-8",),
    "set_operation": ("a-b", "b-a", "intersection", "union"),
}


def _choose_attribute(op: Any, attr: Any, types: Mapping[str, int], draw: Draw, index: int) -> Any:
    if attr.name in types:
        return types[attr.name]
    if attr.type in {"func", "list(func)"}:
        raise NotImplementedError(f"{op.name} takes a function")
    if op.is_stateful and attr.name in {"seed", "seed2"}:
        return 7
    # The first draws take the default values, later ones now and then.
    if attr.HasField("default_value") and (index < 24 or draw.flip_coin(0.6)):  # noqa: PLR2004
        return _read_default(attr)
    return _draw_attribute(attr, draw)


def _read_default(attr: Any) -> Any:
    value = attr.default_value
    kind = attr.type
    if kind == "shape":
        return _read_shape(value.shape)
    if kind == "list(shape)":
        return [_read_shape(shape) for shape in value.list.shape]
    if kind.startswith("list("):
        return list(getattr(value.list, _FIELDS[kind[5:-1]]))
    return getattr(value, _FIELDS[kind])


_FIELDS = {"string": "s", "int": "i", "float": "f", "bool": "b", "type": "type", "tensor": "tensor"}


def _read_shape(shape: Any) -> list[int] | None:
    return None if shape.unknown_rank else [dim.size for dim in shape.dim]


def _draw_attribute(attr: Any, draw: Draw) -> Any:
    valid = attr.allowed_values.list
    low = int(attr.minimum) if attr.has_minimum else 0
    if attr.type == "string":
        # EXPLICIT padding needs a list of paddings.
        allowed_words = [word for word in valid.s if word != b"EXPLICIT"]
        return draw.choose_one(
            allowed_words or [s.encode() for s in _STRINGS.get(attr.name, ("",))]
        )
    if attr.type == "int":
        return (
            int(draw.sample_ints(low, low + 3))
            if draw.flip_coin(0.7)
            else int(draw.sample_ints(low, low + 8))
        )
    if attr.type == "list(int)":
        size = 5 if len(draw.base) == 5 else 4  # noqa: PLR2004  (images, or volumes)
        size = size if attr.name in _WINDOWS else int(draw.sample_ints(low, low + 3))
        if attr.name not in _WINDOWS:
            return [int(value) for value in draw.sample_ints(0, 4, size)]
        extent = int(draw.sample_ints(1, 3))
        return [1, *[extent] * (size - 2), 1]
    if attr.type == "list(type)":
        allowed = list(valid.type) or [FLOAT, INT32, STRING]
        return [draw.choose_one(allowed) for _ in range(max(low, 1 + int(draw.sample_ints(0, 2))))]
    simple: dict[str, Any] = {
        "float": float(draw.choose_one((0.5, 1.0, 2.0, 0.0))),
        "bool": draw.flip_coin(0.5),
        "shape": list(draw.base),
        "list(shape)": [list(draw.base)],
        "list(float)": [0.5, 1.0],
        "list(string)": [b"a", b"b"],
        "list(bool)": [True],
        "type": next(iter(valid.type), FLOAT),
    }
    if attr.type not in simple:
        raise NotImplementedError(f"cannot draw an attribute of type {attr.type}")
    return simple[attr.type]


_WINDOWS = {"strides", "ksize", "dilations", "ksizes", "rates"}


# --- inputs --------------------------------------------------------------------------------------


def _create_input(
    op: Any,
    arg: Any,
    number: int,
    position: int,
    sparse: Mapping[str, Array],
    draw: Draw,
) -> Input:
    if arg.is_ref:
        return Input(
            "reference" if number != STRING or "T" in op.name else "handle",
            number,
            _draw_array(arg.name, number, position, draw),
        )
    if number in {RESOURCE, VARIANT}:
        # (an op with a free type only moves handles: pass an array of them)
        role = _choose_role(op.name, number) if arg.type else "handles"
        return Input(role, number, _draw_numbers(FLOAT, draw.base, draw))
    if arg.name in sparse:
        component = sparse[arg.name]
        if arg.name.endswith("values"):
            return Input("array", number, _draw_numbers(number, component.shape, draw))
        return Input("array", number, component.astype(get_dtype(number)))
    return Input("array", number, _draw_array(arg.name, number, position, draw))


def get_dtype(number: int) -> Any:
    """Return the NumPy type that holds a type of types.proto. Raises NotImplementedError if
    there is none.
    """
    if number == STRING:
        return np.dtype(object)
    if number == _BFLOAT16:
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    plain = _PLAIN.get(number) or QUANTIZED.get(number)
    if plain is None:
        raise NotImplementedError(f"no NumPy type for data type {number}")
    return np.dtype(plain)


_HOLDERS = (
    ("LookupTable", "table"),
    ("InitializeTable", "fresh table"),
    ("StackP", "stack"),
    ("StackClose", "stack"),
    ("TensorArray", "tensor array"),
    ("Queue", "queue"),
    ("TensorList", "list"),
    ("TensorMap", "map"),
    ("SparseMatrix", "csr"),
    ("CSRSparse", "csr"),
    ("Optional", "optional"),
    ("ResourceAccumulator", "accumulator"),
    ("", "variable"),
)


def _choose_role(op: str, number: int) -> str:
    candidate = next(role for prefix, role in _HOLDERS if op.startswith(prefix))
    return "list" if candidate == "variable" and number == VARIANT else candidate


def _draw_array(name: str, number: int, position: int, draw: Draw) -> Array:
    kind = get_dtype(number)
    if number == BOOL and draw.flip_coin(0.5):  # (a predicate)
        return np.asarray(draw.flip_coin(0.5))
    hint = next((make for pattern, make in HINTS if re.search(pattern, name)), None)
    is_integer = number in {INT32, INT64} or (kind.kind in "iu" and hint is not None)
    if is_integer and hint is not None and draw.flip_coin(0.85):
        return np.asarray(hint(draw), kind)
    if number in {INT32, INT64} and draw.flip_coin(0.4):
        return np.asarray(draw.choose_one([make for _, make in HINTS])(draw), kind)
    if re.match(r"(min|max|y_min|y_max|input_(min|max))", name) and kind.kind == "f":
        return np.asarray(-1.0 if "min" in name else 1.5, kind)
    if "threshold" in name and kind.kind in "fV":
        return np.asarray(0.25, kind)
    return _draw_numbers(number, _draw_shape(position, draw), draw)


def _draw_shape(position: int, draw: Draw) -> tuple[int, ...]:
    base = draw.base
    related = (base, base, base[:1], base[-1:], (), base[:-1], base[1:], base[::-1], base[:2])
    if draw.plan == "mixed":
        return tuple(draw.choose_one(related))
    if position == 0 or draw.plan == "same":
        return base
    return {"scalars": (), "vectors": base[-1:], "firsts": base[:1]}[draw.plan]


def _draw_numbers(number: int, shape: tuple[int, ...], draw: Draw) -> Array:
    kind = get_dtype(number)
    if number == STRING:
        return np.asarray(draw.rng.choice(_WORDS, shape), object)
    if kind.kind in "biu":
        if draw.values == "unit":
            return draw.sample_ints(0, 2, shape).astype(kind)
        return cases.draw_numbers(kind, shape, draw.rng)
    if draw.values in {"positive", "unit"}:
        return np.asarray(
            draw.rng.uniform(0.05, 0.95 if draw.values == "unit" else 5, shape)
        ).astype(kind)
    values = cases.draw_numbers(kind, shape, draw.rng)
    if draw.values == "definite" and len(shape) > 1 and shape[-1] == shape[-2]:
        wide = values.astype(np.complex128 if kind.kind == "c" else np.float64)
        squared = wide @ np.conj(np.swapaxes(wide, -1, -2)) + np.eye(shape[-1])
        return np.asarray(squared.astype(kind))
    return values


# --- sparse tensors ------------------------------------------------------------------------------


def _draw_sparse(op: Any, draw: Draw) -> dict[str, Array]:
    """Draw the arrays of every sparse tensor that an op takes as indices, values and shape."""
    names = {arg.name for arg in op.input_arg}
    arrays: dict[str, Array] = {}
    base = draw.base or (3,)
    for name in sorted(names):
        prefix = name.removesuffix("indices")
        shape = next((n for n in (f"{prefix}shape", f"{prefix}dense_shape") if n in names), "")
        if prefix == name or f"{prefix}values" not in names or not shape:
            continue
        cells = int(np.prod(base))
        occupied = np.sort(draw.rng.permutation(cells)[: max(1, cells // 2)])
        indices = (
            np.stack(np.unravel_index(occupied, base), axis=-1)
            if cells
            else np.zeros((0, len(base)))
        )
        arrays |= {name: indices, f"{prefix}values": np.zeros(len(indices)), shape: np.array(base)}
    return arrays
