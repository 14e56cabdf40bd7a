"""A file of JSON objects, one a line: what a killed run has written is kept, and gone on from."""

from __future__ import annotations

import contextlib
import json
import lzma
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from tfbuild.errors import DiskError, RecordError, SampleError
from tfbuild.records import canonical, write_atomic

Entry = TypeVar("Entry")


@contextlib.contextmanager
def appending(path: Path) -> Iterator[Callable[[object], None]]:
    """Open the file at its end and give a function that appends one record.

    A line is one write, so whoever reads, or kills the run, meets whole lines. Half a line that an
    earlier run left is cut off. Raises DiskError.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _cut_half_line(path)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError as error:
        raise DiskError(f"cannot write {path}: {error.strerror}") from error

    def append(entry: object) -> None:
        line = (canonical(entry) + "\n").encode()
        try:
            written = os.write(handle, line)
        except OSError as error:
            raise DiskError(f"cannot write {path}: {error.strerror}") from error
        if written < len(line):
            raise DiskError(f"cannot write {path}: the disk took {written} of {len(line)} bytes")

    try:
        yield append
    finally:
        os.close(handle)


def _cut_half_line(path: Path) -> None:
    if path.is_file() and (content := path.read_bytes()) and not content.endswith(b"\n"):
        write_atomic(path, content[: content.rfind(b"\n") + 1])


def _bytes(path: Path) -> bytes:
    """Of a file that may be packed."""
    content = path.read_bytes()
    return lzma.decompress(content) if path.suffix == ".xz" else content


def read_lines(path: Path, parse: Callable[[Any], Entry], what: str) -> tuple[Entry, ...]:
    """All whole lines as `parse` reads their JSON; `what` it makes is named in errors.

    A last line without its end is what a full disk leaves, and is dropped. Raises RecordError.
    """
    try:
        lines = _bytes(path).decode("utf-8").split("\n")
    except (OSError, EOFError, lzma.LZMAError, UnicodeDecodeError) as error:
        match error:
            case OSError():
                reason = error.strerror
            case UnicodeDecodeError():
                reason = "it is not text"
            case _:
                reason = "it is torn"
        raise RecordError(f"cannot read {path}: {reason}") from error
    entries = []
    for number, line in enumerate(lines[:-1], start=1):
        try:
            entries.append(parse(json.loads(line)))
        except (ValueError, TypeError, KeyError, AttributeError, SampleError) as error:
            raise RecordError(
                f"{path}, line {number} is not {what} ({error})",
                hint="Remove the file, or give another --out",
            ) from error
    return tuple(entries)
