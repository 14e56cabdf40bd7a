"""Sizes as text and figures. Pure."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from tfbench.costs.cost import get_value
from tfbench.experiments.cell import Outcome
from tfbench.experiments.sizing.results import Knee, Sizing, SizingRow
from tfbench.reports import wording
from tfbench.reports.canvas import Drawing, create_drawing
from tfbench.reports.charts import ChartGroup, ChartPoint, describe_rows, plot_amounts
from tfbench.reports.document import Document, Section, build_table_blocks
from tfbench.result_table import ResultTable
from tfcore import console

KEY = "sizing"
HEADINGS = (
    *("workload", "phase", "input", "#vCPUs", "#limit MB", "#examples/s", "#interval", "bound by"),
    *("#CPU", "#reading", "#MB/s", "#peak MB", "#growth"),
)
METHOD = (
    "Each cell is a process with limited CPUs and memory. train and infer read batches from memory "
    "or decode them from a TFRecord of JPEGs; preprocess converts raw files to normalised "
    "TFRecords. cached reads files from the page cache; cold removes each file from the page cache "
    "first; a speed limits the reader to that of such a disk. growth is the growth of resident "
    "memory in MB from the first to the last quarter of the steps. Bound by input: the reader is "
    "busy for three quarters of the time, or for half of it while CPUs are idle; by compute: the "
    "process uses four fifths of its CPUs; by one thread: neither."
)


def build_table(sizing: Sizing) -> ResultTable:
    return ResultTable(
        title=format_title(sizing),
        headings=HEADINGS,
        rows=tuple(format_rows(sizing)),
        lines=tuple(list_lines(sizing)),
        width=160,
    )


def format_title(sizing: Sizing) -> str:
    return f"sizes on {sizing.host.cpu.name}"


def format_rows(sizing: Sizing) -> Iterator[tuple[str, ...]]:
    for row in sizing.rows:
        yield (
            row.workload,
            row.phase,
            row.input,
            str(row.vcpus),
            wording.format_optional(row.memory_mb, ".0f"),
            *_format_speed(row),
            "" if row.bound is None else row.bound.value,
            wording.format_optional(row.busy, ".0%"),
            wording.format_optional(row.reading, ".0%"),
            "" if not row.read_mb_s else f"{row.read_mb_s:.1f}",
            wording.format_optional(row.peak_mb, ".0f"),
            wording.format_optional(row.growth_mb, "+.0f"),
        )


def _format_speed(row: SizingRow) -> tuple[str, str]:
    if row.outcome is not Outcome.OK or row.speed is None:
        return row.outcome.value, ""
    return wording.format_rate_interval(row.speed)


def list_lines(sizing: Sizing) -> Iterator[str]:
    for knee in sizing.knees:
        yield _format_sentence(knee, sizing)
    for row in sizing.rows:
        if row.outcome is not Outcome.OK:
            where = f"{row.workload}, {row.phase}, {row.input}, {console.format_vcpus(row.vcpus)}"
            limit = "" if row.memory_mb is None else f", {row.memory_mb:.0f} MB"
            yield f"{where}{limit}: {row.outcome.value}: {row.reason}"
    if sizing.means:
        yield f"Memory was limited by {sizing.means}, CPUs by affinity."
    if any(row.cached for row in sizing.rows if row.input == "cold"):
        yield "cold: the page cache kept some files. Is their folder on a file system in memory?"


def _format_sentence(knee: Knee, sizing: Sizing) -> str:
    limit = "" if knee.memory_mb is None else f" and {knee.memory_mb:.0f} MB"
    verb = "is" if knee.vcpus == 1 and not limit else "are"
    text = (
        f"{knee.workload}, {knee.phase}, {knee.input}: "
        f"{console.format_vcpus(knee.vcpus)}{limit} {verb} enough, "
        f"{wording.format_rate(get_value(knee.speed))} examples/s, within {knee.within:.0%} of "
        f"the fastest ({wording.format_rate(knee.plateau)}); it used {knee.peak_mb:.0f} MB."
    )
    if knee.holding is not None:
        price = knee.holding
        return f"{text} Cheapest such machine: {price}, {price.usd_hour:.4g} USD per hour."
    return f"{text} No machine of {sizing.book} is known to be that large." if sizing.book else text


def build_document(sizing: Sizing) -> Document:
    subject = f"{format_title(sizing)}, {sizing.made}"
    return Document(title="Sizing", subject=subject, sections=(build_section(sizing),))


def build_section(sizing: Sizing) -> Section:
    blocks = (METHOD, *build_table_blocks(build_table(sizing), "Cells"))
    return Section(key=KEY, heading="Machine size", blocks=blocks)


def draw_figures(sizing: Sizing) -> Iterator[Drawing]:
    """Draw every cell's speed, a figure per workload and phase."""
    for position, (workload, phase) in enumerate(
        dict.fromkeys((row.workload, row.phase) for row in sizing.rows)
    ):
        phase_rows = [row for row in sizing.rows if (row.workload, row.phase) == (workload, phase)]
        groups = [
            ChartGroup(
                label=source,
                points=tuple(_build_point(row) for row in phase_rows if row.input == source),
            )
            for source in dict.fromkeys(row.input for row in phase_rows)
        ]
        yield create_drawing(
            functools.partial(plot_amounts, groups, "examples per second"),
            key=f"{KEY}-{position}",
            title=f"{workload}: {phase}",
            caption="By input; lines are 95% intervals over launches.",
            description=describe_rows(groups),
        )


def _build_point(row: SizingRow) -> ChartPoint:
    limit = "" if row.memory_mb is None else f", {row.memory_mb:.0f} MB"
    note = row.outcome.value if row.speed is None else wording.format_rate(get_value(row.speed))
    return ChartPoint(
        label=f"{console.format_vcpus(row.vcpus)}{limit}", series=0, amount=row.speed, note=note
    )
