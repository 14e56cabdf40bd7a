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

SLICE_S = 0.025
"""Minimum seconds of a slice, which consists of whole steps. The last slice gets the rest, too."""

Call: TypeAlias = tuple[int, Callable[[], Any]]
"""The number of steps in a call, and the call, which returns a number or a scalar tensor."""


class Slice(NamedTuple):
    """Some consecutive steps and their seconds by two clocks.

    At a boundary between slices: the number of steps and the clock readings since the start.
    """

    steps: int
    wall_s: float
    cpu_s: float


def time_calls(calls: Iterable[Call]) -> list[Slice]:
    """Run the calls and return their slices; an empty list if there are no steps.

    Reads the last result, so that no step is still running at the end.
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
