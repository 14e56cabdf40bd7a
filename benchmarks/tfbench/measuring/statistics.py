"""Speedups with intervals. Pure: numbers in, numbers out.

A launch is one start of all arms' processes, a block is one mirrored run through the arms. Per
block there is one number, so a launch is a sequence of numbers and a cell a sequence of launches.

The launch is the unit of replication: two starts of one program differ (Mytkowicz et al., ASPLOS
2009; Kalibera and Jones, ISMM 2013), and blocks within a launch share what its start brought. So a
launch counts as one number, the median of its blocks, and the interval is Student's t over
launches. The usual percentile bootstrap over launches and blocks misses the truth too often when
launches are few and differ (`invoke selfcheck` shows both); it stands beside as a second opinion.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from tfbuild.errors import SampleError

Launches: TypeAlias = Sequence[Sequence[float]]
Draws: TypeAlias = NDArray[np.float64]

LEVEL = 0.95
RESAMPLES = 4000
MARGIN = 0.02
"""A whole interval within 1 ± MARGIN is called no difference."""
FEWEST_LAUNCHES = 2
"""There is no spread without a pair."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """An estimate and its 95 % confidence interval."""

    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the width on a logarithmic scale: 0.01 is about 1 % to either side."""
        return math.log(self.high / self.low) / 2

    @property
    def reach(self) -> float:
        """The largest distance of the interval from 1, on a logarithmic scale."""
        return max(abs(math.log(self.low)), abs(math.log(self.high)))


class Verdict(StrEnum):
    FASTER = "faster"
    SLOWER = "slower"
    WITHIN_NOISE = "within noise"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """What a difference must pass: `floor` is the reach of the A/A interval, `threshold` the least
    gain or loss that anyone cares for; a whole interval within 1 ± `margin` is no difference.
    """

    floor: float
    threshold: float = 0.0
    margin: float = MARGIN


def log_ratio(baseline_s: Sequence[float], candidate_s: Sequence[float]) -> float:
    """A block's ln(baseline / candidate): above 0 when the candidate is faster.

    Raises SampleError for no samples, unequal counts, and times that are not positive numbers.
    """
    if len(baseline_s) != len(candidate_s):
        raise SampleError(
            f"a block has {len(baseline_s)} samples of one arm and {len(candidate_s)} of the other"
        )
    return math.log(total(baseline_s)) - math.log(total(candidate_s))


def total(seconds: Sequence[float]) -> float:
    """Their sum. Raises SampleError for none and for times that are not positive numbers."""
    if not seconds:
        raise SampleError("there are no samples")
    wrong = [each for each in seconds if not (math.isfinite(each) and each > 0)]
    if wrong:
        raise SampleError(f"a sample took {wrong[0]:g} s, which is not a time")
    return math.fsum(seconds)


def locations(launches: Launches) -> Draws:
    """The median of each launch's blocks. Raises SampleError."""
    _check(launches)
    return np.array([np.median(blocks) for blocks in launches])


def estimate(launches: Launches) -> Interval:
    """From logarithms per block to the mean over launches and its t interval, as plain numbers.

    Raises SampleError for fewer than two launches, an empty one, and values that are not finite.
    """
    return combined([locations(launches)])


def mean(values: Sequence[float]) -> Interval:
    """The arithmetic mean of launches' values and its t interval, in the values' own unit.

    Raises SampleError for fewer than two, and for values that are not finite.
    """
    _check([[each] for each in values])
    middle = float(np.mean(values))
    half = stats.t.ppf((1 + LEVEL) / 2, len(values) - 1) * float(stats.sem(values))
    return Interval(value=middle, low=middle - half, high=middle + half)


def geometric_mean(cells: Sequence[Launches]) -> Interval:
    """Over workloads, each weighing the same. Raises SampleError.

    The workloads are fixed, not drawn: the interval says how well this mean is known, not how
    other models would do.
    """
    if not cells:
        raise SampleError("there are no workloads to take a mean of")
    return combined([locations(cell) for cell in cells])


