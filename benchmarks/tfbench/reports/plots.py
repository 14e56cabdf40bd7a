"""The report's figures. Pure: records in, SVG out."""

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
from tfbench.reports import findings, wording
from tfbench.reports.canvas import WIDTH_IN, Drawing, drawing
from tfbench.reports.charts import (
    ChartGroup,
    ChartLine,
    ChartPoint,
    Track,
    bars,
    described,
    forest,
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
    numbers = _numbers(findings.candidates(comparison), first=1)

    def points(found: Mapping[str, Speedup]) -> Iterator[ChartPoint]:
        for arm, series in numbers.items():
            if arm in found:
                tone = TONES.get(found[arm].verdict, "muted")
                yield _speedup_point(found[arm], series, tone)
            else:
                yield ChartPoint(label=arm, series=series, amount=None, note="no answer")

    yield from _forests(comparison, "speedups", "Speedup", caption, points, width_in)


def ladder(comparison: Comparison, found: Ladder) -> Iterator[Drawing]:
    """Every workload's rungs, a figure per number of vCPUs; wheels have a marker each."""
    caption = (
        "From rung to rung one thing is added; each wheel has a marker of its own. Filled marks "
        "are verdicts, open ones within noise or inconclusive."
    )

    def points(known: Mapping[str, Speedup]) -> Iterator[ChartPoint]:
        for rung, (series, wheel) in itertools.product(found.rungs, enumerate(found.wheels)):
            if speedup := known.get(found.arm(rung, wheel)):
                yield _speedup_point(speedup, series)

    yield from _forests(comparison, "ladder", "Ladder", caption, points)


def _speedup_point(speedup: Speedup, series: int, tone: str = "") -> ChartPoint:
    return ChartPoint(
        label=speedup.arm,
        series=series,
        amount=speedup.interval,
        note=wording.factor(speedup.interval.value),
        tone=tone,
        solid=speedup.verdict in TONES,
    )


def _forests(
    comparison: Comparison,
    name: str,
    title: str,
    caption: str,
    points: Callable[[Mapping[str, Speedup]], Iterable[ChartPoint]],
    width_in: float = WIDTH_IN,
) -> Iterator[Drawing]:
    """`points` are the rows of some speedups, by their arms."""
    for vcpus, cells in _by_vcpus(comparison):
        groups = [
            ChartGroup(label=label, points=rows, band=band)
            for label, found, band in _measured(comparison, vcpus, cells)
            if (rows := tuple(points({each.arm: each for each in found})))
        ]
        axis = f"speedup over {comparison.baseline}"
        if any(row.amount for group in groups for row in group.points):
            yield drawing(
                functools.partial(forest, groups, axis, width_in),
                key=f"{name}-{vcpus}",
                title=f"{title} on {console.format_vcpus(vcpus)}",
                caption=f"{caption} The shaded boxes are {comparison.baseline} against itself.",
                description=described(groups, wording.factor_span),
            )


def _by_vcpus(comparison: Comparison) -> Iterator[tuple[int, list[ComparedCell]]]:
    for vcpus in dict.fromkeys(cell.vcpus for cell in comparison.cells):
        yield vcpus, [cell for cell in comparison.cells if cell.vcpus == vcpus]


def _measured(
    comparison: Comparison, vcpus: int, cells: Iterable[ComparedCell]
) -> Iterator[tuple[str, Sequence[Speedup], Interval | None]]:
    """Each cell's speedups and A/A interval, then the means."""
    for cell in cells:
        yield format_label(cell.workload), cell.speedups, cell.noise
    means = [each.speedup for each in comparison.overall if each.vcpus == vcpus]
    if means:
        yield "geometric mean", means, _bands(comparison)[vcpus]


def _bands(comparison: Comparison) -> dict[int, Interval]:
    """The widest A/A interval of the means by vCPUs: arms that failed somewhere have their own."""
    bands: dict[int, Interval] = {}
    for each in comparison.overall:
        known = bands.get(each.vcpus, each.noise)
        bands[each.vcpus] = max(known, each.noise, key=lambda noise: noise.reach)
    return bands


def _numbers(names: Iterable[str], first: int = 0) -> dict[str, int]:
    """Each arm's place, which gives it its marker."""
    return {name: number for number, name in enumerate(names, start=first)}


# --- over vCPUs ---------------------------------------------------------------------------------


def scaling(comparison: Comparison) -> Iterator[Drawing]:
    """Each arm's geometric mean by vCPUs, in one figure; none without one."""
    means = ((each.vcpus, each.speedup.arm, each.speedup.interval) for each in comparison.overall)
    numbers = _numbers(findings.candidates(comparison), first=1)
    yield from _scaling(means, numbers, _bands(comparison), f"Speedup over {comparison.baseline}")


def bill_scaling(bill: Bill, what: str) -> Iterator[Drawing]:
    """The same of a bill's speedups."""
    yield from _scaling(bill.speedups, _bill_numbers(bill), {}, what)


def _scaling(
    means: Iterable[tuple[int, str, Amount]],
    numbers: Mapping[str, int],
    bands: Mapping[int, Interval],
    what: str,
) -> Iterator[Drawing]:
    found: dict[str, list[tuple[int, Amount]]] = defaultdict(list)
    for vcpus, arm, amount in means:
        found[arm].append((vcpus, amount))
    lines = [
        ChartLine(label=arm, series=numbers[arm], amounts=tuple(amounts))
        for arm, amounts in found.items()
    ]
    if not lines:
        return
    values = "; ".join(
        f"{line.label} {wording.factor_span(amount)} on {console.format_vcpus(vcpus)}"
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


def bill_figures(bill: Bill) -> Iterator[Drawing]:
    """Time of a training run over that of the bill's baseline, then cost: a figure per workload."""
    yield from _bill_figures(bill, "time", lambda row: row.relative_time)
    yield from _bill_figures(bill, "cost", lambda row: row.relative_cost)


def _bill_figures(bill: Bill, what: str, amount: Callable[[BillRow], Amount]) -> Iterator[Drawing]:
    """One group per number of vCPUs; machines that are not about vCPUs have no heading."""
    numbers = _bill_numbers(bill)
    for place, workload in enumerate(dict.fromkeys(row.workload for row in bill.rows)):
        rows = [row for row in bill.rows if row.workload == workload]
        groups = [
            ChartGroup(
                label="" if vcpus is None else console.format_vcpus(vcpus),
                points=tuple(
                    _relative(row.arm, numbers[row.arm], amount(row))
                    for row in rows
                    if row.vcpus == vcpus
                ),
            )
            for vcpus in dict.fromkeys(row.vcpus for row in rows)
        ]
        axis = f"{what} of a run ({bill.baseline}: 1)"
        yield drawing(
            functools.partial(bars, groups, axis),
            key=f"run-{what}-{place}",
            title=f"{workload}: {what}",
            caption="",
            description=f"{axis}. {described(groups, wording.relative)}",
        )


def _bill_numbers(bill: Bill) -> dict[str, int]:
    return _numbers(dict.fromkeys(row.arm for row in bill.rows))


def _relative(arm: str, series: int, amount: Amount) -> ChartPoint:
    digits = 3 if isinstance(amount, Interval) else 2
    return ChartPoint(
        label=arm, series=series, amount=amount, note=f"{get_value(amount):.{digits}f}"
    )


# --- how it was measured --------------------------------------------------------------------------


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
    by_arm: dict[str, list[Sample]] = {arm: [] for arm in arms}
    blocks: dict[tuple[int, int], list[Sample]] = defaultdict(list)
    for sample in taken:
        by_arm.setdefault(sample.arm, []).append(sample)
        blocks[sample.launch, sample.block].append(sample)
    timed = {arm: own for arm, own in by_arm.items() if own}
    tracks = [
        Track(
            label=arm,
            series=number,
            passed=tuple(_minute(starts, each) for each in own),
            values=tuple(1000 * each.wall_s / each.steps for each in own),
        )
        for number, (arm, own) in enumerate(timed.items())
    ]
    dropped = [
        _minute(starts, block[0]) for block in blocks.values() if gates.list_drop_reasons(block)
    ]
    walls = [value for track in tracks for value in track.values]
    return drawing(
        functools.partial(over_time, tracks, list(starts.values()), dropped),
        key=key,
        title=wording.place(cell.workload, cell.vcpus),
        caption="",
        description=(
            f"{len(walls)} samples in {console.format_count(len(starts), 'launch', 'launches')}, from "
            f"{min(walls):.2f} to {max(walls):.2f} milliseconds per step. "
            f"{console.format_count(len(dropped), 'block')} of no measurement."
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
