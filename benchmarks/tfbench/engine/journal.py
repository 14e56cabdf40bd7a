"""A run's journal, from which a killed run continues.

It is a file of JSON objects, one per line, written as results arrive. The key `is` has the kind of
the record.
"""

from __future__ import annotations

import contextlib
import lzma
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tfcore.errors import DiskError, RecordError, SampleError
from tfcore.records import (
    convert_record,
    decode_record,
    format_canonical,
    parse_json,
    write_atomic,
)

Entry = TypeVar("Entry")
Kinds = Mapping[str, type[Entry]]
"""Record classes by their kind in the journal."""
Keep = Callable[[Entry], None]
JOURNAL = "journal.jsonl"
PACKED = ".xz"
_TAG = "is"
_FOREIGN = (ValueError, TypeError, KeyError, AttributeError, OverflowError, SampleError)
_MOST = 128 << 20
"""Maximum size of an unpacked journal in bytes: a hundred times that of our longest run."""


@contextlib.contextmanager
def open_journal(
    path: Path, kinds: Kinds[Entry]
) -> Iterator[tuple[tuple[Entry, ...], Keep[Entry]]]:
    """Open a journal: yield the entries of an earlier run, and a function that appends one.

    Each line is one write, so a killed run leaves whole lines. An incomplete last line of an
    earlier run is cut off. Raises RecordError, DiskError.
    """
    known = read_entries(path, kinds) if path.is_file() else ()
    tags = {kind: tag for tag, kind in kinds.items()}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _cut_half_line(path)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError as error:
        raise DiskError(f"cannot write {path}: {error.strerror}") from error

    def keep(entry: Entry) -> None:
        line = (
            format_canonical({_TAG: tags[type(entry)], **convert_record(entry)}) + "\n"
        ).encode()
        try:
            written = os.write(handle, line)
        except OSError as error:
            raise DiskError(f"cannot write {path}: {error.strerror}") from error
        if written < len(line):
            raise DiskError(f"cannot write {path}: only {written} of {len(line)} bytes written")

    try:
        yield known, keep
    finally:
        os.close(handle)


def read_entries(path: Path, kinds: Kinds[Entry]) -> tuple[Entry, ...]:
    """Read all complete lines of a journal, which may be packed (.xz).

    An incomplete last line, as a full disk leaves it, is dropped. Repeated lines, as in merged
    files, count once. Raises RecordError.
    """

    def parse_entry(fields: dict[str, Any]) -> Entry:
        return decode_record(kinds[fields.pop(_TAG)], fields)

    return read_lines(path, parse_entry, "an entry")


def read_lines(path: Path, parse: Callable[[Any], Entry], kind: str) -> tuple[Entry, ...]:
    """Read any file of JSON lines like a journal, with `parse`.

    `kind` names the results of `parse` in errors. Raises RecordError.
    """
    parsed, seen_lines = [], set[str]()
    for number, line in enumerate(_load_lines(path), start=1):
        if line in seen_lines:
            continue
        seen_lines.add(line)
        try:
            parsed.append(parse(parse_json(line)))
        except _FOREIGN as error:
            reason = " ".join(str(error).split())  # (it may quote a value from the file)
            raise RecordError(
                f"{path}, line {number} is not {kind} ({reason})",
                hint="Remove the file, or give another --out",
            ) from error
    return tuple(parsed)


def _load_lines(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            content = file.read(_MOST + 1)
        content = _unpack(content) if path.suffix == PACKED else content
        if len(content) > _MOST:
            raise RecordError(f"cannot read {path}: it is larger than {_MOST} bytes")
        return content.decode("utf-8").split("\n")[:-1]
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise RecordError(f"cannot read {path}: it is not text") from error
    except (EOFError, lzma.LZMAError) as error:
        raise RecordError(f"cannot read {path}: the .xz data are damaged") from error


def _unpack(packed: bytes) -> bytes:
    """Unpack all streams of an .xz file, up to _MOST + 1 bytes.

    Raises LZMAError, EOFError.
    """
    content = bytearray()
    while len(content) <= _MOST:
        stream = lzma.LZMADecompressor(memlimit=_MOST)
        content += stream.decompress(packed, _MOST + 1 - len(content))
        if not stream.eof and len(content) <= _MOST:
            raise EOFError
        packed = stream.unused_data
        if not packed:
            break
    return bytes(content)


def _cut_half_line(path: Path) -> None:
    if path.is_file() and (content := path.read_bytes()) and not content.endswith(b"\n"):
        write_atomic(path, content[: content.rfind(b"\n") + 1])
