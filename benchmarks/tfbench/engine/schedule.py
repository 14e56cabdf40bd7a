"""The order of launches and blocks. Pure: the random generator is an argument.

A machine's speed drifts, so arms are compared within blocks that are short compared with the drift.
Each arm is in a block twice, mirrored (ABBA), so that a linear drift cancels. The order of the
first half is random, so that a periodic disturbance cannot favour one arm.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from random import Random
from typing import TypeVar

PADDING_BYTES = 4096
Each = TypeVar("Each")


def create_random(seed: int, subject: str, vcpus: int, launch: int) -> Random:
    """Create the random generator of one launch. It does not depend on stops of the run."""
    return Random(f"{seed} {subject} {vcpus} {launch}")  # noqa: S311  (a schedule, not a secret)


def draw_launch_order(arms: Sequence[Each], chance: Random) -> tuple[Each, ...]:
    return tuple(chance.sample(arms, len(arms)))


def draw_block_order(arms: Sequence[Each], chance: Random) -> tuple[Each, ...]:
    """Draw ABBA or BAAB for two arms; for more arms a random order and its mirror image."""
    half = draw_launch_order(arms, chance)
    return half + half[::-1]


def group_cpus(
    vcpus: Sequence[int], available: Collection[int], node_of: Mapping[int, int]
) -> tuple[tuple[int, ...], ...]:
    """Group CPUs for workers that load at the same time.

    The groups have the size of `vcpus`, which is the first group. They have no CPU in common. All
    are on the NUMA nodes of `vcpus`, since a worker's memory stays on the node that first wrote it.
    """
    nodes = {node_of.get(cpu) for cpu in vcpus}
    neighbours = sorted(cpu for cpu in {*available} - {*vcpus} if node_of.get(cpu) in nodes)
    size = len(vcpus)
    other_groups = (
        tuple(neighbours[at : at + size]) for at in range(0, len(neighbours) - size + 1, size)
    )
    return (tuple(vcpus), *other_groups)


def draw_padding(chance: Random) -> int:
    """Draw the number of bytes to add to a worker's environment."""
    return chance.randrange(PADDING_BYTES)
