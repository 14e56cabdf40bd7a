"""Measurement of one cell: the workers of all arms side by side, in launches and blocks."""

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
from typing import Any

from tfbench.arms.arm import Arm
from tfbench.engine import workers
from tfbench.engine.engine import RunProgress
from tfbench.engine.schedule import create_random, draw_block_order, draw_launch_order, group_cpus
from tfbench.engine.workers import Session
from tfbench.inside.compile_arguments import TOGETHER
from tfbench.inside.phases import TRAIN
from tfbench.inside.workload_name import parse_name
from tfbench.inside.workloads import find_schedule, format_label
from tfbench.measuring import repetition
from tfbench.measuring.agreement import compute_agreements
from tfbench.measuring.observations import (
    ObservedCell,
    choose_next_block_count,
    compute_half_width,
    filter_starts,
    group_launches,
    list_failures,
)
from tfbench.measuring.repetition import LaunchCost
from tfbench.measuring.samples import End, Entry, Fault, Sample, Start
from tfbench.measuring.statistics import has_trend
from tfbench.measuring.stopping import (
    FEWEST_LAUNCHES,
    SHORTEST_S,
    choose_sample_steps,
    find_stop_reason,
    increase_steps,
)
from tfcore import console
from tfcore.comparisons.effort import Effort
from tfcore.cpus.cpu import read_numa_nodes
from tfcore.errors import WorkerError

CHECKED_STEPS = 5
PROFILED_STEPS = 5
FEWEST_ROUNDS, TREND_ROUNDS, MOST_ROUNDS = 2, 6, 30
"""Warm-up ends when the last TREND_ROUNDS show no trend, and after MOST_ROUNDS in any case. It ends
after FEWEST_ROUNDS if its share of the budget is spent."""
WARM_UP_SHARE = 4
"""Warm-up samples have a quarter of the steps."""

