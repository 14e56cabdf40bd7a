"""Which arm runs when, and for how many steps. Pure: chance comes in as an argument.

A machine's speed wanders, so arms are compared within a block that is short against the wandering.
Each arm stands in a block twice, mirrored (ABBA), so that a steady drift cancels; the first half's
order is random, so that nothing periodic can favour one arm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

from tfbuild.errors import SampleError

TARGET_S = 0.35
"""Aim for the slower arm's sample: between the bounds, so that whole steps fit."""
SHORTEST_S, LONGEST_S = 0.2, 0.5
PADDING_BYTES = 4096


def launch_order(arms: Sequence[str], chance: Random) -> tuple[str, ...]:
    return tuple(chance.sample(arms, len(arms)))


def block_order(arms: Sequence[str], chance: Random) -> tuple[str, ...]:
    """ABBA or BAAB for two arms; for more, any order and its mirror image."""
    half = launch_order(arms, chance)
    return half + half[::-1]


def padding(chance: Random) -> int:
    """Bytes to add to a worker's environment."""
    return chance.randrange(PADDING_BYTES)


def steps_per_sample(seconds_per_step: Sequence[float]) -> int:
    """The one step count for all arms with which the slowest takes SHORTEST_S to LONGEST_S.

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
