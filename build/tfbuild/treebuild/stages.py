"""Stages of a long run: each runs once per inputs, and its result survives a killed run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tfbuild.upstream.download import hash_file
from tfcore import console
from tfcore.errors import RecordError
from tfcore.records import decode_record, hash_record, load, save

SCHEMA = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishedStage:
    """A finished stage: the key of its inputs, and the file that it wrote, with its hash."""

    schema: int = SCHEMA
    key: str
    file: str
    sha256: str


def forget_stage(folder: Path, name: str) -> None:
    """Remove the record of a stage, so that it runs again."""
    _get_record_path(folder, name).unlink(missing_ok=True)


def run_stage(folder: Path, name: str, inputs: object, make: Callable[[], Path]) -> Path:
    """Return the file that `make` writes below `folder`, made now or by an earlier run.

    The file is made again if `inputs` changed, or if it is missing or has other bytes.
    """
    record, key = _get_record_path(folder, name), hash_record(inputs)
    finished = _read_record(record)
    if finished is not None and finished.key == key:
        path = folder / finished.file
        if path.is_file() and hash_file(path) == finished.sha256:
            console.print_note(f"{name}: done by an earlier run")
            return path
    record.unlink(missing_ok=True)
    with console.report_step(name):
        path = make()
    save(record, FinishedStage(key=key, file=str(path.relative_to(folder)), sha256=hash_file(path)))
    return path


def _get_record_path(folder: Path, name: str) -> Path:
    return folder / f"{name}.done.json"


def _read_record(record: Path) -> FinishedStage | None:
    """Read the record of an earlier run, or return None if no run finished here or its record is
    torn.
    """
    with contextlib.suppress(RecordError, TypeError, ValueError, KeyError):
        return decode_record(FinishedStage, load(record, schema=SCHEMA))
    return None
