"""Show the time and cost of training to an accuracy, and learning curves. Pure."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence

from tfbench.costs.prices import Price
from tfbench.experiments.accuracy.curve import CurvePoint, find_best, format_accuracy
from tfbench.experiments.accuracy.median import FEWEST, Median
from tfbench.experiments.accuracy.results import Accuracy, ArmSummary, TrainingResult
from tfbench.experiments.cell import Outcome
from tfbench.measuring.statistics import LEVEL
from tfbench.reports import wording
from tfbench.reports.canvas import Drawing, create_drawing
from tfbench.reports.charts import Track, plot_accuracy
from tfbench.reports.document import Answer, Document, Section, build_list, tabulate
from tfbench.result_table import ResultTable
from tfcore import console

KEY = "accuracy"
"""The key of the figure and of its section."""
_HEADINGS = ("arm", "quantity", "#median", "#interval")
_SEEDS = (
    *("arm", "#seed", "result", "#epochs", "#accuracy", "#training s"),
    *("#evaluation s", "#start-up s", "#images/s"),
)
_format_seconds, _format_rate = "{:.2f}".format, "{:.0f}".format


def build_table(result: Accuracy) -> ResultTable:
    """Build the table with rows per arm, followed by lines on the seeds that failed or missed
    the target.
    """
    return ResultTable(
        title=format_title(result),
        headings=_HEADINGS,
        rows=tuple(_format_rows(result)),
        lines=tuple(list_lines(result)),
    )


def format_title(result: Accuracy) -> str:
    where = f"{console.format_vcpus(len(result.asked.cpus))}, {result.host.cpu.name}"
    return f"{result.asked.workload} to {format_accuracy(result.asked.target)} on {where}"


def build_document(result: Accuracy) -> Document:
    return Document(
        title=f"Time to {format_accuracy(result.asked.target)} on {result.asked.data}",
        subject=f"{format_title(result)}, {wording.format_time(result.made)}",
        answers=tuple(_build_answer(summary, result) for summary in result.summaries),
        notes=(_INTERVAL.format(level=_format_level(result)), _COUNTED),
        warnings=tuple(_list_failures(result)),
        sections=(build_section(result),),
    )


def build_section(result: Accuracy) -> Section:
    """Build the section with all results, as a part of a page."""
    return Section(
        key=KEY,
        heading=f"{result.asked.workload} to {format_accuracy(result.asked.target)}",
        blocks=(
            _describe_setting(result),
            tabulate("Time to the target by arm", _HEADINGS, _format_rows(result)),
            *build_list(list_lines(result)),
            tabulate("Every seed", _SEEDS, map(_format_seed_row, result.runs)),
        ),
    )


_COUNTED = (
    "Training time covers the training steps only. Evaluation on the test examples and start-up "
    "(import, reading, building, tracing) are listed separately."
)
_INTERVAL = (
    "Medians over seeds. Brackets contain exact {level} intervals of the median, from order "
    "statistics. A seed that did not reach the target counts as longer than all others."
)
_NO_VERDICT = (
    "To find out which arm trains faster, use `invoke compare`, which also measures the noise of "
    "the machine."
)


def _describe_setting(result: Accuracy) -> str:
    goal = result.asked
    return (
        f"{goal.workload} in batches of {goal.batch} on {goal.data} ({goal.source}): "
        f"{goal.training} training images, and {goal.testing} test images after each epoch, for at "
        f"most {console.format_count(goal.epochs, 'epoch')}. "
        f"{console.format_count(len(goal.seeds), 'seed')}; a seed determines the initial "
        "parameters and the order of the images."
    )


def _format_level(result: Accuracy) -> str:
    """Format the level of the intervals; arms with failed seeds have another one."""
    levels = {summary.seconds.level for summary in result.summaries if summary.seconds}
    return " or ".join(f"{level:.2%}" for level in sorted(levels)) or f"{LEVEL:.0%}"


def _build_answer(summary: ArmSummary, result: Accuracy) -> Answer:
    median_s = summary.seconds.value if summary.seconds else None
    return Answer(
        label=summary.arm,
        figure="no result" if median_s is None else f"{median_s:.2f} s",
        detail=f"{summary.reached} of {summary.seeds} reached",
        sentence=_format_sentence(summary, result),
    )


def _format_sentence(summary: ArmSummary, result: Accuracy) -> str:
    target = f"{format_accuracy(result.asked.target)} on {result.asked.data}"
    count = f"{summary.reached} of {console.format_count(summary.seeds, 'seed')} reached {target}"
    if summary.seconds is None:
        return f"{summary.arm}: {count}; no training was completed."
    if summary.seconds.value is None:
        within = console.format_count(result.asked.epochs, "epoch")
        return f"{summary.arm}: {count} within {within}, so the median time is unknown."
    cost = f", {_format_median(summary.usd, wording.format_usd)} USD" if summary.usd else ""
    return (
        f"{summary.arm}: {count}, in {_format_median(summary.seconds, _format_seconds)} s of "
        f"training{cost}."
    )


def list_lines(result: Accuracy) -> Iterator[str]:
    """Yield the results, their basis, and the failures."""
    yield from (_format_sentence(summary, result) for summary in result.summaries)
    if len(result.summaries) > 1:
        yield _NO_VERDICT
    if result.price:
        yield _describe_price(result.price)
    yield from dict.fromkeys(_list_level_notes(result))
    yield from _list_failures(result)


def _list_level_notes(result: Accuracy) -> Iterator[str]:
    """Yield notes on arms that have too few seeds for an interval of LEVEL."""
    for seconds in (summary.seconds for summary in result.summaries):
        if seconds and seconds.count == 1:
            yield "One seed gives no interval."
        elif seconds and seconds.level < LEVEL:
            yield (
                f"{seconds.count} seeds give at most a {seconds.level:.2%} interval; {LEVEL:.0%} "
                f"needs {FEWEST} or more."
            )


def _list_failures(result: Accuracy) -> Iterator[str]:
    epochs = console.format_count(result.asked.epochs, "epoch")
    for run in result.runs:
        if run.outcome is not Outcome.OK:
            yield f"{run.arm}, seed {run.seed}: {run.outcome.value}: {run.reason}."
        elif run.best and not run.reached:
            yield (
                f"{run.arm}, seed {run.seed}: not reached within {epochs}; the best was "
                f"{format_accuracy(run.best.accuracy)} at epoch {run.best.epoch:g}."
            )


def _describe_price(price: Price) -> str:
    return (
        f"Costs use {price} at {price.usd_hour:.4g} USD per hour as of {price.as_of}, and assume "
        "that it is as fast as this machine."
    )


def _format_rows(result: Accuracy) -> Iterator[tuple[str, ...]]:
    for summary in result.summaries:
        figures = (
            ("training s", summary.seconds, _format_seconds),
            ("USD", summary.usd, wording.format_usd),
            ("images/s", summary.images_s, _format_rate),
            ("evaluation s", summary.test_s, _format_seconds),
            ("start-up s", summary.start_up_s, _format_seconds),
        )
        for quantity, median, shown in figures:
            if median:
                yield (
                    summary.arm,
                    quantity,
                    _format_value(median.value, shown),
                    _format_interval(median, shown),
                )


def _format_seed_row(run: TrainingResult) -> tuple[str, ...]:
    if run.best is None or run.start_up is None:
        return (run.arm, f"{run.seed}", run.outcome.value, *[""] * (len(_SEEDS) - 3))
    last = run.points[-1]
    return (
        run.arm,
        f"{run.seed}",
        "reached" if run.reached else "not reached",
        f"{len(run.epochs)}",
        format_accuracy(run.best.accuracy),
        _format_seconds(last.seconds),
        _format_seconds(run.test_s),
        _format_seconds(run.start_up.seconds),
        _format_rate(run.images_s),
    )


def _format_median(median: Median, shown: Callable[[float], str]) -> str:
    span = _format_interval(median, shown)
    return _format_value(median.value, shown) + (f" ({span})" if span else "")


def _format_interval(median: Median, shown: Callable[[float], str]) -> str:
    """Format the interval; empty for one value, which has none."""
    if median.count == 1:
        return ""
    return f"{_format_value(median.low, shown)} to {_format_value(median.high, shown)}"


def _format_value(value: float | None, shown: Callable[[float], str]) -> str:
    return "not reached" if value is None else shown(value)


# --- figures --------------------------------------------------------------------------------------


def draw_figures(result: Accuracy) -> Iterator[Drawing]:
    """Draw accuracy over training seconds, a line per seed; nothing if nothing was trained."""
    arms = [arm.arm for arm in result.arms]
    labelled: set[str] = set()
    lines, ends = [], []
    for run in result.runs:
        if not run.epochs:
            continue
        label = "" if run.arm in labelled else run.arm
        labelled.add(run.arm)
        end = "reached" if run.reached else "not reached"
        lines.append(
            build_track(run.points, label, arms.index(run.arm), 1, reached=bool(run.reached))
        )
        ends.append(f"{run.arm}, seed {run.seed}, {describe_ends(run.points)}, {end}")
    if lines:
        yield draw_tracks(lines, result.asked.target, "seconds of training", "; ".join(ends))


def build_track(
    points: Sequence[CurvePoint], label: str, series: int, unit_s: int, *, reached: bool
) -> Track:
    return Track(
        label=label,
        series=series,
        passed=tuple(point.seconds / unit_s for point in points),
        values=tuple(100 * point.accuracy for point in points),
        solid=reached,
    )


def describe_ends(points: Sequence[CurvePoint]) -> str:
    first, highest = points[0], find_best(points)
    return f"from {format_accuracy(first.accuracy)} to {format_accuracy(highest.accuracy)}"


def draw_tracks(lines: Sequence[Track], target: float, axis: str, ends: str) -> Drawing:
    return create_drawing(
        functools.partial(plot_accuracy, lines, 100 * target, axis),
        key=f"{KEY}-curves",
        title="Accuracy over training time",
        caption=(
            "One line per training run. A filled marker at its end means that it reached the "
            "target (horizontal line)."
        ),
        description=f"Accuracy over {axis}, target {format_accuracy(target)}: {ends}.",
    )
