"""The amount of measurement in a cell."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tfcore.errors import UsageError

FEWEST_BLOCKS = 2
"""Fewest blocks for an interrupted launch to count."""


class Stop(StrEnum):
    """Why the measurement of a cell ended."""

    PRECISION = "precision"
    LAUNCHES = "launches"
    BUDGET = "budget"


@dataclass(frozen=True, kw_only=True, slots=True)
class Effort:
    """The amount of measurement in a cell.

    A launch has `blocks` blocks (0: chosen from the cost of a start, see `repetition`);
    `phase_blocks` is the number for each phase except training. Interim analyses take place
    after the numbers of launches in `looks`. A cell ends at the first one at which all
    intervals are as narrow as `precision` (half the width, 0.015 is 1.5 %), at the last one,
    or after `budget_s`, which includes the start of the workers.

    Interim analyses are few and planned: stopping at a lucky moment gives intervals that are
    too narrow (simulated: 8 % misses with five analyses, 6 % with these three). Raises
    UsageError without an interim analysis, and for launches too short to count, because such a
    cell would never end.
    """

    looks: tuple[int, ...] = (6, 10, 20)
    blocks: int = 0
    phase_blocks: int = 0
    precision: float = 0.0
    budget_s: float | None = None

    def __post_init__(self) -> None:
        if not self.looks or (self.blocks and self.blocks < FEWEST_BLOCKS):
            raise UsageError(
                f"launches of {self.blocks} blocks with interim analyses after {list(self.looks)} "
                "launches give no result",
                hint=f"Use at least {FEWEST_BLOCKS} blocks and one interim analysis",
            )
