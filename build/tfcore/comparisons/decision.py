"""The record of a decision, and the limit that a difference must exceed. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from tfcore.comparisons.interval import Interval, Verdict

LIKELY = 0.80
"""A difference is likely if an interval of this level excludes 1."""


class Reason(StrEnum):
    """Why an arm has its verdict, or why it has none. The limit is the one of `compute_limit`."""

    FAILED = "failed"
    DIFFERENT = "computes something else"
    NOT_TIMED = "not timed"
    BEYOND_LIMIT = "beyond the limit"
    WITHIN_LIMIT = "within the limit"
    WITHIN_MARGIN = "within the margin"
    OVER_GATED = "too many blocks dropped"
    HIGH_LIMIT = "limit too high"
    LIKELY_FASTER = "likely faster"
    LIKELY_SLOWER = "likely slower"
    WIDE = "interval too wide"


NO_VERDICT = frozenset({Reason.FAILED, Reason.DIFFERENT, Reason.NOT_TIMED})


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """What a comparison says about an arm, in a cell or over all workloads, and why."""

    arm: str
    verdict: Verdict | None
    """The verdict on the times. It does not count if the arm computes something else. None if
    there are no times."""
    reason: Reason
    noise_floor: float | None
    """The noise floor as a share: 0.01 is 1 %. None if the A/A interval is not known."""

    @property
    def counts(self) -> bool:
        """Return whether there is a verdict, and the arm computes the same as the baseline."""
        return self.reason not in NO_VERDICT

    @property
    def outcome(self) -> str:
        """Return the verdict if it counts, or why there is none."""
        return str(self.verdict if self.counts else self.reason)


def compute_floor(noise: Interval) -> float:
    """Compute the noise floor from an A/A interval: the |ln ratio| that a difference must exceed.

    It is the reach of the interval, counted from the faster of the baseline's two workers,
    because the baseline is their mean.
    """
    return noise.reach + abs(math.log(noise.value)) / 2


def compute_limit(floor: float, threshold: float) -> float:
    """Compute the |ln ratio| that a difference must exceed: that of the noise floor, or of the
    threshold if it is higher.
    """
    return max(floor, math.log1p(threshold))
