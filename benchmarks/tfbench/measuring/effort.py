"""How much is measured: launches, blocks, steps of a sample, and when it is enough. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tfbuild.errors import SampleError, UsageError

TARGET_S = 0.25
"""Aim for the slower arm's sample; whole steps may make it a third longer or shorter."""
SHORTEST_S = 0.2
"""Less is too short to calibrate with."""
FEWEST_LAUNCHES = 3
"""Measured even past the budget: fewer give an interval that says nothing."""
FEWEST_BLOCKS = 2
"""Of a launch that was cut short, to count as one."""


class Stop(StrEnum):
    """Why a cell was not measured longer."""

    PRECISION = "precision"
    LAUNCHES = "launches"
    BUDGET = "budget"


@dataclass(frozen=True, kw_only=True, slots=True)
class Effort:
    """How much is measured in a cell.

    Launches of `blocks` each (0: as many as suit what a start costs, see `repetition`), as many as
    the first look at which all intervals are as narrow as `precision` (half a width, 0.015 is
    1.5 %), the last of `looks`, or the end of `budget_s`. The budget holds the start of the
    workers, too. `phase_blocks` are those of each phase but training.

    Looks are few and fixed beforehand: whoever looks after each launch and stops at a lucky one
    has intervals that are too narrow (simulated: 8 % misses with five looks, 6 % with these three).
    Raises UsageError for no look, and for launches too short to count, which would go on for ever.
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


def stop(launches: int, half_width: float, effort: Effort) -> Stop | None:
    """Whether a cell with so many launches is done, whatever time is left; None to go on."""
    if launches in effort.looks and half_width <= effort.precision:
        return Stop.PRECISION
    return Stop.LAUNCHES if launches >= effort.looks[-1] else None


def steps_per_sample(seconds_per_step: Sequence[float]) -> int:
    """The one step count for all arms with which the slowest takes TARGET_S, as nearly as whole
    steps can.

    A step that is longer than that is a sample by itself. Raises SampleError.
    """
    if not seconds_per_step:
        raise SampleError("no step was timed")
    if not all(math.isfinite(seconds) and seconds > 0 for seconds in seconds_per_step):
        raise SampleError(f"a step took {min(seconds_per_step):g} s, which no clock should say")
    return max(1, round(TARGET_S / max(seconds_per_step)))


def longer(steps: int, wall_s: float) -> int:
    """How many steps to try next when `steps` were too short to calibrate with."""
    return max(steps * 2, min(steps * 10, round(steps * SHORTEST_S / max(wall_s, 1e-6)) + 1))
