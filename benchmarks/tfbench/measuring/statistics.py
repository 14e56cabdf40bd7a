"""Speedups with intervals. Pure: numbers in, numbers out.

A launch is one start of all arms' processes. It is the unit of replication: two starts of one
program differ (Mytkowicz et al., ASPLOS 2009; Kalibera and Jones, ISMM 2013), and samples within a
launch share what its start brought. So a launch counts as one number for each arm, its *level*.

What disturbs a step makes it longer, hardly ever shorter: the level is the mean of the fastest
quarter of the slices of an arm's samples. Mean, median and minimum are each better on some
machine and much worse on another (`python -m tests.estimators`, machines made up).

The arms of a launch are the treatments of a block of a randomised complete block design. A contrast
between arms has the larger of two variances: its own over the launches, and the residual variance
pooled over all arms, both with the pooled degrees of freedom, of at most three arms. So few
launches give an interval that can be used, and an arm that varies more than the others a wider one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from tfbuild.errors import SampleError
from tfbuild.measured.interval import Interval, Verdict

Launches: TypeAlias = Sequence[Sequence[float]]
Values: TypeAlias = NDArray[np.float64]
Levels: TypeAlias = Mapping[str, Sequence[float]]
"""By arm, ln(seconds) of each launch; every arm has all launches."""

LEVEL = 0.95
LIKELY = 0.80
"""An interval of this level that leaves out 1 is said to make a difference likely."""
MARGIN = 0.02
"""What is within 1 ± MARGIN is called no difference."""
FEWEST_FASTEST = 5
"""Of fewer the mean is known too badly."""
MOST_CONTRASTS = 2
"""Degrees of freedom per launch, those of three arms. Arms differ in their spread, so that many of
them do not make it as well known as their number says."""
FEWEST_LAUNCHES = 2
"""There is no spread without a pair."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Thresholds:
    """What a difference must pass: `floor` is that of the A/A interval, `threshold` the least
    gain or loss that anyone cares for; what is within 1 ± `margin` is no difference.
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


def locations(launches: Launches) -> Values:
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


def combined(cells: Sequence[Values]) -> Interval:
    """The mean of the cells' means, each cell one number per launch. Raises SampleError."""
    found = []
    for cell in cells:
        _check([[each] for each in cell])
        variance = float(cell.var(ddof=1)) / len(cell)
        found.append(Contrast(mean=float(cell.mean()), variance=variance, freedom=len(cell) - 1))
    return mean_of(found).interval


@dataclass(frozen=True, kw_only=True, slots=True)
class Contrast:
    """A difference of logarithms: its estimate, the variance of that, and the degrees of freedom
    that the variance is known with."""

    mean: float
    variance: float
    freedom: float

    @property
    def interval(self) -> Interval:
        """The ratio and its t interval."""
        return self._at(LEVEL)

    def within(self, margin: float) -> bool:
        """Whether the ratio is within 1 ± margin, by two one-sided tests: whether the interval is
        that each of them leaves (Schuirmann, J. Pharmacokin. Biopharm. 1987)."""
        found = self._at(2 * LEVEL - 1)
        return found.low >= 1 - margin and found.high <= 1 + margin

    def _at(self, level: float) -> Interval:
        half = 0.0
        if self.variance > 0:
            half = stats.t.ppf((1 + level) / 2, self.freedom) * math.sqrt(self.variance)
        ends = (self.mean - half, self.mean + half)
        return Interval(value=math.exp(self.mean), low=math.exp(ends[0]), high=math.exp(ends[1]))

    @property
    def confidence(self) -> float:
        """The largest level at which the interval leaves out 1."""
        return 1 - 2 * min(self.p_faster, 1 - self.p_faster)

    @property
    def p_faster(self) -> float:
        """The probability of an estimate as large as this one where there is no gain."""
        if self.variance == 0:
            return 0.5 if self.mean == 0 else float(self.mean < 0)
        return float(stats.t.sf(self.mean / math.sqrt(self.variance), self.freedom))


