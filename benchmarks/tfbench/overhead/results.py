"""What the fits of one small model say, over launches. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfbench.cells.cell import CellResult
from tfbench.cells.experiment import Wheel
from tfbench.inside.fitting import Form
from tfbench.measuring.statistics import estimate_geometric_mean, estimate_mean
from tfbench.overhead import terms
from tfbench.overhead.terms import Counts, Terms
from tfbuild.measured.host import Host
from tfbuild.measured.interval import Interval

SCHEMA = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class TimedForm:
    """One form of fit: its seconds over launches, those that the terms give, and how many times as
    fast as the script's own form it is for the same number of steps."""

    form: Form
    counts: Counts
    seconds: Interval
    predicted_s: float
    speedup: Interval


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmTerms:
    """Of one arm. `dispatch` is the share of the script's time that is not steps; `enough` the
    steps per execution with which hardly more is to be won. `error` is the largest relative error
    of the terms at any form."""

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
    """`marks` are arms without an answer, with the reason."""

    schema: int = SCHEMA
    made: str
    host: Host
    workload: str
    vcpus: int
    seed: int
    wheels: tuple[Wheel, ...]
    answers: tuple[ArmTerms, ...]
    marks: tuple[tuple[str, str], ...]


def answered(found: CellResult, forms: Sequence[Form]) -> ArmTerms:
    """One arm's answer from its launches. Raises SampleError for fewer than two."""
    launches = [_launch(each, forms) for each in found.answers]
    solved = [terms.solve(launch) for launch in launches]
    first = found.answers[0]
    epoch_s = estimate_mean([each.epoch_s for each in solved])
    call_s = estimate_mean([each.call_s for each in solved])
    step_s = estimate_mean([each.step_s for each in solved])
    overall = Terms(epoch_s=epoch_s.value, call_s=call_s.value, step_s=step_s.value)
    own, steps = forms[0], first["steps"][0]
    script = terms.counts(own, steps)
    return ArmTerms(
        arm=str(found.place["arm"]),
        device=str(found.place["device"]),
        rows=first["rows"],
        batch=first["batch"],
        launches=len(launches),
        epoch_s=epoch_s,
        call_s=call_s,
        step_s=step_s,
        dispatch=estimate_mean([each.dispatch(script) for each in solved]),
        forms=tuple(_timed(form, launches, own, overall) for form in forms),
        enough=terms.enough(overall, own, steps),
        error=max(
            terms.largest_error(each, launch) for each, launch in zip(solved, launches, strict=True)
        ),
    )


def _launch(answer: Mapping[str, Any], forms: Sequence[Form]) -> dict[Form, tuple[Counts, float]]:
    """The median round of each form."""
    return {
        form: (terms.counts(form, steps), statistics.median(seconds))
        for form, steps, seconds in zip(forms, answer["steps"], answer["seconds"], strict=True)
    }


def _timed(
    form: Form, launches: Sequence[Mapping[Form, tuple[Counts, float]]], own: Form, overall: Terms
) -> TimedForm:
    counts = launches[0][form][0]
    return TimedForm(
        form=form,
        counts=counts,
        seconds=estimate_mean([launch[form][1] for launch in launches]),
        predicted_s=overall.seconds(counts),
        speedup=estimate_geometric_mean(
            [[math.log(_per_step(launch[own]) / _per_step(launch[form]))] for launch in launches]
        ),
    )


def _per_step(measured: tuple[Counts, float]) -> float:
    counts, seconds = measured
    return seconds / counts.steps
