"""Which setups are measured next. Pure: cells in, names and setups out.

What is chosen by its figure was lucky, too. So a stage only says what the next one measures anew,
and no figure of the search is reported as the gain.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from tfbench.tuning.changes import Setup
from tfbuild.measured.comparison import ComparedCell, Speedup
from tfbuild.measured.interval import Verdict

MOST_TOGETHER = 6
"""Candidates side by side: each is a process with a TensorFlow and the model."""
FINALISTS = 3
"""So few are combined as they are."""
T = TypeVar("T")


def grouped(items: Sequence[T], most: int = MOST_TOGETHER) -> tuple[tuple[T, ...], ...]:
    """As few groups as hold them, as equal as can be."""
    count = math.ceil(len(items) / most)
    return tuple(tuple(items[start::count]) for start in range(count))


def promising(cells: Iterable[ComparedCell]) -> tuple[Speedup, ...]:
    """The arms that agree and may be faster, the best first."""
    found = [each for cell in cells for each in cell.speedups if _may_win(cell, each)]
    return tuple(sorted(found, key=lambda each: -each.interval.value))


def halved(left: Sequence[T]) -> tuple[T, ...]:
    return tuple(left[: math.ceil(len(left) / 2)])


def halvings(count: int) -> int:
    """How often so many are halved at most until they are few enough to be combined."""
    return 0 if count <= FINALISTS else 1 + halvings(math.ceil(count / 2))


def ladder(ranked: Sequence[Setup]) -> tuple[Setup, ...]:
    """The best alone, then with the next best of another lever added, and so on."""
    rungs: list[Setup] = []
    for setup in ranked:
        below = rungs[-1] if rungs else ()
        used = {change.lever for change in below}
        if not used & {change.lever for change in setup}:
            rungs.append((*below, *setup))
    return tuple(rungs)


def chosen(cell: ComparedCell, rungs: Mapping[str, Setup]) -> Setup:
    """The setup with the fewest changes of those that the best does not beat beyond noise; no
    change where none was faster. `rungs` are by arm, the fewest changes first."""
    found = {each.arm: each.interval.value for each in promising([cell]) if each.arm in rungs}
    best = max(found.values(), default=0.0)
    if best <= 1 or cell.noise is None:
        return ()
    near = best / math.exp(cell.noise.half_width)
    return next(setup for arm, setup in rungs.items() if found.get(arm, 0.0) >= max(near, 1.0))


def _may_win(cell: ComparedCell, speedup: Speedup) -> bool:
    agrees = {each.arm: each.agrees for each in cell.agreements}
    slower = speedup.verdict is Verdict.SLOWER or speedup.interval.high <= 1
    return agrees.get(speedup.arm, False) and not slower
