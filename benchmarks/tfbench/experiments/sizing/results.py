"""Speed and bottleneck at each size, and the smallest size that is enough. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tfbench.costs.cost import Amount, get_value
from tfbench.costs.prices import Mode, Price, PriceBook
from tfbench.experiments import speeds
from tfbench.experiments.cell import CellResult, Outcome
from tfbench.experiments.experiment import Wheel
from tfcore.comparisons.host import Host

SCHEMA = 1
_READING, _MOSTLY_READING = 0.75, 0.5
"""Input is the bottleneck if its reader is busy for the first share of the time, or for the second
while the CPUs are idle."""
_COMPUTING = 0.8
"""Computing is the bottleneck if the process uses this share of its CPUs' time."""
_MARGIN = 1.1
"""The memory of a machine, relative to that of the process: the system needs some, too."""


class Bound(StrEnum):
    """The bottleneck of a cell."""

    COMPUTE = "compute"
    INPUT = "input"
    MEMORY = "memory"
    SERIAL = "one thread"
    """CPUs are idle and input is ready: serial parts limit the speed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SizingRow:
    """One cell. `speed` is in examples per second; `growth_mb` is the growth of resident memory
    in MB between the first and the last quarter of the timed steps; `busy` is the share of
    its CPUs' time that the process used, `reading` the share of the time that its reader was busy.
    """

    workload: str
    phase: str
    input: str
    vcpus: int
    memory_mb: float | None
    outcome: Outcome
    reason: str
    launches: int
    speed: Amount | None
    peak_mb: float | None
    growth_mb: float | None
    busy: float | None
    reading: float | None
    read_mb_s: float | None
    bound: Bound | None
    cached: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Knee:
    """The fewest vCPUs, and with them the smallest memory limit, at which a phase on an input is
    within `within` of the fastest speed; `peak_mb` is the memory that it used there.
    `holding` is the cheapest machine of the price book with that much.
    """

    workload: str
    phase: str
    input: str
    within: float
    vcpus: int
    memory_mb: float | None
    speed: Amount
    plateau: float
    peak_mb: float
    holding: Price | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizing:
    """The result of `invoke sizing`. `means` is the method of the memory limit, empty if none."""

    schema: int = SCHEMA
    made: str
    host: Host
    seed: int
    within: float
    means: str
    wheels: tuple[Wheel, ...]
    rows: tuple[SizingRow, ...]
    knees: tuple[Knee, ...]
    book: str


def build_rows(cell_results: Iterable[CellResult]) -> tuple[SizingRow, ...]:
    return tuple(map(_build_row, cell_results))


def _build_row(cell_result: CellResult) -> SizingRow:
    place, answers = cell_result.place, cell_result.answers
    ok = cell_result.outcome is Outcome.OK
    busy = statistics.median(_compute_busy_share(launch) for launch in answers) if ok else None
    reading = (
        statistics.median(_compute_share(launch, "read_s") for launch in answers) if ok else None
    )
    return SizingRow(
        workload=str(place["workload"]),
        phase=str(place["phase"]),
        input=str(place["input"]),
        vcpus=int(place["vcpus"]),
        memory_mb=float(place["memory"]) or None,
        outcome=cell_result.outcome,
        reason=cell_result.reason,
        launches=len(answers),
        speed=speeds.compute_speed(answers) if ok else None,
        peak_mb=max(launch["peak_mb"] for launch in answers) if ok else None,
        growth_mb=statistics.median(compute_growth_mb(launch["rss_mb"]) for launch in answers)
        if ok
        else None,
        busy=busy,
        reading=reading,
        read_mb_s=statistics.median(_compute_read_mb_s(launch) for launch in answers)
        if ok
        else None,
        bound=find_bottleneck(cell_result.outcome, busy, reading),
        cached=max((float(launch["cached_bytes"]) for launch in answers), default=0.0),
    )


def find_bottleneck(outcome: Outcome, busy: float | None, reading: float | None) -> Bound | None:
    """Return the bottleneck of a cell; None if it is unknown."""
    if outcome is Outcome.OUT_OF_MEMORY:
        return Bound.MEMORY
    if busy is None or reading is None:
        return None
    if reading >= _READING:
        return Bound.INPUT
    if busy >= _COMPUTING:
        return Bound.COMPUTE
    return Bound.INPUT if reading >= _MOSTLY_READING else Bound.SERIAL


def compute_growth_mb(rss_mb: Sequence[float]) -> float:
    """Return the difference in MB between the medians of the first and the last quarter of the
    steps; 0 for fewer than four steps.
    """
    quarter = len(rss_mb) // 4
    if quarter == 0:
        return 0.0
    return statistics.median(rss_mb[-quarter:]) - statistics.median(rss_mb[:quarter])


def _compute_busy_share(answer: Mapping[str, Any]) -> float:
    return float(answer["cpu_s"]) / (math.fsum(answer["step_s"]) * len(answer["vcpus"]))


def _compute_share(answer: Mapping[str, Any], meter: str) -> float:
    return float(answer["meters"].get(meter, 0.0)) / math.fsum(answer["step_s"])


def _compute_read_mb_s(answer: Mapping[str, Any]) -> float:
    return 1e-6 * float(answer["meters"].get("read_bytes", 0)) / math.fsum(answer["step_s"])


# --- the knee -------------------------------------------------------------------------------------


def find_knees(
    rows: Sequence[SizingRow], within: float, book: PriceBook | None
) -> tuple[Knee, ...]:
    """Return one knee for every workload, phase and input with a measured speed."""
    keys = dict.fromkeys((row.workload, row.phase, row.input) for row in rows)
    row_groups = (
        [row for row in rows if (row.workload, row.phase, row.input) == key] for key in keys
    )
    return tuple(
        knee
        for row_group in row_groups
        if (knee := _find_knee(row_group, within, book)) is not None
    )


def _find_knee(rows: Sequence[SizingRow], within: float, book: PriceBook | None) -> Knee | None:
    timed = [(row, row.speed) for row in rows if row.speed is not None]
    if not timed:
        return None
    plateau = max(get_value(speed) for _, speed in timed)
    sufficient = [
        (row, speed) for row, speed in timed if get_value(speed) >= plateau * (1 - within)
    ]
    row, speed = min(sufficient, key=lambda pair: _compute_size(pair[0]))
    assert row.peak_mb is not None  # noqa: S101  (it was timed)
    return Knee(
        workload=row.workload,
        phase=row.phase,
        input=row.input,
        within=within,
        vcpus=row.vcpus,
        memory_mb=row.memory_mb,
        speed=speed,
        plateau=plateau,
        peak_mb=row.peak_mb,
        holding=None if book is None else find_cheapest_machine(book, row.vcpus, row.peak_mb),
    )


def _compute_size(row: SizingRow) -> tuple[int, float]:
    return row.vcpus, math.inf if row.memory_mb is None else row.memory_mb


def find_cheapest_machine(book: PriceBook, vcpus: int, peak_mb: float) -> Price | None:
    """Return the cheapest machine with enough vCPUs and memory. Machines whose vCPUs or memory
    the book does not state are skipped.
    """
    fitting = [
        price
        for price in book.restrict(mode=Mode.ON_DEMAND).fitting
        if price.vcpus is not None
        and price.memory_gib is not None
        and not price.accelerator
        and price.vcpus >= vcpus
        and price.memory_gib * 2**30 >= peak_mb * 1e6 * _MARGIN
    ]
    return min(fitting, key=lambda price: price.usd_hour, default=None)
