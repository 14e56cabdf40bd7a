"""Dispatch overhead: forms of fit are timed and solved for the cost of epochs, calls and steps."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfbench import options
from tfbench.arms.installs import ArmChoice
from tfbench.commands import OverheadOptions
from tfbench.experiments import fit_terms
from tfbench.experiments.cell import Cell, CellResult, Outcome
from tfbench.experiments.experiment import CellExperiment, ExperimentRun, Wheel, list_names
from tfbench.experiments.fit_terms import Counts, Terms
from tfbench.experiments.table_page import TablePage
from tfbench.inside import fitting
from tfbench.inside.fitting import Form
from tfbench.inside.workload import BATCHES
from tfbench.inside.workloads import PROGRAM
from tfbench.measuring.statistics import (
    FEWEST_LAUNCHES,
    estimate_geometric_mean,
    estimate_mean,
)
from tfbench.reports.canvas import Drawing, create_drawing
from tfbench.reports.charts import ChartGroup, ChartPoint, plot_forest
from tfbench.reports.document import Answer, TextColumns
from tfbench.reports.wording import format_factor, format_factor_span, format_share, format_span
from tfcore import console
from tfcore.comparisons.host import Host
from tfcore.comparisons.interval import Interval
from tfcore.cpus.cpu import read_vcpus
from tfcore.errors import WorkerError
from tfcore.records import convert_record, format_now

KIND = "overhead"
SCHEMA = 1
WORKLOAD = "iris_mlp"
STEPS = 6
"""Steps per epoch of the article's script: 105 irises in batches of 20. Other workloads have
BATCHES steps."""
ROUNDS = 5
WORTH = 0.02
"""The smallest gain that is worth a change of the script."""


# --- options and cells ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class OverheadConfig:
    """The checked options of `invoke overhead`. `forms` are the forms of fit to time, the
    script's own first; `program` is the path of the user's own model, empty if it is none.
    """

    workload: str
    program: str
    device: str
    forms: tuple[Form, ...]
    vcpus: int
    launches: int
    seed: int

    def list_cells(self, arms: Sequence[str], host: Host, _: Path) -> tuple[Cell, ...]:
        return tuple(
            Cell(
                arm=arm,
                place=(("arm", arm), ("device", self.device or "CPU")),
                launch=launch,
                module=fitting.__name__,
                request={
                    "workload": self.workload,
                    "seed": self.seed + launch,
                    "rounds": ROUNDS,
                    "device": self.device,
                    "forms": convert_record(self.forms),
                },
                vcpus=host.affinity[: self.vcpus],
                env=self._build_env(),
            )
            for launch in range(self.launches)
            for arm in arms
        )

    def _build_env(self) -> tuple[tuple[str, str], ...]:
        program_env = ((PROGRAM, self.program),) if self.program else ()
        # Other experiments set an empty list, which hides every GPU.
        visible = (("CUDA_VISIBLE_DEVICES", "0"),) if "GPU" in self.device.upper() else ()
        return (*program_env, *visible)

    def describe(self, choices: Sequence[ArmChoice], _: int) -> dict[str, str]:
        forms = (
            f"\n  epochs={form.epochs}, repeat({form.repeat}), "
            f"steps_per_execution={form.steps_per_execution}"
            for form in self.forms
        )
        calls = f"{self.launches}, each with {ROUNDS} rounds of these calls of fit():"
        return {
            "workload": self.workload,
            "arms": ", ".join(list_names(choices)),
            "vCPUs": str(self.vcpus),
            "launches": "".join((calls, *forms)),
        }


def parse_options(overhead_options: OverheadOptions) -> OverheadConfig:
    """Parse and check the options. Raises UsageError."""
    workload, program = options.parse_subject(overhead_options.workload)
    epochs = options.parse_integer(overhead_options.epochs, "--epochs", least=2)
    return OverheadConfig(
        workload=workload,
        program=str(program or ""),
        device=overhead_options.device,
        forms=fit_terms.list_forms(epochs, STEPS if workload == WORKLOAD else BATCHES),
        vcpus=options.parse_vcpu_count(overhead_options.vcpus, read_vcpus().usable),
        launches=options.parse_integer(
            overhead_options.launches, "--launches", least=FEWEST_LAUNCHES
        ),
        seed=options.parse_integer(overhead_options.seed, "--seed", least=0),
    )


# --- results --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class TimedForm:
    """One form of fit: its seconds over launches, the seconds that the terms predict, and its
    speedup over the script's own form for the same number of steps.
    """

    form: Form
    counts: Counts
    seconds: Interval
    predicted_s: float
    speedup: Interval

    def __str__(self) -> str:
        """Format the form as it is written in a script."""
        parts = [console.format_count(self.form.epochs, "epoch")]
        if self.form.repeat > 1:
            parts.append(f"repeat({self.form.repeat})")
        if self.form.steps_per_execution > 1:
            parts.append(f"steps_per_execution={self.form.steps_per_execution}")
        return ", ".join(parts)


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmTerms:
    """The terms of one arm. `dispatch` is the share of the script's time that is not steps;
    `enough` is the number of steps per execution beyond which there is hardly any gain.
    `error` is the largest relative error of the terms over all forms.
    """

    arm: str
    device: str
    rows: int
    batch: int
    launches: int
    epoch_s: Interval
    call_s: Interval
    step_s: Interval
    dispatch: Interval
    forms: tuple[TimedForm, ...]
    enough: int
    error: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Overhead:
    """The result of `invoke overhead`. `marks` are the arms without a result, with the reason."""

    schema: int = SCHEMA
    made: str
    host: Host
    workload: str
    vcpus: int
    seed: int
    wheels: tuple[Wheel, ...]
    answers: tuple[ArmTerms, ...]
    marks: tuple[tuple[str, str], ...]


def _build_result(
    config: OverheadConfig, run: ExperimentRun, measured: Sequence[CellResult]
) -> Overhead:
    """Build the result. Raises WorkerError if no fit could be timed."""
    timed = [cell for cell in measured if cell.outcome is Outcome.OK]
    marks = tuple(
        (str(cell.place["arm"]), f"{cell.outcome.value}: {cell.reason}")
        for cell in measured
        if cell.outcome is not Outcome.OK
    )
    if not timed:
        raise WorkerError(f"no fit could be timed: {marks[0][1]}")
    return Overhead(
        made=format_now(),
        host=run.host,
        workload=config.workload,
        vcpus=config.vcpus,
        seed=config.seed,
        wheels=run.wheels,
        answers=tuple(build_answer(cell, config.forms) for cell in timed),
        marks=marks,
    )


def build_answer(cell_result: CellResult, forms: Sequence[Form]) -> ArmTerms:
    """Build one arm's answer from its launches. Raises SampleError for fewer than two launches."""
    launches = [_compute_medians(answer, forms) for answer in cell_result.answers]
    solved = [fit_terms.solve_terms(launch) for launch in launches]
    first_answer = cell_result.answers[0]
    epoch_s, call_s, step_s = (
        estimate_mean([getattr(launch_terms, name) for launch_terms in solved])
        for name in Terms.__dataclass_fields__
    )
    overall = Terms(epoch_s=epoch_s.value, call_s=call_s.value, step_s=step_s.value)
    own_form, steps = forms[0], first_answer["steps"][0]
    script = fit_terms.count_parts(own_form, steps)
    return ArmTerms(
        arm=str(cell_result.place["arm"]),
        device=str(cell_result.place["device"]),
        rows=first_answer["rows"],
        batch=first_answer["batch"],
        launches=len(launches),
        epoch_s=epoch_s,
        call_s=call_s,
        step_s=step_s,
        dispatch=estimate_mean([launch_terms.compute_dispatch(script) for launch_terms in solved]),
        forms=tuple(_build_timed_form(form, launches, own_form, overall) for form in forms),
        enough=fit_terms.choose_steps_per_execution(overall, own_form, steps),
        error=max(map(fit_terms.compute_largest_error, solved, launches)),
    )


