"""The harness proved on itself: what it says when the truth is known.

Trials of stock against stock must find nothing (false positives), trials against an arm that takes
some steps more in each sample must find it (power) and name it (coverage). Each trial is a cell of
a comparison by the very code that `compare` runs, of one pair on one vCPU, in a minute.
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
from tfbench.measuring.effort import FEWEST_LAUNCHES
from tfbench.measuring.measurement import CellSpec, MeasuredCell
from tfbench.measuring.observations import ObservedCell, contrast_of, half_width, medians
from tfbench.measuring.statistics import LEVEL, Thresholds, floor, verdict
from tfbuild import console
from tfbuild.errors import SampleError, WorkerError
from tfbuild.measured.effort import Effort
from tfbuild.measured.host import Host
from tfbuild.measured.interval import Interval, Verdict

SCHEMA = 2
WORKLOAD = "mnist_mlp"
REPEAT, ARM = NAMES = ("stock again", "arm")
"""What a trial tells of: stock's second worker, and the arm that may be slower."""
KIND = RunKind(name="self-check", prefix="selfcheck", result="selfcheck.json")
TRIAL = Effort(budget_s=60.0)
LONG = Effort(budget_s=180.0)
MOST_FALSE = 0.08
"""The observed share of false positives that is let pass, at a nominal 5 %."""
# Looks at its input now and then, so that it ends with whoever started it, however that ends.
_LOAD = """
import os, select
os.sched_setaffinity(0, [{cpu}])
while not select.select([0], [], [], 0)[0]:
    for _ in range(1_000_000):
        pass
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialPart:
    """Trials of one kind. `slowdown` is the share of its steps that the arm takes in addition, 0
    for stock itself; `loaded` ones have a busy process on their CPU.
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
"""Each trial also holds stock against its repeat."""
UNDISTURBED = tuple(part.name for part in FULL if part.effort is TRIAL and not part.loaded)
QUICK = (
    TrialPart(name="5 % slower", trials=4, slowdown=0.05),
    TrialPart(name="same", trials=2),
    TrialPart(name="10 % slower, loaded", trials=2, slowdown=0.10, loaded=True),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialFinding:
    """What one trial said of one arm. `truth` is its real speedup over the baseline: whole steps
    only can be added to a sample. `medians` is the second opinion."""

    truth: float
    interval: Interval
    medians: Interval
    verdict: Verdict

    @property
    def found(self) -> bool:
        """Whether the interval leaves out 1."""
        return self.interval.excludes_1


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """`findings` are those of the repeat, whose truth is 1, and of the arm. `widths` are the
    half-widths after each launch from the third on, with the seconds spent. `measuring` is the
    share of these seconds in which samples were taken."""

    part: str
    number: int
    seconds: float
    findings: tuple[TrialFinding, ...]
    measuring: float = 0.0
    widths: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        if not math.isfinite(self.seconds):
            raise SampleError(f"a trial took {self.seconds} s, which is not a time")


KINDS: Kinds[Trial] = MappingProxyType({"trial": Trial})


@dataclass(frozen=True, kw_only=True, slots=True)
class Rate:
    """`hits` of `trials`, with the exact 95 % binomial interval (Clopper and Pearson)."""

    hits: int
    trials: int
    low: float
    high: float

    @property
    def value(self) -> float:
        return self.hits / self.trials if self.trials else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialRow:
    """All trials of one part: their repeats, or their arms. `truth` and `seconds` of one trial, the
    share of them that was `measuring` and the half-width are medians."""

    part: str
    arm: str
    truth: float
    seconds: float
    measuring: float
    half_width: float
    found: Rate
    """The interval leaves out 1: a false positive where the truth is 1, else the power."""
    said: Rate
    """The verdict was faster or slower: beyond the noise floor, too."""
    covered: Rate
    """The interval holds the truth."""
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
    """Launches, minutes and the median half-width, of the trials of the most launches."""

    @property
    def same(self) -> Rate:
        """False positives: stock against its repeat, in all trials of a minute that no process was
        put beside."""
        rows = [row for row in self.rows if row.arm == REPEAT and row.part in UNDISTURBED]
        return of(sum(row.found.hits for row in rows), sum(row.found.trials for row in rows))

    @property
    def passed(self) -> bool:
        """No more false positives than allowed; quick checks have too few trials to fail."""
        return self.same.value <= MOST_FALSE or self.same.low <= 1 - LEVEL


Progress = Callable[[int, int, str, str], None]
"""Trials made, of how many, the newest one, and how long the others take."""


def run_trials(
    arm: Arm,
    host: Host,
    parts: Sequence[TrialPart],
    *,
    seed: int,
    out: Path,
    on_progress: Progress,
) -> tuple[Trial, ...]:
    """Every trial, going on from those in `out`, as many at once as there are vCPUs.

    Raises UsageError for an `out` with another check in it, WorkerError, DiskError, RecordError.
    """
    folder.begin(KIND, TrialSetting(host=host, arm=arm, seed=seed), out)
    wanted = [(part, number) for part in parts for number in range(part.trials)]
    wanted.sort(key=lambda each: each[1] / each[0].trials)  # (one that is stopped has some of each)
    with open_journal(out / KIND.journal, KINDS) as (known, keep):
        done = [*known]
        have = {(trial.part, trial.number) for trial in done}
        tasks = [
            Task(arm=arm, part=part, number=number, seed=seed, logs=out / "logs")
            for part, number in wanted
            if (part.name, number) not in have
        ]
        cpus = host.affinity[: host.vcpus.usable]
        made = _all(tasks, cpus)
        with contextlib.closing(made):
            for count, trial in enumerate(made, start=1):
                keep(trial)
                done.append(trial)
                on_progress(
                    len(wanted) - len(tasks) + count,
                    len(wanted),
                    f"{trial.part} {trial.number + 1}",
                    f"about {console.format_duration(seconds_left(tasks[count:], len(cpus)))} left",
                )
    names = {part.name for part in parts}
    return tuple(trial for trial in done if trial.part in names)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialSetting:
    """What trials must have in common to be counted together."""

    schema: int = SCHEMA
    host: Host
    arm: Arm
    seed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One trial to be made."""

    arm: Arm
    part: TrialPart
    number: int
    seed: int
    logs: Path


def seconds_left(tasks: Iterable[Task], at_once: int) -> float:
    """What trials take that are still to be made: a trial keeps to its budget."""
    return math.fsum(task.part.effort.budget_s or 0.0 for task in tasks) / at_once


def _all(tasks: Sequence[Task], cpus: Sequence[int]) -> Generator[Trial]:
    """The trials as they come, one at a time on each CPU: each is the others' noisy neighbour.

    Whatever ends this ends the processes that make them, too; what they have started reads the end
    of its input then, and ends.
    """
    context = multiprocessing.get_context("spawn")
    free: SimpleQueue[int] = context.SimpleQueue()
    for cpu in cpus:
        free.put(cpu)
    with ProcessPoolExecutor(
        len(cpus), mp_context=context, initializer=_settle, initargs=(free,)
    ) as pool:
        try:
            for future in as_completed(_submitted(pool, tasks)):
                yield future.result()
        except BaseException:
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def _submitted(pool: ProcessPoolExecutor, tasks: Sequence[Task]) -> list[Future[Trial]]:
    """The pool's processes start here, and stay deaf to Ctrl-C: it is for us to end them. A Ctrl-C
    that comes meanwhile, also by a library's thread that does not block it, is raised afterwards.
    """
    came: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return [pool.submit(trial_of, task) for task in tasks]
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        signal.signal(signal.SIGINT, handler)
        if came:
            signal.raise_signal(signal.SIGINT)


def _settle(free: SimpleQueue[int]) -> None:
    """A process of the pool takes a CPU for itself."""
    os.sched_setaffinity(0, {free.get()})


def trial_of(task: Task) -> Trial:
    """One trial on the CPU that this process has."""
    (cpu,) = os.sched_getaffinity(0)
    with competing(cpu) if task.part.loaded else contextlib.nullcontext():
        return _trial(task, cpu)


@contextlib.contextmanager
def competing(cpu: int) -> Iterator[int]:
    """A process that keeps one CPU busy until we end; its number."""
    busy = [sys.executable, "-S", "-c", _LOAD.format(cpu=cpu)]
    with subprocess.Popen(busy, stdin=subprocess.PIPE) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def _trial(task: Task, cpu: int) -> Trial:
    part, seed = task.part, task.seed + task.number
    share = part.slowdown
    arm = dataclasses.replace(task.arm, name=ARM, env=((SLOWDOWN, str(share)),) if share else ())
    spec = CellSpec(
        workload=WORKLOAD, vcpus=(cpu,), arms=(task.arm, create_repeat(task.arm), arm), seed=seed
    )
    logs = task.logs / f"cpu{cpu}"
    cell = MeasuredCell(spec=spec, effort=part.effort, logs=logs, listen=lambda _: None)
    measured = cell.measured(engine.run(cell, (), keep=lambda _: None))
    if measured.failures:
        raise WorkerError(measured.failures[0].reason, arm=measured.failures[0].arm)
    return Trial(
        part=part.name,
        number=task.number,
        seconds=measured.seconds,
        findings=tuple(_findings(measured, share)),
        measuring=_measuring(measured),
        widths=tuple(_widths(measured)),
    )


def _findings(measured: ObservedCell, slowdown: float) -> Iterator[TrialFinding]:
    least = floor(contrast_of(measured, measured.repeat).interval)
    steps = measured.launches[0].steps(TRAIN)
    truth = steps / (steps + round(slowdown * steps))
    for name, true in ((measured.repeat, 1.0), (ARM, truth)):
        found = contrast_of(measured, name)
        # The repeat is the floor itself, so it is judged without one.
        thresholds = Thresholds(floor=0.0 if name == measured.repeat else least)
        yield TrialFinding(
            truth=true,
            interval=found.interval,
            medians=medians(measured, name),
            verdict=verdict(found, thresholds) if measured.fair else Verdict.INCONCLUSIVE,
        )


def _measuring(measured: ObservedCell) -> float:
    samples = (sample for block in measured.blocks for sample in block)
    return math.fsum(sample.elapsed_s for sample in samples) / measured.seconds


def _widths(measured: ObservedCell) -> Iterator[tuple[float, float]]:
    spent = 0.0
    for count, launch in enumerate(measured.launches, start=1):
        spent += launch.seconds
        if count >= FEWEST_LAUNCHES:
            yield spent, half_width(measured, count)


def summarise(trials: Sequence[Trial], arm: Arm, host: Host, made: str) -> SelfCheck:
    return SelfCheck(
        schema=SCHEMA,
        made=made,
        seconds=math.fsum(trial.seconds for trial in trials),
        host=host,
        arm=arm.label,
        rows=rows(trials),
        widths=widths(trials),
    )


def rows(trials: Sequence[Trial]) -> tuple[TrialRow, ...]:
    """Two per part: its repeats and its arms."""
    parts = dict.fromkeys(trial.part for trial in trials if trial.findings)
    return tuple(_row(part, place, trials) for part in parts for place in range(len(NAMES)))


def _row(part: str, place: int, trials: Sequence[Trial]) -> TrialRow:
    these = [trial for trial in trials if trial.part == part and trial.findings]
    found = [trial.findings[place] for trial in these]

    def middle(values: Iterable[float]) -> float:
        return float(np.median([*values]))

    return TrialRow(
        part=part,
        arm=NAMES[place],
        truth=middle(each.truth for each in found),
        seconds=middle(trial.seconds for trial in these),
        measuring=middle(trial.measuring for trial in these),
        half_width=middle(each.interval.half_width for each in found),
        found=rate([each.found for each in found]),
        said=rate([each.verdict in {Verdict.FASTER, Verdict.SLOWER} for each in found]),
        covered=rate([_holds(each.interval, each.truth) for each in found]),
        covered_by_medians=rate([_holds(each.medians, each.truth) for each in found]),
    )


def rate(hits: Sequence[bool]) -> Rate:
    return of(sum(hits), len(hits))


def of(hits: int, trials: int) -> Rate:
    """Of none nothing is known: from 0 to 1."""
    if not trials:
        return Rate(hits=0, trials=0, low=0.0, high=1.0)
    found = stats.binomtest(hits, trials).proportion_ci(LEVEL, method="exact")
    return Rate(hits=hits, trials=trials, low=float(found.low), high=float(found.high))


def widths(trials: Sequence[Trial]) -> tuple[tuple[int, float, float], ...]:
    """Of the longest trials: launches, minutes, half-width, each the median over the trials."""
    most = max((len(trial.widths) for trial in trials), default=0)
    longest = [trial.widths for trial in trials if len(trial.widths) == most > 1]
    return tuple(
        (
            FEWEST_LAUNCHES + place,
            float(np.median([each[place][0] for each in longest])) / 60,
            float(np.median([each[place][1] for each in longest])),
        )
        for place in range(most if longest else 0)
    )


def _holds(interval: Interval, truth: float) -> bool:
    return interval.low <= truth <= interval.high
