"""Format the results of strategies: a table for the terminal, a section of a report, figures.
Pure."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence

from tfbench.experiments.strategies import published
from tfbench.experiments.strategies.matrix import ALONE
from tfbench.experiments.strategies.published import PublishedRuns
from tfbench.experiments.strategies.results import (
    Advice,
    Figures,
    Parity,
    StrategiesResult,
    StrategyRow,
    build_advice,
)
from tfbench.experiments.strategies.strategy import NAMES, STRATEGIES, StrategyFamily
from tfbench.inside.groups import INDEPENDENT
from tfbench.measuring.statistics import LEVEL
from tfbench.reports import wording
from tfbench.reports.canvas import Drawing, create_drawing
from tfbench.reports.charts import ChartGroup, ChartPoint, describe_rows, plot_bars, plot_forest
from tfbench.reports.document import (
    Answer,
    Block,
    Document,
    Section,
    Table,
    TextColumns,
    build_list,
    read_rows,
    split_paragraphs,
    tabulate,
)
from tfbench.result_table import ResultTable
from tfcore import console
from tfcore.comparisons.interval import Interval

KEY = "strategies"
HEADING = "Strategies on several devices"
LOGICAL = (
    "TensorFlow detects no GPU, so the devices are logical devices on the same vCPUs: this shows "
    "the cost of coordination, not how training scales. One device alone uses all vCPUs; n devices "
    "with an efficiency of 1/n process as many examples per second."
)
METHOD = """
Every launch is a new process. The synthetic data are on the devices before the first step, and the
batch per device is the same for any number of devices. The rate is examples per second over all
timed steps of a launch; its interval is Student's t over launches. “Mean ± SEM (jitter)” is what
tf_cnn_benchmarks prints, over all steps. “vs independent” is the rate divided by that of as many
devices that exchange nothing, the upper bound of a strategy. “Efficiency” is the rate per device
divided by that of one device, launch by launch. Intervals are not corrected for selecting the best
of several strategies: if its lead is barely above 1, measure more launches.

Before timing, each cell checks that gradients arrive: replica i sends i + 1, and every variable
must receive n (n + 1) / 2. A strategy that loses gradients is refused. Then the first steps are
compared with those of one device that computes the whole batch: losses, and how far the updates
move the parameters. Dropout is off in these steps. If a net has BatchNorm, whose statistics are
separate in each replica, all replicas get the same examples. Asynchronous strategies have no such
reference.
"""
TRAFFIC = """
Traffic is the bytes of variables that devices exchange per step, computed for n devices and B bytes
of trainable parameters:

- ring and nccl: 2 (n - 1) B in total; each device sends and receives 4 (n - 1) / n B
- hierarchical: 2 (n - 1) B in total; one device sends and receives n B
- one_device and central: 2 (n - 1) B, or 2 n B if their CPU is not one of the devices; one device
  sends and receives all of it
