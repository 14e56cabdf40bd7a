"""Timings of ops at their call sites, stock beside tuned, launch by launch, in a journal.

Call sites are independent of each other, so every launch times all of them, in random order. A
launch counts as one number for a call site, as in a comparison of wheels. Every block contains the
repeat of stock, so each call site has its own A/A control.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import MappingProxyType

from tfbench.arms.arm import Arm, create_repeat
from tfbench.engine import engine
from tfbench.engine.engine import RunProgress
from tfbench.engine.journal import JOURNAL, Kinds, open_journal, read_entries
from tfbench.engine.schedule import create_random, draw_block_order
from tfbench.engine.workers import Session
from tfbench.kernels import workers
from tfbench.kernels.keep_rules import Series, create_series
from tfbench.kernels.profiles import RankedCallSite
from tfbench.measuring.stopping import FEWEST_LAUNCHES
from tfcore.errors import WorkerError

SAMPLE_S = 0.0025
"""Target length of a sample of the slowest arm."""
CALL_S = 0.001
"""Target length of a call; the start of a call takes 0.01 ms."""
MOST_COPIES = 64
BLOCKS = 4
MOST_FAULTS = 3
"""Per launch. A call site whose worker ends is excluded; with more of them the launch fails."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class TimingLine:
    """The timings of one call site in one launch.

    For each arm (stock, its repeat, tuned) the seconds per execution of its samples, two for
    every block. Without times, `reason` explains why.
    """

    stage: str
    threads: int
    launch: int
    key: str
    stock: tuple[float, ...] = ()
    again: tuple[float, ...] = ()
    tuned: tuple[float, ...] = ()
    reason: str = ""


KINDS: Kinds[TimingLine] = MappingProxyType({"timing": TimingLine})


@dataclass(frozen=True, kw_only=True, slots=True)
class TimingStage:
    """A round of launches: `search` or `confirm`. No stage reads the other's lines."""

    name: str
    launches: int
    budget_s: float | None
    seed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """The setup for timing: the two arms, the CPUs for each number of threads, and the folder of
    the journal.
    """

    stock: Arm
    tuned: Arm
    cpus: tuple[int, ...]
    out: Path

    @property
    def journal(self) -> Path:
        return self.out / JOURNAL

    @property
    def arms(self) -> tuple[Arm, Arm, Arm]:
        return self.stock, create_repeat(self.stock), self.tuned


def read_known_lines(bench: Bench) -> list[TimingLine]:
    """Read the lines that an earlier run has left. Raises RecordError if the journal is damaged."""
    return [*read_entries(bench.journal, KINDS)] if bench.journal.is_file() else []


