"""Check of the method on itself: comparisons whose true result is known.

Trials of stock against stock must detect no difference (false positives). Trials against an arm
that takes some additional steps in each sample must detect it (power), and their intervals must
contain the true speedup (coverage). Each trial is a cell of a comparison, run by the code of
`compare`: one pair on one vCPU, in one minute.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from types import MappingProxyType

import numpy as np
from scipy import stats

from tfbench.arms.arm import Arm, create_repeat
from tfbench.engine import engine, folder
from tfbench.engine.folder import RunKind
from tfbench.engine.journal import Kinds, open_journal
from tfbench.inside.phases import TRAIN
from tfbench.inside.worker import SLOWDOWN
from tfbench.measuring.measurement import CellSpec, MeasuredCell
from tfbench.measuring.observations import (
    ObservedCell,
    compute_arm_contrast,
    compute_half_width,
    estimate_median_ratio,
)
from tfbench.measuring.statistics import LEVEL, Thresholds, choose_verdict
from tfbench.measuring.stopping import FEWEST_LAUNCHES
from tfcore import console
from tfcore.comparisons.decision import compute_floor
from tfcore.comparisons.effort import Effort
from tfcore.comparisons.host import Host
from tfcore.comparisons.interval import Interval, Verdict
from tfcore.errors import SampleError, WorkerError

SCHEMA = 2
WORKLOAD = "mnist_mlp"
REPEAT, ARM = NAMES = ("stock again", "arm")
"""The arms of a trial's findings: stock's second worker, and the arm that may be slower."""
KIND = RunKind(name="self-check", prefix="selfcheck", result="selfcheck.json")
TRIAL = Effort(budget_s=60.0)
LONG = Effort(budget_s=180.0)
MOST_FALSE = 0.08
"""The largest accepted share of false positives, at a nominal 5 %."""
# It polls its input, so that it ends with its parent process, however that ends.
_LOAD = """
import os, select
os.sched_setaffinity(0, [{cpu}])
while not select.select([0], [], [], 0)[0]:
    for _ in range(1_000_000):
        pass
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialPart:
    """Trials of one kind. `slowdown` is the share of additional steps that the arm takes, 0 for
    stock itself; `loaded` trials have a busy process on their CPU.
    """

    name: str
    trials: int
    slowdown: float = 0.0
    loaded: bool = False
    effort: Effort = TRIAL


