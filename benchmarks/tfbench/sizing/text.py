"""Sizes for people. Pure."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from tfbench.cells.cell import Outcome
from tfbench.costs.cost import get_value
from tfbench.reports import wording
from tfbench.reports.canvas import Drawing, drawing
from tfbench.reports.charts import ChartGroup, ChartPoint, amounts, described
from tfbench.reports.document import Document, Section, sheet_blocks
from tfbench.sheet import ResultTable
from tfbench.sizing.results import Knee, Sizing, SizingRow
from tfbuild import console

KEY = "sizing"
HEADINGS = (
    *("workload", "phase", "input", "#vCPUs", "#limit MB", "#examples/s", "#interval", "bound by"),
    *("#CPU", "#reading", "#MB/s", "#peak MB", "#growth"),
)
METHOD = (
    "Each cell is a process that is held to so many CPUs and so much memory. train and infer take "
    "batches from memory or decode them from a TFRecord of JPEGs; preprocess turns raw files into "
    "normalised TFRecords. cached reads what the kernel has in memory, cold has it forget each "
    "file first, a speed is a reader that waits as a disk of that speed would. growth is by how "
    "many MB resident memory rose from the first to the last quarter of the steps. Bound by input: "
    "the reader is busy for three quarters of the time, or for half of it while CPUs are idle; by "
    "compute: the process takes four fifths of its CPUs; by one thread: neither."
)


def sheet(sizing: Sizing) -> ResultTable:
    return ResultTable(
        title=title(sizing),
        headings=HEADINGS,
        rows=tuple(rows(sizing)),
        lines=tuple(lines(sizing)),
        width=160,
    )


def title(sizing: Sizing) -> str:
    return f"sizes on {sizing.host.cpu.name}"


def rows(sizing: Sizing) -> Iterator[tuple[str, ...]]:
    for row in sizing.rows:
        yield (
            row.workload,
            row.phase,
            row.input,
            str(row.vcpus),
            wording.known(row.memory_mb, ".0f"),
            *_speed(row),
            "" if row.bound is None else row.bound.value,
            wording.known(row.busy, ".0%"),
            wording.known(row.reading, ".0%"),
            "" if not row.read_mb_s else f"{row.read_mb_s:.1f}",
            wording.known(row.peak_mb, ".0f"),
            wording.known(row.growth_mb, "+.0f"),
        )


def _speed(row: SizingRow) -> tuple[str, str]:
    if row.outcome is not Outcome.OK or row.speed is None:
        return row.outcome.value, ""
    return wording.rates(row.speed)


def lines(sizing: Sizing) -> Iterator[str]:
    for knee in sizing.knees:
        yield _sentence(knee, sizing)
    for row in sizing.rows:
        if row.outcome is not Outcome.OK:
            where = f"{row.workload}, {row.phase}, {row.input}, {console.format_vcpus(row.vcpus)}"
            limit = "" if row.memory_mb is None else f", {row.memory_mb:.0f} MB"
            yield f"{where}{limit}: {row.outcome.value}: {row.reason}"
    if sizing.means:
        yield f"Memory was limited by {sizing.means}, CPUs by affinity."
    if any(row.cached for row in sizing.rows if row.input == "cold"):
        yield "The kernel kept some of what cold wanted forgotten: is it a file system in memory?"


def _sentence(knee: Knee, sizing: Sizing) -> str:
    limit = "" if knee.memory_mb is None else f" and {knee.memory_mb:.0f} MB"
    verb = "is" if knee.vcpus == 1 and not limit else "are"
    text = (
        f"{knee.workload}, {knee.phase}, {knee.input}: "
        f"{console.format_vcpus(knee.vcpus)}{limit} {verb} enough, "
        f"{wording.rate(get_value(knee.speed))} examples/s, within {knee.within:.0%} of the fastest "
        f"({wording.rate(knee.plateau)}); it took {knee.peak_mb:.0f} MB."
    )
    if knee.holding is not None:
        price = knee.holding
        return f"{text} Cheapest that holds: {price}, {price.usd_hour:.4g} USD per hour."
    return f"{text} No machine of {sizing.book} is known to hold it." if sizing.book else text


def document(sizing: Sizing) -> Document:
    subject = f"{title(sizing)}, {sizing.made}"
    return Document(title="Sizing", subject=subject, sections=(section(sizing),))


def section(sizing: Sizing) -> Section:
    blocks = (METHOD, *sheet_blocks(sheet(sizing), "Cells"))
    return Section(key=KEY, heading="How large a machine", blocks=blocks)


def figures(sizing: Sizing) -> Iterator[Drawing]:
    """Every cell's speed, a figure per workload and phase."""
    for place, (workload, phase) in enumerate(
        dict.fromkeys((row.workload, row.phase) for row in sizing.rows)
    ):
        own = [row for row in sizing.rows if (row.workload, row.phase) == (workload, phase)]
        groups = [
            ChartGroup(
                label=source,
                points=tuple(_point(row) for row in own if row.input == source),
            )
            for source in dict.fromkeys(row.input for row in own)
        ]
        yield drawing(
            functools.partial(amounts, groups, "examples per second"),
            key=f"{KEY}-{place}",
            title=f"{workload}: {phase}",
            caption="By input; lines are 95% intervals over launches.",
            description=described(groups),
        )


def _point(row: SizingRow) -> ChartPoint:
    limit = "" if row.memory_mb is None else f", {row.memory_mb:.0f} MB"
    note = row.outcome.value if row.speed is None else wording.rate(get_value(row.speed))
    return ChartPoint(
        label=f"{console.format_vcpus(row.vcpus)}{limit}", series=0, amount=row.speed, note=note
    )