Keep = Callable[[Entry], None]
Listen = Callable[[ObservedCell], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class CellSpec:
    """A cell to measure. The first arm is the baseline, the second its repeat."""

    workload: str
    vcpus: tuple[int, ...]
    """The CPUs that every worker is pinned to."""
    arms: tuple[Arm, ...]
    seed: int

    @property
    def tolerances(self) -> dict[str, float]:
        return {arm.name: arm.tolerance for arm in self.arms}

    def count_together(self, phase: str) -> int:
        """Return the largest number of steps that a call of an arm takes."""
        if phase != TRAIN:
            return 1
        return max(int(dict(arm.env).get(TOGETHER, "1")) for arm in self.arms)

    @property
    def place(self) -> tuple[str, int]:
        """Return the workload and the number of vCPUs, which identify the cell's entries."""
        return self.workload, len(self.vcpus)

    def filter_entries(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return the entries of this cell."""
        return [entry for entry in entries if (entry.workload, entry.vcpus) == self.place]

    def exclude_arms(self, names: frozenset[str]) -> CellSpec:
        return dataclasses.replace(
            self, arms=tuple(arm for arm in self.arms if arm.name not in names)
        )


def list_phases(workload: str, effort: Effort) -> tuple[str, ...]:
    """List the phases that are timed, the judged one last.

    The other phases of a training run are timed if `effort` asks for blocks of them.
    """
    judged = parse_name(workload).phase
    phases = find_schedule(workload).phases if effort.phase_blocks and judged == TRAIN else ()
    return (*(phase for phase in phases if phase != judged), judged)


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedLaunch:
    """A launch to measure.

    `steps` are the steps per sample by phase; a phase without steps is calibrated. `blocks`
    is the number of training blocks; if None, the launch chooses it from the cost of its own
    start. With `profiled`, the tuned arms are profiled at its end.
    """

    spec: CellSpec
    number: int
    steps: Mapping[str, int]
    blocks: int | None
    profiled: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredCell:
    """A cell as an experiment of the engine. `listen` gets the observed cell before each launch.

    An arm whose worker fails, or that computes something else, is excluded from further
    launches. If this is the baseline or its repeat, the cell ends.
    """

    spec: CellSpec
    effort: Effort
    logs: Path
    listen: Listen

    def observe(self, entries: Sequence[Entry]) -> ObservedCell:
        return create_observed_cell(self.spec, entries)

    def is_reusable(self, entry: Entry) -> bool:
        return (entry.workload, entry.vcpus) == self.spec.place

    def choose_next(self, entries: Sequence[Entry], _: RunProgress) -> PlannedLaunch | None:
        observed = self.observe(entries)
        self.listen(observed)
        excluded = frozenset(failure.arm for failure in observed.failures)
        excluded |= _find_disagreeing(self.spec, observed.starts)
        blocks = choose_next_block_count(observed, self.effort) if observed.launches else None
        if blocks == 0 or _is_finished(self.spec, observed, excluded, self.effort):
            return None
        return PlannedLaunch(
            spec=self.spec.exclude_arms(excluded),
            number=1 + max((entry.launch for entry in entries), default=-1),
            steps={
                p: launch.get_steps(p) for launch in observed.launches[:1] for p in launch.blocks
            },
            blocks=blocks,
            profiled=not observed.profiled,
        )

    def run_launch(self, launch: PlannedLaunch, keep: Keep) -> None:
        """Measure one launch and record a worker's failure as a fault.

        Raises DiskError if `keep` does.
        """
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


def create_observed_cell(spec: CellSpec, entries: Sequence[Entry]) -> ObservedCell:
    """Create the observed cell from its own entries.

    Raises SampleError if the samples of a launch have different numbers of steps.
    """
    baseline, repeat, *other_arms = (arm.name for arm in spec.arms)
    failures = list_failures(entries, spec.arms)
    failed = {failure.arm for failure in failures}
    return ObservedCell(
        workload=spec.workload,
        vcpus=len(spec.vcpus),
        baseline=baseline,
        repeat=repeat,
        arms=tuple(name for name in (baseline, *other_arms) if name not in failed),
        starts=filter_starts(entries),
        launches=group_launches(entries),
        failures=failures,
    )


def _find_disagreeing(spec: CellSpec, starts: Sequence[Start]) -> frozenset[str]:
    arm_agreements = compute_agreements(starts, spec.tolerances)
    return frozenset(agreement.arm for agreement in arm_agreements if not agreement.agrees)


def _is_finished(
    spec: CellSpec, measured: ObservedCell, out: frozenset[str], effort: Effort
) -> bool:
    baseline, repeat, *other_arms = (arm.name for arm in spec.arms)
    if out & {baseline, repeat} or (other_arms and out.issuperset(other_arms)):
        return True
    count = len(measured.launches)
    width = compute_half_width(measured, count) if count in effort.looks else math.inf
    return find_stop_reason(count, width, effort) is not None


def measure_launch(launch: PlannedLaunch, effort: Effort, *, logs: Path, keep: Keep) -> None:
    """Start every arm's worker, check what they compute, then time the blocks of each phase.

    `keep` gets every entry as it comes, but none of arms that did not start from equal data.
    Arms that disagree with the baseline are not timed. Raises WorkerError if a worker fails.
    """
    began, spec, number = time.monotonic(), launch.spec, launch.number
    chance = create_random(spec.seed, spec.workload, len(spec.vcpus), number)
    log = logs / f"{spec.workload}-{len(spec.vcpus)}-{number}"
    with workers.start_sessions(spec.arms, spec.vcpus, chance, log) as opened:
        starts = _load_workers(spec, number, opened, chance)
        timed = _select_timed(spec, opened, starts)
        for start in starts:
            keep(start)
        blocks = _BlockRunner(spec=spec, number=number, began=began, chance=chance, keep=keep)
        warm = _WarmUp(rounds=0, steady=True, block_s=0.0)
        for phase in list_phases(spec.workload, effort):
            judged = phase == parse_name(spec.workload).phase
            steps = launch.steps.get(phase)
            if steps is None:
                steps, block_s = _calibrate(timed, phase, spec.count_together(phase))
                if judged:
                    cost = LaunchCost(start_s=time.monotonic() - began, block_s=block_s)
                    _report_short_budget(spec, effort, cost)
            count = effort.phase_blocks
            if judged:
                warm = _warm_up(timed, phase, steps, repetition.compute_warm_up_limit(effort))
                cost = LaunchCost(start_s=time.monotonic() - began, block_s=warm.block_s)
                count = launch.blocks or repetition.choose_block_count(
                    effort, cost, repetition.USUAL, past=(), spent_s=0.0
                )
            blocks.measure(timed, phase, count, steps)
        profiles = _profile_tuned(timed, starts) if launch.profiled else {}
        peak_mb = {name: session.read_peak_mb() for name, session in opened.items()}
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
class _BlockRunner:
    spec: CellSpec
    number: int
    began: float
    chance: Random
    keep: Keep

    def measure(self, timed: Mapping[str, Session], phase: str, count: int, steps: int) -> None:
        for block in range(count):
            for position, name in enumerate(draw_block_order(sorted(timed), self.chance)):
                self.keep(self._take_sample(timed[name], phase, steps, (block, position)))

    def _take_sample(
        self, opened: Session, phase: str, steps: int, place: tuple[int, int]
    ) -> Sample:
        measurements = opened.sample(phase, steps, self.spec.count_together(phase))
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
            **measurements,
        )


def _load_workers(
    spec: CellSpec, number: int, opened: Mapping[str, Session], chance: Random
) -> tuple[Start, ...]:
    """Let all workers load and take their first steps at the same time.

    Each has CPUs of its own as far as there are enough. The repeat starts from parameters that
    are one rounding away, so that it shows how far rounding moves the results.
    """
    repeat, available = spec.arms[1].name, os.sched_getaffinity(0)
    groups = group_cpus(spec.vcpus, available, read_numa_nodes(available))
    # Which workers share CPUs while they load is random, like their order.
    shuffled = draw_launch_order(tuple(opened), chance)
    loading = {name: groups[index % len(groups)] for index, name in enumerate(shuffled)}
    for name, session in opened.items():
        session.start_load(spec.workload, spec.seed, loading[name], nudged=name == repeat)
    facts = {name: session.finish_load(loading[name]) for name, session in opened.items()}
    for session in opened.values():
        session.start_check(CHECKED_STEPS)
    checked = {name: session.finish_check() for name, session in opened.items()}
    for session in opened.values():
        session.pin_cpus(spec.vcpus)
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


def _select_timed(
    spec: CellSpec, opened: Mapping[str, Session], starts: Sequence[Start]
) -> dict[str, Session]:
    disagreeing = _find_disagreeing(spec, starts)
    baseline, repeat = (arm.name for arm in spec.arms[:2])
    if repeat in disagreeing:
        raise WorkerError(
            f"{baseline} is not reproducible: two of its workers compute different results",
            hint="The machine is unstable or its memory is faulty: use another one",
            arm=repeat,
        )
    return {name: session for name, session in opened.items() if name not in disagreeing}


def _calibrate(timed: Mapping[str, Session], phase: str, together: int) -> tuple[int, float]:
    """Increase the number of steps until the slowest arm takes long enough to be timed.

    Return the steps of a sample, a multiple of `together`, and the seconds of a block.
    """
    steps = 1
    while True:
        answers = [session.sample(phase, steps) for session in timed.values()]
        walls = [float(answer["wall_s"]) for answer in answers]
        if max(walls) >= SHORTEST_S:
            count = choose_sample_steps([wall / steps for wall in walls])
            count = math.ceil(count / together) * together
            beside_s = math.fsum(map(_compute_beside_s, answers))
            return count, 2 * (count / steps * math.fsum(walls) + beside_s)
        steps = increase_steps(steps, max(walls))


def _compute_beside_s(answer: Mapping[str, Any]) -> float:
    """Compute the seconds that a sample took outside its steps; with `fit` these are many."""
    return max(0.0, float(answer["elapsed_s"]) - float(answer["wall_s"]))


@dataclass(frozen=True, kw_only=True, slots=True)
class _WarmUp:
    """The result of a warm-up: its rounds of short samples, whether the last had no trend, and
    the expected seconds of a block.
    """

    rounds: int
    steady: bool
    block_s: float


def _warm_up(timed: Mapping[str, Session], phase: str, steps: int, limit_s: float) -> _WarmUp:
    """Take short samples until no arm's last ones have a trend, or the time is up."""
    few, end = max(1, steps // WARM_UP_SHARE), time.monotonic() + limit_s
    walls: dict[str, deque[float]] = {name: deque(maxlen=TREND_ROUNDS) for name in timed}
    beside_s: dict[str, deque[float]] = {name: deque(maxlen=TREND_ROUNDS) for name in timed}
    rounds, steady = 0, False
    while not steady and rounds < MOST_ROUNDS:
        if rounds >= FEWEST_ROUNDS and time.monotonic() >= end:
            break
        for name, session in timed.items():
            answer = session.sample(phase, few)
            walls[name].append(math.log(float(answer["wall_s"])))
            beside_s[name].append(_compute_beside_s(answer))
        rounds += 1
        steady = rounds >= TREND_ROUNDS and not any(map(has_trend, map(tuple, walls.values())))
    round_s = math.fsum(math.exp(statistics.median(samples)) for samples in walls.values())
    outside_s = math.fsum(map(statistics.median, beside_s.values()))
    return _WarmUp(rounds=rounds, steady=steady, block_s=2 * (round_s * steps / few + outside_s))


def _report_short_budget(spec: CellSpec, effort: Effort, cost: LaunchCost) -> None:
    """Report before measuring that the budget of a cell is too short for any answer.

    `cost` is that of a start without warm-up, which takes about as long as a block.
    """
    least_s = repetition.estimate_shortest_s(
        dataclasses.replace(cost, start_s=cost.start_s + cost.block_s)
    )
    if effort.budget_s is not None and least_s > (1 + repetition.OVER) * effort.budget_s:
        console.print_note(
            f"{format_label(spec.workload)} on {console.format_vcpus(len(spec.vcpus))} takes about "
            f"{console.format_duration(least_s)}, more than its budget of "
            f"{console.format_duration(effort.budget_s)}: "
            f"an interval needs at least {FEWEST_LAUNCHES} launches"
        )


def _profile_tuned(
    timed: Mapping[str, Session], starts: Sequence[Start]
) -> dict[str, Mapping[str, object]]:
    """Profile the tuned arms, after the timing because a profiler slows down what it observes."""
    tuned = [start.arm for start in starts if start.facts["kernel_library"] is not None]
    return {name: timed[name].profile(PROFILED_STEPS) for name in tuned if name in timed}
