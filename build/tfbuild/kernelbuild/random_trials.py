"""Search for wrong results of fused ops with random programs, also beyond crashes of TensorFlow."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfcore import console, settings
from tfcore.errors import AgreementError, RecordError, TimeLimitError, WorkerError
from tfcore.records import decode_record, load, parse_json, save
from tfcore.run import Completed, kill_group, run

FAMILIES = ("chains", "products", "grouped", "loops", "updates", "models")
"""The families of `probe.random_programs`, which only an environment with TensorFlow can import."""
SCHEMA = 1
FILE = "random-programs.json"
_PACKAGE = Path(__file__).resolve().parents[1]
_MODULE = "tfbuild.probe.random_search"
_GRACE_S = 600.0
"""Time to import TensorFlow and to shrink the last program."""
_TICK_S = 1.0
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

    `env` is the whole environment of the processes, and `folder` is for their files. `processes`
    run at a time, with `threads` each.
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
    processes: int = 1


def search_results(
    request: SearchRequest,
    *,
    on_progress: Callable[[Mapping[str, FamilyCount], int], None] = lambda *_: None,
) -> Mapping[str, FamilyCount]:
    """Run random programs until the time or the number of programs is over.

    `on_progress` gets the counts so far and the seconds, every second and at the end. Raises
    WorkerError if TensorFlow does not start.
    """
    search = _Search(request)
    starts = itertools.count(step=_EACH)
    with ThreadPoolExecutor(request.processes) as pool:
        parts = {pool.submit(search.run_parts, starts) for _ in range(request.processes)}
        try:
            while parts:
                done, parts = wait(parts, _TICK_S, FIRST_EXCEPTION)
                for part in done:
                    part.result()
                on_progress(search.count(), int(search.seconds))
        except BaseException:
            search.stop()
            raise
    return search.count()


class _Search:
    """A search by several threads; each of them waits for one process at a time."""

    def __init__(self, request: SearchRequest) -> None:
        self._counts = {name: FamilyCount() for name in request.families}
        self._request = request
        self._began = time.monotonic()
        self._crashes = 0
        self._lock = threading.Lock()
        self._groups: dict[int, int] = {}  # by thread
        self._running: set[Path] = set()  # results that are not in the counts
        self._is_stopped = False

    @property
    def seconds(self) -> float:
        """Return the time since the search began."""
        return time.monotonic() - self._began

    def count(self) -> dict[str, FamilyCount]:
        """Return the counts, also those of the processes that run."""
        with self._lock:
            return functools.reduce(_add, map(_read, self._running), self._counts)

    def stop(self) -> None:
        """Kill all processes."""
        with self._lock:
            self._is_stopped = True
            for group in self._groups.values():
                kill_group(group)

    def _add_process(self, group: int) -> None:
        with self._lock:
            self._groups[threading.get_ident()] = group
            if self._is_stopped:
                kill_group(group)

    def run_parts(self, starts: Iterator[int]) -> None:
        """Run the parts that begin at the next numbers, until the search is over."""
        for start in starts:
            if start >= self._request.programs:
                return
            last = min(start + _EACH, self._request.programs)
            first: int | None = start
            while first is not None and first < last:
                seconds = self._request.seconds - self.seconds
                if seconds <= 0 or self._crashes > _MOST_CRASHES or self._is_stopped:
                    return
                first = self._run_part(first, last, seconds)

    def _run_part(self, first: int, last: int, seconds: float) -> int | None:
        """Run programs in a process; return the number after one that crashed, or None."""
        out = self._request.folder / f"results-{first}.json"
        with self._lock:
            self._running.add(out)
        done = self._run_task(out, first=first, last=last, seconds=seconds)
        running = _read(out.with_suffix(".running"))
        with self._lock:
            if self._is_stopped:
                return None
            self._running.remove(out)
            self._counts = _add(self._counts, _read(out))
        if done.returncode == 0:
            return None
        if not running:
            said = done.output.strip()[-300:]
            raise WorkerError(f"TensorFlow ended with {done.returncode}: {said}")
        # Do stock kernels crash, too?
        program = (running["family"], tuple(running["numbers"]))
        crashes_stock = self._run_task(out.with_suffix(".replay"), replay=program).returncode != 0
        with self._lock:
            self._counts = _add_crash(self._counts, running, crashes_stock=crashes_stock)
            self._crashes += 1
            if self._crashes == _MOST_CRASHES + 1:
                console.warn(f"TensorFlow crashed {self._crashes} times: the search ends here")
        return int(running["number"]) + 1

    def _run_task(self, out: Path, **fields: Any) -> Completed:  # noqa: ANN401
        request = self._request
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
        env = {
            **request.env,
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "CUDA_VISIBLE_DEVICES": "",
            "TENSORWRIGHT_VERIFY": "0",  # It would replace wrong results.
            "PYTHONPATH": str(settings.prepare_import_root(_PACKAGE)),
        }
        argv: list[str | Path] = [request.python, "-m", _MODULE, out.with_suffix(".task")]
        limit = fields.get("seconds", 0.0) + _GRACE_S
        try:
            return run(
                argv,
                env=env,
                log=out.with_suffix(".log"),
                timeout_s=limit,
                check=False,
                on_start=self._add_process,
            )
        except TimeLimitError as error:  # (a program that never ends is a finding, as a crash is)
            return Completed(argv=(), returncode=124, output=str(error), seconds=limit)
        finally:
            with self._lock:
                self._groups.pop(threading.get_ident(), None)


def _add_crash(
    counts: dict[str, FamilyCount], running: Mapping[str, Any], *, crashes_stock: bool
) -> dict[str, FamilyCount]:
    name, numbers = running["family"], tuple(running["numbers"])
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
