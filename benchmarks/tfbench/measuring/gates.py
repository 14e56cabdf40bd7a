"""Gates that drop broken blocks. A gate drops a whole block, never one arm's samples in it. Pure.

A block is dropped if it is not a valid measurement: a quota throttled it, or two clocks disagree.
Load by other processes is no reason to drop it: on a virtual machine there is load most of the
time, and the remaining blocks would be a random choice. Levels tolerate load, see
`statistics.compute_level`, and reports show how large it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol

from tfbench.measuring.samples import Sample

CLOCK_SHARE, CLOCK_S = 0.05, 0.05
"""Largest difference of the worker's clock from ours. A request itself takes a millisecond."""


def list_drop_reasons(block: Sequence[Sample]) -> tuple[str, ...]:
    """List the reasons to drop a block; empty if it counts."""
    return (*find_throttling(block), *(("clock",) if any(map(_has_clock_mismatch, block)) else ()))


class _Throttled(Protocol):
    @property
    def throttled_s(self) -> float: ...


def find_throttling(block: Iterable[_Throttled]) -> tuple[str, ...]:
    """List the reasons to drop a block of which only one clock was read."""
    return ("throttled",) if any(sample.throttled_s > 0 for sample in block) else ()


def count_reasons(dropped: Iterable[Sequence[str]]) -> tuple[tuple[str, int], ...]:
    """Count how often each reason occurred, the most frequent first."""
    return tuple(Counter(name for block_reasons in dropped for name in block_reasons).most_common())


def compute_others_share(samples: Sequence[Sample]) -> float:
    """Compute the share of the samples' CPU time that other processes and the hypervisor took."""
    taken_s = sum(sample.busy_s - sample.cpu_s + sample.steal_s for sample in samples)
    available_s = sum(sample.wall_s * sample.vcpus for sample in samples)
    return max(0.0, taken_s / available_s) if available_s > 0 else 0.0


def _has_clock_mismatch(sample: Sample) -> bool:
    known_s = sample.wall_s + sample.beside_s
    return abs(sample.elapsed_s - known_s) > CLOCK_S + CLOCK_SHARE * sample.wall_s
