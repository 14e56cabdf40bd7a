"""The amount of measurement: launches, blocks, steps per sample, and when to stop. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tfcore.comparisons.effort import Effort, Stop
from tfcore.errors import SampleError

TARGET_S = 0.25
"""Target length of the slower arm's sample; whole steps make it up to a third longer or shorter."""
SHORTEST_S = 0.2
"""Shorter samples are too short to calibrate with."""
FEWEST_LAUNCHES = 3
"""Measured even beyond the budget: fewer launches give too wide an interval."""


def find_stop_reason(launches: int, half_width: float, effort: Effort) -> Stop | None:
    """Return why a cell with this number of launches stops, whatever time is left; None if it
    continues.
    """
    if launches in effort.looks and half_width <= effort.precision:
        return Stop.PRECISION
    return Stop.LAUNCHES if launches >= effort.looks[-1] else None


def choose_sample_steps(seconds_per_step: Sequence[float]) -> int:
    """Choose one number of steps per sample for all arms, with which the slowest takes about
    TARGET_S.

    A step longer than TARGET_S is a sample by itself. Raises SampleError if no step was timed
    or a time is not a positive number.
    """
    if not seconds_per_step:
        raise SampleError("no steps were timed")
    if not all(math.isfinite(seconds) and seconds > 0 for seconds in seconds_per_step):
        raise SampleError(f"invalid time of a step: {min(seconds_per_step):g} s")
    return max(1, round(TARGET_S / max(seconds_per_step)))


def increase_steps(steps: int, wall_s: float) -> int:
    """Return the number of steps to try next if `steps` were too short to calibrate with."""
    return max(steps * 2, min(steps * 10, round(steps * SHORTEST_S / max(wall_s, 1e-6)) + 1))
