"""Medians of few values, of which the largest may be unknown, with exact intervals. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tfbench.measuring.statistics import LEVEL
from tfbuild.errors import SampleError

FEWEST = 6
"""Values for an interval of 95 %: with five it has 93.75 %."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Median:
    """Of `count` values. None is larger than all that was seen. The interval holds the true median
    with a chance of `level`, which few values keep below 95 %."""

    value: float | None
    low: float | None
    high: float | None
    level: float
    count: int

    def map(self, function: Callable[[float], float]) -> Median:
        """Through a rising function, which keeps order and so ranks."""
        value, low, high = (
            None if each is None else function(each) for each in (self.value, self.low, self.high)
        )
        return Median(value=value, low=low, high=high, level=self.level, count=self.count)


def median(values: Sequence[float | None]) -> Median:
    """None stands for what is larger than all others, such as a target that was not reached.

    The interval's ends are two of the values: the true median lies between the smallest and the
    largest of n unless all of them fell to one side of it, and so on inwards (David and Nagaraja,
    "Order Statistics", 3rd edition, 7.1). Nothing is assumed of how values are spread. Raises
    SampleError for no values.
    """
    if not values:
        raise SampleError("there are no values to take a median of")
    ordered = sorted(math.inf if each is None else each for each in values)
    count = len(ordered)
    inwards = _inwards(count)
    return Median(
        value=_known((ordered[(count - 1) // 2] + ordered[count // 2]) / 2),
        low=_known(ordered[inwards]),
        high=_known(ordered[count - 1 - inwards]),
        level=coverage(count, inwards),
        count=count,
    )


def coverage(count: int, inwards: int) -> float:
    """The chance that the median lies between the values so far inwards from both ends: that of a
    fair coin not to show one side `inwards` times or fewer."""
    outside = sum(math.comb(count, heads) for heads in range(inwards + 1))
    return max(0.0, 1 - 2 * math.ldexp(outside, -count))


def _inwards(count: int) -> int:
    """How far, for the narrowest interval of 95 %; none where even the widest has less."""
    enough = (each for each in range((count - 1) // 2, 0, -1) if coverage(count, each) >= LEVEL)
    return next(enough, 0)


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