def _compute_medians(
    answer: Mapping[str, Any], forms: Sequence[Form]
) -> dict[Form, tuple[Counts, float]]:
    """Return the counts and the median seconds over rounds of each form."""
    return {
        form: (fit_terms.count_parts(form, steps), statistics.median(seconds))
        for form, steps, seconds in zip(forms, answer["steps"], answer["seconds"], strict=True)
    }


def _build_timed_form(
    form: Form,
    launches: Sequence[Mapping[Form, tuple[Counts, float]]],
    own_form: Form,
    overall: Terms,
) -> TimedForm:
    counts = launches[0][form][0]
    return TimedForm(
        form=form,
        counts=counts,
        seconds=estimate_mean([launch[form][1] for launch in launches]),
        predicted_s=overall.compute_seconds(counts),
        speedup=estimate_geometric_mean(
            [
                [math.log(_compute_step_s(launch[own_form]) / _compute_step_s(launch[form]))]
                for launch in launches
            ]
        ),
    )


def _compute_step_s(measured: tuple[Counts, float]) -> float:
    counts, seconds = measured
    return seconds / counts.steps


# --- text and figures -----------------------------------------------------------------------------

_Item = tuple[str, TimedForm, bool]
"""An arm, one of its forms, and whether it is the script's own."""
COLUMNS: TextColumns[_Item] = {
    "arm": lambda item: item[0],
    "fit": lambda item: str(item[1]),
    "#epochs": lambda item: f"{item[1].counts.epochs}",
    "#calls": lambda item: f"{item[1].counts.calls}",
    "#steps": lambda item: f"{item[1].counts.steps}",
    "#ms": lambda item: f"{1000 * item[1].seconds.value:.1f}",
    "#predicted ms": lambda item: f"{1000 * item[1].predicted_s:.1f}",
    "#speedup": lambda item: "" if item[2] else format_factor(item[1].speedup.value),
    "#interval": lambda item: "" if item[2] else format_span(item[1].speedup),
}


