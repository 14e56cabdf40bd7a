"""The choice of the setups to measure next. Pure: cells in, names and setups out.

The best of several measured speedups is biased upwards. So a stage only chooses what the next one
measures again, and no figure of the search is reported as the gain.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from tfbench.tuning.changes import Setup
from tfcore.comparisons.comparison import ComparedCell, Speedup

MOST_TOGETHER = 6
"""Most candidates side by side: each is a process with TensorFlow and the model."""
FINALISTS = 3
"""This many are combined without another halving."""
T = TypeVar("T")


def split_groups(items: Sequence[T], most: int = MOST_TOGETHER) -> tuple[tuple[T, ...], ...]:
    """Split items into as few groups as hold them, of sizes as equal as possible."""
    count = math.ceil(len(items) / most)
    return tuple(tuple(items[start::count]) for start in range(count))


def find_promising(cells: Iterable[ComparedCell]) -> tuple[Speedup, ...]:
    """Find the arms that agree and may be faster, the best first."""
    speedups = [speedup for cell in cells for speedup in cell.speedups if _can_win(cell, speedup)]
    return tuple(sorted(speedups, key=lambda speedup: -speedup.interval.value))


def select_better_half(ranked: Sequence[T]) -> tuple[T, ...]:
    return tuple(ranked[: math.ceil(len(ranked) / 2)])


def count_halvings(count: int) -> int:
    """Count how often this many are halved at most until they are few enough to be combined."""
    return 0 if count <= FINALISTS else 1 + count_halvings(math.ceil(count / 2))


def build_ladder(ranked: Sequence[Setup]) -> tuple[Setup, ...]:
    """Build setups: the best alone, then with the next best of another lever added, and so on."""
    rungs: list[Setup] = []
    for setup in ranked:
        below = rungs[-1] if rungs else ()
        used = {change.lever for change in below}
        if not used & {change.lever for change in setup}:
            rungs.append((*below, *setup))
    return tuple(rungs)


def choose_setup(cell: ComparedCell, rungs: Mapping[str, Setup]) -> Setup:
    """Choose the setup of the fewest changes among those that the best does not beat beyond noise.

    Return no change if none was faster. `rungs` are by arm, the fewest changes first.
    """
    gains = {
        speedup.arm: speedup.interval.value
        for speedup in find_promising([cell])
        if speedup.arm in rungs
    }
    best = max(gains.values(), default=0.0)
    if best <= 1 or cell.noise is None:
        return ()
    bar = best / math.exp(cell.noise.half_width)
    return next(setup for arm, setup in rungs.items() if gains.get(arm, 0.0) >= max(bar, 1.0))


def _can_win(cell: ComparedCell, speedup: Speedup) -> bool:
    agrees = {agreement.arm: agreement.agrees for agreement in cell.agreements}
    return agrees.get(speedup.arm, False) and speedup.interval.high > 1
