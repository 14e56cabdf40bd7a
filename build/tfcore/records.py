"""Converts frozen records to and from JSON. The hash of the canonical JSON can be a key."""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import json
import math
import os
import reprlib
import tempfile
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Any, TypeVar

from tfcore.errors import DiskError, RecordError

Record = TypeVar("Record")
_SHORT = 60
"""Maximum number of characters of a value in a message: one line of a terminal."""
_ABSENT = object()
MOST = 16 << 20
"""Maximum size of a JSON or TOML text, in bytes. Parsed, it may take 30 times as much memory. The
largest record of a run so far has 0.3 MB."""
_DEEPEST = 64
"""Maximum nesting of objects and lists. Records have 10 levels; Python's functions fail at about
ten times this number."""
_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = _SHORT
_SHOWN.maxlevel = 2


def convert_record(value: Any) -> Any:  # noqa: ANN401  (the border between records and JSON)
    """Convert a record, and everything in it, to JSON types.

    Sets are sorted; paths become text. Raises TypeError for a value without a JSON form.
    """
    match value:
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = dataclasses.fields(value)
            return {field.name: convert_record(getattr(value, field.name)) for field in fields}
        case enum.Enum():
            return convert_record(value.value)
        case Mapping():
            return {str(name): convert_record(member) for name, member in value.items()}
        case set() | frozenset():
            return sorted(convert_record(member) for member in value)
        case list() | tuple():
            return [convert_record(member) for member in value]
        case PurePath():
            return str(value)
        case None | bool() | int() | float() | str():
            return value
        case _:
            raise TypeError(f"{type(value).__name__} has no JSON form")


