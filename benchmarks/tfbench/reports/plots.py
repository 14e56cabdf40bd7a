"""Draw the report's figures as SVG. Pure."""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from tfbench.costs.bill import Bill, BillRow
from tfbench.costs.cost import Amount, get_value
from tfbench.inside.phases import JUDGED
from tfbench.inside.workloads import format_label
from tfbench.measuring import gates
from tfbench.measuring.samples import Sample
from tfbench.reports import wording
from tfbench.reports.canvas import WIDTH_IN, Drawing, create_drawing
from tfbench.reports.charts import (
    ChartGroup,
    ChartLine,
    ChartPoint,
    Track,
    describe_rows,
    plot_bars,
    plot_counts,
    plot_forest,
    plot_samples,
    plot_speedups,
)
from tfbench.reports.ladder import Ladder
from tfbench.reports.scaling import compute_scaling
from tfcore import console
from tfcore.comparisons.comparison import ComparedCell, Comparison, Speedup
from tfcore.comparisons.interval import Interval, Verdict

TONES = {Verdict.FASTER: "good", Verdict.SLOWER: "bad"}

# --- speedups -----------------------------------------------------------------------------------


def draw_speedups(comparison: Comparison, width_in: float = WIDTH_IN) -> Iterator[Drawing]:
    """Draw the speedups of every arm in every cell, a figure per number of vCPUs."""
    caption = (
        "Filled markers are faster or slower, open markers are equivalent or inconclusive. Lines "
        f"are {comparison.level:.0%} intervals."
    )
    numbers = _number_arms(comparison.candidates, first=1)

    def build_points(speedups: Mapping[str, Speedup]) -> Iterator[ChartPoint]:
        for arm, series in numbers.items():
            if arm in speedups:
                tone = TONES.get(speedups[arm].verdict, "muted")
                yield _build_speedup_point(speedups[arm], series, tone)
            else:
                yield ChartPoint(label=arm, series=series, amount=None, note="no result")

    yield from _draw_forests(comparison, "speedups", "Speedup", caption, build_points, width_in)


def draw_ladder(comparison: Comparison, ladder: Ladder) -> Iterator[Drawing]:
    """Draw the rungs of every workload, a figure per number of vCPUs and a marker per wheel."""
    caption = (
        "Each rung adds one setting; each wheel has its own marker. Filled markers are faster or "
        "slower, open markers are equivalent or inconclusive."
    )

    def build_points(known: Mapping[str, Speedup]) -> Iterator[ChartPoint]:
        for rung, (series, wheel) in itertools.product(ladder.rungs, enumerate(ladder.wheels)):
            if speedup := known.get(ladder.find_arm(rung, wheel)):
                yield _build_speedup_point(speedup, series)

    yield from _draw_forests(comparison, "ladder", "Ladder", caption, build_points)


def _build_speedup_point(speedup: Speedup, series: int, tone: str = "") -> ChartPoint:
    return ChartPoint(
        label=speedup.arm,
        series=series,
        amount=speedup.interval,
        note=wording.format_factor(speedup.interval.value),
        tone=tone,
        solid=speedup.verdict in TONES,
    )


def _draw_forests(
    comparison: Comparison,
    name: str,
    title: str,
    caption: str,
    points: Callable[[Mapping[str, Speedup]], Iterable[ChartPoint]],
    width_in: float = WIDTH_IN,
) -> Iterator[Drawing]:
    """Draw a forest plot per number of vCPUs. `points` returns the rows of speedups, which it
    takes by arm.
    """
    for vcpus, cells in _group_by_vcpus(comparison):
        groups = [
            ChartGroup(label=label, points=rows, band=band)
            for label, speedups, band in _list_speedups(comparison, vcpus, cells)
            if (rows := tuple(points({speedup.arm: speedup for speedup in speedups})))
        ]
        axis = f"speedup over {comparison.baseline}"
        if any(row.amount for group in groups for row in group.points):
            yield create_drawing(
                functools.partial(plot_forest, groups, axis, width_in),
                key=f"{name}-{vcpus}",
                title=f"{title} on {console.format_vcpus(vcpus)}",
                caption=f"{caption} Shaded boxes are A/A: {comparison.baseline} against itself.",
                description=describe_rows(groups, wording.format_factor_span),
            )


def _group_by_vcpus(comparison: Comparison) -> Iterator[tuple[int, list[ComparedCell]]]:
    for vcpus in dict.fromkeys(cell.vcpus for cell in comparison.cells):
        yield vcpus, [cell for cell in comparison.cells if cell.vcpus == vcpus]