def level(seconds: Sequence[float]) -> float:
    """ln of the mean of the fastest quarter of what an arm's slices took in one launch; of few,
    as where samples have none, of the faster half. Raises SampleError."""
    total(seconds)
    count = len(seconds)
    few = min(FEWEST_FASTEST, (count + 1) // 2)
    fastest = sorted(seconds)[: max(few, (count + 3) // 4)]
    return math.log(math.fsum(fastest) / len(fastest))


def contrast(levels: Levels, arm: str, baseline: Sequence[str]) -> Contrast:
    """ln(time of the baseline / time of the arm). `baseline` names one arm, or it and its repeat,
    whose mean is known better than either.

    Raises SampleError for fewer than two launches or arms, unequal launches and no numbers.
    """
    table = _table(levels)
    launches, arms = table.shape
    places = {name: place for place, name in enumerate(levels)}
    ours = table[:, places[arm]]
    differences = table[:, [places[name] for name in baseline]].mean(axis=1) - ours
    residuals = table - table.mean(axis=1, keepdims=True) - table.mean(axis=0) + table.mean()
    freedom = (arms - 1) * (launches - 1)
    pooled = (1 + 1 / len(baseline)) * float((residuals**2).sum()) / freedom
    own = float(differences.var(ddof=1))
    return Contrast(
        mean=float(differences.mean()),
        variance=max(own, pooled) / launches,
        freedom=min(freedom, MOST_CONTRASTS * (launches - 1)),
    )


def mean_of(contrasts: Sequence[Contrast]) -> Contrast:
    """Over workloads, each weighing the same: variances add up, with Welch and Satterthwaite's
    degrees of freedom (Welch, Biometrika 1947). Raises SampleError for none.

    The workloads are fixed, not drawn: the interval says how well this mean is known, not how
    other models would do.
    """
    if not contrasts:
        raise SampleError("there are no workloads to take a mean of")
    variance = math.fsum(each.variance for each in contrasts)
    parts = math.fsum(each.variance**2 / each.freedom for each in contrasts)
    return Contrast(
        mean=float(np.mean([each.mean for each in contrasts])),
        variance=variance / len(contrasts) ** 2,
        freedom=variance**2 / parts if parts > 0 else 1.0,
    )


def has_trend(values: Sequence[float]) -> bool:
    """Whether the Theil-Sen slope's interval leaves out 0 (Sen, JASA 1968)."""
    slope = stats.theilslopes(values, alpha=LEVEL)
    return bool(slope.low_slope > 0 or slope.high_slope < 0)


def floor(noise: Interval) -> float:
    """From an A/A interval, the ln that a difference must pass: the reach of the interval, counted
    from the faster of the baseline's two workers, whose mean the baseline is."""
    return noise.reach + abs(math.log(noise.value)) / 2


def verdict(speedup: Contrast, thresholds: Thresholds) -> Verdict:
    """Faster or slower when the interval leaves out 1 and the estimate passes the bar.

    One that leaves out 1 and does not pass is noise if what it had to pass is small; where the
    machine's own noise is large, nothing can be said.
    """
    found = speedup.interval
    least = max(thresholds.floor, math.log1p(thresholds.threshold))
    if found.excludes_1 and abs(speedup.mean) > least:
        return Verdict.FASTER if found.low > 1 else Verdict.SLOWER
    bar_is_small = least <= math.log1p(max(thresholds.margin, thresholds.threshold))
    small = found.excludes_1 and bar_is_small
    none = speedup.within(thresholds.margin)
    return Verdict.WITHIN_NOISE if none or small else Verdict.INCONCLUSIVE


def _table(levels: Levels) -> Values:
    """One row per launch, one column per arm."""
    columns = list(levels.values())
    if len(columns) < 2 or len({len(each) for each in columns}) > 1:  # noqa: PLR2004  (a pair)
        raise SampleError("arms can be compared that were timed in the same launches")
    _check([[*row] for row in zip(*columns, strict=True)])
    return np.array(columns, dtype=np.float64).T


def _check(launches: Launches) -> None:
    if not launches or not all(launches):
        raise SampleError("there are no samples of one launch" if launches else "no samples")
    if len(launches) < FEWEST_LAUNCHES:
        raise SampleError("one launch is not enough for an interval", hint="Allow more time")
    if not all(math.isfinite(value) for blocks in launches for value in blocks):
        raise SampleError("a block's ratio is not a number")
