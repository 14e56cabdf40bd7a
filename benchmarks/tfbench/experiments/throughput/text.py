"""Throughput as text and figures. Pure."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from tfbench.costs.cost import compute_images_per_usd, get_value
from tfbench.experiments.cell import Outcome
from tfbench.experiments.throughput.results import (
    Throughput,
    ThroughputRow,
    choose_batch,
    group_rows,
    is_distinct,
)
from tfbench.reports import wording
from tfbench.reports.canvas import Drawing, create_drawing
from tfbench.reports.charts import ChartLine, plot_counts
from tfbench.reports.document import Document, Section, build_table_blocks
from tfbench.result_table import ResultTable
from tfcore import console

KEY = "throughput"
METHOD = (
    "Training steps on synthetic data of the real shape, each timed to its end. The interval is "
    "Student's t over fresh processes. The column tf_cnn_benchmarks shows what that program would "
    "print for the first process: the mean, its standard error over steps, and the jitter, which "
    "is 1.4826 times the median absolute deviation. A standard error over the steps of one process "
    "does not include the differences between processes."
)


def build_table(throughput: Throughput) -> ResultTable:
    return ResultTable(
        title=format_title(throughput),
        headings=list_headings(throughput),
        rows=tuple(format_rows(throughput)),
        lines=tuple(list_lines(throughput)),
    )


def list_headings(throughput: Throughput) -> tuple[str, ...]:
    priced = ("#per $/h",) if throughput.price else ()
    place = ("arm", "workload", "#batch", "augmented")
    return (*place, "#examples/s", "#interval", "tf_cnn_benchmarks", *priced, "#MB")


def format_title(throughput: Throughput) -> str:
    where = throughput.host.cpu.name if throughput.device == "CPU" else throughput.device
    return f"training on {console.format_vcpus(throughput.vcpus)} of {where}"


def format_rows(throughput: Throughput) -> Iterator[tuple[str, ...]]:
    for row in throughput.rows:
        yield (
            row.arm,
            row.workload,
            str(row.batch),
            "yes" if row.augmented else "no",
            *_format_figures(row),
            *_format_price(throughput, row),
            wording.format_optional(row.peak_mb, ".0f"),
        )


def _format_figures(row: ThroughputRow) -> tuple[str, str, str]:
    if row.outcome is not Outcome.OK or row.speed is None or row.printed is None:
        return row.outcome.value, "", ""
    printed = row.printed
    text = f"{printed.mean:.1f} +/- {printed.uncertainty:.1f} (jitter = {printed.jitter:.1f})"
    return *wording.format_rate_interval(row.speed), text


def _format_price(throughput: Throughput, row: ThroughputRow) -> tuple[str, ...]:
    if throughput.price is None:
        return ()
    if row.speed is None:
        return ("",)
    return (wording.format_rate(get_value(compute_images_per_usd(row.speed, throughput.price))),)


def list_lines(throughput: Throughput) -> Iterator[str]:
    """Yield the conclusions from the rows."""
    for (arm, workload, augmented), batches in group_rows(throughput).items():
        best = choose_batch(batches)
        if best is not None and len(batches) > 1:
            suffix = " with augmentation" if augmented else ""
            yield f"{workload} on {arm}{suffix}: {_describe_batch(best, batches)}"
    yield from _describe_augmentation(throughput)
    if throughput.price:
        price = throughput.price
        yield f"{price} costs {price.usd_hour:.4g} USD per hour, as of {price.as_of}."
    for row in throughput.rows:
        if row.outcome is not Outcome.OK:
            name = f"{row.workload}, batch {row.batch}, {row.arm}"
            yield f"{name}: {row.outcome.value}: {row.reason}"


def _describe_batch(best: ThroughputRow, rows: Sequence[ThroughputRow]) -> str:
    other_speeds = [row.speed for row in rows if row is not best and row.speed is not None]
    assert best.speed is not None  # noqa: S101  (only what was timed is large enough)
    text = (
        f"a batch of {best.batch} is large enough with "
        f"{wording.format_rate(get_value(best.speed))} examples/s: no other is faster by more "
        "than 5 %"
    )
    distinct = all(is_distinct(best.speed, speed) for speed in other_speeds)
    return f"{text}." if distinct else f"{text}. The intervals overlap: measure longer to be sure."


def _describe_augmentation(throughput: Throughput) -> Iterator[str]:
    """Yield the cost of augmentation at each batch that was measured with and without it."""
    plain = {(r.arm, r.workload, r.batch): r for r in throughput.rows if not r.augmented}
    for row in throughput.rows:
        plain_row = plain.get((row.arm, row.workload, row.batch))
        if row.augmented and row.speed and plain_row and plain_row.speed:
            share = 1 - get_value(row.speed) / get_value(plain_row.speed)
            text = f"reduces the speed by {share:.1%}"
            if not is_distinct(row.speed, plain_row.speed):
                text = "has no measurable cost here"
            yield f"{row.workload}, batch {row.batch}, {row.arm}: augmentation {text}."


def build_document(throughput: Throughput) -> Document:
    subject = f"{format_title(throughput)}, {throughput.made}"
    return Document(title="Throughput", subject=subject, sections=(build_section(throughput),))


def build_section(throughput: Throughput) -> Section:
    blocks = (METHOD, *build_table_blocks(build_table(throughput), "Examples per second"))
    return Section(key=KEY, heading="Throughput by batch size", blocks=blocks)


def draw_figures(throughput: Throughput) -> Iterator[Drawing]:
    """Draw a figure per workload, with a line for each arm and augmentation."""
    groups = group_rows(throughput)
    for position, workload in enumerate(dict.fromkeys(name for _, name, _ in groups)):
        lines = [
            ChartLine(
                label=f"{arm}, augmented" if augmented else arm,
                series=number,
                amounts=tuple((row.batch, row.speed) for row in batches if row.speed is not None),
            )
            for number, ((arm, name, augmented), batches) in enumerate(groups.items())
            if name == workload
        ]
        lines = [line for line in lines if line.amounts]
        if not lines:
            continue
        yield create_drawing(
            functools.partial(plot_counts, lines, "batch", "examples/s"),
            key=f"{KEY}-{position}",
            title=f"{workload}: examples per second",
            caption="Lines are 95% intervals over launches.",
            description="; ".join(
                f"{line.label}: "
                + ", ".join(
                    f"{wording.format_rate(get_value(amount))} at {batch}"
                    for batch, amount in line.amounts
                )
                for line in lines
            ),
        )
