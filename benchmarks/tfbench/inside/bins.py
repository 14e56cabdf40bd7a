"""Times as counts in bins, so that those of a thousand requests are a line of a journal.

The standard library only: this runs inside each arm, and where its answers are read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

WIDTH = 0.02
"""A bin's upper end is 2 % above its lower one: quantiles are read to 1 %."""
_FIRST_S = 1e-7
"""The lower end of bin 0; nothing is timed more finely."""


def bin_of(seconds: float) -> int:
    return max(0, math.floor(math.log(seconds / _FIRST_S) / math.log1p(WIDTH)))


def middle_of(number: int) -> float:
    """The geometric middle of a bin, in seconds."""
    return _FIRST_S * math.exp(math.log1p(WIDTH) * (number + 0.5))


def quantile(counts: Mapping[int, int], share: float) -> float:
    """The time in seconds that this share of all are not longer than, to half a bin. There has to
    be one."""
    wanted, seen = share * sum(counts.values()), 0
    for number in sorted(counts):
        seen += counts[number]
        if seen >= wanted:
            return middle_of(number)
    raise ValueError("a quantile of nothing")
