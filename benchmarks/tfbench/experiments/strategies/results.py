"""The results of each cell: rates, shares, efficiency, and agreement of the first steps; and the
best strategy for each net, compared with the articles' rule. Pure.

The rule is that of the article on several devices and of TensorFlow's documentation: nets with few
parameters and much computation keep them on a parameter server on the CPU; nets with many
parameters are replicated, with an all-reduce.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tfbench.arms.arm import TOLERANCE
from tfbench.experiments.cell import CellResult, Outcome
from tfbench.experiments.experiment import Wheel
from tfbench.experiments.speeds import PrintedSpeed, compute_printed_speed
from tfbench.experiments.strategies.matrix import ALONE, Matrix, is_comparable
from tfbench.experiments.strategies.published import PublishedRuns
from tfbench.experiments.strategies.strategy import (
    StrategyFamily,
    Traffic,
    compute_traffic,
    find_strategy,
)
from tfbench.inside.groups import CPU, INDEPENDENT, REFERENCE
from tfbench.measuring.statistics import estimate_geometric_mean, sum_seconds
from tfcore.comparisons.host import Host
from tfcore.comparisons.interval import Interval

SCHEMA = 1


class Parity(StrEnum):
    """The result of comparing the first losses and updates with those of one device with the
    whole batch.
    """

    SAME = "same"
    DIFFERENT = "different"
    ASYNCHRONOUS = "asynchronous"
    """Updates have no defined order, so there is no reference."""
    APART = "no exchange"
    UNKNOWN = "not known"
    """The reference on one device has no result."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """The figures of a measured cell. `rates` are examples per second of all devices, one per
    launch, `rate` their interval. `share` is the rate over that of as many independent
    devices. `efficiency` is the rate per device over that of one device: under the same
    strategy if `own` is true, otherwise alone. `apart` is the largest relative difference,
    which determines `parity`. `peak_mb` is the process's memory.
    """

    device: str
    batch: int
    parameters: int
    trainable_bytes: int
    variables_on: tuple[str, ...]
    sums: tuple[float, ...]
    rates: tuple[float, ...]
    rate: Interval
    step_ms: float
    printed: PrintedSpeed
    share: Interval | None
    efficiency: Interval | None
    own: bool
    traffic: Traffic
    parity: Parity
    apart: float | None
    peak_mb: float


@dataclass(frozen=True, kw_only=True, slots=True)
class StrategyRow:
    """One strategy on a number of devices. `figures` are None if the cell was not measured, for
    which `reason` is the cause.
    """

    arm: str
    workload: str
    strategy: str
    devices: int
    outcome: Outcome
    reason: str
    figures: Figures | None


@dataclass(frozen=True, kw_only=True, slots=True)
class StrategiesResult:
    """The result of one run, saved as strategies.json."""

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
        """Return whether the run used logical devices of one CPU."""
        return any(row.figures and row.figures.device == CPU for row in self.rows)

    def group_rows(self) -> dict[tuple[str, str, int], tuple[StrategyRow, ...]]:
        """Group the rows by arm, workload and number of devices."""
        grouped: dict[tuple[str, str, int], list[StrategyRow]] = {}
        for row in self.rows:
            grouped.setdefault((row.arm, row.workload, row.devices), []).append(row)
        return {key: tuple(rows) for key, rows in grouped.items()}


_Key = tuple[str, str, str, int]
"""The arm, the workload, the strategy and the number of devices of a cell."""


def build_rows(results: Iterable[CellResult]) -> tuple[StrategyRow, ...]:
    """Build a row per place, without the references. Raises SampleError for invalid times."""
    cells = {_build_key(cell.place): cell for cell in results}
    return tuple(
        StrategyRow(
            arm=key[0],
            workload=key[1],
            strategy=key[2],
            devices=key[3],
            outcome=cell.outcome,
            reason=cell.reason,
            figures=_compute_figures(key, cells) if cell.outcome is Outcome.OK else None,
        )
        for key, cell in cells.items()
        if key[2] != REFERENCE
    )


def _build_key(place: Mapping[str, Any]) -> _Key:
    return place["arm"], place["workload"], place["strategy"], place["devices"]


def _compute_figures(key: _Key, cells: Mapping[_Key, CellResult]) -> Figures:
    arm, workload, strategy, devices = key
    answers = cells[key].answers
    first_answer = answers[0]
    rates = _compute_rates(cells, key)
    bound = _compute_rates(cells, (arm, workload, INDEPENDENT, devices))
    same_strategy = _compute_rates(cells, (arm, workload, strategy, ALONE))
    alone = same_strategy or _compute_rates(cells, (arm, workload, INDEPENDENT, ALONE))
    parity, apart = _compute_parity(key, cells)
    steps = [value for answer in answers for value in answer["step_s"]]
    return Figures(
        device=first_answer["device"],
        batch=first_answer["batch"],
        parameters=first_answer["parameters"],
        trainable_bytes=first_answer["trainable_bytes"],
        variables_on=tuple(first_answer["variables_on"]),
        sums=tuple(first_answer["sums"]),
        rates=rates,
        rate=estimate_geometric_mean([[math.log(value)] for value in rates]),
        step_ms=1000 * statistics.fmean(steps),
        printed=compute_printed_speed(steps, devices * first_answer["batch"]),
        share=estimate_ratio(rates, bound) if bound else None,
        efficiency=estimate_ratio(rates, [devices * value for value in alone]) if alone else None,
        own=bool(same_strategy),
        traffic=compute_traffic(
            strategy, devices, first_answer["trainable_bytes"], apart=first_answer["device"] != CPU
        ),
        parity=parity,
        apart=apart,
        peak_mb=max(answer["peak_mb"] for answer in answers),
    )


def _compute_rates(cells: Mapping[_Key, CellResult], key: _Key) -> tuple[float, ...]:
    """Return examples per second of each launch of a cell; empty if it was not planned or not
    measured. Raises SampleError for invalid times.
    """
    cell = cells.get(key)
    if cell is None or cell.outcome is not Outcome.OK:
        return ()
    return tuple(
        key[3] * answer["batch"] * len(answer["step_s"]) / sum_seconds(answer["step_s"])
        for answer in cell.answers
    )


def estimate_ratio(rates: Sequence[float], base: Sequence[float]) -> Interval:
    """Estimate the ratio of rates over launches of the same number, which are close in time.
    Raises SampleError for fewer than two launches.
    """
    pairs = zip(rates, base, strict=True)
    return estimate_geometric_mean([[math.log(rate / base_rate)] for rate, base_rate in pairs])


def _compute_parity(key: _Key, cells: Mapping[_Key, CellResult]) -> tuple[Parity, float | None]:
    arm, workload, strategy, devices = key
    if not is_comparable(strategy, devices):
        return (Parity.APART if strategy == INDEPENDENT else Parity.ASYNCHRONOUS), None
    reference = cells.get((arm, workload, REFERENCE, devices))
    if reference is None or reference.outcome is not Outcome.OK:
        return Parity.UNKNOWN, None
    values, expected = (
        [*cell.answers[0]["losses"], cell.answers[0]["moved"]] for cell in (cells[key], reference)
    )
    return compare_steps(values, expected)


def compare_steps(
    values: Sequence[float | None],
    reference: Sequence[float | None],
    tolerance: float = TOLERANCE,
) -> tuple[Parity, float | None]:
    """Compare the steps by their largest relative difference. None stands for a number that is
    not finite.
    """
    apart = 0.0
    for value, expected in zip(values, reference, strict=True):
        if value is None or expected is None:
            return Parity.DIFFERENT, None
        apart = max(apart, abs(value - expected) / max(abs(expected), math.ulp(0.0)))
    return (Parity.SAME if apart <= tolerance else Parity.DIFFERENT), apart


# --- advice ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Advice:
    """The advice for one net on a number of devices. `best` is the synchronous strategy with the
    highest rate, by the ratio `lead` over the next, None if there is no other; `tied` are
    those whose difference from it is not significant. `intensity` is bytes of parameters per
    second of one device's computation, and `rule` the family that the rule selects for it, None
    between the two kinds of published nets. `faster` is an asynchronous strategy that is
    significantly faster than the best, if any.
    """

    arm: str
    workload: str
    devices: int
    best: str
    lead: Interval | None
    tied: tuple[str, ...]
    intensity: float | None
    rule: StrategyFamily | None
    faster: str

    @property
    def family(self) -> StrategyFamily:
        return find_strategy(self.best).family

    @property
    def sure(self) -> bool:
        """Return whether the best differs significantly from all others."""
        return not self.tied

    @property
    def agrees(self) -> bool | None:
        """Return whether the measured best is of the family that the rule selects; None if the
        rule or the measurement is inconclusive.
        """
        families = {find_strategy(name).family for name in (self.best, *self.tied)}
        if self.rule is None or len(families) > 1:
            return None
        return self.rule in families


def build_advice(result: StrategiesResult, published: PublishedRuns) -> tuple[Advice, ...]:
    """Build the advice for every net on more than one device for which a synchronous strategy
    with correct updates was measured.
    """
    return tuple(_list_advice(result, published))


def _list_advice(result: StrategiesResult, published: PublishedRuns) -> Iterator[Advice]:
    groups = result.group_rows()
    for (arm, workload, devices), rows in groups.items():
        correct = {
            row.strategy: row.figures
            for row in rows
            if row.figures and row.figures.parity is not Parity.DIFFERENT
        }
        synchronous = {
            name: figures for name, figures in correct.items() if find_strategy(name).synchronous
        }
        if devices == ALONE or not synchronous:
            continue
        best, *slower = sorted(synchronous, key=lambda name: -synchronous[name].rate.value)
        leads = {
            name: estimate_ratio(synchronous[best].rates, synchronous[name].rates)
            for name in slower
        }
        intensity = _compute_intensity(groups.get((arm, workload, ALONE), ()))
        yield Advice(
            arm=arm,
            workload=workload,
            devices=devices,
            best=best,
            lead=leads[slower[0]] if slower else None,
            tied=tuple(name for name in slower if leads[name].low <= 1),
            intensity=intensity,
            rule=None if intensity is None else apply_rule(intensity, published.split),
            faster=_find_faster(correct, synchronous[best]),
        )


def _compute_intensity(alone: Sequence[StrategyRow]) -> float | None:
    """Return bytes of parameters per second of one device's computation; None if not measured."""
    for row in alone:
        if row.strategy == INDEPENDENT and row.figures:
            return row.figures.trainable_bytes * row.figures.rate.value / row.figures.batch
    return None


def apply_rule(intensity: float, split: tuple[float, float]) -> StrategyFamily | None:
    """Return the family that the rule selects; `split` holds the bounds of the published nets."""
    most_served, least_replicated = split
    if intensity <= most_served:
        return StrategyFamily.PARAMETER_SERVER
    return StrategyFamily.ALL_REDUCE if intensity >= least_replicated else None


def _find_faster(right: dict[str, Figures], best: Figures) -> str:
    for name, figures in right.items():
        asynchronous = not find_strategy(name).synchronous and name != INDEPENDENT
        if asynchronous and estimate_ratio(figures.rates, best.rates).low > 1:
            return name
    return ""
