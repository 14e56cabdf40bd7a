"""Histograms of times, so that the times of a thousand requests fit into a line of a journal.

This file imports only the standard library: it runs inside each arm and in the process that reads
the arm's answers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

WIDTH = 0.02
"""The upper edge of a bin is 2 % above its lower edge, so quantiles are accurate to 1 %."""
_FIRST_S = 1e-7
"""The lower edge of bin 0 in seconds; shorter times are in bin 0."""


def find_bin(seconds: float) -> int:
    """Return the number of the bin of a time; times below the first bin go into bin 0."""
    return max(0, math.floor(math.log(seconds / _FIRST_S) / math.log1p(WIDTH)))


def compute_bin_middle(number: int) -> float:
    """Return the geometric middle of a bin, in seconds."""
    return _FIRST_S * math.exp(math.log1p(WIDTH) * (number + 0.5))


def compute_quantile(counts: Mapping[int, int], share: float) -> float:
    """Return the `share` quantile of the times in seconds, accurate to half a bin.

    Raises ValueError if there are no times.
    """
    target, total = share * sum(counts.values()), 0
    for number in sorted(counts):
        total += counts[number]
        if total >= target:
            return compute_bin_middle(number)
    raise ValueError("no times for a quantile")
