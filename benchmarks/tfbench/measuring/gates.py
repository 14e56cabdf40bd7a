"""Which blocks were disturbed. A gate drops a whole block, never one arm's samples in it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from tfbench.measuring.samples import Sample

OTHERS = 0.05
"""Share of a block's CPU time that other processes took. The time that a worker's threads waited
for a CPU does not tell: on a quiet machine they wait for each other, a quarter of the time."""
STEAL = 0.01
"""Share of a block's CPU time that the hypervisor took."""
CANARY = 0.10
"""Change of the canary between one arm's two samples."""
CLOCK_SHARE, CLOCK_S = 0.05, 0.05
"""How far the worker's clock may be from ours: the request's own way takes a millisecond."""
MOST_DROPPED = 0.30
"""Beyond it, what is left is no fair picture of the machine."""


def reasons(block: Sequence[Sample]) -> tuple[str, ...]:
    """Why the block does not count; empty when it does."""
    checks = {
        "other processes": _shared(block),
        "steal": _stolen(block),
        "throttled": any(sample.throttled_s > 0 for sample in block),
        "speed changed": _changed(block),
        "clock": any(_disagrees(sample) for sample in block),
    }
    return tuple(name for name, hit in checks.items() if hit)


def counted(dropped: Iterable[Sequence[str]]) -> tuple[tuple[str, int], ...]:
    """How often each reason came, the most frequent first."""
    return tuple(Counter(name for each in dropped for name in each).most_common())


def _shared(block: Sequence[Sample]) -> bool:
    others = sum(sample.busy_s - sample.cpu_s for sample in block)
    return others > OTHERS * sum(sample.wall_s * sample.vcpus for sample in block)


def _stolen(block: Sequence[Sample]) -> bool:
    taken = sum(sample.steal_s for sample in block)
    return taken > STEAL * sum(sample.wall_s * sample.vcpus for sample in block)


def _changed(block: Sequence[Sample]) -> bool:
    """Each arm against itself: two arms may have two versions of Python."""
    speeds: dict[str, list[float]] = {}
    for sample in block:
        speeds.setdefault(sample.arm, []).append(sample.canary_s)
    return any(max(each) > (1 + CANARY) * min(each) for each in speeds.values())


def _disagrees(sample: Sample) -> bool:
    return abs(sample.elapsed_s - sample.wall_s) > CLOCK_S + CLOCK_SHARE * sample.wall_s
