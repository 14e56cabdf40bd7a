"""A sample's slices: how long each few steps of it took.

What disturbs a virtual machine comes and goes within a sample: on one of a Sapphire Rapids class
every fifth step of 8 ms took a quarter longer or more, some ten of them in a row. The fastest
slices tell what an undisturbed step takes; the fastest samples still bear some of it.

This file runs inside each arm's own environment: the standard library only.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

SLICE_S = 0.025
"""A slice ends with the step in which so much has passed; the last one has what is left, too."""

Call: TypeAlias = tuple[int, Callable[[], Any]]
"""How many steps a call takes, and the call: it returns a number, or a tensor of one."""


class Slice(NamedTuple):
    """Some steps, one after the other, and the seconds that they took by two clocks; where it is
    cut, all since the first step and since the clocks began."""

    steps: int
    wall_s: float
    cpu_s: float


def timed(calls: Iterable[Call]) -> list[Slice]:
    """Make the calls. The last result is read, so no step is still under way. None of no call."""
    cuts, taken, result = [_now(0)], 0, 0.0
    for steps, call in calls:
        result = call()
        taken += steps
        if time.perf_counter() - cuts[-1].wall_s >= SLICE_S:
            cuts.append(_now(taken))
    float(result)
    cuts[max(1, len(cuts) - 1) :] = [_now(taken)]
    return [_between(*pair) for pair in itertools.pairwise(cuts) if taken]


def _between(before: Slice, after: Slice) -> Slice:
    return Slice(
        steps=after.steps - before.steps,
        wall_s=after.wall_s - before.wall_s,
        cpu_s=after.cpu_s - before.cpu_s,
    )


def _now(steps: int) -> Slice:
    return Slice(steps, time.perf_counter(), time.process_time())
