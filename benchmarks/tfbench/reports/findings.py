"""What a comparison says, in rows and sentences: the answer, how it came, what to doubt. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tfbench.inside.workloads import label_of
from tfbench.measuring import gates
from tfbench.measuring.statistics import LIKELY, floor
from tfbench.reports import wording
from tfbuild import talk
from tfbuild.measured.comparison import (
    ArmFacts,
    ArmTimes,
    Cell,
    Comparison,
    Coverage,
    Overall,
    Speedup,
)
from tfbuild.measured.effort import Stop
from tfbuild.measured.interval import Interval, Verdict

FAILED = "failed"
DIFFERENT = "computes something else"
NOT_TIMED = "not timed"
FEW_LAUNCHES = 4
IDLE = 0.01
"""Share of the others' time in which an arm that has nothing to do may compute."""
SHOWN = 0.001
"""The smallest share of op time that is listed."""
STOPS = {
    Stop.PRECISION: "the intervals were narrow enough",
    Stop.LAUNCHES: "it was the last look",
    Stop.BUDGET: "the time was up",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
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

    @property
    def known(self) -> str:
        """The speedup and its interval."""
        return f"{self.speedup} ({self.interval})" if self.speedup else ""

    @property
    def place(self) -> str:
        return f"{self.workload} on {talk.vcpus(int(self.vcpus))}, {self.arm}"


def candidates(comparison: Comparison) -> tuple[str, ...]:
    """The other arms, with those that never started; neither the baseline nor its twin."""
    base = comparison.baseline
    failed = (each.arm for cell in comparison.cells for each in cell.failures)
    names = dict.fromkeys([*(arm.name for arm in comparison.arms[1:]), *failed])
    return tuple(name for name in names if name not in {base, f"{base} again"})


def title(comparison: Comparison) -> str:
    cpu = comparison.host.cpu.name
    if not comparison.arms:
        return f"Nothing started on {cpu}"
    others = wording.listed(candidates(comparison)) or "nothing"
    return f"{others} against {comparison.baseline} on {cpu}"


def rows(comparison: Comparison) -> Iterator[Row]:
    """One per cell and arm, and one for the baseline, or its twin, where that failed."""
    arms = candidates(comparison)
    for cell in comparison.cells:
        failed = {each.arm: each.reason.strip() for each in cell.failures}
        for arm in dict.fromkeys([*arms, *failed]):
            if arm in failed:
                yield _row(comparison, cell, arm, FAILED, failed[arm])
            else:
                yield _answered(comparison, cell, arm)


def _answered(comparison: Comparison, cell: Cell, arm: str) -> Row:
    for agreement in cell.agreements:
        if agreement.arm == arm and not agreement.agrees:
            why = f"beyond the tolerance of {agreement.tolerance:g}"
            return _row(comparison, cell, arm, DIFFERENT, why)
    speedup = next((each for each in cell.speedups if each.arm == arm), None)
    if speedup is None:
        return _row(comparison, cell, arm, NOT_TIMED, "the cell has no answer without its baseline")
    verdict = said(comparison, speedup, cell.noise)
    return _row(comparison, cell, arm, verdict, reason(comparison, cell, speedup), speedup)


def said(comparison: Comparison, speedup: Speedup, noise: Interval | None) -> str:
    """The verdict, or where there is none yet what is likely."""
    leaning = likely(comparison, speedup, noise)
    return f"likely {leaning}" if leaning else str(speedup.verdict)


def likely(comparison: Comparison, speedup: Speedup, noise: Interval | None) -> str:
    """`faster` or `slower` where a difference beyond the noise floor and the threshold is likely
    and not yet sure; empty else."""
    if speedup.verdict is not Verdict.INCONCLUSIVE or noise is None:
        return ""
    least = max(floor(noise), math.log1p(comparison.threshold))
    beyond = abs(math.log(speedup.interval.value)) > least
    if not beyond or speedup.confidence < LIKELY:
        return ""
    return str(Verdict.FASTER if speedup.interval.value > 1 else Verdict.SLOWER)


def _row(
    comparison: Comparison,
    cell: Cell,
    arm: str,
    verdict: str,
    why: str,
    speedup: Speedup | None = None,
) -> Row:
    steps = {each.arm: _milliseconds(each) for each in cell.arms}
    return Row(
        workload=label_of(cell.workload),
        vcpus=str(cell.vcpus),
        arm=arm,
        baseline_ms=steps.get(comparison.baseline, ""),
        arm_ms=steps.get(arm, ""),
        speedup=wording.factor(speedup.interval.value) if speedup else "",
        interval=wording.span(speedup.interval) if speedup else "",
        noise=wording.span(cell.noise) if cell.noise else "",
        verdict=str(verdict),
        why=why,
    )


def _milliseconds(times: ArmTimes) -> str:
    """Of a step; of requests also the time within which 99 of 100 were answered."""
    mean, slow = wording.milliseconds(times.step_ms), times.latency and times.latency.p99_ms
    return f"{mean} ({wording.milliseconds(slow)})" if slow else mean


def reason(comparison: Comparison, cell: Cell, speedup: Speedup) -> str:
    """Which rule of the method gave the verdict."""
    if over_gated(cell):
        return f"more than {gates.MOST_DROPPED:.0%} of the blocks were dropped"
    interval, bar = speedup.interval, _bar(comparison, cell)
    outside = interval.low > 1 or interval.high < 1
    match speedup.verdict:
        case Verdict.FASTER | Verdict.SLOWER:
            return f"the interval leaves out 1, by more than {bar}"
        case Verdict.WITHIN_NOISE if outside:
            return f"the interval leaves out 1, but by less than {bar}"
        case Verdict.WITHIN_NOISE:
            return f"the whole interval lies within {comparison.margin:.0%} of 1"
        case _ if outside:
            return f"the interval leaves out 1, but by less than {bar}, which is too high to tell"
        case _ if likely(comparison, speedup, cell.noise):
            return f"an interval of {wording.level(speedup.confidence)} would leave out 1"
    return f"the interval holds 1 and reaches beyond {comparison.margin:.0%} of it"


def _bar(comparison: Comparison, cell: Cell) -> str:
    """What a difference must pass: the higher of two."""
    if cell.noise is None:
        return "a noise floor that is not known"
    floor = floor_of(cell.noise)
    if floor >= comparison.threshold:
        return f"the noise floor of {floor:.1%}"
    return f"the threshold of {comparison.threshold:.1%}"


def floor_of(noise: Interval) -> float:
    """What a difference must pass, 0.01 is 1 %."""
    return math.expm1(floor(noise))


def over_gated(cell: Cell) -> bool:
    return cell.gates.dropped > gates.MOST_DROPPED * cell.blocks


def _dropped(cell: Cell) -> str:
    why = ", ".join(f"{name} {number}" for name, number in cell.gates.reasons)
    return f"{cell.gates.dropped} of {cell.blocks} blocks dropped" + (f" ({why})" if why else "")


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
    workloads = talk.count(each.workloads, "workload")
    span = (
        f"{wording.span(speedup.interval)}; geometric mean of {workloads} on "
        f"{talk.vcpus(each.vcpus)}; A/A {wording.span(each.noise)}"
    )
    match outcome(comparison, each):
        case Verdict.FASTER:
            return f"{arm} is faster than {base}: {known} ({span})."
        case Verdict.SLOWER:
            return f"{arm} is slower than {base}: {known} ({span}). Do not use it here."
        case Verdict.WITHIN_NOISE:
            return f"No gain: {arm} takes as long as {base}, within the noise: {known} ({span})."
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
    if interval.low > 1 or interval.high < 1:
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
    places: dict[str, list[str]] = {}
    for row in rows(comparison):
        if row.verdict in {FAILED, DIFFERENT, NOT_TIMED}:
            where = f"{row.workload} on {talk.vcpus(int(row.vcpus))}"
            places.setdefault(f"{row.arm} {row.verdict} ({row.why})", []).append(where)
    yield from (f"{wording.listed(where)}: {what}" for what, where in places.items())


def covered(comparison: Comparison) -> Iterator[str]:
    """How much of each workload's time tuned kernels can change at all, and where it is nothing."""
    for arm in comparison.arms:
        found = {
            wording.place(cell.workload, cell.vcpus): each.coverage
            for cell in comparison.cells
            for each in cell.arms
            if each.arm == arm.name and each.coverage is not None
        }
        for place, coverage in found.items():
            if coverage.share >= SHOWN:
                yield f"{place}: {arm.name} kernels cover {_covered(coverage)}."
        nothing = [place for place, coverage in found.items() if coverage.share < SHOWN]
        if nothing:
            least = f"less than {SHOWN:.1%} of the op time"
            yield f"{arm.name} kernels cover {least} of {wording.listed(nothing)}."


def _covered(coverage: Coverage) -> str:
    ops = ", ".join(f"{row.op} {row.share:.1%}" for row in coverage.ops if row.share >= SHOWN)
    return f"{coverage.share:.1%} of the op time" + (f" ({ops})" if ops else "")


def kernels(arm: ArmFacts) -> str:
    if arm.whole:
        return "kernels of a full build"
    if arm.kernel_library is None:
        return "stock kernels"
    return f"tuned kernels from {Path(arm.kernel_library).name}"


def warnings(comparison: Comparison) -> Iterator[str]:
    """What a reader must know before the figures are used."""
    if not comparison.complete:
        yield "Not complete: the measurement was ended before its last cell."
    yield from _disagreements(comparison)
    yield from _families(comparison)
    for cell in comparison.cells:
        where = wording.place(cell.workload, cell.vcpus)
        yield from (f"{where}: {line}" for line in _doubts(cell))
    yield from _few_launches(comparison)
    yield from _restless(comparison)


def _disagreements(comparison: Comparison) -> Iterator[str]:
    for cell in comparison.cells:
        for each in cell.agreements:
            if not each.agrees:
                yield (
                    f"{wording.place(cell.workload, cell.vcpus)}: {each.arm} does not compute what "
                    f"{comparison.baseline} computes. Do not use it."
                )


def _families(comparison: Comparison) -> Iterator[str]:
    """Where arms differ in more than what they are called."""
    for base, arm in itertools.product(comparison.arms[:1], comparison.arms[1:]):
        if arm.threading != base.threading:
            yield (
                f"{base.name} runs its kernels on {base.threading} threads and {arm.name} on "
                f"{arm.threading} threads: this is a comparison of build families, not the gain "
                "of a compiler's flag."
            )
        for what, ours, theirs in (
            ("Python", base.python, arm.python),
            ("NumPy", base.numpy, arm.numpy),
        ):
            if ours != theirs:
                yield f"{base.name} has {what} {ours} and {arm.name} has {what} {theirs}."
        if arm.keras != base.keras:
            yield (
                f"{base.name} has Keras {base.keras} and {arm.name} has Keras {arm.keras}: a step "
                "of the same program is other ops there, and its results are not held to the same."
            )
    if comparison.arms and not any(map(_is_other, comparison.arms)):
        yield "No arm loaded tuned kernels: this compares stock kernels with stock kernels."


def _is_other(arm: ArmFacts) -> bool:
    """Whether the arm is more than the stock wheel as it is."""
    return bool(arm.kernel_library or arm.whole or arm.env)


def _doubts(cell: Cell) -> Iterator[str]:
    if over_gated(cell):
        yield (
            f"{_dropped(cell)}. What is left is no fair picture: the machine was too busy for an "
            "answer."
        )
    if cell.unsteady:
        launches = talk.count(cell.launches, "launch", "launches")
        yield f"in {cell.unsteady} of {launches} the warm-up had not become steady in its time."
    yield from _unexplained(cell)


def _unexplained(cell: Cell) -> Iterator[str]:
    """Gains beyond what kernels of that share could give if they took no time (Amdahl's law), of
    arms that have no other settings which could give them."""
    shares = {
        arm.arm: arm.coverage.share
        for arm in cell.arms
        if arm.coverage is not None and arm.environment == cell.arms[0].environment
    }
    for each in cell.speedups:
        share = shares.get(each.arm)
        if share is not None and each.interval.low * (1 - share) > 1:
            yield (
                f"{wording.factor(each.interval.value)} cannot come from {each.arm} kernels, which "
                f"cover {share:.1%} of the op time. Take it for noise of this machine."
            )


def _few_launches(comparison: Comparison) -> Iterator[str]:
    fewest = min((cell.launches for cell in comparison.cells if cell.stopped_by), default=None)
    if fewest is not None and fewest < FEW_LAUNCHES:
        yield (
            f"A quick look: {talk.count(fewest, 'launch', 'launches')} of a model hardly show "
            f"how two starts of it differ. {FEW_LAUNCHES} or more do."
        )


def _restless(comparison: Comparison) -> Iterator[str]:
    for arm in comparison.arms:
        shares = [
            (times.idle_share, cell)
            for cell in comparison.cells
            for times in cell.arms
            if times.arm == arm.name and times.idle_share is not None and times.idle_share > IDLE
        ]
        if shares:
            most, cell = max(shares, key=lambda each: each[0])
            yield (
                f"{arm.name} did not rest while others were timed: its threads took {most:.1%} of "
                f"that time ({wording.place(cell.workload, cell.vcpus)}). It slows down the others."
            )
