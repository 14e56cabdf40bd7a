"""What was measured of each cell, and what follows from it: rates, shares, efficiency. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tfbench.arms.arm import TOLERANCE
from tfbench.cells.cell import CellResult, Outcome
from tfbench.cells.experiment import Wheel
from tfbench.cells.speeds import Printed, printed
from tfbench.inside.groups import CPU, INDEPENDENT, REFERENCE
from tfbench.measuring.statistics import estimate_geometric_mean, sum_seconds
from tfbench.strategies.matrix import ALONE, Matrix, is_comparable
from tfbench.strategies.traffic import Traffic, traffic
from tfbuild.measured.host import Host
from tfbuild.measured.interval import Interval

SCHEMA = 1


class Parity(StrEnum):
    """Whether the first losses and updates are those of one device with the whole batch."""

    SAME = "same"
    DIFFERENT = "different"
    ASYNCHRONOUS = "asynchronous"
    """In no defined order, so there is nothing to hold them to."""
    APART = "no exchange"
    UNKNOWN = "not known"
    """The one device gave no answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """Of a cell that was measured. `rates` are examples per second of all devices, one per launch,
    `rate` their interval. `share` is the rate over that of as many independent devices.
    `efficiency` is the rate per device over that of one device under the same strategy, where
    `own` says so, else of one device alone. `apart` is the largest relative difference that
    `parity` judges. `peak_mb` is the process's memory."""

    device: str
    batch: int
    parameters: int
    trainable_bytes: int
    variables_on: tuple[str, ...]
    sums: tuple[float, ...]
    rates: tuple[float, ...]
    rate: Interval
    step_ms: float
    printed: Printed
    share: Interval | None
    efficiency: Interval | None
    own: bool
    traffic: Traffic
    parity: Parity
    apart: float | None
    peak_mb: float


@dataclass(frozen=True, kw_only=True, slots=True)
class StrategyRow:
    """One strategy on so many devices. `figures` are None for a marked cell, with its reason."""

    arm: str
    workload: str
    strategy: str
    devices: int
    outcome: Outcome
    reason: str
    figures: Figures | None


@dataclass(frozen=True, kw_only=True, slots=True)
class StrategiesResult:
    """Of one run, kept as strategies.json."""

    schema: int = SCHEMA
    made: str
    host: Host
    vcpus: tuple[int, ...]
    arms: tuple[Wheel, ...]
    matrix: Matrix
    tolerance: float
    rows: tuple[StrategyRow, ...]

    @property
    def is_logical(self) -> bool:
        """Whether what was measured ran on logical devices of one CPU."""
        return any(row.figures and row.figures.device == CPU for row in self.rows)

    def groups(self) -> dict[tuple[str, str, int], tuple[StrategyRow, ...]]:
        """By arm, workload and number of devices."""
        found: dict[tuple[str, str, int], list[StrategyRow]] = {}
        for row in self.rows:
            found.setdefault((row.arm, row.workload, row.devices), []).append(row)
        return {place: tuple(rows) for place, rows in found.items()}


def rows(results: Iterable[CellResult]) -> tuple[StrategyRow, ...]:
    """A row per place, references aside. Raises SampleError for times that are none."""
    every = {_key(found.place): found for found in results}
    return tuple(_row(key, found, every) for key, found in every.items() if key[2] != REFERENCE)


_Key = tuple[str, str, str, int]


def _key(place: Mapping[str, Any]) -> _Key:
    return place["arm"], place["workload"], place["strategy"], place["devices"]


def _row(key: _Key, found: CellResult, every: Mapping[_Key, CellResult]) -> StrategyRow:
    arm, workload, strategy, devices = key
    return StrategyRow(
        arm=arm,
        workload=workload,
        strategy=strategy,
        devices=devices,
        outcome=found.outcome,
        reason=found.reason,
        figures=_figures(key, found, every) if found.outcome is Outcome.OK else None,
    )


def _figures(key: _Key, found: CellResult, every: Mapping[_Key, CellResult]) -> Figures:
    arm, workload, strategy, devices = key
    first = found.answers[0]
    rates = launch_rates(found, devices)
    bound = _rates(every, (arm, workload, INDEPENDENT, devices))
    own = _rates(every, (arm, workload, strategy, ALONE))
    alone = own or _rates(every, (arm, workload, INDEPENDENT, ALONE))
    parity, apart = _parity(key, found, every)
    steps = [each for answer in found.answers for each in answer["step_s"]]
    return Figures(
        device=first["device"],
        batch=first["batch"],
        parameters=first["parameters"],
        trainable_bytes=first["trainable_bytes"],
        variables_on=tuple(first["variables_on"]),
        sums=tuple(first["sums"]),
        rates=rates,
        rate=estimate_geometric_mean([[math.log(each)] for each in rates]),
        step_ms=1000 * statistics.fmean(steps),
        printed=printed(steps, devices * first["batch"]),
        share=ratio(rates, bound) if bound else None,
        efficiency=ratio(rates, [devices * each for each in alone]) if alone else None,
        own=bool(own),
        traffic=traffic(strategy, devices, first["trainable_bytes"], apart=first["device"] != CPU),
        parity=parity,
        apart=apart,
        peak_mb=max(answer["peak_mb"] for answer in found.answers),
    )


def _rates(every: Mapping[_Key, CellResult], key: _Key) -> tuple[float, ...]:
    """Empty where the cell was not asked for, or not measured."""
    found = every.get(key)
    return launch_rates(found, key[3]) if found and found.outcome is Outcome.OK else ()


def launch_rates(found: CellResult, devices: int) -> tuple[float, ...]:
    """Examples per second of each launch. Raises SampleError for times that are none."""
    return tuple(
        devices * answer["batch"] * len(answer["step_s"]) / sum_seconds(answer["step_s"])
        for answer in found.answers
    )


def ratio(rates: Sequence[float], base: Sequence[float]) -> Interval:
    """Over launches of the same number, which are near each other in time. Raises SampleError for
    fewer than two."""
    pairs = zip(rates, base, strict=True)
    return estimate_geometric_mean([[math.log(rate / other)] for rate, other in pairs])


def _parity(
    key: _Key, found: CellResult, every: Mapping[_Key, CellResult]
) -> tuple[Parity, float | None]:
    arm, workload, strategy, devices = key
    if not is_comparable(strategy, devices):
        return (Parity.APART if strategy == INDEPENDENT else Parity.ASYNCHRONOUS), None
    reference = every.get((arm, workload, REFERENCE, devices))
    if reference is None or reference.outcome is not Outcome.OK:
        return Parity.UNKNOWN, None
    return judged(_first_steps(found), _first_steps(reference))


def _first_steps(found: CellResult) -> list[float | None]:
    answer = found.answers[0]
    return [*answer["losses"], answer["moved"]]


def judged(
    values: Sequence[float | None],
    reference: Sequence[float | None],
    tolerance: float = TOLERANCE,
) -> tuple[Parity, float | None]:
    """By the largest relative difference; None is a number that is not finite."""
    apart = 0.0
    for value, due in zip(values, reference, strict=True):
        if value is None or due is None:
            return Parity.DIFFERENT, None
        apart = max(apart, abs(value - due) / max(abs(due), math.ulp(0.0)))
    return (Parity.SAME if apart <= tolerance else Parity.DIFFERENT), apart
