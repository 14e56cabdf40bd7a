"""Throughput for people. Pure."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from tfbench.cells.cell import Outcome
from tfbench.costs.cost import compute_images_per_usd, get_value
from tfbench.reports import wording
from tfbench.reports.canvas import Drawing, drawing
from tfbench.reports.charts import ChartLine, over_counts
from tfbench.reports.document import Document, Section, sheet_blocks
from tfbench.sheet import ResultTable
from tfbench.throughput.results import (
    Throughput,
    ThroughputRow,
    large_enough,
    series,
    tell_apart,
)
from tfbuild import console

KEY = "throughput"
METHOD = (
    "Training steps on synthetic data of the real shape, each with its end awaited. The interval "
    "is Student's t over fresh processes. Beside it stands what tf_cnn_benchmarks would have "
    "printed of the first one: the mean, its standard error over steps, and the jitter, which is "
    "1.4826 times the median of absolute deviations. A standard error over the steps of one "
    "process does not know that two processes differ."
)


def sheet(throughput: Throughput) -> ResultTable:
    return ResultTable(
        title=title(throughput),
        headings=headings(throughput),
        rows=tuple(rows(throughput)),
        lines=tuple(lines(throughput)),
    )


def headings(throughput: Throughput) -> tuple[str, ...]:
    priced = ("#per $/h",) if throughput.price else ()
    place = ("arm", "workload", "#batch", "augmented")
    return (*place, "#examples/s", "#interval", "tf_cnn_benchmarks", *priced, "#MB")


def title(throughput: Throughput) -> str:
    where = throughput.host.cpu.name if throughput.device == "CPU" else throughput.device
    return f"training on {console.format_vcpus(throughput.vcpus)} of {where}"


def rows(throughput: Throughput) -> Iterator[tuple[str, ...]]:
    for row in throughput.rows:
        yield (
            row.arm,
            row.workload,
            str(row.batch),
            "yes" if row.augmented else "no",
            *_figures(row),
            *_priced(throughput, row),
            wording.known(row.peak_mb, ".0f"),
        )


def _figures(row: ThroughputRow) -> tuple[str, str, str]:
    if row.outcome is not Outcome.OK or row.speed is None or row.printed is None:
        return row.outcome.value, "", ""
    each = row.printed
    text = f"{each.mean:.1f} +/- {each.uncertainty:.1f} (jitter = {each.jitter:.1f})"
    return *wording.rates(row.speed), text


def _priced(throughput: Throughput, row: ThroughputRow) -> tuple[str, ...]:
    if throughput.price is None:
        return ()
    if row.speed is None:
        return ("",)
    return (wording.rate(get_value(compute_images_per_usd(row.speed, throughput.price))),)


def lines(throughput: Throughput) -> Iterator[str]:
    """What follows from the rows."""
    for (arm, workload, augmented), found in series(throughput).items():
        best = large_enough(found)
        if best is not None and len(found) > 1:
            how = " with augmentation" if augmented else ""
            yield f"{workload} on {arm}{how}: {_enough(best, found)}"
    yield from _augmentation(throughput)
    if throughput.price:
        price = throughput.price
        yield f"{price} costs {price.usd_hour:.4g} USD per hour, as of {price.as_of}."
    for row in throughput.rows:
        if row.outcome is not Outcome.OK:
            name = f"{row.workload}, batch {row.batch}, {row.arm}"
            yield f"{name}: {row.outcome.value}: {row.reason}"


def _enough(best: ThroughputRow, found: Sequence[ThroughputRow]) -> str:
    others = [row.speed for row in found if row is not best and row.speed is not None]
    assert best.speed is not None  # noqa: S101  (only what was timed is large enough)
    text = (
        f"a batch of {best.batch} is large enough with {wording.rate(get_value(best.speed))} "
        "examples/s, none is faster by more than 5 %"
    )
    apart = all(tell_apart(best.speed, other) for other in others)
    return f"{text}." if apart else f"{text}; but intervals overlap: measure longer to be sure."


def _augmentation(throughput: Throughput) -> Iterator[str]:
    """What augmentation costs at each batch that was measured with and without."""
    plain = {(r.arm, r.workload, r.batch): r for r in throughput.rows if not r.augmented}
    for row in throughput.rows:
        beside = plain.get((row.arm, row.workload, row.batch))
        if row.augmented and row.speed and beside and beside.speed:
            share = 1 - get_value(row.speed) / get_value(beside.speed)
            text = f"takes {share:.1%} of the speed"
            if not tell_apart(row.speed, beside.speed):
                text = "costs less than can be told here"
            yield f"{row.workload}, batch {row.batch}, {row.arm}: augmentation {text}."


def document(throughput: Throughput) -> Document:
    subject = f"{title(throughput)}, {throughput.made}"
    return Document(title="Throughput", subject=subject, sections=(section(throughput),))


def section(throughput: Throughput) -> Section:
    blocks = (METHOD, *sheet_blocks(sheet(throughput), "Examples per second"))
    return Section(key=KEY, heading="Throughput by batch size", blocks=blocks)


def figures(throughput: Throughput) -> Iterator[Drawing]:
    """A line for each arm and augmentation, a figure per workload."""
    every = series(throughput)
    for place, workload in enumerate(dict.fromkeys(name for _, name, _ in every)):
        drawn = [
            ChartLine(
                label=f"{arm}, augmented" if augmented else arm,
                series=number,
                amounts=tuple((row.batch, row.speed) for row in found if row.speed is not None),
            )
            for number, ((arm, name, augmented), found) in enumerate(every.items())
            if name == workload
        ]
        drawn = [line for line in drawn if line.amounts]
        if not drawn:
            continue
        yield drawing(
            functools.partial(over_counts, drawn, "batch", "examples/s"),
            key=f"{KEY}-{place}",
            title=f"{workload}: examples per second",
            caption="Lines are 95% intervals over launches.",
            description="; ".join(
                f"{line.label}: "
                + ", ".join(
                    f"{wording.rate(get_value(each))} at {batch}" for batch, each in line.amounts
                )
                for line in drawn
            ),
        )
