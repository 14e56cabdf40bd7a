"""Merging of comparisons from several machines of one kind. Pure."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import TypeAlias

from tfbench.measuring.matching import compare_arms, compare_hosts
from tfbench.measuring.statistics import Thresholds, choose_verdict, combine_intervals
from tfcore import console
from tfcore.comparisons.comparison import Comparison, Overall, Speedup
from tfcore.comparisons.deciding import decide
from tfcore.comparisons.decision import compute_floor
from tfcore.comparisons.effort import Effort
from tfcore.comparisons.host import Host
from tfcore.errors import HostError, UsageError

Part: TypeAlias = tuple[str, Comparison]
"""The name of a comparison in `parts`, and the comparison."""

_SETTINGS = ("schema", "seed", "margin", "threshold", "level")


def merge_comparisons(parts: Sequence[Part]) -> Comparison:
    """Merge comparisons: all cells, ordered by vCPUs, and the means over all workloads.

    The host, and what may differ of the arms, is that of the largest machine; the effort is the
    smallest, the date the latest. Raises UsageError if there are fewer than two parts, if two
    have the same name, different arms or settings, or a cell in common, and HostError if the
    hosts are not of one kind.
    """
    _check_parts(parts)
    comparisons = [comparison for _, comparison in parts]
    _, largest = max(parts, key=lambda part: (_compute_host_size(part[1].host), part[0]))
    merged = dataclasses.replace(
        largest,
        made=max(member.made for member in comparisons),
        seconds=math.fsum(member.seconds for member in comparisons),
        effort=min((member.effort for member in comparisons), key=_compute_effort_size),
        cells=tuple(
            sorted((cell for member in comparisons for cell in member.cells), key=lambda c: c.vcpus)
        ),
        complete=all(member.complete for member in comparisons),
        parts=_list_part_names(parts),
    )
    rows: dict[tuple[int, str], list[Overall]] = defaultdict(list)
    for row in itertools.chain.from_iterable(member.overall for member in comparisons):
        rows[row.vcpus, row.speedup.arm].append(row)
    overall = (_combine_rows(merged, same) for same in rows.values())
    return decide(
        dataclasses.replace(merged, overall=tuple(sorted(overall, key=lambda row: row.vcpus)))
    )


def _combine_rows(merged: Comparison, rows: Sequence[Overall]) -> Overall:
    """Combine an arm's means over different workloads at one number of vCPUs.

    Each workload has the same weight. There is no verdict if gates left too few blocks of a part.
    """
    if len(rows) == 1:
        return rows[0]
    vcpus, arm = rows[0].vcpus, rows[0].speedup.arm
    counts = [row.workloads for row in rows]
    speedup = combine_intervals([row.speedup.interval for row in rows], counts)
    noise = combine_intervals([row.noise for row in rows], counts).interval
    fair = all(row.speedup.confidence > 0 for row in rows)
    thresholds = Thresholds(
        floor=compute_floor(noise), threshold=merged.threshold, margin=merged.margin
    )
    return Overall(
        vcpus=vcpus,
        workloads=sum(counts),
        speedup=Speedup(
            arm=arm,
            interval=speedup.interval,
            verdict=choose_verdict(speedup, thresholds, fair=fair),
            confidence=speedup.confidence if fair else 0.0,
        ),
        noise=noise,
    )


def _list_part_names(parts: Sequence[Part]) -> tuple[str, ...]:
    """List the names of the parts; a part that was merged itself counts as its own parts."""
    return tuple(
        name for part_name, comparison in parts for name in (comparison.parts or (part_name,))
    )


def _compute_host_size(host: Host) -> tuple[object, ...]:
    vcpus = host.vcpus
    quota = math.inf if vcpus.quota is None else vcpus.quota
    return vcpus.usable, vcpus.machine, vcpus.affinity, quota, host.memory_bytes, host.affinity


def _compute_effort_size(effort: Effort) -> tuple[object, ...]:
    budget = math.inf if effort.budget_s is None else effort.budget_s
    return (
        effort.looks[-1:],
        effort.blocks,
        effort.phase_blocks,
        -effort.precision,
        budget,
        effort.looks,
    )


def _check_parts(parts: Sequence[Part]) -> None:
    if len(parts) < 2:  # noqa: PLR2004  (a pair)
        raise UsageError(f"cannot merge {len(parts)} comparisons", hint="Give at least two")
    names = _list_part_names(parts)
    duplicates = [name for name in names if names.count(name) > 1]
    if duplicates:
        raise UsageError(f"cannot merge {duplicates[0]} with itself")
    for part in parts[1:]:
        _check_pair(parts[0], part)
    _check_cells(parts)


def _check_pair(part: Part, other_part: Part) -> None:
    """Raise HostError or UsageError if two parts do not fit in one comparison."""
    (name, first), (other_name, second) = part, other_part
    between = f"cannot merge {name} and {other_name}"
    host_differences = compare_hosts(first.host, second.host)
    if host_differences:
        raise HostError(
            f"{between}: their machines differ: {'; '.join(map(str, host_differences))}",
            hint="Merge comparisons from one kind of machine, or report each separately",
        )
    for setting in _SETTINGS:
        values = getattr(first, setting), getattr(second, setting)
        if values[0] != values[1]:
            raise UsageError(f"{between}: {setting} differs ({values[0]} vs. {values[1]})")
    _check_arms(between, first, second)


def _check_arms(between: str, first: Comparison, second: Comparison) -> None:
    ours, theirs = ([arm.name for arm in comparison.arms] for comparison in (first, second))
    if sorted(ours) != sorted(theirs) or ours[:1] != theirs[:1]:
        raise UsageError(
            f"{between}: their arms differ ({', '.join(ours)} vs. {', '.join(theirs)})",
            hint="Merge comparisons with the same baseline and the same other arms",
        )
    arms = {arm.name: arm for arm in second.arms}
    mismatches = [
        difference for arm in first.arms for difference in compare_arms(arm, arms[arm.name])
    ]
    if mismatches:
        raise UsageError(f"{between}: their arms differ: {'; '.join(map(str, mismatches))}")


def _check_cells(parts: Sequence[Part]) -> None:
    sources: dict[tuple[str, int], str] = {}
    for name, comparison in parts:
        for cell in comparison.cells:
            earlier = sources.setdefault((cell.workload, cell.vcpus), name)
            if earlier != name:
                raise UsageError(
                    f"{cell.workload} on {console.format_vcpus(cell.vcpus)} is in both {earlier} "
                    f"and {name}",
                    hint="Exclude one of them",
                )
