"""Which blocks are broken. A gate drops a whole block, never one arm's samples in it. Pure.

A block is dropped for what is no measurement at all: a quota stopped it, or two clocks disagree.
That others were busy is no reason: on a virtual machine they are most of the time, and what is left
of a run is chosen by chance. Levels bear it, see `statistics.level`; reports say how much it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol

from tfbench.measuring.samples import Sample

CLOCK_SHARE, CLOCK_S = 0.05, 0.05
"""How far the worker's clock may be from ours: the request's own way takes a millisecond."""
MOST_DROPPED = 0.30
"""Beyond it, what is left is no fair picture of the machine."""


def reasons(block: Sequence[Sample]) -> tuple[str, ...]:
    """Why the block does not count; empty when it does."""
    return (*throttled(block), *(("clock",) if any(map(_disagrees, block)) else ()))


class _Throttled(Protocol):
    @property
    def throttled_s(self) -> float: ...


def throttled(block: Iterable[_Throttled]) -> tuple[str, ...]:
    """The same where one clock alone was read."""
    return ("throttled",) if any(each.throttled_s > 0 for each in block) else ()


def counted(dropped: Iterable[Sequence[str]]) -> tuple[tuple[str, int], ...]:
    """How often each reason came, the most frequent first."""
    return tuple(Counter(name for each in dropped for name in each).most_common())


def others(samples: Sequence[Sample]) -> float:
    """The share of the samples' CPU time that other processes and the hypervisor took."""
    taken = sum(each.busy_s - each.cpu_s + each.steal_s for each in samples)
    had = sum(each.wall_s * each.vcpus for each in samples)
    return max(0.0, taken / had) if had > 0 else 0.0


def _disagrees(sample: Sample) -> bool:
    known_s = sample.wall_s + sample.beside_s
    return abs(sample.elapsed_s - known_s) > CLOCK_S + CLOCK_SHARE * sample.wall_s
