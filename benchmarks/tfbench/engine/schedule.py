"""Which arm runs when. Pure: chance comes in as an argument.

A machine's speed wanders, so arms are compared within a block that is short against the wandering.
Each arm stands in a block twice, mirrored (ABBA), so that a steady drift cancels; the first half's
order is random, so that nothing periodic can favour one arm.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from random import Random
from typing import TypeVar

PADDING_BYTES = 4096
Each = TypeVar("Each")


def chance_of(seed: int, subject: str, vcpus: int, launch: int) -> Random:
    """The chance of one launch: the same whether the run was stopped before it or not."""
    return Random(f"{seed} {subject} {vcpus} {launch}")  # noqa: S311  (a schedule, not a secret)


def launch_order(arms: Sequence[Each], chance: Random) -> tuple[Each, ...]:
    return tuple(chance.sample(arms, len(arms)))


def block_order(arms: Sequence[Each], chance: Random) -> tuple[Each, ...]:
    """ABBA or BAAB for two arms; for more, any order and its mirror image."""
    half = launch_order(arms, chance)
    return half + half[::-1]


def loading_groups(
    vcpus: Sequence[int], available: Collection[int], node_of: Mapping[int, int]
) -> tuple[tuple[int, ...], ...]:
    """Sets of as many CPUs as `vcpus`, that set first, for workers that load at the same time.

    They have no CPU in common, and are of the NUMA nodes of `vcpus`, since a worker's memory stays
    where it was first written.
    """
    nodes = {node_of.get(cpu) for cpu in vcpus}
    others = sorted(cpu for cpu in {*available} - {*vcpus} if node_of.get(cpu) in nodes)
    size = len(vcpus)
    rest = (tuple(others[at : at + size]) for at in range(0, len(others) - size + 1, size))
    return (tuple(vcpus), *rest)


def padding(chance: Random) -> int:
    """Bytes to add to a worker's environment."""
    return chance.randrange(PADDING_BYTES)
