"""Estimates with their intervals, and verdicts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """An estimate and its 95 % confidence interval."""

    value: float
    low: float
    high: float

    @property
    def excludes_1(self) -> bool:
        """Return True if a ratio differs significantly from 1."""
        return self.low > 1 or self.high < 1

    @property
    def half_width(self) -> float:
        """Return half the width on a logarithmic scale: 0.01 is about 1 % to either side."""
        return math.log(self.high / self.low) / 2

    @property
    def reach(self) -> float:
        """Return the largest distance of the interval from 1, on a logarithmic scale."""
        return max(abs(math.log(self.low)), abs(math.log(self.high)))


_EARLIER_EQUIVALENT = "within noise"


class Verdict(StrEnum):
    """The verdict of a comparison, from the worst to the best."""

    SLOWER = "slower"
    INCONCLUSIVE = "inconclusive"
    EQUIVALENT = "equivalent"
    FASTER = "faster"

    @classmethod
    def _missing_(cls, value: object) -> Verdict | None:
        """Return the verdict that a comparison.json of an earlier version spells differently."""
        return cls.EQUIVALENT if value == _EARLIER_EQUIVALENT else None