def list_items(overhead: Overhead) -> Iterator[_Item]:
    for answer in overhead.answers:
        for timed_form in answer.forms:
            yield answer.arm, timed_form, timed_form is answer.forms[0]


def format_title(overhead: Overhead) -> str:
    return (
        f"{overhead.workload}, {console.format_vcpus(overhead.vcpus)} of {overhead.host.cpu.name}"
    )


def list_lines(overhead: Overhead) -> Iterator[str]:
    """Yield the terms of each arm, the share of dispatch, and what to change."""
    for answer in overhead.answers:
        yield (
            f"{answer.arm} on {answer.device}: an epoch costs {_format_ms(answer.epoch_s)}, a call "
            f"{_format_ms(answer.call_s)}, a step {_format_ms(answer.step_s)} (prediction error at "
            f"most {format_share(answer.error)}, "
            f"{console.format_count(answer.launches, 'launch', 'launches')})."
        )
        script = answer.forms[0]
        yield (
            f"Dispatch takes {_format_percent(answer.dispatch)} of the unchanged script "
            f"({script}, {1000 * script.seconds.value:.0f} ms)."
        )
        yield from _list_advice(answer)
    yield from list_warnings(overhead)


def list_warnings(overhead: Overhead) -> Iterator[str]:
    for arm, reason in overhead.marks:
        yield f"{arm}: {reason}"


def _list_advice(answer: ArmTerms) -> Iterator[str]:
    once = answer.forms[1]
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
    yield f"Fastest form: {best}, {format_factor_span(best.speedup)} as fast per step."


def _format_ms(interval: Interval) -> str:
    value, low, high = (1000 * seconds for seconds in (interval.value, interval.low, interval.high))
    return f"{value:.3g} ms ({max(0.0, low):.3g} to {high:.3g})"


def _format_percent(interval: Interval) -> str:
    low, high = max(0.0, interval.low), min(1.0, interval.high)
    return f"{interval.value:.0%} ({low:.0%} to {high:.0%})"


def build_answers(overhead: Overhead) -> Iterator[Answer]:
    for answer in overhead.answers:
        detail = f"{_format_percent(answer.dispatch)} of the script's time is dispatch"
        yield Answer(
            label=f"{answer.arm} on {answer.device}",
            figure=f"{answer.dispatch.value:.0%}",
            detail=detail,
            sentence=f"{detail} on {answer.arm}.",
        )


def draw_figures(overhead: Overhead) -> Iterator[Drawing]:
    """Draw every form's speedup over the script's own."""
    for number, answer in enumerate(overhead.answers):
        points = tuple(
            ChartPoint(
                label=str(form),
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
            key=f"{KIND}-{number}",
            title=f"{answer.arm}: forms of fit",
            caption="Per step. Lines are 95% intervals over launches; open marks: contain 1.",
            description="; ".join(f"{point.label} {point.note}" for point in points),
        )


OVERHEAD = CellExperiment(
    kind=KIND,
    parse_options=parse_options,
    build_result=_build_result,
    text=TablePage(
        key=KIND,
        title="Dispatch overhead",
        heading="Cost of starting epochs, calls and steps",
        caption="Forms of fit",
        method=(
            "fit() trains the same small model in several forms with about the same number of "
            "steps. Each launch is solved for a, b and c in seconds = a · epochs + b · calls + c · "
            "steps. fit() makes one call per steps_per_execution steps."
        ),
        format_title=format_title,
        list_columns=lambda _: COLUMNS,
        list_items=list_items,
        list_lines=list_lines,
        draw_figures=draw_figures,
        build_answers=build_answers,
        list_warnings=list_warnings,
    ),
)
