"""Search for wrong results of fused ops with random programs, also beyond crashes of TensorFlow."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfcore import console, settings
from tfcore.errors import AgreementError, RecordError, TimeLimitError, WorkerError
from tfcore.records import decode_record, load, parse_json, save
from tfcore.run import Completed, run

FAMILIES = ("chains", "products", "grouped", "loops", "updates", "models")
"""The families of `probe.random_programs`, which only an environment with TensorFlow can import."""
SCHEMA = 1
FILE = "random-programs.json"
_PACKAGE = Path(__file__).resolve().parents[1]
_MODULE = "tfbuild.probe.random_search"
_GRACE_S = 600.0
"""Time to import TensorFlow and to shrink the last program."""
_MOST_CRASHES = 50
_EACH = 40
"""Programs of each family in one process, because TensorFlow keeps what it prepared."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WrongProgram:
    """A program with wrong results: `numbers` make it, and `difference` describes the first."""

    numbers: tuple[int, ...]
    difference: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FamilyCount:
    """The programs of a family: `fused` of them ran fused ops; `refused` are errors of TensorFlow.

    `crashed` ended the process with fused ops and not without; those that crash stock kernels, too,
    count as refused.
    """

    programs: int = 0
    fused: int = 0
    refused: int = 0
    found: tuple[WrongProgram, ...] = ()
    crashed: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ResultSearch:
    """The result of a search; `wheel_sha256` is empty for a library without a wheel."""

    schema: int = SCHEMA
    seed: int
    seconds: float
    wheel_sha256: str = ""
    label: str = ""
    cpu: str = ""
    families: Mapping[str, FamilyCount] = field(default_factory=dict)

    @property
    def wrong(self) -> int:
        """Return the number of programs with wrong results, or that crash."""
        return sum(len(row.found) + len(row.crashed) for row in self.families.values())


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchRequest:
    """What to search: see `probe.random_search.SearchTask`.

    `env` is the whole environment of the processes, and `folder` is for their files.
    """

    python: Path
    folder: Path
    env: Mapping[str, str]
    seed: int
    seconds: float
    programs: int = 1 << 31
    families: Sequence[str] = FAMILIES
    libraries: Sequence[Path] = ()
    threads: int = 1


def search_results(
    request: SearchRequest, *, on_progress: Callable[[int, int], None] = lambda *_: None
) -> dict[str, FamilyCount]:
    """Run random programs until the time or the number of programs is over.

    `on_progress` gets the programs so far and the seconds. Raises WorkerError if TensorFlow does
    not start.
    """
    counts = {name: FamilyCount() for name in request.families}
    began, first, crashes = time.monotonic(), 0, 0
    while first < request.programs:
        left = request.seconds - (time.monotonic() - began)
        if left <= 0:
            break
        if crashes > _MOST_CRASHES:
            console.warn(f"TensorFlow crashed {crashes} times: the search ends here")
            break
        out, last = request.folder / f"results-{first}.json", min(first + _EACH, request.programs)
        done = _run_task(request, out, first=first, last=last, seconds=left)
        counts = _add(counts, _read(out))
        spent = int(time.monotonic() - began)
        on_progress(sum(row.programs for row in counts.values()), spent)
        running = _read(out.with_suffix(".running"))
        if done.returncode == 0:
            first = last
            continue
        if not running:
            raise WorkerError(
                f"TensorFlow ended with {done.returncode}: {done.output.strip()[-300:]}"
            )
        counts = _add_crash(counts, running, request)
        first, crashes = running["number"] + 1, crashes + 1
    return counts


def _run_task(request: SearchRequest, out: Path, **fields: Any) -> Completed:  # noqa: ANN401
    out.unlink(missing_ok=True)
    out.with_suffix(".running").unlink(missing_ok=True)
    task = {
        "out": str(out),
        "threads": request.threads,
        "seed": request.seed,
        "families": tuple(request.families),
        "libraries": tuple(map(str, request.libraries)),
        **fields,
    }
    save(out.with_suffix(".task"), task)
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    root = {"PYTHONPATH": str(settings.prepare_import_root(_PACKAGE))}
    argv: list[str | Path] = [request.python, "-m", _MODULE, out.with_suffix(".task")]
    limit = fields.get("seconds", 0.0) + _GRACE_S
    try:
        return run(argv, env={**request.env, **quiet, **root}, timeout_s=limit, check=False)
    except TimeLimitError as error:  # (a program that never ends is a finding, as a crash is)
        return Completed(argv=(), returncode=124, output=str(error), seconds=limit)


def _add_crash(
    counts: dict[str, FamilyCount], running: Mapping[str, Any], request: SearchRequest
) -> dict[str, FamilyCount]:
    """Count a program that ended the process; run it again to see if stock kernels crash, too."""
    name, numbers = running["family"], tuple(running["numbers"])
    out = request.folder / "replay.json"
    crashes_stock = _run_task(request, out, replay=(name, numbers)).returncode != 0
    old = counts[name]
    new = dataclasses.replace(
        old,
        programs=old.programs + 1,
        refused=old.refused + crashes_stock,
        crashed=old.crashed if crashes_stock else (*old.crashed, numbers),
    )
    return counts | {name: new}


def _add(counts: dict[str, FamilyCount], more: Mapping[str, Any]) -> dict[str, FamilyCount]:
    """Return the counts with those of another process."""
    total = dict(counts)
    for name, row in more.items():
        old = total[name]
        found = (
            WrongProgram(numbers=tuple(one["numbers"]), difference=one["difference"])
            for one in row["found"]
        )
        total[name] = dataclasses.replace(
            old,
            programs=old.programs + row["programs"],
            fused=old.fused + row["fused"],
            refused=old.refused + row["refused"],
            found=(*old.found, *found),
        )
    return total


def _read(path: Path) -> dict[str, Any]:
    """Return the fields of a file; empty if there is none."""
    fields: dict[str, Any] = parse_json(path.read_bytes()) if path.is_file() else {}
    return fields


def load_search(path: Path) -> ResultSearch:
    """Read the result of a search. Raises RecordError."""
    try:
        return decode_record(ResultSearch, load(path, schema=SCHEMA))
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"cannot read {path} ({error})", hint=f"Remove {path}") from error


def require_right(result: ResultSearch) -> None:
    """Raise AgreementError for programs with wrong results."""
    if result.wrong:
        raise AgreementError(
            f"{result.wrong} random programs compute wrong results with fused ops, or crash",
            hint="Turn the part off with TENSORWRIGHT_FUSE=-PART, build --without fused/PART, and "
            "report the numbers of the program",
        )
