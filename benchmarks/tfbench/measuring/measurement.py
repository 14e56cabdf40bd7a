"""One cell measured: all arms' workers side by side, through launches and blocks."""

from __future__ import annotations

import dataclasses
import math
import os
import statistics
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tfbench.arms.arm import Arm
from tfbench.engine import workers
from tfbench.engine.engine import RunProgress
from tfbench.engine.schedule import create_random, draw_block_order, draw_launch_order, group_cpus
from tfbench.engine.workers import Session
from tfbench.inside.phases import TRAIN
from tfbench.inside.workloads import find_phase, find_schedule, format_label
from tfbench.measuring import repetition
from tfbench.measuring.agreement import agreements
from tfbench.measuring.effort import FEWEST_LAUNCHES, SHORTEST_S, longer, steps_per_sample, stop
from tfbench.measuring.observations import (
    ObservedCell,
    failures_of,
    half_width,
    launches_of,
    more_blocks,
    starts_of,
)
from tfbench.measuring.repetition import LaunchCost
from tfbench.measuring.samples import End, Entry, Fault, Sample, Start
from tfbench.measuring.statistics import has_trend
from tfbuild import console
from tfbuild.cpus.cpu import read_numa_nodes
from tfbuild.errors import WorkerError
from tfbuild.measured.effort import Effort

CHECKED_STEPS = 5
PROFILED_STEPS = 5
FEWEST_ROUNDS, TREND_ROUNDS, MOST_ROUNDS = 2, 6, 30
"""Warm-up looks at the last TREND_ROUNDS for a trend, and ends after MOST_ROUNDS with one. It ends
after FEWEST_ROUNDS where its share of the budget is spent."""
WARM_UP_SHARE = 4
"""Warm-up samples have a quarter of the steps."""

