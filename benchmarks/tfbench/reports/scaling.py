"""How an arm's throughput grows with the number of vCPUs. Pure.

Throughput is relative to that on the fewest vCPUs, the geometric mean of the workloads that the arm
ran on every number of vCPUs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tfbench.costs.cost import Amount, compute_geometric_mean, compute_ratio, get_ends, get_value
from tfbench.reports import wording
from tfbench.reports.document import Section, build_list, build_table_section
from tfcore.comparisons.comparison import Comparison
from tfcore.comparisons.host import Host
from tfcore.comparisons.interval import Interval
from tfcore.console import format_count, format_vcpus

KEY = "throughput"
_SHARE = 0.5
"""An added vCPU is worth it if it adds at least this share of the throughput of a first one."""
_METHOD = (
    "Throughput is relative to the fewest vCPUs, the geometric mean over the workloads that ran on "
    "all of them. Per vCPU is the throughput of a vCPU, also relative. Added vCPUs are those "
    "beyond the row before; their share is what each of them adds, relative to a vCPU of the first "
    "row."
)
_NAMES = ("arm", "#vCPUs", "cores", "#throughput", "#per vCPU", "#share of added")


@dataclass(frozen=True, kw_only=True, slots=True)
class ScalingPoint:
    """The throughput on a number of vCPUs. `added` is None for the fewest."""

    vcpus: int
    throughput: Amount
    efficiency: float
    added: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmScaling:
    """The points of an arm, from the fewest vCPUs to the most."""

    arm: str
    points: tuple[ScalingPoint, ...]

    @property
    def knee(self) -> int:
        """Return the vCPUs before the first step in which an added one is not worth it."""
        best = self.points[0].vcpus
        for point in self.points[1:]:
            if point.added is None or point.added < _SHARE:
                break
            best = point.vcpus
        return best

    @property
    def drop(self) -> tuple[int, int] | None:
        """Return the first vCPUs beyond the best that are slower than it, beyond their intervals,
        and the best; None if there are none.
        """
        best = max(self.points, key=lambda point: get_value(point.throughput))
        for point in self.points[self.points.index(best) :]:
            if get_ends(point.throughput)[2] < get_ends(best.throughput)[0]:
                return point.vcpus, best.vcpus
        return None


def compute_scaling(comparison: Comparison) -> tuple[ArmScaling, ...]:
    """Compute the scaling of the baseline and of every arm; empty with one number of vCPUs."""
    counts = sorted({cell.vcpus for cell in comparison.cells})
    if len(counts) < 2:  # noqa: PLR2004  (one number does not scale)
        return ()
    scalings: list[ArmScaling] = []
    for arm in (comparison.baseline, *comparison.candidates):
        steps = _list_steps(comparison, arm)
        common = [name for name, times in steps.items() if len(times) == len(counts)]
        if common:
            ratios = {
                vcpus: compute_geometric_mean(
                    [compute_ratio(steps[name][counts[0]], steps[name][vcpus]) for name in common]
                )
                for vcpus in counts[1:]
            }
            scalings.append(build_scaling(arm, {counts[0]: 1.0} | ratios))
    return tuple(scalings)


def _list_steps(comparison: Comparison, arm: str) -> Mapping[str, dict[int, Interval]]:
    """Return the arm's times of a step by workload and number of vCPUs."""
    steps: dict[str, dict[int, Interval]] = {}
    for cell in comparison.cells:
        times = cell.get_result(arm).times
        if times and times.step_ms and cell.agrees:
            steps.setdefault(cell.workload, {})[cell.vcpus] = times.step_ms
    return steps


def build_scaling(arm: str, throughputs: Mapping[int, Amount]) -> ArmScaling:
    """Build the points from the throughput on each number of vCPUs, the fewest first."""
    first = next(iter(throughputs))
    points: list[ScalingPoint] = []
    for vcpus, throughput in throughputs.items():
        value = get_value(throughput)
        added = None
        if points:
            gain = value - get_value(points[-1].throughput)
            added = gain * first / (vcpus - points[-1].vcpus)
        points.append(
            ScalingPoint(
                vcpus=vcpus, throughput=throughput, efficiency=value * first / vcpus, added=added
            )
        )
    return ArmScaling(arm=arm, points=tuple(points))


def build_section(comparison: Comparison) -> Section:
    """Build the section; it is empty with one number of vCPUs."""
    scalings = compute_scaling(comparison)
    rows = (
        (
            *(scaling.arm, str(point.vcpus), describe_cpus(comparison.host, point.vcpus)),
            wording.format_factor_span(point.throughput),
            wording.format_share(point.efficiency, 0),
            "" if point.added is None else wording.format_share(point.added, 0),
        )
        for scaling in scalings
        for point in scaling.points
    )
    section = build_table_section(
        KEY, "Throughput by number of vCPUs", "Throughput", _NAMES, rows, _METHOD
    )
    if not scalings:
        return section
    lines = (line for scaling in scalings for line in list_lines(scaling))
    return Section(key=KEY, heading=section.heading, blocks=(*section.blocks, *build_list(lines)))


def list_lines(scaling: ArmScaling) -> Iterator[str]:
    """Yield where more vCPUs are no longer worth it, and where they make the arm slower."""
    counts = [point.vcpus for point in scaling.points]
    if scaling.knee == counts[-1]:
        yield f"{scaling.arm}: every added vCPU is worth it up to {format_vcpus(counts[-1])}"
    else:
        after = counts[counts.index(scaling.knee) + 1]
        yield (
            f"{scaling.arm}: from {format_vcpus(scaling.knee)} to {after}, an added vCPU adds less "
            f"than {wording.format_share(_SHARE, 0)} of a first one"
        )
    if scaling.drop is not None:
        slower, best = scaling.drop
        yield f"{scaling.arm}: slower on {format_vcpus(slower)} than on {best}"


def describe_cpus(host: Host, vcpus: int) -> str:
    """Describe the cores and NUMA nodes of the first CPUs; empty if the host does not know them."""
    cores, nodes = set(host.cores[:vcpus]), set(host.nodes[:vcpus])
    if len(host.cores) < vcpus or len(host.nodes) < vcpus:
        return ""
    text = format_count(len(cores), "core")
    return f"{text}, {format_count(len(nodes), 'NUMA node')}" if len(nodes) > 1 else text
