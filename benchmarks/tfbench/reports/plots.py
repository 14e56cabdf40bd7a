"""The report's figures. Pure: records in, SVG out."""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from matplotlib.figure import Figure

from tfbench.costs.bill import Bill, BillRow
from tfbench.costs.cost import Amount, inverse, point
from tfbench.inside.phases import JUDGED
from tfbench.inside.workloads import label_of
from tfbench.measuring import gates
from tfbench.measuring.samples import Sample
from tfbench.reports import findings, wording
from tfbench.reports.canvas import WIDTH_IN, Drawing, drawing
from tfbench.reports.charts import (
    ChartGroup,
    ChartLine,
    ChartPoint,
    Track,
    bars,
    forest,
    narrowing,
    over_time,
    over_vcpus,
)
from tfbench.reports.ladder import Ladder
from tfbuild import console
from tfbuild.measured.comparison import ComparedCell, Comparison, Speedup
from tfbuild.measured.interval import Interval, Verdict

TONES = {Verdict.FASTER: "good", Verdict.SLOWER: "bad"}

# --- speedups -----------------------------------------------------------------------------------


def speedups(comparison: Comparison, width_in: float = WIDTH_IN) -> Iterator[Drawing]:
    """Every arm of every cell, a figure per number of vCPUs."""
    caption = (
        "Filled marks are verdicts, faster or slower; open ones are within noise or inconclusive. "
        f"Lines are {comparison.level:.0%} intervals."
    )
    points = functools.partial(_arm_points, findings.candidates(comparison))
    yield from _forests(comparison, "speedups", "Speedup", caption, points, width_in)


def _forests(
    comparison: Comparison,
    name: str,
    title: str,
    caption: str,
    points: Callable[[Sequence[Speedup]], Iterable[ChartPoint]],
    width_in: float = WIDTH_IN,
) -> Iterator[Drawing]:
    for vcpus, cells in _by_vcpus(comparison):
        groups = [
            ChartGroup(label=label, points=rows, band=band)
            for label, found, band in _measured(comparison, vcpus, cells)
            if (rows := tuple(points(found)))
        ]
        axis = f"speedup over {comparison.baseline}"
        if any(row.amount for group in groups for row in group.points):
            yield drawing(
                functools.partial(forest, groups, axis, width_in),
                key=f"{name}-{vcpus}",
                title=f"{title} on {console.vcpus(vcpus)}",
                caption=f"{caption} The shaded boxes are {comparison.baseline} against itself.",
                description=_described(groups),
            )


def _by_vcpus(comparison: Comparison) -> Iterator[tuple[int, list[ComparedCell]]]:
    for vcpus in dict.fromkeys(cell.vcpus for cell in comparison.cells):
        yield vcpus, [cell for cell in comparison.cells if cell.vcpus == vcpus]


def _measured(
    comparison: Comparison, vcpus: int, cells: Iterable[ComparedCell]
) -> Iterator[tuple[str, Sequence[Speedup], Interval | None]]:
    """Each cell's speedups and A/A interval, then the means with the widest of theirs: arms that
    failed somewhere have their own."""
    for cell in cells:
        yield label_of(cell.workload), cell.speedups, cell.noise
    means = [each for each in comparison.overall if each.vcpus == vcpus]
    if means:
        band = max((each.noise for each in means), key=_reach)
        yield "geometric mean", [each.speedup for each in means], band


def _arm_points(arms: Sequence[str], speedups: Iterable[Speedup]) -> Iterator[ChartPoint]:
    found = {each.arm: each for each in speedups}
    for number, arm in enumerate(arms, start=1):
        yield _speedup_point(arm, number, found.get(arm))


def _numbers(comparison: Comparison) -> dict[str, int]:
    """Each arm's place, which gives it its marker."""
    names = (comparison.baseline, *findings.candidates(comparison))
    return {name: number for number, name in enumerate(names)}


def _speedup_point(arm: str, series: int, speedup: Speedup | None) -> ChartPoint:
    if speedup is None:
        return ChartPoint(label=arm, series=series, amount=None, note="no answer")
    return ChartPoint(
        label=arm,
        series=series,
        amount=speedup.interval,
        note=wording.factor(speedup.interval.value),
        tone=TONES.get(speedup.verdict, "muted"),
        solid=speedup.verdict in TONES,
    )


def _described(groups: Sequence[ChartGroup]) -> str:
    """Rows of speedups in words."""
    return " ".join(
        f"{each.label}: {'; '.join(map(_described_row, each.points))}." for each in groups
    )


def _described_row(row: ChartPoint) -> str:
    return f"{row.label} {row.note if row.amount is None else wording.factor_span(row.amount)}"


def ladder(comparison: Comparison, found: Ladder) -> Iterator[Drawing]:
    """Every workload's rungs, a figure per number of vCPUs; wheels have a marker each."""
    caption = (
        "From rung to rung one thing is added; each wheel has a marker of its own. Filled marks "
        "are verdicts, open ones within noise or inconclusive."
    )
    points = functools.partial(_rung_points, found)
    yield from _forests(comparison, "ladder", "Ladder", caption, points)


