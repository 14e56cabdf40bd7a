"""Results of the cells of a search for settings."""

from __future__ import annotations

from collections.abc import Mapping

from tests.builders import comparisons
from tests.builders.comparisons import with_interval

from tfbench.measuring.statistics import Thresholds, choose_verdict
from tfbench.tuning.changes import Change, Setup
from tfcore.comparisons.comparison import Agreement, ComparedCell, Speedup
from tfcore.comparisons.interval import Interval

NOISE = 0.01


def interval(value: float, half: float = 0.01) -> Interval:
    return Interval(value=value, low=value * (1 - half), high=value * (1 + half))


def speedup(arm: str, value: float, half: float = 0.01) -> Speedup:
    actual = interval(value, half)
    return Speedup(
        arm=arm,
        interval=actual,
        verdict=choose_verdict(with_interval(actual), Thresholds(floor=NOISE), fair=True),
        confidence=0.5,
    )


def cell(
    values: Mapping[str, float], *, half: float = 0.01, wrong: tuple[str, ...] = ()
) -> ComparedCell:
    return comparisons.cell(
        "lstm_text",
        agreements=tuple(
            Agreement(arm=arm, losses=1.0 if arm in wrong else 0.0, predictions=0.0, tolerance=1e-3)
            for arm in values
        ),
        arms=(),
        noise=interval(1.0, NOISE),
        speedups=[speedup(arm, value, half) for arm, value in values.items()],
    )


def setup(*words: str) -> Setup:
    pairs = (word.partition("=") for word in words)
    return tuple(Change(lever=lever, value=value) for lever, _, value in pairs)
