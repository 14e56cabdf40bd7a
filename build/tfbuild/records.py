"""Frozen records as JSON: one canonical text per record, so that its hash can be a key."""

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

from tfbuild.errors import DiskError, RecordError

Record = TypeVar("Record")
_SHORT = 60
"""Characters of a value in a message: a line of a terminal."""
_ABSENT = object()
MOST = 16 << 20
"""Bytes of the largest JSON or TOML text that is read. In memory it may take 30 times as many; the
largest record of a run so far has 0.3 MB."""
_DEEPEST = 64
"""Objects and lists in one another. Records have 10; with ten times this number Python's own
functions give up."""
_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = _SHORT
_SHOWN.maxlevel = 2


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


def now() -> str:
    """The time as records keep it: ISO 8601 to the second, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


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
        fields = parse_json(read_text(path))
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise RecordError(f"{path} is not whole JSON ({error})") from error
    if not isinstance(fields, dict) or schema not in (None, fields.get("schema")):
        seen = fields.get("schema") if isinstance(fields, dict) else None
        raise RecordError(f"{path} has schema {shown(seen)}, this version reads {schema}")
    return fields


def read_text(path: Path, *, encoding: str = "utf-8") -> str:
    """The text of a file. Raises OSError, and ValueError for one with more than MOST bytes, of
    which no more are read, and for bytes that are no text."""
    with path.open("rb") as file:
        data = file.read(MOST + 1)
    if len(data) > MOST:
        raise ValueError(f"it has more than {MOST} bytes, that is too many")
    return data.decode(encoding)


def parse_json(text: str | bytes) -> Any:  # noqa: ANN401  (JSON)
    """What a JSON text says. Raises ValueError for a torn one, and for what no file of ours holds
    and others stumble over: too many bytes, too deep a nesting, text that is not Unicode."""
    if len(text) > MOST:
        raise ValueError(f"it has {len(text)} bytes, that is too many")
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    _need_sound(value)
    return value


def parse_toml(text: str) -> dict[str, Any]:
    """The same of a TOML text."""
    try:
        table = tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    _need_sound(table)
    return table


def _need_sound(value: object) -> None:
    level: list[object] = [value]
    for _ in range(_DEEPEST):
        inner: list[object] = []
        for each in level:
            if isinstance(each, dict):
                inner += each.keys()
                inner += each.values()
            elif isinstance(each, list):
                inner += each
            elif isinstance(each, str) and not each.isascii():
                each.encode()  # (a lone surrogate raises UnicodeEncodeError, a ValueError)
        if not inner:
            return
        level = inner
    raise ValueError(f"it is nested more than {_DEEPEST} times")


def shown(value: object) -> str:
    """A foreign value in a message: in quotes, without control characters, and cut short."""
    return _SHOWN.repr(value)


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
            raise TypeError(f"{shown(value)} is not a {kind.__name__}")
        hints = _hints(kind)
        # No field has a longer name, and a KeyError shows it whole.
        named = ((name[:_SHORT], each) for name, each in value.items())
        return kind(**{name: _member(name, hints[name], each) for name, each in named})
    if issubclass(kind, enum.Enum):
        return _one_of(kind, value)
    if kind is float and type(value) in {int, float}:
        return _finite(value)
    if issubclass(kind, PurePath) and isinstance(value, str):
        return kind(value)
    if not isinstance(value, kind):
        raise TypeError(f"{shown(value)} is not a {kind.__name__}")
    return value


def _one_of(kind: type[enum.Enum], value: object) -> enum.Enum:
    try:
        return kind(value)
    except ValueError:
        raise ValueError(f"{shown(value)} is not a valid {kind.__name__}") from None


def _finite(value: float) -> float:
    """Records are written without NaN and infinity, so one that has them is none of ours."""
    try:
        number = float(value)
    except OverflowError as error:
        raise ValueError(f"{shown(value)} is too large") from error
    if not math.isfinite(number):
        raise ValueError(f"{number} is no number")
    return number


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
            raise TypeError(f"{shown(value)} is not an object")
        return {str(name): _read(members[1], each) for name, each in value.items()}
    if not isinstance(value, list | tuple):
        raise TypeError(f"{shown(value)} is not a list")
    alike = origin is frozenset or members[-1] is Ellipsis
    kinds = members[:1] * len(value) if alike else members
    return origin(_read(each, member) for each, member in zip(kinds, value, strict=True))
