"""Speedups with intervals. Pure: numbers in, numbers out.

A launch is one start of all arms' processes. It is the replicate: two starts of one program differ
(Mytkowicz et al., ASPLOS 2009; Kalibera and Jones, ISMM 2013), and samples within a launch share
the effects of its start. So a launch counts as one number for each arm, its *level*.

Disturbances make a step longer, hardly ever shorter. So the level is the mean of the fastest
quarter of the slices of an arm's samples. Mean, median and minimum are each better on some
machine and much worse on another (`python -m tests.tools.estimators`, on simulated machines).

The arms of a launch are the treatments of a block in a randomised complete block design. A contrast
between arms has the larger of two variances: its own over the launches, and the residual variance
pooled over all arms. The pooled one has the degrees of freedom of at most three arms, the arm's own
one fewer than there are launches. So few launches give a usable interval, and an arm that varies
more than the others gets one that is as much wider as it must be.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from tfcore.comparisons.decision import compute_limit
from tfcore.comparisons.interval import Interval, Verdict
from tfcore.errors import SampleError

Launches: TypeAlias = Sequence[Sequence[float]]
Values: TypeAlias = NDArray[np.float64]
Levels: TypeAlias = Mapping[str, Sequence[float]]
"""ln(seconds) of each launch, by arm; every arm has all launches."""

LEVEL = 0.95
MARGIN = 0.02
"""A ratio within 1 ± MARGIN counts as no difference."""
FEWEST_FASTEST = 5
"""The mean of fewer slices is too inaccurate."""
MOST_CONTRASTS = 2
"""Degrees of freedom per launch, those of three arms. Arms differ in their variance, so more arms
add less information than their number suggests."""
FEWEST_LAUNCHES = 2
"""One launch alone has no variance."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Thresholds:
    """Limits that a difference must exceed: `floor` is the noise floor of the A/A interval,
    `threshold` the smallest gain or loss of interest; a ratio within 1 ± `margin` is no difference.
    """

    floor: float
    threshold: float = 0.0
    margin: float = MARGIN


def compute_log_ratio(baseline_s: Sequence[float], candidate_s: Sequence[float]) -> float:
    """Compute a block's ln(baseline / candidate): above 0 if the candidate is faster.

    Raises SampleError if there are no samples, the counts differ, or a time is not a positive
    number.
    """
    if len(baseline_s) != len(candidate_s):
        raise SampleError(
            f"a block has {len(baseline_s)} samples of one arm and {len(candidate_s)} of the other"
        )
    return math.log(sum_seconds(baseline_s)) - math.log(sum_seconds(candidate_s))


def sum_seconds(seconds: Sequence[float]) -> float:
    """Sum the seconds. Raises SampleError if there are none or a time is not a positive number."""
    if not seconds:
        raise SampleError("there are no samples")
    invalid = [value for value in seconds if not (math.isfinite(value) and value > 0)]
    if invalid:
        raise SampleError(f"invalid time of a sample: {invalid[0]:g} s")
    return math.fsum(seconds)


def compute_medians(launches: Launches) -> Values:
    """Compute the median of each launch's blocks. Raises what `estimate_geometric_mean` does."""
    _check_launches(launches)
    return np.array([np.median(blocks) for blocks in launches])


def estimate_geometric_mean(launches: Launches) -> Interval:
    """Estimate the geometric mean over launches and its t interval, from logarithms per block.

    Each launch counts as the median of its blocks. Raises SampleError if there are fewer than
    two launches, an empty one, or values that are not finite.
    """
    return combine_cells([compute_medians(launches)])


def estimate_mean(values: Sequence[float]) -> Interval:
    """Estimate the arithmetic mean of launches' values and its t interval, in their own unit.

    Raises SampleError if there are fewer than two values, or values that are not finite.
    """
    _check_launches([[value] for value in values])
    middle = float(np.mean(values))
    half = stats.t.ppf((1 + LEVEL) / 2, len(values) - 1) * float(stats.sem(values))
    return Interval(value=middle, low=middle - half, high=middle + half)


