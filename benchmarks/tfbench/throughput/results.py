"""Throughput by batch size, over launches. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tfbench.cells import speeds
from tfbench.cells.cell import CellResult, Outcome
from tfbench.cells.experiment import Wheel
from tfbench.cells.speeds import Printed
from tfbench.costs.cost import Amount, get_value
from tfbench.costs.prices import Price
from tfbuild.measured.host import Host
from tfbuild.measured.interval import Interval

SCHEMA = 1
NEAR = 0.05
"""A batch is large enough when its speed is this close to the fastest one's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ThroughputRow:
    """One arm at one batch size. `speed` is in examples per second; `printed` is what
    tf_cnn_benchmarks would have printed of the first launch. Without an answer both are None, and
    `outcome` and `reason` say why."""

    arm: str
    workload: str
    batch: int
    augmented: bool
    outcome: Outcome
    reason: str
    launches: int
    speed: Amount | None
    printed: Printed | None
    peak_mb: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Throughput:
    """`price` is what the machine costs, where a price book was given."""

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


def rows(found: Iterable[CellResult]) -> tuple[ThroughputRow, ...]:
    return tuple(map(_row, found))


def _row(found: CellResult) -> ThroughputRow:
    place = found.place
    ok = found.outcome is Outcome.OK
    first = found.answers[0] if ok else None
    return ThroughputRow(
        arm=str(place["arm"]),
        workload=str(place["workload"]),
        batch=int(place["batch"]) or (first["batch"] if first else 0),
        augmented=bool(place["augmented"]),
        outcome=found.outcome,
        reason=found.reason,
        launches=len(found.answers),
        speed=speeds.speed(found.answers) if ok else None,
        printed=speeds.printed(first["step_s"], first["batch"]) if first else None,
        peak_mb=max(each["peak_mb"] for each in found.answers) if ok else None,
    )


def series(throughput: Throughput) -> dict[tuple[str, str, bool], tuple[ThroughputRow, ...]]:
    """Rows that differ in their batch size only, by arm, workload and augmentation."""
    found: dict[tuple[str, str, bool], list[ThroughputRow]] = {}
    for row in throughput.rows:
        found.setdefault((row.arm, row.workload, row.augmented), []).append(row)
    return {key: tuple(sorted(each, key=lambda row: row.batch)) for key, each in found.items()}


def large_enough(rows: Sequence[ThroughputRow]) -> ThroughputRow | None:
    """The smallest batch that is nearly as fast as the fastest; None where nothing was measured."""
    timed = [(get_value(row.speed), row) for row in rows if row.speed is not None]
    if not timed:
        return None
    fastest = max(speed for speed, _ in timed)
    return next(row for speed, row in timed if speed >= fastest * (1 - NEAR))


def tell_apart(one: Amount, other: Amount) -> bool:
    """Whether two intervals leave a gap. Plain numbers, seen once, are never told apart."""
    if not (isinstance(one, Interval) and isinstance(other, Interval)):
        return False
    return one.high < other.low or other.high < one.low
