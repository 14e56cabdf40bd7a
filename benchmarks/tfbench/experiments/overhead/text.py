"""Dispatch overhead as text and figures. Pure."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from tfbench.experiments.overhead.results import ArmTerms, Overhead, TimedForm
from tfbench.reports.canvas import Drawing, create_drawing
from tfbench.reports.charts import ChartGroup, ChartPoint, plot_forest
from tfbench.reports.document import Answer, Document, Section, build_table_blocks
from tfbench.reports.wording import format_factor, format_factor_span, format_share, format_span
from tfbench.result_table import ResultTable
from tfcore import console
from tfcore.comparisons.interval import Interval

KEY = "overhead"
HEADINGS = (
    *("arm", "fit", "#epochs", "#calls", "#steps", "#ms", "#predicted ms", "#speedup", "#interval"),
)
WORTH = 0.02
"""The smallest gain that is worth a change of the script."""
METHOD = (
    "fit() trains the same small model in several forms with about the same number of steps. "
    "Each launch is solved for a, b and c in seconds = a · epochs + b · calls + c · steps. "
    "fit() makes one call per steps_per_execution steps."
)


def build_table(overhead: Overhead) -> ResultTable:
    return ResultTable(
        title=format_title(overhead),
        headings=HEADINGS,
        rows=tuple(format_rows(overhead)),
        lines=tuple(list_lines(overhead)),
    )


def format_title(overhead: Overhead) -> str:
    return (
        f"{overhead.workload}, {console.format_vcpus(overhead.vcpus)} of {overhead.host.cpu.name}"
    )


def format_rows(overhead: Overhead) -> Iterator[tuple[str, ...]]:
    for answer in overhead.answers:
        for number, timed_form in enumerate(answer.forms):
            is_own = number == 0
            yield (
                answer.arm,
                format_form(timed_form),
                *(f"{count}" for count in (timed_form.counts.epochs, timed_form.counts.calls)),
                f"{timed_form.counts.steps}",
                f"{1000 * timed_form.seconds.value:.1f}",
                f"{1000 * timed_form.predicted_s:.1f}",
                "" if is_own else format_factor(timed_form.speedup.value),
                "" if is_own else format_span(timed_form.speedup),
            )


def format_form(timed: TimedForm) -> str:
    """Format a form as it is written in a script."""
    parts = [console.format_count(timed.form.epochs, "epoch")]
    if timed.form.repeat > 1:
        parts.append(f"repeat({timed.form.repeat})")
    if timed.form.steps_per_execution > 1:
        parts.append(f"steps_per_execution={timed.form.steps_per_execution}")
    return ", ".join(parts)


def list_lines(overhead: Overhead) -> Iterator[str]:
    for answer in overhead.answers:
        yield from list_sentences(answer)
    for arm, reason in overhead.marks:
        yield f"{arm}: {reason}"


def list_sentences(answer: ArmTerms) -> Iterator[str]:
    """Yield the terms, the share of dispatch, and what to change."""
    yield (
        f"{answer.arm} on {answer.device}: an epoch costs {_format_ms(answer.epoch_s)}, a call "
        f"{_format_ms(answer.call_s)}, a step {_format_ms(answer.step_s)} (prediction error at "
        f"most {format_share(answer.error)}, "
        f"{console.format_count(answer.launches, 'launch', 'launches')})."
    )
    script, once = answer.forms[0], answer.forms[1]
    yield (
        f"Dispatch takes {_format_percent(answer.dispatch)} of the unchanged script "
        f"({format_form(script)}, {1000 * script.seconds.value:.0f} ms)."
    )
    yield from _list_advice(answer, once)


def _list_advice(answer: ArmTerms, once: TimedForm) -> Iterator[str]:
    best = max(answer.forms[1:], key=lambda form: form.speedup.value)
    if best.speedup.low <= 1 + WORTH:
        yield f"No other form is certainly faster by {WORTH:.0%}: leave the script unchanged."
        return
    if answer.enough > 1:
        yield (
            f"compile(…, steps_per_execution={answer.enough}) is enough: by prediction, more steps "
            "gain less than 5 %. Callbacks and logs then run once per execution."
        )
    if once.speedup.low > 1 + WORTH:
        yield (
            f"One epoch of data.repeat({once.form.repeat}) is "
            f"{format_factor_span(once.speedup)} as fast per step, "
            "but runs validation and epoch callbacks only once."
        )
    yield (
        f"Fastest form: {format_form(best)}, {format_factor_span(best.speedup)} as fast per step."
    )


def _format_ms(interval: Interval) -> str:
    value, low, high = (1000 * seconds for seconds in (interval.value, interval.low, interval.high))
    return f"{value:.3g} ms ({max(0.0, low):.3g} to {high:.3g})"


def _format_percent(interval: Interval) -> str:
    low, high = max(0.0, interval.low), min(1.0, interval.high)
    return f"{interval.value:.0%} ({low:.0%} to {high:.0%})"


# --- the page -------------------------------------------------------------------------------------


def build_document(overhead: Overhead) -> Document:
    return Document(
        title="Dispatch overhead",
        subject=f"{format_title(overhead)}, {overhead.made}",
        answers=tuple(_build_answer(answer) for answer in overhead.answers),
        warnings=tuple(f"{arm}: {reason}" for arm, reason in overhead.marks),
        sections=(build_section(overhead),),
    )


def build_section(overhead: Overhead) -> Section:
    blocks = (METHOD, *build_table_blocks(build_table(overhead), "Forms of fit"))
    return Section(key=KEY, heading="Cost of starting epochs, calls and steps", blocks=blocks)


def _build_answer(answer: ArmTerms) -> Answer:
    return Answer(
        label=f"{answer.arm} on {answer.device}",
        figure=f"{answer.dispatch.value:.0%}",
        detail=f"{_format_percent(answer.dispatch)} of the script's time is dispatch",
        sentence=f"{_format_percent(answer.dispatch)} of the script's time is dispatch on "
        f"{answer.arm}.",
    )


def draw_figures(overhead: Overhead) -> Iterator[Drawing]:
    """Draw every form's speedup over the script's own."""
    for number, answer in enumerate(overhead.answers):
        points = tuple(
            ChartPoint(
                label=format_form(form),
                series=0,
                amount=form.speedup,
                note=format_factor(form.speedup.value),
                solid=form.speedup.excludes_1,
            )
            for form in answer.forms[1:]
        )
        groups = [ChartGroup(label="", points=points)]
        yield create_drawing(
            functools.partial(plot_forest, groups, "speedup over the script's own form"),
            key=f"{KEY}-{number}",
            title=f"{answer.arm}: forms of fit",
            caption="Per step. Lines are 95% intervals over launches; open marks: contain 1.",
            description="; ".join(f"{point.label} {point.note}" for point in points),
        )
