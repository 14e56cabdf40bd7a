"""Throughput by batch size, over launches. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tfbench.costs.cost import Amount, get_value
from tfbench.costs.prices import Price
from tfbench.experiments import speeds
from tfbench.experiments.cell import CellResult, Outcome
from tfbench.experiments.experiment import Wheel
from tfbench.experiments.speeds import PrintedSpeed
from tfcore.comparisons.host import Host
from tfcore.comparisons.interval import Interval

SCHEMA = 1
NEAR = 0.05
"""A batch is large enough if its speed is within this share of the fastest."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ThroughputRow:
    """One arm at one batch size. `speed` is in examples per second; `printed` is what
    tf_cnn_benchmarks would have printed for the first launch. Without a result both are
    None, and `outcome` and `reason` explain it.
    """

    arm: str
    workload: str
    batch: int
    augmented: bool
    outcome: Outcome
    reason: str
    launches: int
    speed: Amount | None
    printed: PrintedSpeed | None
    peak_mb: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Throughput:
    """The result of `invoke throughput`. `price` is the machine's; None without a price book."""

    schema: int = SCHEMA
    made: str
    host: Host
    device: str
    vcpus: int
    seed: int
    steps: int
    wheels: tuple[Wheel, ...]
    rows: tuple[ThroughputRow, ...]
    price: Price | None


def build_rows(cell_results: Iterable[CellResult]) -> tuple[ThroughputRow, ...]:
    return tuple(map(_build_row, cell_results))


def _build_row(cell_result: CellResult) -> ThroughputRow:
    place = cell_result.place
    ok = cell_result.outcome is Outcome.OK
    answer = cell_result.answers[0] if ok else None
    return ThroughputRow(
        arm=str(place["arm"]),
        workload=str(place["workload"]),
        batch=int(place["batch"]) or (answer["batch"] if answer else 0),
        augmented=bool(place["augmented"]),
        outcome=cell_result.outcome,
        reason=cell_result.reason,
        launches=len(cell_result.answers),
        speed=speeds.compute_speed(cell_result.answers) if ok else None,
        printed=speeds.compute_printed_speed(answer["step_s"], answer["batch"]) if answer else None,
        peak_mb=max(launch["peak_mb"] for launch in cell_result.answers) if ok else None,
    )


def group_rows(throughput: Throughput) -> dict[tuple[str, str, bool], tuple[ThroughputRow, ...]]:
    """Group the rows by arm, workload and augmentation, sorted by batch size."""
    groups: dict[tuple[str, str, bool], list[ThroughputRow]] = {}
    for row in throughput.rows:
        groups.setdefault((row.arm, row.workload, row.augmented), []).append(row)
    return {key: tuple(sorted(group, key=lambda row: row.batch)) for key, group in groups.items()}


def choose_batch(rows: Sequence[ThroughputRow]) -> ThroughputRow | None:
    """Return the row of the smallest batch that is nearly as fast as the fastest; None if
    nothing was measured.
    """
    timed = [(get_value(row.speed), row) for row in rows if row.speed is not None]
    if not timed:
        return None
    fastest = max(speed for speed, _ in timed)
    return next(row for speed, row in timed if speed >= fastest * (1 - NEAR))


def is_distinct(amount: Amount, other_amount: Amount) -> bool:
    """Return whether the two intervals do not overlap. Plain numbers from a single launch are
    never distinct.
    """
    if not (isinstance(amount, Interval) and isinstance(other_amount, Interval)):
        return False
    return amount.high < other_amount.low or other_amount.high < amount.low
