"""The slices of a sample: the times of a few consecutive steps.

Disturbances of a virtual machine come and go within a sample. On a machine of Sapphire Rapids class
every fifth step of 8 ms took at least a quarter longer, about ten of them in a row. The fastest
slices estimate the time of an undisturbed step; even the fastest samples include disturbances.

This file runs inside each arm's environment: it imports only the standard library.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

SLICES = 10
"""Slices of a sample with at least as many steps, about 25 ms each for the slowest arm.

They have equal numbers of steps, not equal times. Slices of fewer steps vary more, so the fastest
of them are faster: with slices of at least 25 ms the ratio of two arms with steps of 12 to 30 ms
was wrong by up to 2 % (simulated, steps with a standard deviation of 5 %).
"""

Call: TypeAlias = tuple[int, Callable[[], Any]]
"""The number of steps in a call, and the call, which returns a number or a scalar tensor."""


class Slice(NamedTuple):
    """Some consecutive steps and their seconds by two clocks.

    At a boundary between slices: the number of steps and the clock readings since the start.
    """

    steps: int
    wall_s: float
    cpu_s: float


def time_calls(calls: Iterable[Call], steps: int, together: int = 1) -> list[Slice]:
    """Run the calls, which take `steps` steps, and return their slices; none if there are no steps.

    A slice consists of whole groups of `together` steps, the most that a call of any arm takes, and
    the last one gets the rest. Reads the last result, so that no step is still running at the end.
    """
    groups = max(1, steps // together)
    count = min(SLICES, groups)
    cuts, done, result = [_read_clocks(0)], 0, 0.0
    for several, call in calls:
        result = call()
        done += several
        if done // together * count // groups > cuts[-1].steps // together * count // groups:
            cuts.append(_read_clocks(done))
    float(result)
    cuts[max(1, len(cuts) - 1) :] = [_read_clocks(done)]
    return [_subtract_slices(*pair) for pair in itertools.pairwise(cuts) if done]


def _subtract_slices(before: Slice, after: Slice) -> Slice:
    return Slice(
        steps=after.steps - before.steps,
        wall_s=after.wall_s - before.wall_s,
        cpu_s=after.cpu_s - before.cpu_s,
    )


def _read_clocks(steps: int) -> Slice:
    return Slice(steps, time.perf_counter(), time.process_time())