def combine_cells(cells: Sequence[Values]) -> Interval:
    """Combine cells, each of one logarithm per launch, into the geometric mean of their means.

    Raises SampleError if there are no cells, or if a cell has too few launches or values that
    are not finite.
    """
    contrasts = []
    for cell in cells:
        _check_launches([[value] for value in cell])
        variance = float(cell.var(ddof=1)) / len(cell)
        contrasts.append(
            Contrast(mean=float(cell.mean()), variance=variance, freedom=len(cell) - 1)
        )
    return average_contrasts(contrasts).interval


@dataclass(frozen=True, kw_only=True, slots=True)
class Contrast:
    """A difference of logarithms: its estimate, the variance of the estimate, and the degrees of
    freedom of that variance.
    """

    mean: float
    variance: float
    freedom: float

    @property
    def interval(self) -> Interval:
        """Return the ratio and its t interval."""
        return self._compute_interval(LEVEL)

    def is_within(self, margin: float) -> bool:
        """Return whether the ratio is within 1 ± margin, by two one-sided tests.

        These are equivalent to checking the interval at level 2 * LEVEL - 1 (Schuirmann, J.
        Pharmacokin. Biopharm. 1987).
        """
        interval = self._compute_interval(2 * LEVEL - 1)
        return interval.low >= 1 - margin and interval.high <= 1 + margin

    def _compute_interval(self, level: float) -> Interval:
        half = 0.0
        if self.variance > 0:
            half = stats.t.ppf((1 + level) / 2, self.freedom) * math.sqrt(self.variance)
        ends = (self.mean - half, self.mean + half)
        return Interval(value=math.exp(self.mean), low=math.exp(ends[0]), high=math.exp(ends[1]))

    @property
    def confidence(self) -> float:
        """Return the largest level at which the interval excludes 1."""
        return 1 - 2 * min(self.p_faster, 1 - self.p_faster)

    @property
    def p_faster(self) -> float:
        """Return the probability of an estimate at least this large if there is no gain."""
        if self.variance == 0:
            return 0.5 if self.mean == 0 else float(self.mean < 0)
        return float(stats.t.sf(self.mean / math.sqrt(self.variance), self.freedom))


