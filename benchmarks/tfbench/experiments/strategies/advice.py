"""Choose the best strategy for each net, and compare it with the articles' rule. Pure.

The rule is that of the article on several devices and of TensorFlow's documentation: nets with few
parameters and much computation keep them on a parameter server on the CPU; nets with many
parameters are replicated, with an all-reduce.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tfbench.experiments.strategies.matrix import ALONE
from tfbench.experiments.strategies.published import PublishedRuns
from tfbench.experiments.strategies.results import (
    Figures,
    Parity,
    StrategiesResult,
    StrategyRow,
    estimate_ratio,
)
from tfbench.experiments.strategies.strategy import StrategyFamily, find_strategy
from tfbench.inside.groups import INDEPENDENT
from tfcore.comparisons.interval import Interval


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
