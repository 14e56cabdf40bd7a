"""The harness proved on itself: what it says when the truth is known.

Trials of stock against stock must find nothing (false positives), trials against an arm that a busy
loop slows down by a known share must find it (power) and name it (coverage). Each trial is a small
comparison by the very code that `compare` runs; only its launches and blocks are fewer.
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
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing.queues import SimpleQueue
from pathlib import Path

import numpy as np
from scipy import stats

from tfbench.arms.arm import Arm, twin_of
from tfbench.inside.worker import SLOWDOWN
from tfbench.measuring.host import Host
from tfbench.measuring.journal import appending, read_lines
from tfbench.measuring.measurement import Question, measure_cell
from tfbench.measuring.observations import Measured, best_ratios, half_width
from tfbench.measuring.schedule import FEWEST_LAUNCHES, Effort
from tfbench.measuring.statistics import LEVEL, Bar, Interval, Verdict, bootstrap, estimate, verdict
from tfbuild import records
from tfbuild.errors import UsageError, WorkerError

SCHEMA = 1
WORKLOAD = "mnist_mlp"
SETTING, TRIALS, RESULT = "run.json", "trials.jsonl", "selfcheck.json"
TRIAL = Effort(looks=(FEWEST_LAUNCHES,), blocks=2)
LONG = Effort(looks=(12,), blocks=2)
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
class Part:
    """Trials of one kind. `slowdowns` are shares of a step's time, one arm each; `loaded` ones have
    a busy process on their CPU.
    """

    name: str
    trials: int
    slowdowns: tuple[float, ...] = ()
    loaded: bool = False
    effort: Effort = TRIAL


FULL = (
    Part(name="slowed", trials=12, slowdowns=(0.03, 0.10)),
    Part(name="long", trials=2, effort=LONG),
    Part(name="same", trials=200),
    Part(name="same, loaded", trials=12, loaded=True),
)
QUICK = (
    Part(name="slowed", trials=2, slowdowns=(0.03, 0.10)),
    Part(name="same", trials=8),
    Part(name="same, loaded", trials=2, loaded=True),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """What one trial said of one arm. `truth` is its real speedup over the baseline."""

    truth: float
    interval: Interval
    bootstrap: Interval
    verdict: Verdict

    @property
    def found(self) -> bool:
        """Whether the interval leaves out 1."""
        return self.interval.low > 1 or self.interval.high < 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """`findings` are those of the twin, whose truth is 1, and of each slowed arm. `widths` are the
    half-widths after each launch from the third on, with the seconds spent."""

    part: str
    number: int
    seconds: float
    fair: bool
    findings: tuple[Finding, ...]
    widths: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Rate:
    """`hits` of `trials`, with the exact 95 % binomial interval (Clopper and Pearson)."""

    hits: int
    trials: int
    low: float
    high: float

    @property
    def value(self) -> float:
        return self.hits / self.trials


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """All trials of one part and one truth."""

    part: str
    truth: float
    seconds: float
    """Of one trial, the median."""
    half_width: float
    """The median."""
    found: Rate
    """The interval leaves out 1: a false positive where the truth is 1, else the power."""
    said: Rate
    """The verdict was faster or slower: beyond the noise floor, too."""
    covered: Rate
    """The interval holds the truth."""
    covered_by_bootstrap: Rate
    fair: Rate
    """Trials in which gates dropped few blocks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SelfCheck:
    schema: int
    made: str
    seconds: float
    host: Host
    arm: str
    rows: tuple[Row, ...]
    widths: tuple[tuple[int, float, float], ...]
    """Launches, minutes and the median half-width of the long trials."""

    @property
    def passed(self) -> bool:
        """No more false positives than allowed; quick checks have too few trials to fail."""
        quiet = [row for row in self.rows if row.part == "same"]
        return all(row.found.value <= MOST_FALSE or row.found.low <= 1 - LEVEL for row in quiet)


Progress = Callable[[int, int, str], None]


def run_trials(
    arm: Arm,
    host: Host,
    parts: Sequence[Part],
    *,
    seed: int,
    out: Path,
    on_progress: Progress,
) -> tuple[Trial, ...]:
    """Every trial, going on from those in `out`, as many at once as there are vCPUs.

    Raises UsageError for an `out` with another check in it, WorkerError, DiskError, RecordError.
    """
    _keep_setting(out / SETTING, Setting(host=host, arm=arm, seed=seed))
    done = read_trials(out / TRIALS)
    have = {(trial.part, trial.number) for trial in done}
    wanted = [(part, number) for part in parts for number in range(part.trials)]
    tasks = [
        Task(arm=arm, part=part, number=number, seed=seed, logs=out / "logs")
        for part, number in wanted
        if (part.name, number) not in have
    ]
    there = len(wanted) - len(tasks)
    made = _all(tasks, host.affinity[: host.vcpus.usable])
    with appending(out / TRIALS) as append, contextlib.closing(made):
        for count, trial in enumerate(made, start=there + 1):
            append(trial)
            done.append(trial)
            on_progress(count, len(wanted), f"{trial.part} {trial.number + 1}")
    names = {part.name for part in parts}
    return tuple(trial for trial in done if trial.part in names)


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """What trials must have in common to be counted together."""

    schema: int = SCHEMA
    host: Host
    arm: Arm
    seed: int