- server: 2 n B
- independent: nothing
"""


# --- terminal -------------------------------------------------------------------------------------


def build_table(result: StrategiesResult) -> ResultTable:
    """Build the table with lines for a terminal; the section has the same in more detail."""
    arm: TextColumns[StrategyRow] = {"arm": lambda row: row.arm}
    columns = {**(arm if len(result.arms) > 1 else {}), **COLUMNS}
    return ResultTable(
        title=format_title(result),
        headings=tuple(columns),
        rows=tuple(read_rows(columns, result.rows)),
        lines=tuple(list_lines(result)),
        width=160,
    )


def _read_figures(read: Callable[[Figures], str]) -> Callable[[StrategyRow], str]:
    """Return a column of the figures, which is empty for cells that were not measured."""
    return lambda row: read(row.figures) if row.figures else ""


def _format_printed(figures: Figures) -> str:
    printed = figures.printed
    speeds = (printed.mean, printed.uncertainty, printed.jitter)
    return "{} ± {} ({})".format(*map(wording.format_rate, speeds))


def _format_ratio(ratio: Interval | None) -> str:
    return f"{ratio.value:.3f}" if ratio else ""


def _format_parity(figures: Figures) -> str:
    if figures.apart is None:
        return figures.parity.value
    return f"{figures.parity.value} ({figures.apart:.1g})"


COLUMNS: TextColumns[StrategyRow] = {
    "workload": lambda row: row.workload,
    "#devices": lambda row: str(row.devices),
    "strategy": lambda row: row.strategy,
    "#examples/s": _read_figures(lambda figures: wording.format_rate(figures.rate.value)),
    f"#{LEVEL:.0%} interval": _read_figures(
        lambda figures: wording.format_rate_interval(figures.rate)[1]
    ),
    "#mean ± SEM (jitter)": _read_figures(_format_printed),
    "#vs independent": _read_figures(lambda figures: _format_ratio(figures.share)),
    "#efficiency": _read_figures(lambda figures: _format_ratio(figures.efficiency)),
    "#traffic/step": _read_figures(lambda figures: console.format_size(figures.traffic.total)),
    "first steps": lambda row: _format_parity(row.figures) if row.figures else row.outcome.value,
}


def format_title(result: StrategiesResult) -> str:
    where = f"{console.format_vcpus(len(result.vcpus))} of {result.host.cpu.name}"
    return f"strategies on {where}, {_format_launches(result)}"


def _format_launches(result: StrategiesResult) -> str:
    return console.format_count(result.matrix.launches, "launch", "launches")


def _format_megabytes(count: float) -> str:
    """Format a number of bytes in MB, so that values are comparable."""
    return f"{count / 1e6:.0f} MB"


def list_lines(result: StrategiesResult) -> Iterator[str]:
    """Yield the reasons for missing results and the warnings, then the advice."""
    yield from list_marks(result)
    yield from list_warnings(result)
    for _, sentences in _list_answers(result):
        yield from sentences


def list_marks(result: StrategiesResult) -> Iterator[str]:
    """Yield why cells have no results, once per reason."""
    cells_by_reason: dict[tuple[str, str, str], list[str]] = {}
    for row in result.rows:
        if row.figures is None:
            cells_by_reason.setdefault((row.strategy, row.outcome.value, row.reason), []).append(
                _format_place(row)
            )
    for (strategy, outcome, reason), cells in cells_by_reason.items():
        where = cells[0] if len(cells) == 1 else f"{strategy} ({len(cells)} cells)"
        yield f"{where}: {outcome}: {reason}."


def list_warnings(result: StrategiesResult) -> Iterator[str]:
    if result.is_logical:
        yield LOGICAL
    for row in result.rows:
        if row.figures and row.figures.parity is Parity.DIFFERENT:
            yield (
                f"{_format_place(row)}: the first steps differ from those of one device by "
                f"{row.figures.apart or float('nan'):.2g} (tolerance {result.tolerance:g}), so the "
                "advice does not use this strategy."
            )


def _format_place(row: StrategyRow) -> str:
    return f"{row.strategy} on {console.format_count(row.devices, 'device')}, {row.workload}"


# --- advice ---------------------------------------------------------------------------------------


def _list_answers(result: StrategiesResult) -> Iterator[tuple[Advice, tuple[str, ...]]]:
    """Yield the advice for each net, and its sentences."""
    reference = published.read_published()
    for advice in build_advice(result, reference):
        yield advice, tuple(list_sentences(advice, result, reference))


def list_sentences(
    advice: Advice, result: StrategiesResult, reference: PublishedRuns
) -> Iterator[str]:
    """Yield the advice for one net, then its basis."""
    subject = f"{advice.workload} on {advice.devices} devices"
    if len(result.arms) > 1:
        subject = f"{advice.arm}, {subject}"
    yield f"{subject}: {_describe_best(advice)}."
    if advice.faster:
        yield (
            f"{advice.faster} processes more examples per second, but is asynchronous: its "
            "gradients are stale, so a step contributes less."
        )
    if advice.intensity is not None:
        yield _describe_rule(advice, reference)
    model = reference.find_model(advice.workload)
    if model and advice.devices in model.images_s:
        yield (
            f"Published for {model.name} on {advice.devices} P100 ({model.family.value}): "
            f"efficiency {model.compute_efficiency(advice.devices):.3f}."
        )


def _describe_best(advice: Advice) -> str:
    if advice.lead is None:
        return f"{advice.best} is the only synchronous strategy that was measured"
    lead = (
        f"{wording.format_factor(advice.lead.value)} over the next "
        f"({wording.format_span(advice.lead)})"
    )
    if advice.sure:
        return f"{advice.best} is the fastest, {lead}"
    return (
        f"inconclusive, {advice.best} has the highest rate, {lead}, but does not differ "
        f"significantly from {wording.join_words(advice.tied)}; measure more launches"
    )


def _describe_rule(advice: Advice, reference: PublishedRuns) -> str:
    """Describe what the articles' rule selects, and whether the measurement agrees."""
    assert advice.intensity is not None  # noqa: S101  (the caller looked)
    low, high = reference.split
    head = f"It has {_format_megabytes(advice.intensity)} of parameters per second of computation"
    bounds = (
        f"up to {_format_megabytes(low)}: parameter server, from {_format_megabytes(high)}: "
        "all-reduce"
    )
    if advice.rule is None:
        return f"{head}, between the published nets ({bounds}), so the rule does not apply."
    verdict = {
        True: "the measurement agrees",
        False: "the measurement does not agree",
        None: "the measurement is inconclusive",
    }[advice.agrees]
    return f"{head}; the articles' rule selects {advice.rule.value} ({bounds}); {verdict}."


