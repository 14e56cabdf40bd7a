"""Speedups with intervals. Pure: NumPy and an injected generator.

A launch is one start of all arms' processes, a block is one mirrored run through the arms. Per
block there is one number, so a launch is a sequence of numbers and a cell a sequence of launches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tfbuild.errors import SampleError

Launches: TypeAlias = Sequence[Sequence[float]]
Draws: TypeAlias = NDArray[np.float64]

LEVEL = 0.95
RESAMPLES = 4000
MARGIN = 0.02
"""A whole interval within 1 ± MARGIN is called no difference."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """An estimate and its 95 % bootstrap interval."""

    value: float
    low: float
    high: float


class Verdict(StrEnum):
    FASTER = "faster"
    SLOWER = "slower"
    WITHIN_NOISE = "within noise"
    INCONCLUSIVE = "inconclusive"


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


def location(launches: Launches) -> float:
    """The mean over launches of the median over blocks. Raises SampleError."""
    _check(launches)
    return float(np.mean([np.median(blocks) for blocks in launches]))


def bootstrap(
    launches: Launches, generator: np.random.Generator, resamples: int = RESAMPLES
) -> Draws:
    """Draws of `location` from launches picked at random, and in each of them blocks at random.

    Raises SampleError for fewer than two blocks in all, an empty launch and values that are not
    finite.
    """
    _check(launches)
    picks = [_pick(launches, generator, resamples) for _ in launches]
    return np.asarray(np.mean(picks, axis=0), dtype=np.float64)


def interval(value: float, draws: Draws) -> Interval:
    """Percentile interval of `draws` around `value`; both of logarithms, the answer is not."""
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(value=math.exp(value), low=math.exp(low), high=math.exp(high))


def estimate(launches: Launches, generator: np.random.Generator) -> Interval:
    """From logarithms per block to their location, and its interval, as plain numbers."""
    return interval(location(launches), bootstrap(launches, generator))


def geometric_mean(cells: Sequence[Launches], generator: np.random.Generator) -> Interval:
    """Over workloads, each weighing the same. Raises SampleError.

    The workloads are fixed, not drawn: the interval says how well this mean is known, not how
    other models would do.
    """
    if not cells:
        raise SampleError("there are no workloads to take a mean of")
    draws = np.mean([bootstrap(cell, generator) for cell in cells], axis=0)
    return interval(float(np.mean([location(cell) for cell in cells])), draws)


def verdict(speedup: Interval, margin: float = MARGIN) -> Verdict:
    if speedup.low > 1:
        return Verdict.FASTER
    if speedup.high < 1:
        return Verdict.SLOWER
    if speedup.low >= 1 - margin and speedup.high <= 1 + margin:
        return Verdict.WITHIN_NOISE
    return Verdict.INCONCLUSIVE


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
    count = sum(len(blocks) for blocks in launches)
    if count < 2:  # noqa: PLR2004  (no spread without a pair)
        raise SampleError("one block is not enough for an interval", hint="Allow more time")
    if not all(math.isfinite(value) for blocks in launches for value in blocks):
        raise SampleError("a block's ratio is not a number")
