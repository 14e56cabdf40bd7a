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


def find_bin(seconds: float) -> int:
    """Return the number of the bin of a time; times below the first bin go into bin 0."""
    return max(0, math.floor(math.log(seconds / _FIRST_S) / math.log1p(WIDTH)))


def compute_bin_middle(number: int) -> float:
    """Return the geometric middle of a bin, in seconds."""
    return _FIRST_S * math.exp(math.log1p(WIDTH) * (number + 0.5))


def compute_quantile(counts: Mapping[int, int], share: float) -> float:
    """Return the time in seconds that the given share of all times do not exceed, to half a bin.

    Raises ValueError if there are no times.
    """
    target, total = share * sum(counts.values()), 0
    for number in sorted(counts):
        total += counts[number]
        if total >= target:
            return compute_bin_middle(number)
    raise ValueError("a quantile of nothing")
