"""Which strategy is best for each net, how sure that is, and what the articles' rule says. Pure.

The rule, of the article on several devices and of TensorFlow's documentation alike: nets with few
parameters and much to compute keep them on a parameter server on the CPU, nets with many are
replicated, with an all-reduce.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tfbench.inside.groups import INDEPENDENT
from tfbench.strategies.matrix import ALONE
from tfbench.strategies.published import PublishedRuns
from tfbench.strategies.results import Figures, Parity, StrategiesResult, StrategyRow, ratio
from tfbench.strategies.strategy import StrategyFamily, find
from tfbuild.measured.interval import Interval


@dataclass(frozen=True, kw_only=True, slots=True)
class Advice:
    """For one net on so many devices. `best` is the synchronous strategy with the highest rate, by
    `lead` over the next, None where there is no other; `tied` are those that it was not told apart
    from. `intensity` is bytes of parameters per second of one device's computing, and `rule` what
    that asks for, None between the two kinds of published nets. `faster` is the asynchronous
    strategy that is surely faster than the best, if any."""

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
        return find(self.best).family

    @property
    def sure(self) -> bool:
        """Whether the best was told apart from all others."""
        return not self.tied

    @property
    def agrees(self) -> bool | None:
        """Whether the measured best is of the kind that the rule asks for; None where the rule or
        the measurement does not say."""
        families = {find(each).family for each in (self.best, *self.tied)}
        if self.rule is None or len(families) > 1:
            return None
        return self.rule in families


def advised(result: StrategiesResult, published: PublishedRuns) -> tuple[Advice, ...]:
    """For every net on more than one device, where a synchronous strategy was measured and its
    updates are right."""
    return tuple(_advised(result, published))


def _advised(result: StrategiesResult, published: PublishedRuns) -> Iterator[Advice]:
    groups = result.groups()
    for (arm, workload, devices), rows in groups.items():
        right = {
            row.strategy: row.figures
            for row in rows
            if row.figures and row.figures.parity is not Parity.DIFFERENT
        }
        together = {name: each for name, each in right.items() if find(name).synchronous}
        if devices == ALONE or not together:
            continue
        best, *others = sorted(together, key=lambda name: -together[name].rate.value)
        leads = {name: ratio(together[best].rates, together[name].rates) for name in others}
        intensity = _intensity(groups.get((arm, workload, ALONE), ()))
        yield Advice(
            arm=arm,
            workload=workload,
            devices=devices,
            best=best,
            lead=leads[others[0]] if others else None,
            tied=tuple(name for name in others if leads[name].low <= 1),
            intensity=intensity,
            rule=None if intensity is None else asked_for(intensity, published.split),
            faster=_faster(right, together[best]),
        )


def _intensity(alone: Sequence[StrategyRow]) -> float | None:
    """Of one device alone."""
    for row in alone:
        if row.strategy == INDEPENDENT and row.figures:
            return row.figures.trainable_bytes * row.figures.rate.value / row.figures.batch
    return None


def asked_for(intensity: float, split: tuple[float, float]) -> StrategyFamily | None:
    """What the rule asks for; `split` is where the published nets change over."""
    most_served, least_replicated = split
    if intensity <= most_served:
        return StrategyFamily.PARAMETER_SERVER
    return StrategyFamily.ALL_REDUCE if intensity >= least_replicated else None


def _faster(right: dict[str, Figures], best: Figures) -> str:
    for name, figures in right.items():
        asynchronous = not find(name).synchronous and name != INDEPENDENT
        if asynchronous and ratio(figures.rates, best.rates).low > 1:
            return name
    return ""
