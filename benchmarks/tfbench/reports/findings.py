"""Describe a comparison in rows and sentences: results, reasons and warnings. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from tfbench.inside.phases import TRAIN
from tfbench.inside.runtimes import BACKEND, RUNTIME
from tfbench.inside.workload_name import parse_name
from tfbench.inside.workloads import format_label
from tfbench.measuring.stopping import FEWEST_LAUNCHES
from tfbench.reports import wording
from tfcore import console
from tfcore.comparisons.comparison import (
    ArmFacts,
    ArmResult,
    ComparedCell,
    Comparison,
    Overall,
    Speedup,
)
from tfcore.comparisons.deciding import find_mean_decision, list_decisions
from tfcore.comparisons.decision import Decision, Reason
from tfcore.comparisons.effort import Stop
from tfcore.comparisons.interval import Verdict

FEW_LAUNCHES = 4
LONG = 1.5
"""A cell that takes more than this many times its budget causes a warning."""
IDLE = 0.01
"""The largest share of the other arms' time in which an idle arm may use the CPU."""
SHOWN = 0.001
"""The smallest share of op time at which an op is listed."""
LANES = 16
"""Elements of float32 in the widest vector register (AVX-512). A larger speedup of a kernel is not
credible."""
UNFUSED = ("left: ", "stock: ")
"""Prefixes of a library's counts of ops that it did not fuse."""
STOPS = {
    Stop.PRECISION: "intervals narrow enough",
    Stop.LAUNCHES: "last interim analysis",
    Stop.BUDGET: "budget used up",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """The results of an arm in a cell, and the decision on it."""

    comparison: Comparison
    cell: ComparedCell
    decision: Decision

    @property
    def result(self) -> ArmResult:
        return self.cell.get_result(self.decision.arm)

    @property
    def facts(self) -> ArmFacts | None:
        """Return the facts of the arm; None if it never started."""
        return next((arm for arm in self.comparison.arms if arm.name == self.decision.arm), None)

    @property
    def speedup(self) -> Speedup | None:
        """Return the speedup if its verdict counts."""
        return self.result.speedup if self.decision.counts else None


def format_title(comparison: Comparison) -> str:
    cpu = comparison.host.cpu.name
    if not comparison.arms:
        return f"No arm started on {cpu}"
    versions = {arm.name: version for arm in comparison.arms if (version := _parse_version(arm))}

    def format_arm(arm: str) -> str:
        return f"{arm} ({versions[arm]})" if arm in versions else arm

    candidates = wording.join_words([*map(format_arm, comparison.candidates)]) or "nothing"
    return f"{candidates} against {format_arm(comparison.baseline)} on {cpu}"


def _parse_version(arm: ArmFacts) -> str:
    """Return the version of the arm's wheel with its target; empty if the arm's label is not a
    wheel's file name.
    """
    try:
        return str(parse_wheel_filename(arm.label.partition(" ")[0])[1])
    except InvalidWheelFilename:
        return ""


def list_rows(comparison: Comparison) -> Iterator[Row]:
    """Yield a row per cell and arm, and one for the baseline or its repeat where it failed."""
    for cell in comparison.cells:
        for decision in list_decisions(comparison, cell):
            yield Row(comparison=comparison, cell=cell, decision=decision)


def format_cell(cell: ComparedCell) -> tuple[str, str]:
    """Return the workload and the number of vCPUs as table cells."""
    return format_label(cell.workload), str(cell.vcpus)


def explain(row: Row) -> str:
    """Return the rule of the method that gives the verdict, or why there is none."""
    decision, result = row.decision, row.result
    if decision.reason is Reason.FAILED and result.failure:
        return result.failure.reason.strip()
    if decision.reason is Reason.DIFFERENT and result.agreement:
        return f"differs beyond the tolerance of {result.agreement.tolerance:g}"
    if result.speedup is None:
        return "the baseline failed, or there are too few launches"
    return _explain_verdict(row.comparison, row.cell, decision, result.speedup)


def _explain_verdict(
    comparison: Comparison, cell: ComparedCell, decision: Decision, speedup: Speedup
) -> str:
    limit = _describe_limit(comparison, decision)
    margin = wording.format_percent(comparison.margin)
    match decision.reason:
        case Reason.OVER_GATED:
            return f"gates dropped too many blocks: {_format_dropped(cell)}"
        case Reason.BEYOND_LIMIT:
            return f"the interval excludes 1, and the speedup is beyond {limit}"
        case Reason.WITHIN_LIMIT:
            return f"the interval excludes 1, but the speedup is within {limit}"
        case Reason.WITHIN_MARGIN:
            tested = wording.format_percent(comparison.margin_level)
            return f"the {tested} interval lies within {margin} of 1 (TOST)"
        case Reason.HIGH_LIMIT:
            return (
                f"the interval excludes 1, but the speedup is within {limit}, which is too high "
                "for a verdict"
            )
        case Reason.LIKELY_FASTER | Reason.LIKELY_SLOWER:
            return f"{decision.reason}: {_describe_confidence(comparison, speedup)}"
        case _:
            return f"the interval contains 1 and extends more than {margin} from it"


def _describe_confidence(comparison: Comparison, speedup: Speedup) -> str:
    """Compare the largest interval that excludes 1 with the one that a verdict needs."""
    confidence, level = wording.format_level(speedup.confidence), f"{comparison.level:.0%}"
    return f"the {confidence} interval excludes 1, the {level} interval does not"


def _describe_limit(comparison: Comparison, decision: Decision) -> str:
    """Describe the limit that a difference must exceed: the noise floor or the threshold,
    whichever is higher.
    """
    if decision.noise_floor is None:
        return "an unknown noise floor"
    if decision.noise_floor >= comparison.threshold:
        return f"the noise floor of {decision.noise_floor:.1%}"
    return f"the threshold of {comparison.threshold:.1%}"


def _format_dropped(cell: ComparedCell) -> str:
    return f"{cell.gates.dropped} of {cell.blocks} ({format_gates(cell)})"


def format_gates(cell: ComparedCell) -> str:
    """Format how many blocks each gate dropped."""
    return ", ".join(f"{name} {number}" for name, number in cell.gates.reasons)


def list_headlines(comparison: Comparison) -> Iterator[str]:
    """Yield the result in one sentence per arm and number of vCPUs."""
    yield from (format_headline(comparison, overall) for overall in comparison.overall)
    yield from list_unanswered(comparison)


def list_unanswered(comparison: Comparison) -> Iterator[str]:
    """Yield a sentence for each arm that has no result."""
    answered = {overall.speedup.arm for overall in comparison.overall}
    for arm in comparison.candidates:
        if arm not in answered:
            yield f"No result for {arm}: it was not timed."


def format_headline(comparison: Comparison, overall: Overall) -> str:
    speedup, base = overall.speedup, comparison.baseline
    decision = find_mean_decision(comparison, overall)
    arm, figure = speedup.arm, wording.format_factor(speedup.interval.value)
    workloads = console.format_count(overall.workloads, "workload")
    span = (
        f"{wording.format_span(speedup.interval)}; geometric mean of {workloads} on "
        f"{console.format_vcpus(overall.vcpus)}; A/A {wording.format_span(overall.noise)}"
    )
    match decision.outcome:
        case Verdict.FASTER:
            return f"{arm} is faster than {base}: {figure} ({span})."
        case Verdict.SLOWER:
            return f"{arm} is slower than {base}: {figure} ({span}). Do not use it here."
        case Verdict.EQUIVALENT:
            reason = f"the difference is below {wording.format_percent(comparison.margin)}"
            if decision.reason is Reason.WITHIN_LIMIT:
                reason = f"the difference is within {_describe_limit(comparison, decision)}"
            return f"{arm} is equivalent to {base}, {reason}: {figure} ({span})."
        case Verdict.INCONCLUSIVE:
            return (
                f"Inconclusive: {_describe_undecided(comparison, decision, speedup)}: {figure} "
                f"({span}). "
                "Measure longer: --budget."
            )
        case _:
            return (
                f"{arm} computes something else than {base}. Do not use it. In the cells where "
                f"they agree, its speedup is {figure} ({span})."
            )


def _describe_undecided(comparison: Comparison, decision: Decision, speedup: Speedup) -> str:
    """Describe an inconclusive result: its likely direction, or its interval."""
    arm, base, interval = speedup.arm, comparison.baseline, speedup.interval
    match decision.reason:
        case Reason.LIKELY_FASTER | Reason.LIKELY_SLOWER:
            confidence = _describe_confidence(comparison, speedup)
            return f"{arm} is {decision.reason} than {base} ({confidence})"
        case Reason.HIGH_LIMIT:
            limit = _describe_limit(comparison, decision)
            return f"the difference between {arm} and {base} is within {limit}"
        case Reason.OVER_GATED if interval.excludes_1:
            return f"gates dropped too many blocks to compare {arm} with {base}"
    ends = f"{_format_distance(interval.low)} and {_format_distance(interval.high)}"
    return f"{arm} is between {ends} than {base}"


def _format_distance(ratio: float) -> str:
    return f"{abs(ratio - 1):.1%} {'faster' if ratio >= 1 else 'slower'}"


def list_failures(comparison: Comparison) -> Iterator[str]:
    """Yield why arms have no results, once per reason."""
    arms: dict[tuple[str, str, str, int], list[str]] = {}
    for row in list_rows(comparison):
        if row.decision.reason in {Reason.FAILED, Reason.NOT_TIMED}:
            key = (row.decision.outcome, explain(row), row.cell.workload, row.cell.vcpus)
            arms.setdefault(key, []).append(row.decision.arm)
    cells: dict[str, list[tuple[str, int]]] = {}
    for (verdict, cause, workload, vcpus), names in arms.items():
        sentence = f"{wording.join_words(names)} {verdict}: {cause}"
        cells.setdefault(sentence, []).append((workload, vcpus))
    yield from (
        f"{wording.format_cells(failed_cells)}: {sentence}"
        for sentence, failed_cells in cells.items()
    )


def list_coverage(comparison: Comparison) -> Iterator[tuple[str, ...]]:
    """Yield the share of op time that each arm spends in its tuned kernels: cell, arm, total
    share and the share of each op.
    """
    for cell in comparison.cells:
        for times in cell.arms:
            if coverage := times.coverage:
                ops = (f"{row.op} {row.share:.1%}" for row in coverage.ops if row.share >= SHOWN)
                yield (
                    *format_cell(cell),
                    times.arm,
                    wording.format_share(coverage.share),
                    ", ".join(ops),
                )


def list_fused_ops(comparison: Comparison) -> Iterator[tuple[str, ...]]:
    """Yield how many ops each arm's kernel library fused, did not fuse and ran as stock ops:
    cell, arm and the counts of each.
    """
    for cell in comparison.cells:
        for times in cell.arms:
            counts = times.coverage.fused if times.coverage else ()
            if not counts:
                continue
            fused_counts = (
                f"{name} {count}" for name, count in counts if not name.startswith(UNFUSED)
            )
            other_counts = (
                ", ".join(
                    f"{name.removeprefix(kind)} {count}"
                    for name, count in counts
                    if name.startswith(kind)
                )
                for kind in UNFUSED
            )
            yield (*format_cell(cell), times.arm, ", ".join(fused_counts), *other_counts)


def describe_kernels(arm: ArmFacts) -> str:
    if arm.whole:
        return "kernels of a full build"
    if arm.kernel_library is None:
        return "stock kernels"
    return f"tuned kernels from {Path(arm.kernel_library).name}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Caveat:
    """An observation in one cell. Caveats of one `kind` form one warning, whose sentence ends
    with `meaning`; `then` is what to do about it.
    """

    kind: str
    cell: ComparedCell
    what: str
    meaning: str = ""
    then: str = ""


def list_warnings(comparison: Comparison) -> Iterator[str]:
    """Yield what a reader must know before using the results, one line per kind of caveat."""
    if not comparison.complete:
        yield "Incomplete: the measurement ended before its last cell."
    yield from _describe_differences(comparison)
    all_cells = [(cell.workload, cell.vcpus) for cell in comparison.cells]
    for kind, caveats in group_caveats(comparison).items():
        cells = [(caveat.cell.workload, caveat.cell.vcpus) for caveat in caveats]
        location = wording.format_cells(cells, of=all_cells)
        first, single = caveats[0], len(caveats) == 1
        text = f"{location}: {first.what}" if single else f"{kind} in {location}"
        if first.meaning:
            comma = single or first.meaning.startswith("because ")
            text += f"{', ' if comma else ': '}{first.meaning}"
        yield f"{text}. {first.then}".rstrip()


def group_caveats(comparison: Comparison) -> dict[str, list[Caveat]]:
    """Return the caveats of all cells, grouped by kind."""
    caveats: dict[str, list[Caveat]] = {}
    for cell in comparison.cells:
        for caveat in _find_caveats(comparison, cell):
            caveats.setdefault(caveat.kind, []).append(caveat)
    return caveats


def _describe_differences(comparison: Comparison) -> Iterator[str]:
    """Describe how arms differ from the baseline beyond their kernels. Arms with the same
    differences share a sentence.
    """
    groups: dict[tuple[str, ...], list[ArmFacts]] = {}
    for base, arm in itertools.product(comparison.arms[:1], comparison.arms[1:]):
        if differences := _find_differences(base, arm):
            groups.setdefault(differences, []).append(arm)
    for differences, arms in groups.items():
        names = wording.join_words([arm.name for arm in arms])
        yield f"{names} against {comparison.baseline}: {'; '.join(differences)}."
    if comparison.arms and not any(map(_is_modified, comparison.arms)):
        yield "No arm loaded tuned kernels: this compares stock kernels with stock kernels."


def _find_differences(base: ArmFacts, arm: ArmFacts) -> tuple[str, ...]:
    """Return how the arm differs from the baseline apart from its kernels."""
    pairs = (("Python", base.python, arm.python), ("NumPy", base.numpy, arm.numpy))
    differences = [
        f"{field} {theirs}, not {ours}" for field, ours, theirs in pairs if ours != theirs
    ]
    if _name_runtime(arm) != _name_runtime(base):
        computes = f"{_name_runtime(arm)} computes the model, not {_name_runtime(base)}"
        also = "start-up and memory include TensorFlow"
        differences.insert(0, f"{computes}; {also}")
    elif arm.threading != base.threading:
        threads = f"kernels on {arm.threading} threads, not {base.threading} threads"
        means = "so this compares build families, not compiler flags"
        differences.insert(0, f"{threads}, {means}")
    if arm.keras != base.keras:
        means = "so their steps run different ops, and their results need not agree"
        differences.append(f"Keras {arm.keras}, not Keras {base.keras}, {means}")
    return tuple(differences)


def _name_runtime(arm: ArmFacts) -> str:
    return arm.threading if {RUNTIME, BACKEND} & {*dict(arm.env)} else "TensorFlow"


def _is_modified(arm: ArmFacts) -> bool:
    """Return whether the arm is more than the unmodified stock wheel."""
    return bool(arm.kernel_library or arm.whole or arm.env)


def _find_caveats(comparison: Comparison, cell: ComparedCell) -> Iterator[Caveat]:
    for agreement in cell.agreements:
        if not agreement.agrees:
            disagreement = f"{agreement.arm} computes something else than {comparison.baseline}"
            yield Caveat(kind=disagreement, cell=cell, what=disagreement, then="Do not use it.")
    if any(result.is_excused for result in cell.agreements):
        yield Caveat(
            kind="Rounding explains differences beyond the tolerance",
            cell=cell,
            what="rounding explains first losses or predictions that differ beyond the tolerance",
            then="These losses and predictions do not show whether the arms compute the same "
            "results.",
        )
    if cell.is_over_gated:
        yield Caveat(
            kind="Gates dropped too many blocks",
            cell=cell,
            what=f"gates dropped too many blocks, {_format_dropped(cell)}",
            then="All blocks count there, and the verdict is inconclusive.",
        )
    if cell.unsteady:
        launches = console.format_count(cell.launches, "launch", "launches")
        unsteady = "the warm-up did not reach a steady state"
        yield Caveat(
            kind=unsteady.capitalize(),
            cell=cell,
            what=f"in {cell.unsteady} of {launches} {unsteady}",
        )
    budget_s = comparison.effort.budget_s
    if budget_s is not None and cell.seconds > LONG * budget_s:
        yield Caveat(
            kind="Budget exceeded",
            cell=cell,
            what=f"took {console.format_duration(cell.seconds)} with a budget of "
            f"{console.format_duration(budget_s)}",
            meaning=f"because an interval needs at least {FEWEST_LAUNCHES} launches",
            then="For more launches, use a smaller batch or a longer --budget.",
        )
    yield from _find_unexplained_gains(cell)
    if cell.stopped_by and cell.launches < FEW_LAUNCHES:
        few = console.format_count(cell.launches, "launch", "launches")
        only_training = all(
            parse_name(other_cell.workload).phase == TRAIN for other_cell in comparison.cells
        )
        yield Caveat(
            kind=f"Only {few}",
            cell=cell,
            what=f"only {few}",
            meaning="too few to estimate the variation between launches",
            then=f"To measure more, compare with "
            f"{'--thorough' if only_training else 'a longer --budget'}.",
        )
    for times in cell.arms:
        if times.idle_share is not None and times.idle_share > IDLE:
            restless = f"{times.arm} used the CPU while other arms were timed"
            yield Caveat(
                kind=restless,
                cell=cell,
                what=f"{restless}: {times.idle_share:.1%} of that time",
                then="This slows down the other arms.",
            )


def _find_unexplained_gains(cell: ComparedCell) -> Iterator[Caveat]:
    """Find gains for which the tuned kernels would have to be more than LANES times as fast as
    stock kernels. Arms with other settings that could explain the gain are skipped, and so
    are arms with fused ops, since fusing also saves dispatch.

    A coverage is a share c of the op time of the tuned arm itself, so by Amdahl's law a
    speedup s needs kernels that are (s - (1 - c)) / c times as fast.
    """
    shares = {
        arm.arm: arm.coverage.share
        for arm in cell.arms
        if arm.coverage is not None
        and arm.environment == cell.arms[0].environment
        and not any(count and not name.startswith(UNFUSED) for name, count in arm.coverage.fused)
    }
    for speedup in cell.speedups:
        share = shares.get(speedup.arm)
        if share is not None and speedup.interval.low > 1 + (LANES - 1) * share:
            yield Caveat(
                kind=f"Implausible gain of {speedup.arm}",
                cell=cell,
                what=f"{wording.format_factor(speedup.interval.value)} cannot come from "
                f"{speedup.arm} kernels, which take {share:.1%} of the op time: they would "
                f"have to be more than {LANES} times as fast",
                then="Treat it as noise of this machine.",
            )