def _rung_points(found: Ladder, speedups: Iterable[Speedup]) -> Iterator[ChartPoint]:
    known = {each.arm: each for each in speedups}
    for rung, wheel in itertools.product(found.rungs, found.wheels):
        arm = found.arm(rung, wheel)
        if arm in known:
            yield ChartPoint(
                label=arm,
                series=found.wheels.index(wheel),
                amount=known[arm].interval,
                note=wording.factor(known[arm].interval.value),
                solid=known[arm].verdict in TONES,
            )


def _reach(noise: Interval) -> float:
    return noise.reach


# --- over vCPUs ---------------------------------------------------------------------------------


def scaling(comparison: Comparison) -> Iterator[Drawing]:
    """Each arm's geometric mean by vCPUs, in one figure; none without one."""
    means: dict[str, list[tuple[int, Amount]]] = defaultdict(list)
    for each in comparison.overall:
        means[each.speedup.arm].append((each.vcpus, each.speedup.interval))
    bands: dict[int, Interval] = {}
    for each in comparison.overall:
        known = bands.get(each.vcpus, each.noise)
        bands[each.vcpus] = max(known, each.noise, key=_reach)
    yield from _scaling(means, _numbers(comparison), bands, f"Speedup over {comparison.baseline}")


def bill_scaling(bill: Bill, what: str) -> Iterator[Drawing]:
    """The same of a bill's speedups."""
    means: dict[str, list[tuple[int, Amount]]] = defaultdict(list)
    for vcpus, arm, amount in bill.speedups:
        means[arm].append((vcpus, amount))
    yield from _scaling(means, _bill_numbers(bill), {}, what)


def _scaling(
    means: Mapping[str, Sequence[tuple[int, Amount]]],
    numbers: Mapping[str, int],
    bands: Mapping[int, Interval],
    what: str,
) -> Iterator[Drawing]:
    lines = [
        ChartLine(label=arm, series=numbers[arm], amounts=tuple(amounts))
        for arm, amounts in means.items()
    ]
    if not lines:
        return
    values = "; ".join(
        f"{line.label} {wording.factor_span(amount)} on {console.vcpus(vcpus)}"
        for line in lines
        for vcpus, amount in line.amounts
    )
    yield drawing(
        functools.partial(over_vcpus, lines, bands),
        key="scaling",
        title="Geometric mean of all workloads",
        caption=f"{what}."
        + (" The shaded boxes are the baseline against itself." if bands else ""),
        description=f"{what}: {values}.",
    )


# --- relative to the baseline -------------------------------------------------------------------


def times(comparison: Comparison) -> Iterator[Drawing]:
    """Time of a step over the baseline's at the same number of vCPUs, a figure per workload."""
    numbers = _numbers(comparison)
    workloads = dict.fromkeys(cell.workload for cell in comparison.cells)
    for place, workload in enumerate(workloads):
        groups = [
            ChartGroup(
                label=console.vcpus(cell.vcpus),
                points=tuple(
                    _relative(each.arm, numbers[each.arm], inverse(each.interval))
                    for each in cell.speedups
                ),
            )
            for cell in comparison.cells
            if cell.workload == workload and cell.speedups
        ]
        if groups:
            axis = f"time per step ({comparison.baseline}: 1)"
            yield _relatives(forest, groups, f"time-{place}", label_of(workload), axis)


def bill_times(bill: Bill) -> Iterator[Drawing]:
    """Time of a training run over that of the bill's baseline, a figure per workload."""
    for place, (workload, rows) in enumerate(_by_workload(bill)):
        groups = _bill_groups(bill, [(row, row.relative_time) for row in rows])
        axis = f"time of a run ({bill.baseline}: 1)"
        yield _relatives(bars, groups, f"run-time-{place}", f"{workload}: time", axis)


def bill_costs(bill: Bill) -> Iterator[Drawing]:
    """Cost of a training run, likewise."""
    for place, (workload, rows) in enumerate(_by_workload(bill)):
        groups = _bill_groups(bill, [(row, row.relative_cost) for row in rows])
        axis = f"cost of a run ({bill.baseline}: 1)"
        yield _relatives(bars, groups, f"run-cost-{place}", f"{workload}: cost", axis)


def _by_workload(bill: Bill) -> Iterator[tuple[str, list[BillRow]]]:
    for workload in dict.fromkeys(row.workload for row in bill.rows):
        yield workload, [row for row in bill.rows if row.workload == workload]


def _bill_numbers(bill: Bill) -> dict[str, int]:
    return {arm: number for number, arm in enumerate(dict.fromkeys(r.arm for r in bill.rows))}