# --- report ---------------------------------------------------------------------------------------


def build_document(result: StrategiesResult) -> Document:
    """Build the standalone report, with the answers on top."""
    return Document(
        title=HEADING,
        subject=f"{format_title(result)}, {wording.format_time(result.made)}",
        answers=tuple(itertools.starmap(_build_answer, _list_answers(result))),
        warnings=tuple(list_warnings(result)),
        sections=(Section(key=KEY, heading="Results", blocks=tuple(_build_blocks(result))),),
    )


def _build_answer(advice: Advice, sentences: Sequence[str]) -> Answer:
    return Answer(
        label=f"{advice.workload}, {advice.devices} devices",
        figure=advice.best,
        detail=""
        if advice.lead is None
        else f"{wording.format_factor_span(advice.lead)} over the next",
        verdict="" if advice.sure else "inconclusive",
        sentence=" ".join(sentences),
    )


def build_section(result: StrategiesResult) -> Section:
    """Build the section for a page with other experiments, with the answers first."""
    answers = (" ".join(sentences) for _, sentences in _list_answers(result))
    conclusions = build_list((*list_warnings(result), *answers))
    return Section(key=KEY, heading=HEADING, blocks=(*conclusions, *_build_blocks(result)))


def _build_blocks(result: StrategiesResult) -> Iterator[Block]:
    table = build_table(result)
    yield tabulate("examples per second", table.headings, table.rows)
    yield from build_list(list_marks(result))
    yield from split_paragraphs(METHOD)
    yield from split_paragraphs(TRAFFIC)
    yield _build_traffic_table(result)
    yield _build_strategy_table(result)
    yield from _build_published(published.read_published())


def _build_traffic_table(result: StrategiesResult) -> Table:
    columns: TextColumns[tuple[StrategyRow, Figures]] = {
        "workload": lambda item: item[0].workload,
        "#devices": lambda item: str(item[0].devices),
        "strategy": lambda item: item[0].strategy,
        "variables on": lambda item: ", ".join(item[1].variables_on),
        "#trainable": lambda item: console.format_size(item[1].trainable_bytes),
        "#traffic/step": lambda item: console.format_size(item[1].traffic.total),
        "#busiest device": lambda item: console.format_size(item[1].traffic.busiest),
        "#peak memory": lambda item: console.format_size(1e6 * item[1].peak_mb),
    }
    measured = ((row, row.figures) for row in result.rows if row.figures)
    return tabulate("traffic per step", columns, read_rows(columns, measured))


