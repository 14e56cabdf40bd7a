"""The folder of a run: its spec, and whether a run can continue there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tfbench.engine.journal import JOURNAL
from tfcore import console, records
from tfcore.errors import HostError, RecordError, UsageError
from tfcore.settings import Paths

_ANOTHER = "Give another --out"
_SHOWN = 3
"""Maximum number of differences in a message."""


class Spec(Protocol):
    """The frozen record that determines a run's entries; a run continues only with an equal one."""

    @property
    def schema(self) -> int:
        """Return the version of the record's JSON form."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunKind:
    """The names of an experiment's runs and of the files in their folders.

    `prefix` begins the folder's name. A run is finished if its folder has a result that is not
    marked as incomplete.
    """

    name: str
    prefix: str
    result: str
    spec: str = "run.json"
    journal: str = JOURNAL


def choose_folder(kind: RunKind, spec: Spec, out: str, paths: Paths) -> Path:
    """Return the folder of a run: `out`, the folder of a stopped run, or a new one.

    The stopped run is the newest with an equal spec. A new folder is not created yet.
    """
    if out:
        return Path(out)
    stopped = find_unfinished(kind, spec, paths.reports.glob("*"))
    if stopped is None:
        return paths.choose_report_folder(kind.prefix)
    console.print_message(f"continuing the stopped run in {stopped}")
    return stopped


def find_unfinished(kind: RunKind, spec: Spec, folders: Iterable[Path]) -> Path | None:
    """Return the newest of the folders whose run has an equal spec and was stopped."""
    run_folders = [candidate for candidate in folders if (candidate / kind.spec).is_file()]
    for folder in sorted(
        run_folders, key=lambda run_folder: (run_folder / kind.spec).stat().st_mtime, reverse=True
    ):
        with contextlib.suppress(RecordError):  # a damaged or older run is not continued
            if not _list_differences(kind, spec, folder) and not is_finished(kind, folder):
                return folder
    return None


def begin(kind: RunKind, spec: Spec, out: Path) -> None:
    """Write the spec of a run, or check that the folder has an equal spec.

    Raises UsageError for a folder of another run, HostError for a run of another machine,
    RecordError for a damaged folder, DiskError.
    """
    if (out / kind.spec).exists():
        _require_same(kind, spec, out)
    elif (out / kind.journal).exists():
        raise UsageError(f"{out} contains the journal of an unknown run", hint=_ANOTHER)
    else:
        records.save(out / kind.spec, spec)


def require_unfinished(kind: RunKind, out: Path) -> None:
    """Raise UsageError for a folder with a finished run, RecordError for a damaged result."""
    if is_finished(kind, out):
        raise UsageError(f"{out} contains a finished {kind.name}", hint=_ANOTHER)


def is_finished(kind: RunKind, out: Path) -> bool:
    """Return whether the folder contains a finished run.

    Raises RecordError for a result that is not a JSON object.
    """
    path = out / kind.result
    return path.exists() and records.load(path, schema=None).get("complete", True) is True


def find_newest(kind: RunKind, paths: Paths) -> Path | None:
    """Return the newest result of that kind, whether its run is finished or not."""
    results = paths.reports.glob(f"*/{kind.result}")
    return max(results, key=lambda path: path.stat().st_mtime, default=None)


def _require_same(kind: RunKind, spec: Spec, out: Path) -> None:
    differences = _list_differences(kind, spec, out)
    if differences:
        host = all(difference.startswith("host.") for difference in differences)
        raise (HostError if host else UsageError)(
            f"{out} contains another {kind.name}; different: {'; '.join(differences[:_SHOWN])}",
            hint=_ANOTHER,
        )


def _list_differences(kind: RunKind, spec: Spec, out: Path) -> list[str]:
    return records.find_differences(records.load(out / kind.spec, schema=spec.schema), spec)