def _bill_groups(bill: Bill, amounts: Sequence[tuple[BillRow, Amount]]) -> list[ChartGroup]:
    """One group per number of vCPUs; machines that are not about vCPUs have no heading."""
    numbers = _bill_numbers(bill)
    return [
        ChartGroup(
            label="" if vcpus is None else console.vcpus(vcpus),
            points=tuple(
                _relative(row.arm, numbers[row.arm], amount)
                for row, amount in amounts
                if row.vcpus == vcpus
            ),
        )
        for vcpus in dict.fromkeys(row.vcpus for row, _ in amounts)
    ]


def _relative(arm: str, series: int, amount: Amount) -> ChartPoint:
    digits = 3 if isinstance(amount, Interval) else 2
    return ChartPoint(label=arm, series=series, amount=amount, note=f"{point(amount):.{digits}f}")


def _relatives(
    chart: Callable[[Sequence[ChartGroup], str], Figure],
    groups: Sequence[ChartGroup],
    key: str,
    title: str,
    axis: str,
) -> Drawing:
    values = "; ".join(
        f"{group.label} {row.label} {wording.relative(row.amount)}".lstrip()
        for group in groups
        for row in group.points
        if row.amount is not None
    )
    return drawing(
        functools.partial(chart, groups, axis),
        key=key,
        title=title,
        caption="",
        description=f"{axis}. {values}.",
    )


# --- how it was measured --------------------------------------------------------------------------


def looks(comparison: Comparison) -> Iterator[Drawing]:
    """How the widest interval of each cell became narrower, a figure per number of vCPUs."""
    for vcpus, cells in _by_vcpus(comparison):
        tracks = [
            Track(
                label=cell.workload,
                minutes=tuple(look.seconds / 60 for look in cell.looks),
                values=tuple(100 * look.half_width for look in cell.looks),
            )
            for cell in cells
            if cell.looks
        ]
        values = "; ".join(
            f"{track.label} {track.values[-1]:.2f}% after {track.minutes[-1]:.1f} minutes"
            for track in tracks
        )
        if tracks:
            yield drawing(
                functools.partial(narrowing, tracks, 100 * comparison.effort.precision),
                key=f"looks-{vcpus}",
                title=f"Half-width against time on {console.vcpus(vcpus)}",
                caption="Of each cell's widest interval; the line is what was asked for.",
                description=f"Half-width of the widest interval: {values}.",
            )


def samples(comparison: Comparison, taken: Iterable[Sample]) -> Iterator[Drawing]:
    """Milliseconds per step as they came, a figure per cell."""
    cells: dict[tuple[str, int], list[Sample]] = defaultdict(list)
    for sample in taken:
        if sample.phase in JUDGED:
            cells[sample.workload, sample.vcpus].append(sample)
    arms = [arm.name for arm in comparison.arms]
    for place, cell in enumerate(comparison.cells):
        if found := cells.get((cell.workload, cell.vcpus)):
            yield _timeline(f"samples-{place}", cell, found, arms)


def _timeline(
    key: str, cell: ComparedCell, taken: Sequence[Sample], arms: Sequence[str]
) -> Drawing:
    starts = _starts(taken)
    # The baseline's second worker comes after the arms, which so keep their markers.
    names = dict.fromkeys([*arms, *(sample.arm for sample in taken)])
    tracks = [
        Track(
            label=name,
            minutes=tuple(_minute(starts, each) for each in mine),
            values=tuple(map(_step_ms, mine)),
        )
        for name in names
        if (mine := [sample for sample in taken if sample.arm == name])
    ]
    dropped = [_minute(starts, block[0]) for block in _blocks(taken) if gates.reasons(block)]
    walls = [value for track in tracks for value in track.values]
    return drawing(
        functools.partial(over_time, tracks, list(starts.values()), dropped),
        key=key,
        title=wording.place(cell.workload, cell.vcpus),
        caption="",
        description=(
            f"{len(walls)} samples in {console.count(len(starts), 'launch', 'launches')}, from "
            f"{min(walls):.2f} to {max(walls):.2f} milliseconds per step. "
            f"{console.count(len(dropped), 'block')} of no measurement."
        ),
    )


def _starts(taken: Sequence[Sample]) -> dict[int, float]:
    """The minute at which each launch began, were there no time between launches."""
    starts, now = {}, 0.0
    for launch in sorted({sample.launch for sample in taken}):
        starts[launch] = now
        now += max(sample.at_s for sample in taken if sample.launch == launch) / 60
    return starts


def _minute(starts: Mapping[int, float], sample: Sample) -> float:
    return starts[sample.launch] + sample.at_s / 60


def _blocks(taken: Iterable[Sample]) -> list[list[Sample]]:
    blocks: dict[tuple[int, int], list[Sample]] = defaultdict(list)
    for sample in taken:
        blocks[sample.launch, sample.block].append(sample)
    return list(blocks.values())


def _step_ms(sample: Sample) -> float:
    return 1000 * sample.wall_s / sample.steps
