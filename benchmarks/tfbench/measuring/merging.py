"""Comparisons of several machines of one kind, put together into one. Pure."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TypeAlias

from tfbench.measuring.matching import arm_differences, differences
from tfbuild import console
from tfbuild.errors import HostError, UsageError
from tfbuild.measured.comparison import Comparison
from tfbuild.measured.effort import Effort
from tfbuild.measured.host import Host

Part: TypeAlias = tuple[str, Comparison]
"""A comparison under the name that `parts` is to show."""

_SETTINGS = ("schema", "seed", "margin", "threshold", "level")


def merge(parts: Sequence[Part]) -> Comparison:
    """All cells, ordered by vCPUs; the overall figures stay those of the parts they were made from.

    The host, and what may differ of the arms, is that of the largest machine; the effort is the
    least, the date the last. Raises UsageError for fewer than two parts, equal names, other arms or
    settings and a cell that is there twice, HostError for hosts that are not of one kind.
    """
    _check(parts)
    comparisons = [comparison for _, comparison in parts]
    _, largest = max(parts, key=lambda part: (_size(part[1].host), part[0]))
    return dataclasses.replace(
        largest,
        made=max(each.made for each in comparisons),
        seconds=math.fsum(each.seconds for each in comparisons),
        effort=min((each.effort for each in comparisons), key=_size_of_effort),
        cells=tuple(
            sorted((cell for each in comparisons for cell in each.cells), key=lambda c: c.vcpus)
        ),
        overall=tuple(
            sorted((mean for each in comparisons for mean in each.overall), key=lambda o: o.vcpus)
        ),
        complete=all(each.complete for each in comparisons),
        parts=_names(parts),
    )


def _names(parts: Sequence[Part]) -> tuple[str, ...]:
    """A part that was merged itself stands there as its own parts."""
    return tuple(name for own, each in parts for name in (each.parts or (own,)))


def _size(host: Host) -> tuple[object, ...]:
    vcpus = host.vcpus
    quota = math.inf if vcpus.quota is None else vcpus.quota
    return vcpus.usable, vcpus.machine, vcpus.affinity, quota, host.memory_bytes, host.affinity


def _size_of_effort(effort: Effort) -> tuple[object, ...]:
    budget = math.inf if effort.budget_s is None else effort.budget_s
    return (
        effort.looks[-1:],
        effort.blocks,
        effort.phase_blocks,
        -effort.precision,
        budget,
        effort.looks,
    )


def _check(parts: Sequence[Part]) -> None:
    if len(parts) < 2:  # noqa: PLR2004  (a pair)
        raise UsageError(f"{len(parts)} comparisons cannot be merged", hint="Name two or more")
    names = _names(parts)
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise UsageError(f"{twice[0]} is to be merged with itself")
    for part in parts[1:]:
        _check_pair(parts[0], part)
    _check_cells(parts)


def _check_pair(one: Part, other: Part) -> None:
    """Whether two parts may stand in one comparison."""
    (name, first), (other_name, second) = one, other
    between = f"{name} and {other_name} cannot be merged"
    hosts = differences(first.host, second.host)
    if hosts:
        raise HostError(
            f"{between}, their machines differ: {'; '.join(map(str, hosts))}",
            hint="Merge comparisons of one kind of machine, or report each for itself",
        )
    for setting in _SETTINGS:
        values = getattr(first, setting), getattr(second, setting)
        if values[0] != values[1]:
            raise UsageError(f"{between}: {setting} is {values[0]} and {values[1]}")
    _check_arms(between, first, second)


def _check_arms(between: str, first: Comparison, second: Comparison) -> None:
    ours, theirs = ([arm.name for arm in each.arms] for each in (first, second))
    if sorted(ours) != sorted(theirs) or ours[0] != theirs[0]:
        raise UsageError(
            f"{between}: the arms are {', '.join(ours)} and {', '.join(theirs)}",
            hint="The baseline must be the same, and so must the others",
        )
    arms = {arm.name: arm for arm in second.arms}
    found = [each for arm in first.arms for each in arm_differences(arm, arms[arm.name])]
    if found:
        raise UsageError(f"{between}: {'; '.join(map(str, found))}")


def _check_cells(parts: Sequence[Part]) -> None:
    seen: dict[tuple[str, int], str] = {}
    for name, comparison in parts:
        for cell in comparison.cells:
            other = seen.setdefault((cell.workload, cell.vcpus), name)
            if other != name:
                raise UsageError(
                    f"{cell.workload} at {console.format_vcpus(cell.vcpus)} is in {other} and in {name}",
                    hint="Leave one of them out",
                )
