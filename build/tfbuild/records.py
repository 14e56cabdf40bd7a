"""Frozen records as JSON: one canonical text per record, so that its hash can be a key."""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import json
import os
import tempfile
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, TypeVar

from tfbuild.errors import DiskError, RecordError

Record = TypeVar("Record")
_SHORT = 60
"""Characters of a value in a message: a line of a terminal."""
_ABSENT = object()


def plain(value: Any) -> Any:  # noqa: ANN401  (the border between records and JSON)
    """A record, and everything in it, as JSON types. Sets are sorted; paths become text."""
    match value:
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = dataclasses.fields(value)
            return {field.name: plain(getattr(value, field.name)) for field in fields}
        case enum.Enum():
            return plain(value.value)
        case Mapping():
            return {str(name): plain(member) for name, member in value.items()}
        case set() | frozenset():
            return sorted(plain(member) for member in value)
        case list() | tuple():
            return [plain(member) for member in value]
        case PurePath():
            return str(value)
        case None | bool() | int() | float() | str():
            return value
        case _:
            raise TypeError(f"{type(value).__name__} has no JSON form")


def canonical(value: object) -> str:
    """JSON with sorted names and no spaces: the same record always gives the same text."""
    return json.dumps(plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def key_of(value: object) -> str:
    """The SHA-256 (hex) of the canonical JSON."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def pretty(value: object) -> str:
    return json.dumps(plain(value), indent=2, allow_nan=False) + "\n"


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write beside `path`, then rename: a reader sees the old bytes or the new, never half.

    Raises DiskError when the disk is full or refuses.
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
    write_atomic(path, pretty(value))


def load(path: Path, *, schema: int | None) -> dict[str, Any]:
    """The record's fields, of any schema for None. Raises RecordError for a missing, torn or
    foreign file."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path} is not whole JSON ({error})") from error
    if not isinstance(fields, dict) or schema not in (None, fields.get("schema")):
        seen = fields.get("schema") if isinstance(fields, dict) else None
        raise RecordError(f"{path} has schema {seen}, this version reads {schema}")
    return fields


def differences(fields: Mapping[str, Any], value: object) -> list[str]:
    """`name (old, now new)` for every leaf in which a record's fields, as they were loaded, are not
    those of `value`; a name inside a record has its place before it, as in host.cpu.model."""
    return list(_differences(fields, plain(value), ""))


def _differences(old: Any, new: Any, place: str) -> Iterator[str]:  # noqa: ANN401  (JSON)
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys([*old, *new]):
            inner = f"{place}.{name}" if place else name
            yield from _differences(old.get(name, _ABSENT), new.get(name, _ABSENT), inner)
    elif old != new:
        yield f"{place} ({_short(old)}, now {_short(new)})"


def _short(value: object) -> str:
    text = "nothing" if value is _ABSENT else json.dumps(value)
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 3]}…"


def read(kind: type[Record], fields: Mapping[str, Any]) -> Record:
    """The record of that kind from its JSON form. Raises TypeError, ValueError, KeyError."""
    record = _read(kind, fields)
    assert isinstance(record, kind)  # noqa: S101  (what was asked for)
    return record


def _read(kind: Any, value: Any) -> Any:  # noqa: ANN401  (the border between JSON and records)
    """A value of the annotated `kind` from JSON. Raises TypeError, ValueError, KeyError."""
    if kind is Any:
        return value
    origin, members = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        return None if value is None else _read(members[0], value)
    if origin is not None:
        return _read_members(origin, members, value)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        if not isinstance(value, dict):
            raise TypeError(f"{value!r} is not a {kind.__name__}")
        hints = _hints(kind)
        return kind(**{name: _member(name, hints[name], each) for name, each in value.items()})
    if issubclass(kind, enum.Enum) or (kind is float and type(value) is int):
        return kind(value)
    if issubclass(kind, PurePath) and isinstance(value, str):
        return kind(value)
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is not a {kind.__name__}")
    return value


@functools.cache
def _hints(kind: type) -> Mapping[str, Any]:
    return typing.get_type_hints(kind)


class _MisfitError(TypeError):
    """A value that is not of its kind, and where in the record it stands: host.cpu.model."""

    def __init__(self, place: str, what: str) -> None:
        super().__init__(f"{place}: {what}")
        self.place, self.what = place, what


def _member(name: str, kind: Any, value: Any) -> Any:  # noqa: ANN401  (JSON)
    try:
        return _read(kind, value)
    except _MisfitError as error:
        raise _MisfitError(f"{name}.{error.place}", error.what) from None
    except (TypeError, ValueError) as error:
        raise _MisfitError(name, str(error)) from error


def _read_members(origin: type, members: tuple[Any, ...], value: Any) -> object:  # noqa: ANN401
    """A tuple or frozenset from a JSON list, a mapping from an object with texts as names."""
    if origin is Mapping:
        if not isinstance(value, dict):
            raise TypeError(f"{value!r} is not an object")
        return {str(name): _read(members[1], each) for name, each in value.items()}
    alike = origin is frozenset or members[-1] is Ellipsis
    kinds = members[:1] * len(value) if alike else members
    return origin(_read(each, member) for each, member in zip(kinds, value, strict=True))