FULL = (
    TrialPart(name="5 % slower", trials=100, slowdown=0.05),
    TrialPart(name="same", trials=100),
    TrialPart(name="10 % slower, loaded", trials=40, slowdown=0.10, loaded=True),
    TrialPart(name="5 % slower, long", trials=2, slowdown=0.05, effort=LONG),
)
"""Each trial also compares stock with its repeat."""
UNDISTURBED = tuple(part.name for part in FULL if part.effort is TRIAL and not part.loaded)
QUICK = (
    TrialPart(name="5 % slower", trials=4, slowdown=0.05),
    TrialPart(name="same", trials=2),
    TrialPart(name="10 % slower, loaded", trials=2, slowdown=0.10, loaded=True),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialFinding:
    """The result of one trial for one arm.

    `truth` is its true speedup over the baseline, given that only whole steps are added to a
    sample. `medians` is the interval by the second method.
    """

    truth: float
    interval: Interval
    medians: Interval
    verdict: Verdict

    @property
    def found(self) -> bool:
        """Return whether the interval excludes 1."""
        return self.interval.excludes_1


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """The result of one trial.

    `findings` are those of the repeat, whose truth is 1, and of the arm. `widths` are the
    half-widths after each launch from the third on, with the seconds spent. `measuring` is the
    share of these seconds in which samples were taken.
    """

    part: str
    number: int
    seconds: float
    findings: tuple[TrialFinding, ...]
    measuring: float = 0.0
    widths: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        if not math.isfinite(self.seconds):
            raise SampleError(f"invalid time of a trial: {self.seconds} s")


KINDS: Kinds[Trial] = MappingProxyType({"trial": Trial})


@dataclass(frozen=True, kw_only=True, slots=True)
class Rate:
    """A rate: `hits` of `trials`, with the exact 95 % binomial interval (Clopper and Pearson)."""

    hits: int
    trials: int
    low: float
    high: float

    @property
    def value(self) -> float:
        return self.hits / self.trials if self.trials else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialRow:
    """A summary of all trials of one part, for their repeats or their arms. `truth`, `seconds`,
    `measuring` and `half_width` are medians over the trials.
    """

    part: str
    arm: str
    truth: float
    seconds: float
    measuring: float
    half_width: float
    found: Rate
    """The interval excludes 1: a false positive if the truth is 1, else the power."""
    said: Rate
    """The verdict is faster or slower, so the speedup is also beyond the noise floor."""
    covered: Rate
    """The interval contains the truth."""
    covered_by_medians: Rate


@dataclass(frozen=True, kw_only=True, slots=True)
class SelfCheck:
    schema: int
    made: str
    seconds: float
    host: Host
    arm: str
    rows: tuple[TrialRow, ...]
    widths: tuple[tuple[int, float, float], ...]
    """Launches, minutes and the median half-width of the trials with the most launches."""

    @property
    def same(self) -> Rate:
        """Return the rate of false positives: stock against its repeat, in all one-minute trials
        without a competing process.
        """
        rows = [row for row in self.rows if row.arm == REPEAT and row.part in UNDISTURBED]
        return create_rate(
            sum(row.found.hits for row in rows), sum(row.found.trials for row in rows)
        )

    @property
    def passed(self) -> bool:
        """Return whether there are no more false positives than allowed; quick checks have too
        few trials to fail.
        """
        return self.same.value <= MOST_FALSE or self.same.low <= 1 - LEVEL


Progress = Callable[[int, int, str, str], None]
"""Receives the number of finished trials, the total, the newest trial, and the time left."""


def run_trials(
    arm: Arm,
    host: Host,
    parts: Sequence[TrialPart],
    *,
    seed: int,
    out: Path,
    on_progress: Progress,
) -> tuple[Trial, ...]:
    """Run the trials that `out` does not have yet, as many at once as vCPUs; return all trials.

    Raises UsageError if `out` holds another check, WorkerError, DiskError and RecordError.
    """
    folder.begin(KIND, TrialSetting(host=host, arm=arm, seed=seed), out)
    planned = [(part, number) for part in parts for number in range(part.trials)]
    planned.sort(key=lambda pair: pair[1] / pair[0].trials)  # (a stopped one has some of each)
    with open_journal(out / KIND.journal, KINDS) as (known, keep):
        done = [*known]
        finished = {(trial.part, trial.number) for trial in done}
        tasks = [
            Task(arm=arm, part=part, number=number, seed=seed, logs=out / "logs")
            for part, number in planned
            if (part.name, number) not in finished
        ]
        cpus = host.affinity[: host.vcpus.usable]
        new_trials = _run_tasks(tasks, cpus)
        with contextlib.closing(new_trials):
            for count, trial in enumerate(new_trials, start=1):
                keep(trial)
                done.append(trial)
                left_s = estimate_seconds_left(tasks[count:], len(cpus))
                on_progress(
                    len(planned) - len(tasks) + count,
                    len(planned),
                    f"{trial.part} {trial.number + 1}",
                    f"about {console.format_duration(left_s)} left",
                )
    names = {part.name for part in parts}
    return tuple(trial for trial in done if trial.part in names)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialSetting:
    """The setting that trials must share to be counted together."""

    schema: int = SCHEMA
    host: Host
    arm: Arm
    seed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """A trial to run."""

    arm: Arm
    part: TrialPart
    number: int
    seed: int
    logs: Path


def estimate_seconds_left(tasks: Iterable[Task], at_once: int) -> float:
    """Estimate the seconds of the remaining trials; a trial keeps to its budget."""
    return math.fsum(task.part.effort.budget_s or 0.0 for task in tasks) / at_once


def _run_tasks(tasks: Sequence[Task], cpus: Sequence[int]) -> Generator[Trial]:
    """Run the trials, one at a time on each CPU, and yield them as they finish. Each is the
    others' noisy neighbour.

    Whatever ends the generator terminates the pool's processes too; what these have started
    reads the end of its input then, and ends.
    """
    context = multiprocessing.get_context("spawn")
    free: SimpleQueue[int] = context.SimpleQueue()
    for cpu in cpus:
        free.put(cpu)
    with ProcessPoolExecutor(
        len(cpus), mp_context=context, initializer=_pin_process, initargs=(free,)
    ) as pool:
        try:
            for future in as_completed(_submit_tasks(pool, tasks)):
                yield future.result()
        except BaseException:
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def _submit_tasks(pool: ProcessPoolExecutor, tasks: Sequence[Task]) -> list[Future[Trial]]:
    """Submit the tasks to the pool, whose processes start here and ignore Ctrl-C: only this
    process ends them.

    A Ctrl-C that arrives meanwhile, also through a library's thread that does not block it,
    is raised afterwards.
    """
    received: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: received.append(number))
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return [pool.submit(run_trial, task) for task in tasks]
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        signal.signal(signal.SIGINT, handler)
        if received:
            signal.raise_signal(signal.SIGINT)


def _pin_process(free: SimpleQueue[int]) -> None:
    """Pin a process of the pool to a free CPU."""
    os.sched_setaffinity(0, {free.get()})


def run_trial(task: Task) -> Trial:
    """Run one trial on the CPU of this process."""
    (cpu,) = os.sched_getaffinity(0)
    with run_competitor(cpu) if task.part.loaded else contextlib.nullcontext():
        return _measure_trial(task, cpu)


