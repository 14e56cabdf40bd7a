"""Results of a tuning as text, and as a file of shell variables. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from tfbench.reports import wording
from tfbench.result_table import ResultTable
from tfbench.tuning.changes import WHEEL
from tfbench.tuning.results import TriedArm, Tuning
from tfbuild import console
from tfbuild.comparisons.interval import Verdict

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


def format_row(each: TriedArm) -> tuple[str, ...]:
    return (
        each.stage.value,
        _format_changes(each),
        wording.format_factor(each.speedup.value) if each.speedup else "",
        wording.format_span(each.speedup) if each.speedup else "",
        wording.format_span(each.noise) if each.noise else "",
        _format_difference(each.losses),
        _format_difference(each.predictions),
        each.reason or (each.verdict.value if each.verdict else ""),
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


def _format_changes(each: TriedArm) -> str:
    return ", ".join(map(str, each.changes))


def _format_gain(each: TriedArm) -> str:
    if each.speedup is None:
        return each.reason
    noise = f"; A/A {wording.format_span(each.noise)}" if each.noise else ""
    return (
        f"{wording.format_factor(each.speedup.value)} ({wording.format_span(each.speedup)}{noise})"
    )


def _describe_effect(each: TriedArm) -> str:
    if each.losses == 0 and each.predictions == 0:
        return "first losses and predictions are bit-identical"
    return (
        f"first losses differ by {_format_difference(each.losses)} (relative), predictions "
        f"after them by {_format_difference(each.predictions)}; tolerance {each.tolerance:g}"
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


def _describe_advice(each: TriedArm, best: TriedArm | None) -> str:
    arguments = ", ".join(str(change) for change in each.changes if change.is_advice)
    rest = [str(change) for change in each.changes if not change.is_advice]
    context = f" with {', '.join(rest)}" if rest else ""
    if each.reason:
        return f"compile({arguments}){context}: no result, {each.reason}."
    alone = (
        f" (without it {wording.format_factor(best.speedup.value)})"
        if best and best.speedup
        else ""
    )
    verdict = each.verdict.value if each.verdict else ""
    return (
        f"In the script, compile({arguments}){context}: {_format_gain(each)}{alone}, "
        f"{verdict}; {_describe_effect(each)}."
    )


def _format_difference(value: float | None) -> str:
    return "" if value is None else f"{value:.2g}"
