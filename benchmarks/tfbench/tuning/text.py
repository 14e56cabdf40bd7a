"""Results of a tuning as text, and as a file of shell variables. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from tfbench.arms.lever_table import WHEEL
from tfbench.reports import wording
from tfbench.result_table import ResultTable
from tfbench.tuning.results import TriedArm, Tuning
from tfcore import console
from tfcore.comparisons.interval import Verdict

HEADINGS = (
    *("stage", "changes", "#speedup", "#95% interval", "#baseline again", "#loss difference"),
    *("#prediction difference", "#verdict"),
)

NOTE = (
    "The stages before `confirm` chose what was measured next, so their best figures are biased "
    "upwards. Only the stage `confirm`, in separate launches, gives the result."
)


def build_table(tuning: Tuning) -> ResultTable:
    return ResultTable(
        title=format_title(tuning),
        headings=HEADINGS,
        rows=tuple(map(format_row, tuning.tried)),
        lines=tuple(list_lines(tuning)),
        width=140,
    )


def render_markdown(tuning: Tuning) -> str:
    head = [
        f"# {format_title(tuning)}",
        "",
        *(text for line in list_lines(tuning) for text in (line, "")),
        NOTE,
        "",
        *build_table(tuning).format_markdown(),
    ]
    return "\n".join(head) + "\n"


def format_title(tuning: Tuning) -> str:
    where = console.format_vcpus(len(tuning.vcpus))
    cpu = tuning.host.cpu.name
    return f"{tuning.workload} on {where} ({cpu}), against {tuning.baseline}"


def format_row(arm: TriedArm) -> tuple[str, ...]:
    return (
        arm.stage.value,
        _format_changes(arm),
        wording.format_factor(arm.speedup.value) if arm.speedup else "",
        wording.format_span(arm.speedup) if arm.speedup else "",
        wording.format_span(arm.noise) if arm.noise else "",
        _format_difference(arm.losses),
        _format_difference(arm.predictions),
        arm.reason or (arm.verdict.value if arm.verdict else ""),
    )


def list_lines(tuning: Tuning) -> Iterator[str]:
    """Yield the answer, then the advice."""
    best = tuning.best
    if best is None:
        yield _describe_no_gain(tuning)
    else:
        yield f"Best: {_format_changes(best)}: {_format_gain(best)}; {_describe_effect(best)}."
        if any(change.lever == WHEEL for change in best.changes):
            yield f"Install the wheel {tuning.wheel}."
    for arm in tuning.confirmed:
        if arm.is_advice:
            yield _describe_advice(arm, best)


def render_env_file(tuning: Tuning) -> str:
    """Render a file for `source`: the settings that were faster, with the evidence as comments."""
    head = [
        format_title(tuning),
        *list_lines(tuning),
        f"measured {wording.format_time(tuning.made)}",
    ]
    if len(tuning.vcpus) < tuning.host.vcpus.usable:
        head.append(f"on CPUs {','.join(map(str, tuning.vcpus))} only (taskset -c)")
    exports = (f"export {name}={shlex.quote(value)}" for name, value in tuning.variables)
    return "\n".join([*(f"# {' '.join(line.split())}" for line in head), *exports]) + "\n"


def _format_changes(arm: TriedArm) -> str:
    return ", ".join(map(str, arm.changes))


def _format_gain(arm: TriedArm) -> str:
    if arm.speedup is None:
        return arm.reason
    noise = f"; A/A {wording.format_span(arm.noise)}" if arm.noise else ""
    return f"{wording.format_factor(arm.speedup.value)} ({wording.format_span(arm.speedup)}{noise})"


def _describe_effect(arm: TriedArm) -> str:
    if arm.losses == 0 and arm.predictions == 0:
        return "first losses and predictions are bit-identical"
    return (
        f"first losses differ by {_format_difference(arm.losses)} (relative), predictions "
        f"after them by {_format_difference(arm.predictions)}; tolerance {arm.tolerance:g}"
    )


def _describe_no_gain(tuning: Tuning) -> str:
    """Describe the result of the confirmation if no setting is faster."""
    chosen = next((arm for arm in tuning.confirmed if not arm.is_advice), None)
    if chosen is None:
        return "No setting is faster beyond noise. Keep the defaults."
    evidence = f"{_format_changes(chosen)} gives {_format_gain(chosen)}"
    if chosen.verdict is Verdict.INCONCLUSIVE:
        return f"Inconclusive: {evidence}. Measure longer (--budget)."
    return f"No setting is faster beyond noise: {evidence}. Keep the defaults."


def _describe_advice(arm: TriedArm, best: TriedArm | None) -> str:
    arguments = ", ".join(str(change) for change in arm.changes if change.is_advice)
    other_changes = [str(change) for change in arm.changes if not change.is_advice]
    context = f" with {', '.join(other_changes)}" if other_changes else ""
    if arm.reason:
        return f"compile({arguments}){context}: no result, {arm.reason}."
    alone = (
        f" (without it {wording.format_factor(best.speedup.value)})"
        if best and best.speedup
        else ""
    )
    verdict = arm.verdict.value if arm.verdict else ""
    return (
        f"In the script, compile({arguments}){context}: {_format_gain(arm)}{alone}, "
        f"{verdict}; {_describe_effect(arm)}."
    )


def _format_difference(value: float | None) -> str:
    return "" if value is None else f"{value:.2g}"
