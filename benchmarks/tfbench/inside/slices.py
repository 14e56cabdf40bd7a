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
    """Some consecutive steps and their seconds by two clocks.

    As a cut between slices, the counts and clock readings since the start.
    """

    steps: int
    wall_s: float
    cpu_s: float


def time_calls(calls: Iterable[Call]) -> list[Slice]:
    """Make the calls and return their slices, an empty list for no steps.

    The last result is read, so that no step is still running at the end.
    """
    cuts, done, result = [_read_clocks(0)], 0, 0.0
    for steps, call in calls:
        result = call()
        done += steps
        if time.perf_counter() - cuts[-1].wall_s >= SLICE_S:
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
