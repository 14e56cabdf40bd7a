"""How much is measured: launches, blocks, steps of a sample, and when it is enough. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tfbuild.errors import SampleError
from tfbuild.measured.effort import Effort, Stop

TARGET_S = 0.25
"""Aim for the slower arm's sample; whole steps may make it a third longer or shorter."""
SHORTEST_S = 0.2
"""Less is too short to calibrate with."""
FEWEST_LAUNCHES = 3
"""Measured even past the budget: fewer give an interval that says nothing."""


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