def _build_strategy_table(result: StrategiesResult) -> Table:
    shown = [name for name in NAMES if any(row.strategy == name for row in result.rows)]
    return tabulate(
        "strategies",
        ("strategy", "parameters", "TensorFlow's name"),
        ((name, STRATEGIES[name].family.value, STRATEGIES[name].means) for name in shown),
    )


def _build_published(reference: PublishedRuns) -> Iterator[Block]:
    low, high = reference.split
    yield (
        f"Published: {reference.title}, {reference.as_of}, synthetic data ({reference.source}). "
        "The authors ran nets with up to "
        f"{_format_megabytes(low)} of parameters per second of computation with a parameter "
        f"server, and nets with at least {_format_megabytes(high)} replicated."
    )
    counts = reference.devices
    several = [number for number in counts if number != ALONE]
    yield tabulate(
        "published images per second",
        (
            *("net", "parameters"),
            *(f"#{number} GPU" if number == ALONE else f"#{number} GPUs" for number in counts),
            *(f"#efficiency at {number}" for number in several),
            "#parameters/s of computation",
        ),
        (
            (
                *(model.name, model.family.value),
                *(f"{model.images_s[number]:g}" for number in counts),
                *(f"{model.compute_efficiency(number):.3f}" for number in several),
                _format_megabytes(model.intensity),
            )
            for model in reference.models
        ),
    )


# --- figures --------------------------------------------------------------------------------------


def draw_figures(result: StrategiesResult) -> Iterator[Drawing]:
    """Draw each net's strategies relative to independent devices, then published efficiencies."""
    nets = dict.fromkeys((row.arm, row.workload) for row in result.rows)
    for position, (arm, workload) in enumerate(nets):
        groups = tuple(_build_share_groups(result, arm, workload))
        if groups:
            yield create_drawing(
                functools.partial(
                    plot_forest, groups, "examples/s relative to independent devices"
                ),
                key=f"{KEY}-{position}",
                title=f"{arm}: {workload}" if len(result.arms) > 1 else workload,
                caption=f"At 1 the exchange costs nothing. Lines are {LEVEL:.0%} intervals.",
                description=describe_rows(groups),
            )
    groups = tuple(_build_efficiency_groups(published.read_published()))
    yield create_drawing(
        functools.partial(plot_bars, groups, "published images/s relative to single P100s"),
        key=f"{KEY}-published",
        title="Published efficiency on P100s",
        caption=(
            "From TensorFlow's documentation, means of 5 runs. Plain bars: parameter server on the "
            "CPU. Hatched bars: replicated, with NCCL."
        ),
        description=describe_rows(groups),
    )


def _build_share_groups(result: StrategiesResult, arm: str, workload: str) -> Iterator[ChartGroup]:
    for (own_arm, own_workload, devices), rows in result.group_rows().items():
        points = tuple(
            ChartPoint(
                label=row.strategy,
                series=NAMES.index(row.strategy),
                amount=row.figures.share,
                note=wording.format_factor(row.figures.share.value),
                solid=row.figures.share.excludes_1,
            )
            for row in rows
            if row.figures and row.figures.share and row.strategy != INDEPENDENT
        )
        if (own_arm, own_workload) == (arm, workload) and points:
            yield ChartGroup(label=console.format_count(devices, "device"), points=points)


def _build_efficiency_groups(reference: PublishedRuns) -> Iterator[ChartGroup]:
    series = {StrategyFamily.PARAMETER_SERVER: 0, StrategyFamily.ALL_REDUCE: 1}
    for model in reference.models:
        yield ChartGroup(
            label=model.name,
            points=tuple(
                ChartPoint(
                    label=f"{number} GPUs",
                    series=series[model.family],
                    amount=model.compute_efficiency(number),
                    note=f"{model.compute_efficiency(number):.3f}",
                )
                for number in reference.devices
                if number != ALONE
            ),
        )
