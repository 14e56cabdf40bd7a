"""What a comparison says, in rows and sentences: the answer, how it came, what to doubt. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from tfbench.inside.workloads import format_label
from tfbench.measuring import gates
from tfbench.measuring.effort import FEWEST_LAUNCHES
from tfbench.measuring.statistics import LIKELY, compute_floor
from tfbench.reports import wording
from tfbuild import console
from tfbuild.measured.comparison import (
    ArmFacts,
    ArmResult,
    ArmTimes,
    ComparedCell,
    Comparison,
    Overall,
    Speedup,
)
from tfbuild.measured.effort import Stop
from tfbuild.measured.interval import Interval, Verdict

FAILED = "failed"
DIFFERENT = "computes something else"
NOT_TIMED = "not timed"
FEW_LAUNCHES = 4
LONG = 1.5
"""So many times its budget is worth a word."""
IDLE = 0.01
"""Share of the others' time in which an arm that has nothing to do may compute."""
SHOWN = 0.001
"""The smallest share of op time that an op is named for."""
LANES = 16
"""Elements of float32 in the widest vector register (AVX-512). Kernels that are more times as fast
than this are not credible."""
UNFUSED = ("left: ", "stock: ")
"""How counts of a library begin that are not of what it fused."""
STOPS = {
    Stop.PRECISION: "the intervals were narrow enough",
    Stop.LAUNCHES: "it was the last look",
    Stop.BUDGET: "the time was up",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class FindingRow:
    """One arm in one cell, as text. `why` is how the verdict came about, or why there is none."""

    workload: str
    vcpus: str
    arm: str
    baseline_ms: str
    arm_ms: str
    speedup: str
    interval: str
    noise: str
    """The A/A interval."""
    verdict: str
    why: str
    confidence: str
    """The largest level at which the interval leaves out 1."""
    medians: str
    """The second opinion."""

    @property
    def known(self) -> str:
        """The speedup and its interval."""
        return f"{self.speedup} ({self.interval})" if self.speedup else ""


def candidates(comparison: Comparison) -> tuple[str, ...]:
    """The other arms, with those that never started; neither the baseline nor its repeat."""
    base = comparison.baseline
    failed = (each.arm for cell in comparison.cells for each in cell.failures)
    names = dict.fromkeys([*(arm.name for arm in comparison.arms[1:]), *failed])
    return tuple(name for name in names if name not in {base, f"{base} again"})


def title(comparison: Comparison) -> str:
    cpu = comparison.host.cpu.name
    if not comparison.arms:
        return f"Nothing started on {cpu}"
    versions = {arm.name: version for arm in comparison.arms if (version := _version(arm))}

    def named(arm: str) -> str:
        return f"{arm} ({versions[arm]})" if arm in versions else arm

    others = wording.listed([*map(named, candidates(comparison))]) or "nothing"
    return f"{others} against {named(comparison.baseline)} on {cpu}"


def _version(arm: ArmFacts) -> str:
    """Of the arm's wheel, with its target; empty for what is no wheel."""
    try:
        return str(parse_wheel_filename(arm.label.partition(" ")[0])[1])
    except InvalidWheelFilename:
        return ""


def rows(comparison: Comparison) -> Iterator[FindingRow]:
    """One per cell and arm, and one for the baseline, or its repeat, where that failed."""
    arms = candidates(comparison)
    for cell in comparison.cells:
        for arm in dict.fromkeys([*arms, *(each.arm for each in cell.failures)]):
            yield _row(comparison, cell, arm)


def place(cell: ComparedCell) -> tuple[str, str]:
    """The workload and the number of vCPUs, as a table has them."""
    return format_label(cell.workload), str(cell.vcpus)


def said(comparison: Comparison, speedup: Speedup, noise: Interval | None) -> str:
    """The verdict, or where there is none yet what is likely."""
    leaning = likely(comparison, speedup, noise)
    return f"likely {leaning}" if leaning else str(speedup.verdict)


def likely(comparison: Comparison, speedup: Speedup, noise: Interval | None) -> str:
    """`faster` or `slower` where a difference beyond the noise floor and the threshold is likely
    and not yet sure; empty else."""
    if speedup.verdict is not Verdict.INCONCLUSIVE or noise is None:
        return ""
    least = max(compute_floor(noise), math.log1p(comparison.threshold))
    beyond = abs(math.log(speedup.interval.value)) > least
    if not beyond or speedup.confidence < LIKELY:
        return ""
    return str(Verdict.FASTER if speedup.interval.value > 1 else Verdict.SLOWER)


def _row(comparison: Comparison, cell: ComparedCell, arm: str) -> FindingRow:
    verdict, why, speedup = _judged(comparison, cell, cell.get_result(arm))
    workload, vcpus = place(cell)
    return FindingRow(
        workload=workload,
        vcpus=vcpus,
        arm=arm,
        baseline_ms=_milliseconds(cell.get_result(comparison.baseline).times),
        arm_ms=_milliseconds(cell.get_result(arm).times),
        speedup=wording.factor(speedup.interval.value) if speedup else "",
        interval=wording.span(speedup.interval) if speedup else "",
        noise=wording.span(cell.noise) if cell.noise else "",
        verdict=verdict,
        why=why,
        confidence=wording.level(speedup.confidence) if speedup else "",
        medians=wording.factor_span(speedup.medians) if speedup and speedup.medians else "",
    )


def _judged(
    comparison: Comparison, cell: ComparedCell, found: ArmResult
) -> tuple[str, str, Speedup | None]:
    """The verdict and why, with the speedup that it is about."""
    if found.failure:
        return FAILED, found.failure.reason.strip(), None
    if found.agreement and not found.agreement.agrees:
        return DIFFERENT, f"beyond the tolerance of {found.agreement.tolerance:g}", None
    if found.speedup is None:
        return NOT_TIMED, "the cell has no answer without its baseline", None
    verdict = said(comparison, found.speedup, cell.noise)
    return verdict, reason(comparison, cell, found.speedup), found.speedup


def _milliseconds(times: ArmTimes | None) -> str:
    """Of a step; of requests also the time within which 99 of 100 were answered."""
    if times is None:
        return ""
    mean, slow = wording.milliseconds(times.step_ms), times.latency and times.latency.p99_ms
    return f"{mean} ({wording.milliseconds(slow)})" if slow else mean


def reason(comparison: Comparison, cell: ComparedCell, speedup: Speedup) -> str:
    """Which rule of the method gave the verdict."""
    if over_gated(cell):
        return f"too many blocks are no measurement: {_dropped(cell)}"
    interval, edge = speedup.interval, _edge(comparison, cell)
    outside = interval.excludes_1
    match speedup.verdict:
        case Verdict.FASTER | Verdict.SLOWER:
            return f"the interval leaves out 1, and the estimate lies beyond {edge}"
        case Verdict.WITHIN_NOISE if outside:
            return f"the interval leaves out 1, but the estimate lies within {edge}"
        case Verdict.WITHIN_NOISE:
            tested, margin = comparison.margin_level, comparison.margin
            return (
                f"the {wording.percent(tested)} interval lies within {wording.percent(margin)} of 1"
            )
        case _ if outside:
            return (
                f"the interval leaves out 1, but the estimate lies within {edge}, which is too "
                "high to tell"
            )
        case _ if likely(comparison, speedup, cell.noise):
            return f"an interval of {wording.level(speedup.confidence)} would leave out 1"
    return f"the interval holds 1 and reaches beyond {wording.percent(comparison.margin)} of it"


def _edge(comparison: Comparison, cell: ComparedCell) -> str:
    """What a difference must pass: the higher of two."""
    if cell.noise is None:
        return "a noise floor that is not known"
    floor = floor_of(cell.noise)
    if floor >= comparison.threshold:
        return f"the noise floor of {floor:.1%}"
    return f"the threshold of {comparison.threshold:.1%}"


def floor_of(noise: Interval) -> float:
    """What a difference must pass, 0.01 is 1 %."""
    return math.expm1(compute_floor(noise))


def over_gated(cell: ComparedCell) -> bool:
    """Whether gates left so few blocks that all of them count, and nothing is decided."""
    found = cell.gates
    if found.counting is None:
        return found.dropped > gates.MOST_DROPPED * cell.blocks
    return found.dropped > 0 and found.counting == cell.blocks


def _dropped(cell: ComparedCell) -> str:
    return f"{cell.gates.dropped} of {cell.blocks} ({gated(cell)})"


def gated(cell: ComparedCell) -> str:
    """How often each gate found a block to be no measurement."""
    return ", ".join(f"{name} {number}" for name, number in cell.gates.reasons)


def headlines(comparison: Comparison) -> Iterator[str]:
    """The answer in one sentence per arm and number of vCPUs."""
    yield from (headline(comparison, each) for each in comparison.overall)
    yield from unanswered(comparison)


def unanswered(comparison: Comparison) -> Iterator[str]:
    """The arms about which nothing can be said."""
    known = {each.speedup.arm for each in comparison.overall}
    for arm in candidates(comparison):
        if arm not in known:
            yield f"No answer about {arm}: it was not timed."


def outcome(comparison: Comparison, each: Overall) -> str:
    """The verdict; a mean of an arm that computes something else anywhere has none."""
    wrong = {
        agreement.arm
        for cell in comparison.cells
        for agreement in cell.agreements
        if not agreement.agrees
    }
    return DIFFERENT if each.speedup.arm in wrong else str(each.speedup.verdict)


def headline(comparison: Comparison, each: Overall) -> str:
    speedup, base = each.speedup, comparison.baseline
    arm, known = speedup.arm, wording.factor(speedup.interval.value)
    workloads = console.format_count(each.workloads, "workload")
    span = (
        f"{wording.span(speedup.interval)}; geometric mean of {workloads} on "
        f"{console.format_vcpus(each.vcpus)}; A/A {wording.span(each.noise)}"
    )
    match outcome(comparison, each):
        case Verdict.FASTER:
            return f"{arm} is faster than {base}: {known} ({span})."
        case Verdict.SLOWER:
            return f"{arm} is slower than {base}: {known} ({span}). Do not use it here."
        case Verdict.WITHIN_NOISE:
            least = f" of {wording.percent(comparison.margin)} or more"
            gain = "No gain" + ("" if speedup.interval.excludes_1 else least)
            return f"{gain}: {arm} takes as long as {base}, within the noise: {known} ({span})."
        case Verdict.INCONCLUSIVE:
            return f"{_undecided(comparison, each)}: {known} ({span}). Measure longer: --budget."
        case _:
            return (
                f"{arm} does not compute what {base} computes. Do not use it. Where it agrees its "
                f"speedup is {known} ({span})."
            )


def _undecided(comparison: Comparison, each: Overall) -> str:
    """What is known where there is no verdict."""
    speedup, base = each.speedup, comparison.baseline
    leaning = likely(comparison, speedup, each.noise)
    if leaning:
        sure = f"sure to {wording.level(speedup.confidence)}, a verdict asks for"
        return f"{speedup.arm} is likely {leaning} than {base}, {sure} {comparison.level:.0%}"
    interval = speedup.interval
    if interval.excludes_1:
        return (
            f"No answer about {speedup.arm}: it differs from {base} by no more than {base} does "
            "from itself"
        )
    ends = f"{_distance(interval.low)} and {_distance(interval.high)}"
    return f"No answer about {speedup.arm} yet, which is between {ends}"


def _distance(ratio: float) -> str:
    return f"{abs(ratio - 1):.1%} {'faster' if ratio >= 1 else 'slower'}"


def failed(comparison: Comparison) -> Iterator[str]:
    """Why arms have no figures, each reason once."""
    arms: dict[tuple[str, str, str, str], list[str]] = {}
    for row in rows(comparison):
        if row.verdict in {FAILED, NOT_TIMED}:
            key = (row.verdict, row.why, row.workload, row.vcpus)
            arms.setdefault(key, []).append(row.arm)
    places: dict[str, list[tuple[str, int]]] = {}
    for (verdict, why, workload, vcpus), names in arms.items():
        said = f"{wording.listed(names)} {verdict}: {why}"
        places.setdefault(said, []).append((workload, int(vcpus)))
    yield from (f"{wording.places(where)}: {said}" for said, where in places.items())


def covered(comparison: Comparison) -> Iterator[tuple[str, ...]]:
    """The share of its op time that each arm spends in its tuned kernels: the cell, the arm, the
    share, and that of each op."""
    for cell in comparison.cells:
        for each in cell.arms:
            if found := each.coverage:
                ops = (f"{row.op} {row.share:.1%}" for row in found.ops if row.share >= SHOWN)
                yield (*place(cell), each.arm, wording.share(found.share), ", ".join(ops))


def fused(comparison: Comparison) -> Iterator[tuple[str, ...]]:
    """What each arm's library fused, what it left alone and what ran as before: the cell, the arm,
    and the counts of each."""
    for cell in comparison.cells:
        for each in cell.arms:
            counts = each.coverage.fused if each.coverage else ()
            if not counts:
                continue
            done = (f"{name} {count}" for name, count in counts if not name.startswith(UNFUSED))
            others = (
                ", ".join(
                    f"{name.removeprefix(kind)} {count}"
                    for name, count in counts
                    if name.startswith(kind)
                )
                for kind in UNFUSED
            )
            yield (*place(cell), each.arm, ", ".join(done), *others)


def kernels(arm: ArmFacts) -> str:
    if arm.whole:
        return "kernels of a full build"
    if arm.kernel_library is None:
        return "stock kernels"
    return f"tuned kernels from {Path(arm.kernel_library).name}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Caveat:
    """What was seen in one cell. Those of one `kind` are one warning; `then` is what follows."""

    kind: str
    cell: ComparedCell
    what: str
    then: str = ""


def warnings(comparison: Comparison) -> Iterator[str]:
    """What a reader must know before the figures are used, a line for each kind."""
    if not comparison.complete:
        yield "Not complete: the measurement was ended before its last cell."
    yield from _families(comparison)
    every = [(cell.workload, cell.vcpus) for cell in comparison.cells]
    for kind, found in doubts(comparison).items():
        cells = [(each.cell.workload, each.cell.vcpus) for each in found]
        where = wording.places(cells, of=every)
        what = f"{where}: {found[0].what}." if len(found) == 1 else f"{kind} in {where}."
        yield f"{what} {found[0].then}".rstrip()


def doubts(comparison: Comparison) -> dict[str, list[Caveat]]:
    """By kind."""
    found: dict[str, list[Caveat]] = {}
    for cell in comparison.cells:
        for each in _doubts(comparison, cell):
            found.setdefault(each.kind, []).append(each)
    return found


def _families(comparison: Comparison) -> Iterator[str]:
    """Where arms differ in more than what they are called, those that differ alike once."""
    alike: dict[tuple[str, ...], list[ArmFacts]] = {}
    for base, arm in itertools.product(comparison.arms[:1], comparison.arms[1:]):
        if found := _apart(base, arm):
            alike.setdefault(found, []).append(arm)
    for found, arms in alike.items():
        names = wording.listed([arm.name for arm in arms])
        yield f"{names}, other than {comparison.baseline}: {'; '.join(found)}."
    if comparison.arms and not any(map(_is_other, comparison.arms)):
        yield "No arm loaded tuned kernels: this compares stock kernels with stock kernels."


def _apart(base: ArmFacts, arm: ArmFacts) -> tuple[str, ...]:
    """In what the arm differs from the baseline beside its kernels."""
    pairs = (("Python", base.python, arm.python), ("NumPy", base.numpy, arm.numpy))
    found = [f"{what} {theirs}, not {ours}" for what, ours, theirs in pairs if ours != theirs]
    if arm.threading != base.threading:
        threads = f"kernels on {arm.threading} threads, not {base.threading} threads"
        means = "which compares build families, not the gain of a compiler's flag"
        found.insert(0, f"{threads}, {means}")
    if arm.keras != base.keras:
        means = "of which a step is other ops, and whose results are not held to the same"
        found.append(f"Keras {arm.keras}, not Keras {base.keras}, {means}")
    return tuple(found)


def _is_other(arm: ArmFacts) -> bool:
    """Whether the arm is more than the stock wheel as it is."""
    return bool(arm.kernel_library or arm.whole or arm.env)


def _doubts(comparison: Comparison, cell: ComparedCell) -> Iterator[Caveat]:
    for agreement in cell.agreements:
        if not agreement.agrees:
            other = f"{agreement.arm} does not compute what {comparison.baseline} computes"
            yield Caveat(kind=other, cell=cell, what=other, then="Do not use it.")
    if any(each.is_excused for each in cell.agreements):
        yield Caveat(
            kind="Rounding alone explains what differs",
            cell=cell,
            what="first losses or predictions differ beyond the tolerance, as rounding explains",
            then="Whether arms compute the same is told by fewer of them there.",
        )
    if over_gated(cell):
        yield Caveat(
            kind="Too many blocks are no measurement",
            cell=cell,
            what=f"too many blocks are no measurement, {_dropped(cell)}",
            then="All blocks count there, and there is no verdict.",
        )
    if cell.unsteady:
        launches = console.format_count(cell.launches, "launch", "launches")
        unsteady = "the warm-up had not become steady in its time"
        yield Caveat(
            kind=unsteady.capitalize(),
            cell=cell,
            what=f"in {cell.unsteady} of {launches} {unsteady}",
        )
    budget_s = comparison.effort.budget_s
    if budget_s is not None and cell.seconds > LONG * budget_s:
        yield Caveat(
            kind="It took longer than its budget",
            cell=cell,
            what=f"it took {console.format_duration(cell.seconds)}, its budget was "
            f"{console.format_duration(budget_s)}: "
            f"{FEWEST_LAUNCHES} starts are the fewest that give an interval",
            then="A smaller batch or a longer --budget gives more of them.",
        )
    yield from _unexplained(cell)
    if cell.stopped_by and cell.launches < FEW_LAUNCHES:
        yield Caveat(
            kind=f"A quick look: fewer than {FEW_LAUNCHES} launches",
            cell=cell,
            what=f"a quick look: {console.format_count(cell.launches, 'launch', 'launches')}",
            then="So few hardly show how two starts of a model differ.",
        )
    for times in cell.arms:
        if times.idle_share is not None and times.idle_share > IDLE:
            restless = f"{times.arm} did not rest while others were timed"
            yield Caveat(
                kind=restless,
                cell=cell,
                what=f"{restless}: its threads took {times.idle_share:.1%} of that time",
                then="It slows down the others.",
            )


def _unexplained(cell: ComparedCell) -> Iterator[Caveat]:
    """Gains for which the tuned kernels would have to be more than LANES times as fast as stock's,
    of arms that have no other settings which could give them, and in which nothing was fused: that
    saves dispatch, too.

    A coverage is a share c of the op time that the tuned arm itself has, so by Amdahl's law a
    speedup s needs kernels that are (s - (1 - c)) / c times as fast.
    """
    shares = {
        arm.arm: arm.coverage.share
        for arm in cell.arms
        if arm.coverage is not None
        and arm.environment == cell.arms[0].environment
        and not any(count and not name.startswith(UNFUSED) for name, count in arm.coverage.fused)
    }
    for each in cell.speedups:
        share = shares.get(each.arm)
        if share is not None and each.interval.low > 1 + (LANES - 1) * share:
            yield Caveat(
                kind=f"More gain than {each.arm} kernels can give",
                cell=cell,
                what=f"{wording.factor(each.interval.value)} cannot come from {each.arm} kernels, "
                f"which take {share:.1%} of the op time: they would have to be more than {LANES} "
                "times as fast",
                then="Take it for noise of this machine.",
            )
