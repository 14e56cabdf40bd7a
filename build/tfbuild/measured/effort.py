"""How much was, or is to be, measured in a cell."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tfbuild.errors import UsageError

FEWEST_BLOCKS = 2
"""Of a launch that was cut short, to count as one."""


class Stop(StrEnum):
    """Why the measurement of a cell ended."""

    PRECISION = "precision"
    LAUNCHES = "launches"
    BUDGET = "budget"


@dataclass(frozen=True, kw_only=True, slots=True)
class Effort:
    """How much is measured in a cell.

    Launches of `blocks` each (0: as many as suit the cost of a start, see `repetition`). They
    end at the first interim analysis at which all intervals are as narrow as `precision`
    (half a width, 0.015 is 1.5 %), at the last of `looks`, or after `budget_s`. The budget
    includes the start of the workers. `phase_blocks` are those of each phase but training.

    Interim analyses are few and fixed beforehand: analysing after each launch and stopping at
    a lucky one gives intervals that are too narrow (simulated: 8 % misses with five analyses,
    6 % with these three). Raises UsageError without an interim analysis, and for launches too
    short to count, which would go on for ever.
    """

    looks: tuple[int, ...] = (6, 10, 20)
    blocks: int = 0
    phase_blocks: int = 0
    precision: float = 0.0
    budget_s: float | None = None

    def __post_init__(self) -> None:
        if not self.looks or (self.blocks and self.blocks < FEWEST_BLOCKS):
            raise UsageError(
                f"launches of {self.blocks} blocks, looked at after {list(self.looks)} of them, "
                "give no answer",
                hint=f"Ask for {FEWEST_BLOCKS} blocks or more, and for one look at least",
            )