@contextlib.contextmanager
def run_competitor(cpu: int) -> Iterator[int]:
    """Run a process that keeps one CPU busy inside the context; yield its process id."""
    busy = [sys.executable, "-S", "-c", _LOAD.format(cpu=cpu)]
    with subprocess.Popen(busy, stdin=subprocess.PIPE) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def _measure_trial(task: Task, cpu: int) -> Trial:
    part, seed = task.part, task.seed + task.number
    share = part.slowdown
    arm = dataclasses.replace(task.arm, name=ARM, env=((SLOWDOWN, str(share)),) if share else ())
    spec = CellSpec(
        workload=WORKLOAD, vcpus=(cpu,), arms=(task.arm, create_repeat(task.arm), arm), seed=seed
    )
    logs = task.logs / f"cpu{cpu}"
    cell = MeasuredCell(spec=spec, effort=part.effort, logs=logs, listen=lambda _: None)
    measured = cell.observe(engine.run(cell, (), keep=lambda _: None))
    if measured.failures:
        raise WorkerError(measured.failures[0].reason, arm=measured.failures[0].arm)
    return Trial(
        part=part.name,
        number=task.number,
        seconds=measured.seconds,
        findings=tuple(_compute_findings(measured, share)),
        measuring=_compute_measuring_share(measured),
        widths=tuple(_list_widths(measured)),
    )


def _compute_findings(measured: ObservedCell, slowdown: float) -> Iterator[TrialFinding]:
    least = compute_floor(compute_arm_contrast(measured, measured.repeat).interval)
    steps = measured.launches[0].get_steps(TRAIN)
    truth = steps / (steps + round(slowdown * steps))
    for name, true_ratio in ((measured.repeat, 1.0), (ARM, truth)):
        arm_contrast = compute_arm_contrast(measured, name)
        # The repeat gives the noise floor, so its own verdict has none.
        thresholds = Thresholds(floor=0.0 if name == measured.repeat else least)
        yield TrialFinding(
            truth=true_ratio,
            interval=arm_contrast.interval,
            medians=estimate_median_ratio(measured, name),
            verdict=choose_verdict(arm_contrast, thresholds, fair=measured.fair),
        )


def _compute_measuring_share(measured: ObservedCell) -> float:
    samples = (sample for block in measured.blocks for sample in block)
    return math.fsum(sample.elapsed_s for sample in samples) / measured.seconds


def _list_widths(measured: ObservedCell) -> Iterator[tuple[float, float]]:
    spent = 0.0
    for count, launch in enumerate(measured.launches, start=1):
        spent += launch.seconds
        if count >= FEWEST_LAUNCHES:
            yield spent, compute_half_width(measured, count)


def summarise_trials(trials: Sequence[Trial], arm: Arm, host: Host, timestamp: str) -> SelfCheck:
    return SelfCheck(
        schema=SCHEMA,
        made=timestamp,
        seconds=math.fsum(trial.seconds for trial in trials),
        host=host,
        arm=arm.label,
        rows=create_rows(trials),
        widths=compute_median_widths(trials),
    )


def create_rows(trials: Sequence[Trial]) -> tuple[TrialRow, ...]:
    """Create two rows per part: one of its repeats and one of its arms."""
    parts = dict.fromkeys(trial.part for trial in trials if trial.findings)
    return tuple(_create_row(part, index, trials) for part in parts for index in range(len(NAMES)))


def _create_row(part: str, place: int, trials: Sequence[Trial]) -> TrialRow:
    part_trials = [trial for trial in trials if trial.part == part and trial.findings]
    findings = [trial.findings[place] for trial in part_trials]

    def compute_median(values: Iterable[float]) -> float:
        return float(np.median([*values]))

    return TrialRow(
        part=part,
        arm=NAMES[place],
        truth=compute_median(finding.truth for finding in findings),
        seconds=compute_median(trial.seconds for trial in part_trials),
        measuring=compute_median(trial.measuring for trial in part_trials),
        half_width=compute_median(finding.interval.half_width for finding in findings),
        found=compute_rate([finding.found for finding in findings]),
        said=compute_rate(
            [finding.verdict in {Verdict.FASTER, Verdict.SLOWER} for finding in findings]
        ),
        covered=compute_rate(
            [_is_covered(finding.interval, finding.truth) for finding in findings]
        ),
        covered_by_medians=compute_rate(
            [_is_covered(finding.medians, finding.truth) for finding in findings]
        ),
    )


def compute_rate(hits: Sequence[bool]) -> Rate:
    return create_rate(sum(hits), len(hits))


def create_rate(hits: int, trials: int) -> Rate:
    """Create a rate with its interval; without trials the interval is 0 to 1."""
    if not trials:
        return Rate(hits=0, trials=0, low=0.0, high=1.0)
    interval = stats.binomtest(hits, trials).proportion_ci(LEVEL, method="exact")
    return Rate(hits=hits, trials=trials, low=float(interval.low), high=float(interval.high))


def compute_median_widths(trials: Sequence[Trial]) -> tuple[tuple[int, float, float], ...]:
    """Compute launches, and the median minutes and half-width, of the longest trials."""
    most = max((len(trial.widths) for trial in trials), default=0)
    longest = [trial.widths for trial in trials if len(trial.widths) == most > 1]
    return tuple(
        (
            FEWEST_LAUNCHES + index,
            float(np.median([trial_widths[index][0] for trial_widths in longest])) / 60,
            float(np.median([trial_widths[index][1] for trial_widths in longest])),
        )
        for index in range(most if longest else 0)
    )


def _is_covered(interval: Interval, truth: float) -> bool:
    return interval.low <= truth <= interval.high
