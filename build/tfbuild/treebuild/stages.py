"""Stages of long work: each is done once for its inputs, and found again after a kill."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tfbuild import console
from tfbuild.errors import RecordError
from tfbuild.records import decode_record, hash_record, load, save
from tfbuild.upstream.download import hash_file

SCHEMA = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishedStage:
    """A stage that has ended: the key of its inputs, and the file that it left with its bytes."""

    schema: int = SCHEMA
    key: str
    file: str
    sha256: str


def forget(folder: Path, name: str) -> None:
    """Have a stage done again."""
    _record(folder, name).unlink(missing_ok=True)


def stage(folder: Path, name: str, inputs: object, make: Callable[[], Path]) -> Path:
    """The file that `make` writes somewhere below `folder`, made now or by an earlier run.

    It is made again when `inputs` are others, or when the file is gone or has other bytes.
    """
    record, key = _record(folder, name), hash_record(inputs)
    done = _earlier(record)
    if done is not None and done.key == key:
        path = folder / done.file
        if path.is_file() and hash_file(path) == done.sha256:
            console.print_note(f"{name}: done by an earlier run")
            return path
    record.unlink(missing_ok=True)
    with console.report_step(name):
        path = make()
    save(record, FinishedStage(key=key, file=str(path.relative_to(folder)), sha256=hash_file(path)))
    return path


def _record(folder: Path, name: str) -> Path:
    return folder / f"{name}.done.json"


def _earlier(record: Path) -> FinishedStage | None:
    """The record of an earlier run; None where none has ended here, or its record is torn."""
    with contextlib.suppress(RecordError, TypeError, ValueError, KeyError):
        return decode_record(FinishedStage, load(record, schema=SCHEMA))
    return None