def compute_level(seconds: Sequence[float]) -> float:
    """Compute ln of the mean of the fastest quarter of an arm's slices in one launch.

    If there are few slices, as in samples without any, the faster half counts. Raises
    SampleError if there are no times or one is not a positive number.
    """
    sum_seconds(seconds)
    count = len(seconds)
    few = min(FEWEST_FASTEST, (count + 1) // 2)
    fastest = sorted(seconds)[: max(few, (count + 3) // 4)]
    return math.log(math.fsum(fastest) / len(fastest))


def compute_contrast(levels: Levels, arm: str, baseline: Sequence[str]) -> Contrast:
    """Compute ln(time of the baseline / time of the arm).

    `baseline` names one arm, or it and its repeat, whose mean is known better than either.
    Raises SampleError if there are fewer than two launches or arms, unequal launches, or
    values that are not finite.
    """
    table = _build_matrix(levels)
    launches, arms = table.shape
    columns = {name: column for column, name in enumerate(levels)}
    arm_levels = table[:, columns[arm]]
    differences = table[:, [columns[name] for name in baseline]].mean(axis=1) - arm_levels
    residuals = table - table.mean(axis=1, keepdims=True) - table.mean(axis=0) + table.mean()
    freedom = (arms - 1) * (launches - 1)
    pooled = (1 + 1 / len(baseline)) * float((residuals**2).sum()) / freedom
    own = float(differences.var(ddof=1))
    return Contrast(
        mean=float(differences.mean()),
        variance=max(own, pooled) / launches,
        # Those of the variance that is used: the pooled one has the information of all arms.
        freedom=launches - 1 if own > pooled else min(freedom, MOST_CONTRASTS * (launches - 1)),
    )


def average_contrasts(contrasts: Sequence[Contrast]) -> Contrast:
    """Average contrasts over workloads with equal weights.

    Variances add up, with Welch and Satterthwaite's degrees of freedom (Welch, Biometrika
    1947). Raises SampleError if there are none.

    The workloads are fixed, not drawn: the interval shows how well this mean is known, not
    how other models would do.
    """
    if not contrasts:
        raise SampleError("no workloads to average")
    variance = math.fsum(term.variance for term in contrasts)
    parts = math.fsum(term.variance**2 / term.freedom for term in contrasts)
    return Contrast(
        mean=float(np.mean([term.mean for term in contrasts])),
        variance=variance / len(contrasts) ** 2,
        freedom=variance**2 / parts if parts > 0 else 1.0,
    )


def combine_intervals(intervals: Sequence[Interval], weights: Sequence[int]) -> Contrast:
    """Combine independent ratios to their weighted geometric mean, from their intervals alone.

    The half-widths count as those of normal distributions. Student's t made them wider, so the
    combined interval is a little too wide.
    """
    total = sum(weights)
    shares = [weight / total for weight in weights]
    pairs = list(zip(intervals, shares, strict=True))
    deviation = stats.norm.ppf((1 + LEVEL) / 2)
    return Contrast(
        mean=math.fsum(share * math.log(interval.value) for interval, share in pairs),
        variance=math.fsum(
            (share * interval.half_width / deviation) ** 2 for interval, share in pairs
        ),
        freedom=math.inf,
    )


def has_trend(values: Sequence[float]) -> bool:
    """Return whether the interval of the Theil-Sen slope excludes 0 (Sen, JASA 1968)."""
    slope = stats.theilslopes(values, alpha=LEVEL)
    return bool(slope.low_slope > 0 or slope.high_slope < 0)


def choose_verdict(speedup: Contrast, thresholds: Thresholds, *, fair: bool) -> Verdict:
    """Choose the verdict: faster or slower if the interval excludes 1 and the estimate exceeds
    the limit.

    An interval that excludes 1 with an estimate below the limit is noise if the limit is small;
    if the machine's own noise is large, the verdict is inconclusive. It is inconclusive, too, if
    gates left too few blocks to be `fair`.
    """
    if not fair:
        return Verdict.INCONCLUSIVE
    interval = speedup.interval
    limit = compute_limit(thresholds.floor, thresholds.threshold)
    if interval.excludes_1 and abs(speedup.mean) > limit:
        return Verdict.FASTER if interval.low > 1 else Verdict.SLOWER
    limit_is_small = limit <= math.log1p(max(thresholds.margin, thresholds.threshold))
    small = interval.excludes_1 and limit_is_small
    equivalent = speedup.is_within(thresholds.margin)
    return Verdict.EQUIVALENT if equivalent or small else Verdict.INCONCLUSIVE


def _build_matrix(levels: Levels) -> Values:
    """Build a matrix with one row per launch and one column per arm."""
    columns = list(levels.values())
    if len(columns) < 2 or len({len(column) for column in columns}) > 1:  # noqa: PLR2004  (a pair)
        raise SampleError("cannot compare arms that were timed in different launches")
    _check_launches([[*row] for row in zip(*columns, strict=True)])
    return np.array(columns, dtype=np.float64).T


def _check_launches(launches: Launches) -> None:
    if not launches or not all(launches):
        raise SampleError("a launch has no samples" if launches else "no samples")
    if len(launches) < FEWEST_LAUNCHES:
        raise SampleError("an interval needs at least two launches", hint="Measure longer")
    if not all(math.isfinite(value) for blocks in launches for value in blocks):
        raise SampleError("a block's ratio is not finite")