def time_call_sites(
    bench: Bench,
    stage: TimingStage,
    sites_by_threads: Mapping[int, Sequence[RankedCallSite]],
    listen: Progress,
) -> tuple[TimingLine, ...]:
    """Time every wanted call site, by number of threads, and return the lines.

    Makes as many launches as the stage asks for or its budget has time for (never fewer than
    three). Resumes from the journal. Raises WorkerError if workers do not even start, and
    DiskError.
    """
    timings = Timings(bench=bench, stage=stage, wanted=sites_by_threads, listen=listen)
    with open_journal(bench.journal, KINDS) as (known, keep):
        return engine.run(timings, known, keep)


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelLaunch:
    """A launch of fresh workers with this many threads, and the call sites that they time."""

    number: int
    threads: int
    sites: tuple[RankedCallSite, ...]
    before: int
    """Number of lines of the stage before the launch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timings:
    """A stage as an experiment of the engine: all call sites with each number of threads, in
    each launch.
    """

    bench: Bench
    stage: TimingStage
    wanted: Mapping[int, Sequence[RankedCallSite]]
    listen: Progress

    def is_reusable(self, line: TimingLine) -> bool:
        return line.stage == self.stage.name

    def choose_next(self, lines: Sequence[TimingLine], spent: RunProgress) -> KernelLaunch | None:
        for number in range(self.stage.launches):
            begun = any(line.launch == number for line in lines)
            if not begun and number >= FEWEST_LAUNCHES and self._is_over_budget(spent):
                return None
            for threads, sites in self.wanted.items():
                remaining = _list_remaining(sites, lines, threads, number)
                if remaining:
                    return KernelLaunch(
                        number=number, threads=threads, sites=remaining, before=len(lines)
                    )
        return None

    def _is_over_budget(self, spent: RunProgress) -> bool:
        """Return whether one more launch with every number of threads would exceed the budget."""
        rounds = spent.launches / max(1, sum(map(bool, self.wanted.values())))
        round_s = spent.seconds / rounds if rounds else 0.0
        return self.stage.budget_s is not None and spent.seconds + round_s > self.stage.budget_s

    def run_launch(self, launch: KernelLaunch, keep: Callable[[TimingLine], None]) -> None:
        """Time every call site once. One that ends its worker is excluded, with new workers for
        the others.

        Raises WorkerError if workers do not start or more than MOST_FAULTS end, and DiskError.
        """
        threads, cpus = launch.threads, self.bench.cpus[: launch.threads]
        chance = create_random(self.stage.seed, self.stage.name, threads, launch.number)
        remaining, faults = chance.sample(launch.sites, len(launch.sites)), 0
        total = self.stage.launches * sum(map(len, self.wanted.values()))

        def remember(line: TimingLine) -> None:
            keep(line)
            remaining.pop(0)
            self.listen(launch.before + len(launch.sites) - len(remaining), total)

        while remaining:
            with workers.open_workers(self.bench.arms, cpus, chance, self.bench.out) as sessions:
                try:
                    while remaining:
                        remember(self._time_call_site(launch, remaining[0], sessions, chance))
                except WorkerError as error:
                    faults += 1
                    if faults > MOST_FAULTS:
                        raise
                    reason = f"a worker failed: {error.message.splitlines()[0]}"
                    remember(self._create_empty_line(launch, remaining[0], reason))

    def _time_call_site(
        self,
        launch: KernelLaunch,
        site: RankedCallSite,
        sessions: Mapping[str, Session],
        chance: Random,
    ) -> TimingLine:
        count = choose_copies(site.call_s)
        calls_s = []
        for session in sessions.values():
            reason, call_s = workers.prepare(session, site.place, count)
            if reason:
                return self._create_empty_line(launch, site, reason)
            calls_s.append(call_s)
        calls = max(1, math.ceil(SAMPLE_S / max(calls_s)))
        samples: dict[str, list[float]] = {name: [] for name in sessions}
        for _ in range(BLOCKS):
            for name in draw_block_order(sorted(sessions), chance):
                seconds = workers.time_calls(sessions[name], calls, alone=launch.threads == 1)
                samples[name].append(seconds / calls / count)
        stock, again, tuned = (tuple(samples[name]) for name in sessions)
        line = self._create_empty_line(launch, site)
        return dataclasses.replace(line, stock=stock, again=again, tuned=tuned)

    def _create_empty_line(
        self, launch: KernelLaunch, site: RankedCallSite, reason: str = ""
    ) -> TimingLine:
        """Create a line without times."""
        return TimingLine(
            stage=self.stage.name,
            threads=launch.threads,
            launch=launch.number,
            key=site.key,
            reason=reason,
        )


def _list_remaining(
    sites: Sequence[RankedCallSite], lines: Sequence[TimingLine], threads: int, launch: int
) -> tuple[RankedCallSite, ...]:
    """List the call sites that a launch has not timed yet and that can be timed at all."""
    done = {
        line.key
        for line in lines
        if line.reason or (line.threads, line.launch) == (threads, launch)
    }
    return tuple(site for site in sites if site.key not in done)


def group_series(
    lines: Sequence[TimingLine],
) -> tuple[dict[tuple[str, int], Series], dict[str, str]]:
    """Return the series by call site and threads, and the reason for each call site without one."""
    grouped: dict[tuple[str, int], list[TimingLine]] = defaultdict(list)
    reasons = {line.key: line.reason for line in lines if line.reason}
    for line in lines:
        if line.key not in reasons:
            grouped[line.key, line.threads].append(line)
    return {site: _merge_lines(site_lines) for site, site_lines in grouped.items()}, reasons


def _merge_lines(lines: Sequence[TimingLine]) -> Series:
    return create_series(
        [{"stock": line.stock, "again": line.again, "tuned": line.tuned} for line in lines]
    )


def choose_copies(call_s: float) -> int:
    """Choose how many executions a call holds, for an op that takes this long in the profile."""
    return max(1, min(MOST_COPIES, math.ceil(CALL_S / max(call_s, 1e-7))))
