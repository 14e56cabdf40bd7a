"""Time and cost to an accuracy in words and tables. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tfbench.accuracy.curve import share
from tfbench.accuracy.figures import KEY, curves
from tfbench.accuracy.median import FEWEST, Median
from tfbench.accuracy.results import Accuracy, ArmSummary, Trained
from tfbench.cells.cell import Outcome
from tfbench.costs.prices import Price
from tfbench.measuring.statistics import LEVEL
from tfbench.reports import wording
from tfbench.reports.document import Answer, Document, Section, points, tabulate
from tfbench.sheet import ResultTable
from tfbuild import console

_HEADINGS = ("arm", "what", "#median", "#interval")
_SEEDS = (
    *("arm", "#seed", "result", "#epochs", "#accuracy", "#training s"),
    *("#evaluation s", "#start-up s", "#images/s"),
)

figures = curves
"""What is drawn in the section."""


def sheet(result: Accuracy) -> ResultTable:
    """A row per arm, then a line per seed that says something else."""
    return ResultTable(
        title=title(result),
        headings=_HEADINGS,
        rows=tuple(_rows(result)),
        lines=tuple(lines(result)),
    )


def title(result: Accuracy) -> str:
    where = f"{console.format_vcpus(len(result.asked.cpus))}, {result.host.cpu.name}"
    return f"{result.asked.workload} to {share(result.asked.target)} on {where}"


def document(result: Accuracy) -> Document:
    return Document(
        title=f"Time to {share(result.asked.target)} on {result.asked.data}",
        subject=f"{title(result)}, {wording.moment(result.made)}",
        answers=tuple(_answer(each, result) for each in result.summaries),
        notes=(_INTERVAL.format(level=_level(result)), _COUNTED),
        warnings=tuple(_troubles(result)),
        sections=(section(result),),
    )


def section(result: Accuracy) -> Section:
    """All that was found, as a part of a page."""
    return Section(
        key=KEY,
        heading=f"{result.asked.workload} to {share(result.asked.target)}",
        blocks=(
            _setting(result),
            tabulate("Time to the target by arm", _HEADINGS, _rows(result)),
            *points(lines(result)),
            tabulate("Every seed", _SEEDS, map(_seed_row, result.runs)),
        ),
    )


_COUNTED = (
    "Training is the steps of its epochs alone, from the first step on; evaluation on the test "
    "examples and start-up (import, reading, building, tracing) stand beside it and are not in it."
)
_INTERVAL = (
    "Medians over seeds; in brackets the exact interval for the median, from order statistics, "
    "which holds with a chance of {level}. A seed that did not reach the target counts as longer "
    "than all others."
)
_NO_VERDICT = (
    "Whether one arm trains faster than another is for `invoke compare` to say, which also "
    "measures an arm against itself."
)


def _setting(result: Accuracy) -> str:
    goal = result.asked
    return (
        f"{goal.workload} in batches of {goal.batch} on {goal.data} ({goal.source}): "
        f"{goal.training} images are trained on, {goal.testing} tested after each epoch, at most "
        f"{console.format_count(goal.epochs, 'epoch')}. {console.format_count(len(goal.seeds), 'seed')}, each "
        "deciding the first parameters and the order of the images."
    )


def _level(result: Accuracy) -> str:
    """Of the intervals; arms whose seeds failed have fewer seeds and so another one."""
    levels = {each.seconds.level for each in result.summaries if each.seconds}
    return " or ".join(f"{level:.2%}" for level in sorted(levels)) or f"{LEVEL:.0%}"


def _answer(each: ArmSummary, result: Accuracy) -> Answer:
    known = each.seconds.value if each.seconds else None
    return Answer(
        label=each.arm,
        figure="no answer" if known is None else f"{known:.2f} s",
        detail=f"{each.reached} of {each.seeds} reached",
        sentence=_sentence(each, result),
    )


def _sentence(each: ArmSummary, result: Accuracy) -> str:
    target = f"{share(result.asked.target)} on {result.asked.data}"
    count = f"{each.reached} of {console.format_count(each.seeds, 'seed')} reached {target}"
    if each.seconds is None:
        return f"{each.arm}: {count}; none was trained to an end."
    if each.seconds.value is None:
        within = console.format_count(result.asked.epochs, "epoch")
        return f"{each.arm}: {count} within {within}, so the median time is not known."
    cost = f", {_median(each.usd, wording.usd)} USD" if each.usd else ""
    return f"{each.arm}: {count}, in {_median(each.seconds, _seconds)} s of training{cost}."


def lines(result: Accuracy) -> Iterator[str]:
    """The answers, what they rest on, and what went wrong."""
    yield from (_sentence(each, result) for each in result.summaries)
    if len(result.summaries) > 1:
        yield _NO_VERDICT
    if result.price:
        yield _priced(result.price)
    yield from dict.fromkeys(_levels(result))
    yield from _troubles(result)


def _levels(result: Accuracy) -> Iterator[str]:
    """What fewer seeds than an interval of LEVEL needs can give."""
    for found in (each.seconds for each in result.summaries):
        if found and found.count == 1:
            yield "One seed gives no interval."
        elif found and found.level < LEVEL:
            yield (
                f"{found.count} seeds give an interval of {found.level:.2%} at the most; "
                f"{LEVEL:.0%} need {FEWEST} or more."
            )


def _troubles(result: Accuracy) -> Iterator[str]:
    epochs = console.format_count(result.asked.epochs, "epoch")
    for run in result.runs:
        if run.outcome is not Outcome.OK:
            yield f"{run.arm}, seed {run.seed}: {run.outcome.value}: {run.reason}."
        elif run.best and not run.reached:
            yield (
                f"{run.arm}, seed {run.seed}: not reached within {epochs}; the best was "
                f"{share(run.best.accuracy)} at epoch {run.best.epoch:g}."
            )


def _priced(price: Price) -> str:
    return (
        f"Priced as seconds on {price} at {price.usd_hour:.4g} USD per hour as of {price.as_of}, "
        "as if that machine were as fast as this one."
    )


def _rows(result: Accuracy) -> Iterator[tuple[str, ...]]:
    for each in result.summaries:
        figures = (
            ("training s", each.seconds, _seconds),
            ("USD", each.usd, wording.usd),
            ("images/s", each.images_s, _rate),
            ("evaluation s", each.test_s, _seconds),
            ("start-up s", each.start_up_s, _seconds),
        )
        for what, found, shown in figures:
            if found:
                yield (each.arm, what, _ended(found.value, shown), _span(found, shown))


def _seed_row(run: Trained) -> tuple[str, ...]:
    if run.best is None or run.start_up is None:
        return (run.arm, f"{run.seed}", run.outcome.value, *[""] * (len(_SEEDS) - 3))
    last = run.points[-1]
    return (
        run.arm,
        f"{run.seed}",
        "reached" if run.reached else "not reached",
        f"{len(run.epochs)}",
        share(run.best.accuracy),
        _seconds(last.seconds),
        _seconds(run.test_s),
        _seconds(run.start_up.seconds),
        _rate(run.images_s),
    )


def _median(found: Median, shown: Callable[[float], str]) -> str:
    span = _span(found, shown)
    return _ended(found.value, shown) + (f" ({span})" if span else "")


def _span(found: Median, shown: Callable[[float], str]) -> str:
    """Empty for one value, which has no interval."""
    if found.count == 1:
        return ""
    return f"{_ended(found.low, shown)} to {_ended(found.high, shown)}"


def _ended(value: float | None, shown: Callable[[float], str]) -> str:
    return "not reached" if value is None else shown(value)


def _seconds(value: float) -> str:
    return f"{value:.2f}"


def _rate(value: float) -> str:
    return f"{value:.0f}"
