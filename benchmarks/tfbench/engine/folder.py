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
    """The frozen record that decides a run's entries: a run resumes only with an equal one."""

    @property
    def schema(self) -> int:
        """Return the version of the record's JSON form."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunKind:
    """The names of an experiment's runs and of the files in their folders.

    `prefix` begins the folder's name. A run is finished if its result is there, unless that
    says it is not complete.
    """

    name: str
    prefix: str
    result: str
    spec: str = "run.json"
    journal: str = JOURNAL


def choose_folder(kind: RunKind, spec: Spec, wanted: str, paths: Paths) -> Path:
    """Return the folder of a run: the wanted one, that of a stopped run, or a new one.

    The stopped run is the newest with an equal spec. A new folder is not created here.
    """
    if wanted:
        return Path(wanted)
    stopped = find_unfinished(kind, spec, paths.reports.glob("*"))
    if stopped is None:
        return paths.choose_report_folder(kind.prefix)
    console.print_message(f"going on with the run that was stopped: {stopped}")
    return stopped


def find_unfinished(kind: RunKind, spec: Spec, folders: Iterable[Path]) -> Path | None:
    """Return the newest of the folders whose run has an equal spec and was stopped."""
    run_folders = [each for each in folders if (each / kind.spec).is_file()]
    for folder in sorted(
        run_folders, key=lambda each: (each / kind.spec).stat().st_mtime, reverse=True
    ):
        with contextlib.suppress(RecordError):  # a damaged or an older run is another one
            if not _list_differences(kind, spec, folder) and not is_finished(kind, folder):
                return folder
    return None


def begin(kind: RunKind, spec: Spec, out: Path) -> None:
    """Write the spec of a run, or check that the one written is equal.

    Raises UsageError for a folder with another run, HostError for a run of another machine,
    RecordError for a damaged folder, DiskError.
    """
    if (out / kind.spec).exists():
        _require_same(kind, spec, out)
    elif (out / kind.journal).exists():
        raise UsageError(f"{out} holds the journal of an unknown run", hint=_ANOTHER)
    else:
        records.save(out / kind.spec, spec)


def require_unfinished(kind: RunKind, out: Path) -> None:
    """Raise UsageError for a folder with a finished run, RecordError for a damaged result."""
    if is_finished(kind, out):
        raise UsageError(f"{out} holds a finished {kind.name}", hint=_ANOTHER)


def is_finished(kind: RunKind, out: Path) -> bool:
    """Return whether the folder holds a finished run.

    Raises RecordError for a result that is no JSON object.
    """
    path = out / kind.result
    return path.exists() and records.load(path, schema=None).get("complete", True) is True


def find_newest(kind: RunKind, paths: Paths) -> Path | None:
    """Return the newest result of that kind, of a finished run or not."""
    results = paths.reports.glob(f"*/{kind.result}")
    return max(results, key=lambda path: path.stat().st_mtime, default=None)


def _require_same(kind: RunKind, spec: Spec, out: Path) -> None:
    differences = _list_differences(kind, spec, out)
    if differences:
        host = all(difference.startswith("host.") for difference in differences)
        raise (HostError if host else UsageError)(
            f"{out} holds another {kind.name}, which differs in {'; '.join(differences[:_SHOWN])}",
            hint=_ANOTHER,
        )


def _list_differences(kind: RunKind, spec: Spec, out: Path) -> list[str]:
    return records.find_differences(records.load(out / kind.spec, schema=spec.schema), spec)
