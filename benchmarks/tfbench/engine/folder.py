"""The folder of a run: what was asked, and whether a run may go on there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tfbench.engine.journal import JOURNAL
from tfbuild import console, records
from tfbuild.errors import HostError, RecordError, UsageError
from tfbuild.settings import Paths

_ANOTHER = "Give another --out"
_SHOWN = 3
"""Differences in a message."""


class Spec(Protocol):
    """What decides a run's entries, a frozen record: a run goes on only in an equal one."""

    @property
    def schema(self) -> int:
        """Of the record's JSON form."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunKind:
    """What the runs of one experiment are called, and the files in their folders.

    `prefix` begins the folder's name. A run is finished when its result is there, unless that says
    it is not complete.
    """

    name: str
    prefix: str
    result: str
    spec: str = "run.json"
    journal: str = JOURNAL


def find(kind: RunKind, spec: Spec, wanted: str, paths: Paths) -> Path:
    """The wanted folder, or that of the newest run that asked the same and was stopped, or a new
    one, which is not made here."""
    if wanted:
        return Path(wanted)
    stopped = unfinished(kind, spec, paths.reports.glob("*"))
    if stopped is None:
        return paths.choose_report_folder(kind.prefix)
    console.print_message(f"going on with the run that was stopped: {stopped}")
    return stopped


def unfinished(kind: RunKind, spec: Spec, folders: Iterable[Path]) -> Path | None:
    """The newest of the folders whose run asked the same and was stopped."""
    there = [each for each in folders if (each / kind.spec).is_file()]
    for folder in sorted(there, key=lambda each: (each / kind.spec).stat().st_mtime, reverse=True):
        with contextlib.suppress(RecordError):  # a damaged or an older run is another one
            if not _differing(kind, spec, folder) and not is_finished(kind, folder):
                return folder
    return None


def begin(kind: RunKind, spec: Spec, out: Path) -> None:
    """Write down what is asked, or find it written.

    Raises UsageError for a folder with another run, HostError for a run of another machine,
    RecordError for a damaged folder, DiskError.
    """
    if (out / kind.spec).exists():
        _need_same(kind, spec, out)
    elif (out / kind.journal).exists():
        raise UsageError(f"{out} holds the journal of an unknown run", hint=_ANOTHER)
    else:
        records.save(out / kind.spec, spec)


def need_unfinished(kind: RunKind, out: Path) -> None:
    """Raises UsageError for a folder with a finished run, RecordError for a damaged result."""
    if is_finished(kind, out):
        raise UsageError(f"{out} holds a finished {kind.name}", hint=_ANOTHER)


def is_finished(kind: RunKind, out: Path) -> bool:
    """Raises RecordError for a result that is no JSON object."""
    path = out / kind.result
    return path.exists() and records.load(path, schema=None).get("complete", True) is True


def newest(kind: RunKind, paths: Paths) -> Path | None:
    """The newest result of that kind, of a finished run or not."""
    every = paths.reports.glob(f"*/{kind.result}")
    return max(every, key=lambda path: path.stat().st_mtime, default=None)


def _need_same(kind: RunKind, spec: Spec, out: Path) -> None:
    differing = _differing(kind, spec, out)
    if differing:
        host = all(each.startswith("host.") for each in differing)
        raise (HostError if host else UsageError)(
            f"{out} holds another {kind.name}, which differs in {'; '.join(differing[:_SHOWN])}",
            hint=_ANOTHER,
        )


def _differing(kind: RunKind, spec: Spec, out: Path) -> list[str]:
    return records.find_differences(records.load(out / kind.spec, schema=spec.schema), spec)
