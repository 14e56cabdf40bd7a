"""What came back from each host, and the fleet's result. The result is a JSON file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from tfcore.comparisons.comparison import FILE as COMPARISON
from tfcore.comparisons.comparison import Comparison
from tfcore.comparisons.comparison import load as load_comparison
from tfcore.comparisons.deciding import find_mean_decision
from tfcore.comparisons.interval import Interval, Verdict
from tfcore.errors import RecordError
from tfcore.records import decode_record
from tfcore.records import load as load_fields

OUTCOME = "outcome.json"
SCHEMA = 1


class HostStatus(StrEnum):
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True, slots=True)
class HostOutcome:
    """What `on_host.py` wrote on a host.

    `step` failed with the exit code `code` and this reason; all are empty if nothing failed.
    `refused` are the wheels that the host cannot run, with reasons. `target` is the best target of
    its CPU, `usable` its number of usable vCPUs.
    """

    schema: int
    status: HostStatus
    seconds: float
    cpu: str = ""
    target: str = ""
    usable: int = 0
    refused: tuple[tuple[str, str], ...] = ()
    step: str = ""
    code: int = 0
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostSpeedup:
    """The mean speedup of a wheel over stock on one host. `verdict` is None if it does not count:
    the wheel failed, or computes something else."""

    vcpus: int
    arm: str
    interval: Interval
    verdict: Verdict | None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunTime:
    """The seconds of one training run of each workload together, with one arm."""

    vcpus: int
    arm: str
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class HostResult:
    """The result of one host. `count` is the number of such hosts, `machine` their price's name."""

    name: str
    machine: str
    count: int
    outcome: HostOutcome
    speedups: tuple[HostSpeedup, ...] = ()
    runs: tuple[RunTime, ...] = ()
    """Empty unless all phases of the runs were measured (--thorough)."""


def load_outcome(folder: Path) -> HostOutcome:
    """Load what a host wrote. Raises RecordError."""
    path = folder / OUTCOME
    fields = load_fields(path, schema=SCHEMA)
    try:
        return decode_record(HostOutcome, fields)
    except (TypeError, ValueError, KeyError) as error:
        raise RecordError(f"{path} is not the outcome of a host ({error})") from error


def read_result(
    folder: Path, wheels: Iterable[str], *, name: str, machine: str, count: int
) -> HostResult:
    """Read a host's files. Raises RecordError if they are missing or damaged.

    Without a comparison a host is done only if it cannot run any of the `wheels`.
    """
    outcome = load_outcome(folder)
    facts: Mapping[str, Any] = {"name": name, "machine": machine, "count": count}
    refused = {name for name, _ in outcome.refused}
    if outcome.status is HostStatus.FAILED or refused >= set(wheels):
        return HostResult(outcome=outcome, **facts)
    comparison = load_comparison(folder / COMPARISON)
    return HostResult(
        outcome=outcome,
        speedups=list_speedups(comparison),
        runs=list_runs(comparison),
        **facts,
    )


def list_speedups(comparison: Comparison) -> tuple[HostSpeedup, ...]:
    return tuple(
        HostSpeedup(
            vcpus=row.vcpus,
            arm=row.speedup.arm,
            interval=row.speedup.interval,
            verdict=row.speedup.verdict if find_mean_decision(comparison, row).counts else None,
        )
        for row in comparison.overall
    )


def list_runs(comparison: Comparison) -> tuple[RunTime, ...]:
    """Return the runs of the arms that have one in every cell of a number of vCPUs."""
    rows: list[RunTime] = []
    for vcpus in sorted({cell.vcpus for cell in comparison.cells}):
        cells = [cell for cell in comparison.cells if cell.vcpus == vcpus]
        for arm in (comparison.baseline, *comparison.candidates):
            times = [cell.get_result(arm).times for cell in cells]
            runs = [each.run_s.value for each in times if each and each.run_s]
            if len(runs) == len(cells):
                rows.append(RunTime(vcpus=vcpus, arm=arm, seconds=sum(runs)))
    return tuple(rows)
