"""Medians of few values with exact intervals; the largest values may be unknown. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tfbench.measuring.statistics import LEVEL
from tfcore.errors import SampleError

FEWEST = 6
"""The fewest values for an interval of 95 %; five give 93.75 %."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Median:
    """A median of `count` values. None means larger than all observed values.

    The interval holds the true median with a probability of `level`, which is below 95 % if there
    are few values.
    """

    value: float | None
    low: float | None
    high: float | None
    level: float
    count: int

    def map(self, function: Callable[[float], float]) -> Median:
        """Apply an increasing function, which preserves order and therefore ranks."""
        value, low, high = (
            None if end is None else function(end) for end in (self.value, self.low, self.high)
        )
        return Median(value=value, low=low, high=high, level=self.level, count=self.count)


def compute_median(values: Sequence[float | None]) -> Median:
    """Compute the median with its exact interval. None stands for a value larger than all
    others, such as a target that was not reached.

    The interval's ends are two of the values: the true median lies between the smallest and
    the largest of n unless all of them fell to one side of it, and so on inwards (David and
    Nagaraja, "Order Statistics", 3rd edition, 7.1). No distribution is assumed. Raises
    SampleError if there are no values.
    """
    if not values:
        raise SampleError("a median needs at least one value")
    ordered = sorted(math.inf if entry is None else entry for entry in values)
    count = len(ordered)
    inwards = _choose_depth(count)
    return Median(
        value=_convert_infinite((ordered[(count - 1) // 2] + ordered[count // 2]) / 2),
        low=_convert_infinite(ordered[inwards]),
        high=_convert_infinite(ordered[count - 1 - inwards]),
        level=compute_coverage(count, inwards),
        count=count,
    )


def compute_coverage(count: int, inwards: int) -> float:
    """Return the probability that the median lies between the values `inwards` steps from both
    ends: that a fair coin does not show one side `inwards` times or fewer.
    """
    outside = sum(math.comb(count, heads) for heads in range(inwards + 1))
    return max(0.0, 1 - 2 * math.ldexp(outside, -count))


def _choose_depth(count: int) -> int:
    """Return how many values to drop at each end for the narrowest interval of 95 %; 0 if even
    the widest has less.
    """
    enough = (
        depth for depth in range((count - 1) // 2, 0, -1) if compute_coverage(count, depth) >= LEVEL
    )
    return next(enough, 0)


def _convert_infinite(value: float) -> float | None:
    return value if math.isfinite(value) else None