def format_canonical(value: object) -> str:
    """Format a value as JSON with sorted names and no spaces.

    The same record always gives the same text.
    """
    return json.dumps(convert_record(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def hash_record(value: object) -> str:
    """Return the SHA-256 (hex) of the canonical JSON."""
    return hashlib.sha256(format_canonical(value).encode()).hexdigest()


def format_json(value: object) -> str:
    return json.dumps(convert_record(value), indent=2, allow_nan=False) + "\n"


def format_now() -> str:
    """Return the current time as records store it: ISO 8601 to the second, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write a temporary file beside `path`, then rename it.

    A reader sees the old bytes or the new, never a part. Raises DiskError if the file cannot
    be written.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as sink:
                sink.write(data)
            Path(name).chmod(0o644)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise DiskError(f"cannot write {path}: {error.strerror}") from error


def save(path: Path, value: object) -> None:
    write_atomic(path, format_json(value))


def load(path: Path, *, schema: int | None) -> dict[str, Any]:
    """Return the fields of a record of this schema; of any schema if it is None.

    Raises RecordError if the file is missing, truncated or of another schema.
    """
    try:
        fields = parse_json(read_text(path))
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise RecordError(f"{path} is not valid JSON ({error})") from error
    if not isinstance(fields, dict) or schema not in (None, fields.get("schema")):
        found_schema = fields.get("schema") if isinstance(fields, dict) else None
        raise RecordError(
            f"{path} has schema {quote_value(found_schema)}, but this version reads {schema}"
        )
    return fields


def read_text(path: Path, *, encoding: str = "utf-8") -> str:
    """Return the text of a file.

    Reads at most MOST bytes. Raises OSError; ValueError if the file is longer, or is not text
    in this encoding.
    """
    with path.open("rb") as file:
        data = file.read(MOST + 1)
    if len(data) > MOST:
        raise ValueError(f"it has more than {MOST} bytes")
    return data.decode(encoding)


def parse_json(text: str | bytes) -> Any:  # noqa: ANN401  (JSON)
    """Parse a JSON text.

    Raises ValueError if it is malformed, too long, nested too deeply, or not Unicode. None of
    our files is, and other programs fail on such files.
    """
    if len(text) > MOST:
        raise ValueError(f"it has {len(text)} bytes, more than {MOST}")
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    _check_structure(value)
    return value


def parse_toml(text: str) -> dict[str, Any]:
    """Parse a TOML text, with the limits of `parse_json`.

    Raises ValueError.
    """
    try:
        table = tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    _check_structure(table)
    return table


def _check_structure(value: object) -> None:
    level: list[object] = [value]
    for _ in range(_DEEPEST):
        children: list[object] = []
        for node in level:
            if isinstance(node, dict):
                children += node.keys()
                children += node.values()
            elif isinstance(node, list):
                children += node
            elif isinstance(node, str) and not node.isascii():
                node.encode()  # (a lone surrogate raises UnicodeEncodeError, a ValueError)
        if not children:
            return
        level = children
    raise ValueError(f"it is nested more than {_DEEPEST} levels deep")


def quote_value(value: object) -> str:
    """Return a foreign value for a message: quoted, without control characters, and cut short."""
    return _SHOWN.repr(value)


def find_differences(fields: Mapping[str, Any], value: object) -> list[str]:
    """Return `name (old, now new)` for every leaf in which loaded fields differ from `value`.

    A name inside a record has its path before it, as in host.cpu.model.
    """
    return list(_walk_differences(fields, convert_record(value), ""))


def _walk_differences(old: Any, new: Any, place: str) -> Iterator[str]:  # noqa: ANN401  (JSON)
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys([*old, *new]):
            path = f"{place}.{name}" if place else name
            yield from _walk_differences(old.get(name, _ABSENT), new.get(name, _ABSENT), path)
    elif old != new:
        yield f"{place} ({_format_leaf(old)}, now {_format_leaf(new)})"


def _format_leaf(value: object) -> str:
    text = "nothing" if value is _ABSENT else json.dumps(value)
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 3]}…"


def decode_record(kind: type[Record], fields: Mapping[str, Any]) -> Record:
    """Return the record of that kind from its JSON form.

    Raises TypeError, ValueError, KeyError.
    """
    record = _decode_value(kind, fields)
    assert isinstance(record, kind)  # noqa: S101  (_decode_value ensures it)
    return record


def _decode_value(kind: Any, value: Any) -> Any:  # noqa: ANN401  (the border between JSON and records)
    """Decode a value of the annotated `kind` from JSON.

    Raises TypeError, ValueError, KeyError.
    """
    if kind is Any:
        return value
    origin, members = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        return None if value is None else _decode_value(members[0], value)
    if origin is not None:
        return _decode_members(origin, members, value)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        if not isinstance(value, dict):
            raise TypeError(f"{quote_value(value)} is not a {kind.__name__}")
        hints = _get_field_types(kind)
        # A KeyError prints the whole name, so long names are cut. No field has such a name.
        named = ((name[:_SHORT], member) for name, member in value.items())
        return kind(**{name: _decode_field(name, hints[name], member) for name, member in named})
    if issubclass(kind, enum.Enum):
        return _decode_enum(kind, value)
    if kind is float and type(value) in {int, float}:
        return _decode_float(value)
    if issubclass(kind, PurePath) and isinstance(value, str):
        return kind(value)
    if not isinstance(value, kind):
        raise TypeError(f"{quote_value(value)} is not a {kind.__name__}")
    return value


def _decode_enum(kind: type[enum.Enum], value: object) -> enum.Enum:
    try:
        return kind(value)
    except ValueError:
        raise ValueError(f"{quote_value(value)} is not a valid {kind.__name__}") from None


def _decode_float(value: float) -> float:
    """Return a finite number.

    Our records contain no NaN and no infinity. Raises ValueError.
    """
    try:
        number = float(value)
    except OverflowError as error:
        raise ValueError(f"{quote_value(value)} is too large") from error
    if not math.isfinite(number):
        raise ValueError(f"{number} is not a finite number")
    return number


@functools.cache
def _get_field_types(kind: type) -> Mapping[str, Any]:
    return typing.get_type_hints(kind)


class _MisfitError(TypeError):
    """A value of the wrong type, and its path in the record: host.cpu.model."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"{place}: {problem}")
        self.place, self.what = place, problem


def _decode_field(name: str, kind: Any, value: Any) -> Any:  # noqa: ANN401  (JSON)
    try:
        return _decode_value(kind, value)
    except _MisfitError as error:
        raise _MisfitError(f"{name}.{error.place}", error.what) from None
    except (TypeError, ValueError) as error:
        raise _MisfitError(name, str(error)) from error


def _decode_members(origin: type, members: tuple[Any, ...], value: Any) -> object:  # noqa: ANN401
    """Decode a tuple or frozenset from a JSON list, or a mapping from a JSON object.

    The names of a mapping are text.
    """
    if origin is Mapping:
        if not isinstance(value, dict):
            raise TypeError(f"{quote_value(value)} is not an object")
        return {str(name): _decode_value(members[1], item) for name, item in value.items()}
    if not isinstance(value, list | tuple):
        raise TypeError(f"{quote_value(value)} is not a list")
    is_uniform = origin is frozenset or members[-1] is Ellipsis
    kinds = members[:1] * len(value) if is_uniform else members
    return origin(_decode_value(kind, member) for kind, member in zip(kinds, value, strict=True))
