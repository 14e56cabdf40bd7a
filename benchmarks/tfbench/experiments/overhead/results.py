"""Costs of the fits of a small model, over launches. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfbench.experiments.cell import CellResult
from tfbench.experiments.experiment import Wheel
from tfbench.experiments.overhead import terms
from tfbench.experiments.overhead.terms import Counts, Terms
from tfbench.inside.fitting import Form
from tfbench.measuring.statistics import estimate_geometric_mean, estimate_mean
from tfcore.comparisons.host import Host
from tfcore.comparisons.interval import Interval

SCHEMA = 1


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


def build_answer(cell_result: CellResult, forms: Sequence[Form]) -> ArmTerms:
    """Build one arm's answer from its launches. Raises SampleError for fewer than two launches."""
    launches = [_compute_medians(answer, forms) for answer in cell_result.answers]
    solved = [terms.solve_terms(launch) for launch in launches]
    first_answer = cell_result.answers[0]
    epoch_s = estimate_mean([launch_terms.epoch_s for launch_terms in solved])
    call_s = estimate_mean([launch_terms.call_s for launch_terms in solved])
    step_s = estimate_mean([launch_terms.step_s for launch_terms in solved])
    overall = Terms(epoch_s=epoch_s.value, call_s=call_s.value, step_s=step_s.value)
    own_form, steps = forms[0], first_answer["steps"][0]
    script = terms.count_parts(own_form, steps)
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
        enough=terms.choose_steps_per_execution(overall, own_form, steps),
        error=max(
            terms.compute_largest_error(launch_terms, launch)
            for launch_terms, launch in zip(solved, launches, strict=True)
        ),
    )


def _compute_medians(
    answer: Mapping[str, Any], forms: Sequence[Form]
) -> dict[Form, tuple[Counts, float]]:
    """Return the counts and the median seconds over rounds of each form."""
    return {
        form: (terms.count_parts(form, steps), statistics.median(seconds))
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
