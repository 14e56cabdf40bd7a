"""What tuning found, for people and for a shell. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from tfbench.reports import wording
from tfbench.sheet import ResultTable
from tfbench.tuning.changes import WHEEL
from tfbench.tuning.results import TriedArm, Tuning
from tfbuild import console
from tfbuild.measured.interval import Verdict

HEADINGS = (
    *("stage", "changed", "#speedup", "#95% interval", "#baseline again", "#losses apart"),
    *("#predictions apart", "#verdict"),
)

NOTE = (
    "Figures of the stages before `confirm` chose what was measured next: the best of them was "
    "lucky, too, so only the confirmation, in launches of its own, is an answer."
)


def sheet(tuning: Tuning) -> ResultTable:
    return ResultTable(
        title=title(tuning),
        headings=HEADINGS,
        rows=tuple(map(cells, tuning.tried)),
        lines=tuple(lines(tuning)),
        width=140,
    )


def markdown(tuning: Tuning) -> str:
    head = [
        f"# {title(tuning)}",
        "",
        *(text for line in lines(tuning) for text in (line, "")),
        NOTE,
        "",
        *sheet(tuning).format_markdown(),
    ]
    return "\n".join(head) + "\n"


def title(tuning: Tuning) -> str:
    where = console.format_vcpus(len(tuning.vcpus))
    cpu = tuning.host.cpu.name
    return f"{tuning.workload} on {where} ({cpu}), against {tuning.baseline}"


def cells(each: TriedArm) -> tuple[str, ...]:
    return (
        each.stage.value,
        _changes(each),
        wording.factor(each.speedup.value) if each.speedup else "",
        wording.span(each.speedup) if each.speedup else "",
        wording.span(each.noise) if each.noise else "",
        _apart(each.losses),
        _apart(each.predictions),
        each.reason or (each.verdict.value if each.verdict else ""),
    )


def lines(tuning: Tuning) -> Iterator[str]:
    """The answer, then the advice."""
    best = tuning.best
    if best is None:
        yield _none(tuning)
    else:
        yield f"Best: {_changes(best)}: {_gain(best)}; {_effect(best)}."
        if any(change.lever == WHEEL for change in best.changes):
            yield f"Install the wheel {tuning.wheel}."
    for each in tuning.confirmed:
        if each.is_advice:
            yield _advice(each, best)


def env_file(tuning: Tuning) -> str:
    """For `source`: the settings that were faster, with the evidence as comments."""
    head = [title(tuning), *lines(tuning), f"measured {wording.moment(tuning.made)}"]
    if len(tuning.vcpus) < tuning.host.vcpus.usable:
        head.append(f"on CPUs {','.join(map(str, tuning.vcpus))} only: taskset -c")
    exports = (f"export {name}={shlex.quote(value)}" for name, value in tuning.variables)
    return "\n".join([*(f"# {' '.join(line.split())}" for line in head), *exports]) + "\n"


def _changes(each: TriedArm) -> str:
    return ", ".join(map(str, each.changes))


def _gain(each: TriedArm) -> str:
    if each.speedup is None:
        return each.reason
    noise = f"; A/A {wording.span(each.noise)}" if each.noise else ""
    return f"{wording.factor(each.speedup.value)} ({wording.span(each.speedup)}{noise})"


def _effect(each: TriedArm) -> str:
    if each.losses == 0 and each.predictions == 0:
        return "first losses and predictions are the same to the last bit"
    return (
        f"first losses apart by {_apart(each.losses)} (relative), predictions after them by "
        f"{_apart(each.predictions)}, of {each.tolerance:g} that are let pass"
    )


def _none(tuning: Tuning) -> str:
    """What the confirmation said of the settings that the search chose, if it chose any."""
    chosen = next((each for each in tuning.confirmed if not each.is_advice), None)
    if chosen is None:
        return "No setting is faster beyond noise. Keep the defaults."
    seen = f"{_changes(chosen)} gives {_gain(chosen)}"
    if chosen.verdict is Verdict.INCONCLUSIVE:
        return f"No setting is shown to be faster: {seen}. Measure longer (--budget) for an answer."
    return f"No setting is faster beyond noise: {seen}. Keep the defaults."


def _advice(each: TriedArm, best: TriedArm | None) -> str:
    own = ", ".join(str(change) for change in each.changes if change.is_advice)
    rest = [str(change) for change in each.changes if not change.is_advice]
    beside = f" beside {', '.join(rest)}" if rest else ""
    if each.reason:
        return f"compile({own}){beside}: no answer, {each.reason}."
    alone = f" (without it {wording.factor(best.speedup.value)})" if best and best.speedup else ""
    verdict = each.verdict.value if each.verdict else ""
    return (
        f"In the script, compile({own}){beside}: {_gain(each)}{alone}, {verdict}; {_effect(each)}."
    )


def _apart(value: float | None) -> str:
    return "" if value is None else f"{value:.2g}"