Keep = Callable[[Entry], None]
Listen = Callable[[ObservedCell], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class CellSpec:
    """A cell to be measured. The first arm is the baseline, the second its repeat."""

    workload: str
    vcpus: tuple[int, ...]
    """The CPUs that every worker is held to."""
    arms: tuple[Arm, ...]
    seed: int

    @property
    def tolerances(self) -> dict[str, float]:
        return {arm.name: arm.tolerance for arm in self.arms}

    @property
    def place(self) -> tuple[str, int]:
        """What its entries have in common."""
        return self.workload, len(self.vcpus)

    def of(self, entries: Sequence[Entry]) -> list[Entry]:
        """The cell's own."""
        return [entry for entry in entries if (entry.workload, entry.vcpus) == self.place]

    def without(self, names: frozenset[str]) -> CellSpec:
        return dataclasses.replace(
            self, arms=tuple(arm for arm in self.arms if arm.name not in names)
        )


def phases_of(workload: str, effort: Effort) -> tuple[str, ...]:
    """What is timed, the judged one last. A training run's other phases are where blocks of them
    are asked."""
    judged = find_phase(workload)
    others = find_schedule(workload).phases if effort.phase_blocks and judged == TRAIN else ()
    return (*(phase for phase in others if phase != judged), judged)


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedLaunch:
    """A launch to be measured. `steps` are those per sample, by phase; a phase that has none yet is
    calibrated. `blocks` are those of training; None lets the launch tell from what its own start
    cost. With `profiled` the tuned arms are profiled at its end."""

    spec: CellSpec
    number: int
    steps: Mapping[str, int]
    blocks: int | None
    profiled: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredCell:
    """One cell as the engine runs it. `listen` is told what is known before each launch.

    An arm whose worker fails, or that computes something else, is left out of further launches.
    When the baseline or its repeat does, the cell ends with that.
    """

    spec: CellSpec
    effort: Effort
    logs: Path
    listen: Listen

    def measured(self, entries: Sequence[Entry]) -> ObservedCell:
        return measured_of(self.spec, entries)

    def counts(self, entry: Entry) -> bool:
        return (entry.workload, entry.vcpus) == self.spec.place

    def following(self, entries: Sequence[Entry], _: RunProgress) -> PlannedLaunch | None:
        measured = self.measured(entries)
        self.listen(measured)
        out = frozenset(each.arm for each in measured.failures)
        out |= _disagreeing(self.spec, measured.starts)
        blocks = more_blocks(measured, self.effort) if measured.launches else None
        if blocks == 0 or _ended(self.spec, measured, out, self.effort):
            return None
        return PlannedLaunch(
            spec=self.spec.without(out),
            number=1 + max((entry.launch for entry in entries), default=-1),
            steps={p: each.steps(p) for each in measured.launches[:1] for p in each.blocks},
            blocks=blocks,
            profiled=not measured.profiled,
        )

    def launch(self, launch: PlannedLaunch, keep: Keep) -> None:
        """Raises DiskError as `keep` does."""
        try:
            measure_launch(launch, self.effort, logs=self.logs, keep=keep)
        except WorkerError as error:
            keep(
                Fault(
                    workload=self.spec.workload,
                    vcpus=len(self.spec.vcpus),
                    launch=launch.number,
                    arm=error.arm,
                    reason=str(error),
                )
            )


def measured_of(spec: CellSpec, entries: Sequence[Entry]) -> ObservedCell:
    """What a cell's own entries amount to. Raises SampleError."""
    baseline, repeat, *others = (arm.name for arm in spec.arms)
    failures = failures_of(entries)
    failed = {each.arm for each in failures}
    return ObservedCell(
        workload=spec.workload,
        vcpus=len(spec.vcpus),
        baseline=baseline,
        repeat=repeat,
        arms=tuple(name for name in (baseline, *others) if name not in failed),
        starts=starts_of(entries),
        launches=launches_of(entries),
        failures=failures,
    )


def _disagreeing(spec: CellSpec, starts: Sequence[Start]) -> frozenset[str]:
    found = agreements(starts, spec.tolerances)
    return frozenset(each.arm for each in found if not each.agrees)


def _ended(spec: CellSpec, measured: ObservedCell, out: frozenset[str], effort: Effort) -> bool:
    baseline, repeat, *others = (arm.name for arm in spec.arms)
    if out & {baseline, repeat} or (others and out.issuperset(others)):
        return True
    count = len(measured.launches)
    width = half_width(measured, count) if count in effort.looks else math.inf
    return stop(count, width, effort) is not None


def measure_launch(launch: PlannedLaunch, effort: Effort, *, logs: Path, keep: Keep) -> None:
    """Start every arm's worker, check what they compute, then time the blocks of each phase.

    `keep` gets everything as it comes, but nothing of arms that did not start from equal data. Arms
    that disagree with the baseline are not timed. Raises WorkerError.
    """
    began, spec, number = time.monotonic(), launch.spec, launch.number
    chance = create_random(spec.seed, spec.workload, len(spec.vcpus), number)
    log = logs / f"{spec.workload}-{len(spec.vcpus)}-{number}"
    with workers.start_sessions(spec.arms, spec.vcpus, chance, log) as opened:
        starts = _starts(spec, number, opened, chance)
        timed = _timed(spec, opened, starts)
        for start in starts:
            keep(start)
        blocks = _Blocks(spec=spec, number=number, began=began, chance=chance, keep=keep)
        warm = _WarmUp(rounds=0, steady=True, block_s=0.0)
        for phase in phases_of(spec.workload, effort):
            judged = phase == find_phase(spec.workload)
            steps = launch.steps.get(phase)
            if steps is None:
                steps, block_s = _calibrated(timed, phase)
                if judged:
                    cost = LaunchCost(start_s=time.monotonic() - began, block_s=block_s)
                    _tell_too_long(spec, effort, cost)
            count = effort.phase_blocks
            if judged:
                warm = _warm_up(timed, phase, steps, repetition.warm_up_s(effort))
                cost = LaunchCost(start_s=time.monotonic() - began, block_s=warm.block_s)
                count = launch.blocks or repetition.blocks(
                    effort, cost, repetition.USUAL, past=(), spent_s=0.0
                )
            blocks.measure(timed, phase, count, steps)
        profiles = _profiles(timed, starts) if launch.profiled else {}
        peak_mb = {name: each.read_peak_mb() for name, each in opened.items()}
    keep(
        End(
            workload=spec.workload,
            vcpus=len(spec.vcpus),
            launch=number,
            seconds=time.monotonic() - began,
            warm_up=warm.rounds,
            steady=warm.steady,
            peak_mb=peak_mb,
            profiles=profiles,
        )
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Blocks:
    """What all blocks of one launch have in common."""

    spec: CellSpec
    number: int
    began: float
    chance: Random
    keep: Keep

    def measure(self, timed: Mapping[str, Session], phase: str, count: int, steps: int) -> None:
        for block in range(count):
            for position, name in enumerate(draw_block_order(sorted(timed), self.chance)):
                self.keep(self._sample(timed[name], phase, steps, (block, position)))

    def _sample(self, opened: Session, phase: str, steps: int, place: tuple[int, int]) -> Sample:
        taken = opened.sample(phase, steps)
        return Sample(
            workload=self.spec.workload,
            vcpus=len(self.spec.vcpus),
            launch=self.number,
            phase=phase,
            block=place[0],
            position=place[1],
            arm=opened.arm.name,
            steps=steps,
            at_s=time.monotonic() - self.began,
            **taken,
        )


def _starts(
    spec: CellSpec, number: int, opened: Mapping[str, Session], chance: Random
) -> tuple[Start, ...]:
    """All workers load and take their first steps at the same time, on CPUs of their own as far as
    there are such; the repeat's from parameters that are one rounding away, so that it shows how
    far rounding takes them."""
    repeat, available = spec.arms[1].name, os.sched_getaffinity(0)
    groups = group_cpus(spec.vcpus, available, read_numa_nodes(available))
    # Which of them share CPUs while they load is left to chance, as their order is.
    shuffled = draw_launch_order(tuple(opened), chance)
    loading = {name: groups[at % len(groups)] for at, name in enumerate(shuffled)}
    for name, each in opened.items():
        each.start_load(spec.workload, spec.seed, loading[name], nudged=name == repeat)
    facts = {name: each.finish_load(loading[name]) for name, each in opened.items()}
    for each in opened.values():
        each.start_check(CHECKED_STEPS)
    checked = {name: each.finish_check() for name, each in opened.items()}
    for each in opened.values():
        each.pin_cpus(spec.vcpus)
    return tuple(
        Start(
            workload=spec.workload,
            vcpus=len(spec.vcpus),
            launch=number,
            arm=arm.name,
            facts=facts[arm.name]
            | {"first_steps_s": checked[arm.name]["first_steps_s"], "vcpus": list(spec.vcpus)},
            losses=tuple(checked[arm.name]["losses"]),
            predictions=tuple(checked[arm.name]["predictions"]),
        )
        for arm in spec.arms
    )


def _timed(
    spec: CellSpec, opened: Mapping[str, Session], starts: Sequence[Start]
) -> dict[str, Session]:
    wrong = _disagreeing(spec, starts)
    baseline, repeat = (arm.name for arm in spec.arms[:2])
    if repeat in wrong:
        raise WorkerError(
            f"{baseline} does not compute the same twice: two workers of it differ",
            hint="An unstable machine, or memory that fails: nothing can be compared on it",
            arm=repeat,
        )
    return {name: each for name, each in opened.items() if name not in wrong}


def _calibrated(timed: Mapping[str, Session], phase: str) -> tuple[int, float]:
    """Grow the number of steps until the slowest takes long enough to be timed. Return the steps of
    a sample and the seconds of a block."""
    steps = 1
    while True:
        walls = [float(each.sample(phase, steps)["wall_s"]) for each in timed.values()]
        if max(walls) >= SHORTEST_S:
            each_s = [wall / steps for wall in walls]
            count = steps_per_sample(each_s)
            return count, 2 * count * math.fsum(each_s)
        steps = longer(steps, max(walls))


@dataclass(frozen=True, kw_only=True, slots=True)
class _WarmUp:
    """How many rounds of short samples there were, whether the last had no trend, and how long a
    block will take."""

    rounds: int
    steady: bool
    block_s: float


def _warm_up(timed: Mapping[str, Session], phase: str, steps: int, limit_s: float) -> _WarmUp:
    """Short samples until no arm's last ones have a trend, or the time is up."""
    few, end = max(1, steps // WARM_UP_SHARE), time.monotonic() + limit_s
    walls: dict[str, deque[float]] = {name: deque(maxlen=TREND_ROUNDS) for name in timed}
    rounds, steady = 0, False
    while not steady and rounds < MOST_ROUNDS:
        if rounds >= FEWEST_ROUNDS and time.monotonic() >= end:
            break
        for name, each in timed.items():
            walls[name].append(math.log(float(each.sample(phase, few)["wall_s"])))
        rounds += 1
        steady = rounds >= TREND_ROUNDS and not any(map(has_trend, map(tuple, walls.values())))
    round_s = math.fsum(math.exp(statistics.median(each)) for each in walls.values())
    return _WarmUp(rounds=rounds, steady=steady, block_s=2 * round_s * steps / few)


def _tell_too_long(spec: CellSpec, effort: Effort, cost: LaunchCost) -> None:
    """Say before it is measured that the budget of a cell is too short for any answer. `cost` is
    that of a start without warm-up, which takes about as long as a block."""
    least_s = repetition.shortest_s(dataclasses.replace(cost, start_s=cost.start_s + cost.block_s))
    if effort.budget_s is not None and least_s > (1 + repetition.OVER) * effort.budget_s:
        console.print_note(
            f"{format_label(spec.workload)} on {console.format_vcpus(len(spec.vcpus))} takes about "
            f"{console.format_duration(least_s)}, more than its budget of "
            f"{console.format_duration(effort.budget_s)}: "
            f"{FEWEST_LAUNCHES} starts are the fewest that give an interval"
        )


def _profiles(
    timed: Mapping[str, Session], starts: Sequence[Start]
) -> dict[str, Mapping[str, object]]:
    """After the timing, since a profiler slows down what it looks at."""
    tuned = [start.arm for start in starts if start.facts["kernel_library"] is not None]
    return {name: timed[name].profile(PROFILED_STEPS) for name in tuned if name in timed}