def _keep_setting(path: Path, setting: Setting) -> None:
    there = path.exists()
    differing = records.differences(records.load(path, schema=SCHEMA), setting) if there else []
    if differing:
        raise UsageError(
            f"{path.parent} holds trials of another check, which differs in "
            f"{'; '.join(differing[:3])}",
            hint="Give another --out",
        )
    records.save(path, setting)


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One trial to be made."""

    arm: Arm
    part: Part
    number: int
    seed: int
    logs: Path


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
    """The pool's processes start here, and stay deaf to Ctrl-C: it is for us to end them."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return [pool.submit(trial_of, task) for task in tasks]
    finally:
        signal.signal(signal.SIGINT, before)


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
    slowed = [
        dataclasses.replace(task.arm, name=f"slowed-{share:g}", env=((SLOWDOWN, str(share)),))
        for share in part.slowdowns
    ]
    question = Question(
        workload=WORKLOAD,
        vcpus=(cpu,),
        arms=(task.arm, twin_of(task.arm), *slowed),
        seed=seed,
    )
    logs = task.logs / f"cpu{cpu}"
    measured = measure_cell(
        question, part.effort, (), logs=logs, keep=lambda _: None, listen=lambda _: None
    )
    if measured.failures:
        raise WorkerError(measured.failures[0].reason, arm=measured.failures[0].arm)
    truths = (1.0, *(1 / (1 + share) for share in part.slowdowns))
    return Trial(
        part=part.name,
        number=task.number,
        seconds=measured.seconds,
        fair=measured.fair,
        findings=tuple(_findings(measured, truths, seed)),
        widths=tuple(_widths(measured)),
    )


def _findings(measured: Measured, truths: Sequence[float], seed: int) -> Iterator[Finding]:
    generator = np.random.default_rng(seed)
    floor = estimate(best_ratios(measured, measured.twin)).reach
    for truth, name in zip(truths, (measured.twin, *measured.arms[1:]), strict=True):
        launches = best_ratios(measured, name)
        interval = estimate(launches)
        # The twin is the floor itself, so it is judged without one.
        bar = Bar(floor=0.0 if name == measured.twin else floor)
        yield Finding(
            truth=truth,
            interval=interval,
            bootstrap=bootstrap([launches], generator),
            verdict=verdict(interval, bar) if measured.fair else Verdict.INCONCLUSIVE,
        )


def _widths(measured: Measured) -> Iterator[tuple[float, float]]:
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


def rows(trials: Sequence[Trial]) -> tuple[Row, ...]:
    """One per part and truth, in their order."""
    keys = dict.fromkeys((t.part, f.truth) for t in trials for f in t.findings)
    return tuple(_row(part, truth, trials) for part, truth in keys)


def _row(part: str, truth: float, trials: Sequence[Trial]) -> Row:
    these = [trial for trial in trials if trial.part == part]
    findings = [each for trial in these for each in trial.findings if each.truth == truth]
    return Row(
        part=part,
        truth=truth,
        seconds=float(np.median([trial.seconds for trial in these])),
        half_width=float(np.median([each.interval.half_width for each in findings])),
        found=rate([each.found for each in findings]),
        said=rate([each.verdict in {Verdict.FASTER, Verdict.SLOWER} for each in findings]),
        covered=rate([_holds(each.interval, truth) for each in findings]),
        covered_by_bootstrap=rate([_holds(each.bootstrap, truth) for each in findings]),
        fair=rate([trial.fair for trial in these]),
    )


def rate(hits: Sequence[bool]) -> Rate:
    found = stats.binomtest(sum(hits), len(hits)).proportion_ci(LEVEL, method="exact")
    return Rate(hits=sum(hits), trials=len(hits), low=float(found.low), high=float(found.high))


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


def read_trials(path: Path) -> list[Trial]:
    """Those of a check that was stopped; none where there is no file. Raises RecordError."""
    return [*read_lines(path, _read, "a trial")] if path.exists() else []


def _read(fields: dict[str, object]) -> Trial:
    trial = records.read(Trial, fields)
    if not math.isfinite(trial.seconds):
        raise ValueError("a trial took no time")
    return trial