def _list_speedups(
    comparison: Comparison, vcpus: int, cells: Iterable[ComparedCell]
) -> Iterator[tuple[str, Sequence[Speedup], Interval | None]]:
    """Yield the label, speedups and A/A interval of each cell, then those of the geometric
    means.
    """
    for cell in cells:
        yield format_label(cell.workload), cell.speedups, cell.noise
    means = [overall.speedup for overall in comparison.overall if overall.vcpus == vcpus]
    if means:
        yield "geometric mean", means, _compute_bands(comparison)[vcpus]


def _compute_bands(comparison: Comparison) -> dict[int, Interval]:
    """Return the widest A/A interval of the means by number of vCPUs. Intervals differ if an arm
    failed in some cells.
    """
    bands: dict[int, Interval] = {}
    for overall in comparison.overall:
        widest = bands.get(overall.vcpus, overall.noise)
        bands[overall.vcpus] = max(widest, overall.noise, key=lambda noise: noise.reach)
    return bands


def _number_arms(names: Iterable[str], first: int = 0) -> dict[str, int]:
    """Return a number for each arm, which selects its marker."""
    return {name: number for number, name in enumerate(names, start=first)}


# --- over vCPUs ---------------------------------------------------------------------------------


def draw_scaling(comparison: Comparison) -> Iterator[Drawing]:
    """Draw each arm's geometric mean by number of vCPUs in one figure; yield nothing if there
    are no means.
    """
    means = (
        (overall.vcpus, overall.speedup.arm, overall.speedup.interval)
        for overall in comparison.overall
    )
    numbers = _number_arms(comparison.candidates, first=1)
    yield from _draw_scaling(
        means, numbers, _compute_bands(comparison), f"Speedup over {comparison.baseline}"
    )


def draw_throughput(comparison: Comparison) -> Iterator[Drawing]:
    """Draw each arm's throughput by number of vCPUs, relative to the fewest; yield nothing if there
    is one number.
    """
    scalings = compute_scaling(comparison)
    numbers = _number_arms([comparison.baseline, *comparison.candidates])
    lines = [
        ChartLine(
            label=scaling.arm,
            series=numbers[scaling.arm],
            amounts=tuple((point.vcpus, point.throughput) for point in scaling.points),
        )
        for scaling in scalings
    ]
    if not lines:
        return
    first = console.format_vcpus(scalings[0].points[0].vcpus)
    axis = f"throughput ({first}: 1)"
    yield create_drawing(
        functools.partial(plot_counts, lines, "vCPUs", axis),
        key="throughput",
        title="Throughput, geometric mean of the workloads",
        caption=f"Relative to each arm's own on {first}. Lines are intervals.",
        description=f"{axis}: {_describe_lines(lines)}.",
    )


def _describe_lines(lines: Iterable[ChartLine]) -> str:
    return "; ".join(
        f"{line.label} {wording.format_factor_span(amount)} on {console.format_vcpus(vcpus)}"
        for line in lines
        for vcpus, amount in line.amounts
    )


def draw_bill_scaling(bill: Bill, quantity: str) -> Iterator[Drawing]:
    """Draw the geometric means of a bill's speedups by number of vCPUs."""
    yield from _draw_scaling(bill.speedups, _number_bill_arms(bill), {}, quantity)


def _draw_scaling(
    means: Iterable[tuple[int, str, Amount]],
    numbers: Mapping[str, int],
    bands: Mapping[int, Interval],
    quantity: str,
) -> Iterator[Drawing]:
    amounts_by_arm: dict[str, list[tuple[int, Amount]]] = defaultdict(list)
    for vcpus, arm, amount in means:
        amounts_by_arm[arm].append((vcpus, amount))
    lines = [
        ChartLine(label=arm, series=numbers[arm], amounts=tuple(amounts))
        for arm, amounts in amounts_by_arm.items()
    ]
    if not lines:
        return
    yield create_drawing(
        functools.partial(plot_speedups, lines, bands),
        key="scaling",
        title="Geometric mean of all workloads",
        caption=f"{quantity}."
        + (" Shaded boxes are A/A: the baseline against itself." if bands else ""),
        description=f"{quantity}: {_describe_lines(lines)}.",
    )


# --- relative to the baseline -------------------------------------------------------------------


def draw_bill_figures(bill: Bill) -> Iterator[Drawing]:
    """Draw the time of a training run relative to the bill's baseline, then the cost, a figure
    per workload each.
    """
    yield from _draw_bill_figures(bill, "time", lambda row: row.relative_time)
    yield from _draw_bill_figures(bill, "cost", lambda row: row.relative_cost)