def combined(cells: Sequence[Draws]) -> Interval:
    """The mean of the cells' means; their variances add up, with Welch and Satterthwaite's degrees
    of freedom (Welch, Biometrika 1947).
    """
    variances = np.array([cell.var(ddof=1) / len(cell) for cell in cells])
    total_variance = float(variances.sum())
    freedom = np.array([len(cell) - 1 for cell in cells])
    middle = float(np.mean([cell.mean() for cell in cells]))
    if total_variance == 0:
        return Interval(value=math.exp(middle), low=math.exp(middle), high=math.exp(middle))
    degrees = total_variance**2 / float((variances**2 / freedom).sum())
    half = stats.t.ppf((1 + LEVEL) / 2, degrees) * math.sqrt(total_variance) / len(cells)
    return Interval(
        value=math.exp(middle), low=math.exp(middle - half), high=math.exp(middle + half)
    )


def bootstrap(
    cells: Sequence[Launches], generator: np.random.Generator, resamples: int = RESAMPLES
) -> Interval:
    """The percentile interval of the mean over cells and launches: launches picked at random, in
    each of them the median of blocks picked at random. Raises SampleError as `estimate` does.
    """
    middle = float(np.mean([locations(cell).mean() for cell in cells]))
    draws = np.mean([_draws(cell, generator, resamples) for cell in cells], axis=0)
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(value=math.exp(middle), low=math.exp(low), high=math.exp(high))


def sign_test(launches: Launches) -> float:
    """The two-sided probability of signs as lopsided as these, were both as likely."""
    values = [value for blocks in launches for value in blocks if value != 0]
    if not values:
        return 1.0
    above = sum(value > 0 for value in values)
    return float(stats.binomtest(above, len(values)).pvalue)


def has_trend(values: Sequence[float]) -> bool:
    """Whether the Theil-Sen slope's interval leaves out 0 (Sen, JASA 1968)."""
    slope = stats.theilslopes(values, alpha=LEVEL)
    return bool(slope.low_slope > 0 or slope.high_slope < 0)


def verdict(speedup: Interval, bar: Bar) -> Verdict:
    """Faster or slower when the interval leaves out 1 and the estimate passes the bar.

    One that leaves out 1 and does not pass is noise if what it had to pass is small; where the
    machine's own noise is large, nothing can be said.
    """
    least = max(bar.floor, math.log1p(bar.threshold))
    outside = speedup.low > 1 or speedup.high < 1
    if outside and abs(math.log(speedup.value)) > least:
        return Verdict.FASTER if speedup.low > 1 else Verdict.SLOWER
    inside = speedup.low >= 1 - bar.margin and speedup.high <= 1 + bar.margin
    small = outside and least <= math.log1p(max(bar.margin, bar.threshold))
    return Verdict.WITHIN_NOISE if inside or small else Verdict.INCONCLUSIVE


def _draws(launches: Launches, generator: np.random.Generator, resamples: int) -> Draws:
    picks = [_pick(launches, generator, resamples) for _ in launches]
    return np.asarray(np.mean(picks, axis=0), dtype=np.float64)


def _pick(launches: Launches, generator: np.random.Generator, resamples: int) -> Draws:
    """Per draw, one launch at random, and the median over its blocks drawn at random."""
    medians = np.stack([_medians(blocks, generator, resamples) for blocks in launches])
    picked = generator.integers(0, len(launches), resamples)
    return np.asarray(medians[picked, np.arange(resamples)], dtype=np.float64)


def _medians(blocks: Sequence[float], generator: np.random.Generator, resamples: int) -> Draws:
    values = np.asarray(blocks, dtype=np.float64)
    picked = generator.integers(0, len(values), (resamples, len(values)))
    return np.asarray(np.median(values[picked], axis=1), dtype=np.float64)


def _check(launches: Launches) -> None:
    if not launches or not all(launches):
        raise SampleError("there are no samples of one launch" if launches else "no samples")
    if len(launches) < FEWEST_LAUNCHES:
        raise SampleError("one launch is not enough for an interval", hint="Allow more time")
    if not all(math.isfinite(value) for blocks in launches for value in blocks):
        raise SampleError("a block's ratio is not a number")