def _draw_bill_figures(
    bill: Bill, quantity: str, amount: Callable[[BillRow], Amount]
) -> Iterator[Drawing]:
    """Draw a figure per workload with a group per number of vCPUs. A machine without a number of
    vCPUs has no heading.
    """
    numbers = _number_bill_arms(bill)
    for position, workload in enumerate(dict.fromkeys(row.workload for row in bill.rows)):
        rows = [row for row in bill.rows if row.workload == workload]
        groups = [
            ChartGroup(
                label="" if vcpus is None else console.format_vcpus(vcpus),
                points=tuple(
                    _build_relative_point(row.arm, numbers[row.arm], amount(row))
                    for row in rows
                    if row.vcpus == vcpus
                ),
            )
            for vcpus in dict.fromkeys(row.vcpus for row in rows)
        ]
        axis = f"{quantity} of a run ({bill.baseline}: 1)"
        yield create_drawing(
            functools.partial(plot_bars, groups, axis),
            key=f"run-{quantity}-{position}",
            title=f"{workload}: {quantity}",
            caption="",
            description=f"{axis}. {describe_rows(groups, wording.format_relative)}",
        )


def _number_bill_arms(bill: Bill) -> dict[str, int]:
    return _number_arms(dict.fromkeys(row.arm for row in bill.rows))


def _build_relative_point(arm: str, series: int, amount: Amount) -> ChartPoint:
    digits = 3 if isinstance(amount, Interval) else 2
    return ChartPoint(
        label=arm, series=series, amount=amount, note=f"{get_value(amount):.{digits}f}"
    )


# --- how it was measured --------------------------------------------------------------------------


def draw_samples(comparison: Comparison, taken: Iterable[Sample]) -> Iterator[Drawing]:
    """Draw milliseconds per step over time, a figure per cell."""
    cells: dict[tuple[str, int], list[Sample]] = defaultdict(list)
    for sample in taken:
        if sample.phase in JUDGED:
            cells[sample.workload, sample.vcpus].append(sample)
    arms = [arm.name for arm in comparison.arms]
    for position, cell in enumerate(comparison.cells):
        if cell_samples := cells.get((cell.workload, cell.vcpus)):
            yield _draw_timeline(f"samples-{position}", cell, cell_samples, arms)


def _draw_timeline(
    key: str, cell: ComparedCell, taken: Sequence[Sample], arms: Sequence[str]
) -> Drawing:
    starts = _compute_launch_starts(taken)
    # The baseline's second worker comes last, so that the arms keep their markers.
    by_arm: dict[str, list[Sample]] = {arm: [] for arm in arms}
    blocks: dict[tuple[int, int], list[Sample]] = defaultdict(list)
    for sample in taken:
        by_arm.setdefault(sample.arm, []).append(sample)
        blocks[sample.launch, sample.block].append(sample)
    samples_by_arm = {arm: arm_samples for arm, arm_samples in by_arm.items() if arm_samples}
    tracks = [
        Track(
            label=arm,
            series=number,
            passed=tuple(_compute_minute(starts, arm_sample) for arm_sample in arm_samples),
            values=tuple(1000 * arm_sample.wall_s / arm_sample.steps for arm_sample in arm_samples),
        )
        for number, (arm, arm_samples) in enumerate(samples_by_arm.items())
    ]
    dropped = [
        _compute_minute(starts, block[0])
        for block in blocks.values()
        if gates.list_drop_reasons(block)
    ]
    walls = [value for track in tracks for value in track.values]
    return create_drawing(
        functools.partial(plot_samples, tracks, list(starts.values()), dropped),
        key=key,
        title=wording.format_cell(cell.workload, cell.vcpus),
        caption="",
        description=(
            f"{len(walls)} samples in "
            f"{console.format_count(len(starts), 'launch', 'launches')}, from "
            f"{min(walls):.2f} to {max(walls):.2f} milliseconds per step. "
            f"{console.format_count(len(dropped), 'block')} dropped."
        ),
    )


def _compute_launch_starts(taken: Sequence[Sample]) -> dict[int, float]:
    """Return the minute at which each launch began, without the time between launches."""
    starts, minute = {}, 0.0
    for launch in sorted({sample.launch for sample in taken}):
        starts[launch] = minute
        minute += max(sample.at_s for sample in taken if sample.launch == launch) / 60
    return starts


def _compute_minute(starts: Mapping[int, float], sample: Sample) -> float:
    return starts[sample.launch] + sample.at_s / 60
