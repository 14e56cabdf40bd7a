"""Ops timed at their places, stock beside tuned, launch after launch, into a journal.

Places are independent of each other, so all of them are timed in every launch, in random order;
a launch counts as one number for a place, as in a comparison of wheels. The twin of stock stands
in every block, so each place has its own A/A control.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tfbench.arms.arm import Arm, twin_of
from tfbench.kernels import workers
from tfbench.kernels.judging import Series, series_of
from tfbench.kernels.profiles import Spot
from tfbench.measuring.journal import appending, read_lines
from tfbench.measuring.schedule import FEWEST_LAUNCHES, block_order, chance_of
from tfbench.measuring.sessions import Session
from tfbuild.errors import WorkerError
from tfbuild.records import read

JOURNAL = "timings.jsonl"
SAMPLE_S = 0.0025
"""Aim for samples so long, of the slowest arm."""
CALL_S = 0.001
"""Aim for calls so long: the start of one takes 0.01 ms."""
MOST_COPIES = 64
BLOCKS = 4
MOST_FAULTS = 3
"""Of one launch: a place whose worker ends is left out, but not each of them."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One place in one launch: seconds per execution of each sample by arm (stock, its twin,
    tuned), two of each for every block. Without times there is the reason."""

    stage: str
    threads: int
    launch: int
    key: str
    stock: tuple[float, ...] = ()
    again: tuple[float, ...] = ()
    tuned: tuple[float, ...] = ()
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """A round of launches: `search` or `confirm`. No stage reads the other's lines."""

    name: str
    launches: int
    budget_s: float | None
    seed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """What times: the two arms, the CPUs for each number of threads, and where the journal is."""

    stock: Arm
    tuned: Arm
    cpus: tuple[int, ...]
    out: Path

    @property
    def journal(self) -> Path:
        return self.out / JOURNAL

    @property
    def arms(self) -> tuple[Arm, Arm, Arm]:
        return self.stock, twin_of(self.stock), self.tuned


def known_lines(bench: Bench) -> list[Line]:
    """What an earlier run of the same has left. Raises RecordError."""
    if not bench.journal.is_file():
        return []
    return list(read_lines(bench.journal, lambda fields: read(Line, fields), "a timing"))


def time_places(
    bench: Bench, stage: Stage, wanted: Mapping[int, Sequence[Spot]], listen: Progress
) -> list[Line]:
    """Lines of every wanted place, by number of threads, in as many launches as the stage asks for
    or its budget has time for (never fewer than three).

    Goes on from the journal. Raises WorkerError when workers do not even start, DiskError.
    """
    lines = [each for each in known_lines(bench) if each.stage == stage.name]
    total = stage.launches * sum(map(len, wanted.values()))
    began, fresh = time.monotonic(), 0
    with appending(bench.journal) as append:
        for number in range(stage.launches):
            spent = time.monotonic() - began
            if number >= FEWEST_LAUNCHES and _too_long(spent, fresh, stage.budget_s):
                break
            before = len(lines)
            for threads, every in wanted.items():
                left = _left(every, lines, threads, number)
                for line in _launch(bench, (stage, threads, number), left):
                    append(line)
                    lines.append(line)
                    listen(len(lines), total)
            fresh += len(lines) > before
    return lines


def _left(every: Sequence[Spot], lines: Sequence[Line], threads: int, launch: int) -> list[Spot]:
    """The places that a launch has not timed yet and that can be timed at all."""
    out = {
        each.key
        for each in lines
        if each.reason or (each.threads, each.launch) == (threads, launch)
    }
    return [spot for spot in every if spot.key not in out]


def series(lines: Sequence[Line]) -> tuple[dict[tuple[str, int], Series], dict[str, str]]:
    """What was timed by place and threads, and the reason for each place that was not."""
    grouped: dict[tuple[str, int], list[Line]] = defaultdict(list)
    reasons = {line.key: line.reason for line in lines if line.reason}
    for line in lines:
        if line.key not in reasons:
            grouped[line.key, line.threads].append(line)
    return {place: _series(own) for place, own in grouped.items()}, reasons


def _series(lines: Sequence[Line]) -> Series:
    return series_of(
        [{"stock": line.stock, "again": line.again, "tuned": line.tuned} for line in lines]
    )


def _too_long(spent_s: float, launches: int, budget_s: float | None) -> bool:
    """Whether one launch more, as long as those before, would end after the budget."""
    return budget_s is not None and spent_s * (launches + 1) / max(launches, 1) > budget_s


def _launch(bench: Bench, cell: tuple[Stage, int, int], spots: list[Spot]) -> Iterator[Line]:
    """Every place once in fresh workers. One that ends its worker is left out, with new workers for
    the others."""
    stage, threads, number = cell
    chance = chance_of(stage.seed, stage.name, threads, number)
    left, faults, cpus = chance.sample(spots, len(spots)), 0, bench.cpus[:threads]
    while left:
        with workers.opened(bench.arms, cpus, chance, bench.out) as sessions:
            try:
                while left:
                    yield _line(cell, left[0], sessions, chance)
                    left.pop(0)
            except WorkerError as error:
                faults += 1
                if faults > MOST_FAULTS:
                    raise
                reason = f"a worker failed: {error.message.splitlines()[0]}"
                yield _without(cell, left.pop(0), reason)


def _line(
    cell: tuple[Stage, int, int], spot: Spot, sessions: Mapping[str, Session], chance: Random
) -> Line:
    _, threads, _ = cell
    count = copies(spot.call_s)
    calls_s = []
    for each in sessions.values():
        reason, call_s = workers.prepare(each, spot.place, count)
        if reason:
            return _without(cell, spot, reason)
        calls_s.append(call_s)
    calls = max(1, math.ceil(SAMPLE_S / max(calls_s)))
    taken: dict[str, list[float]] = {name: [] for name in sessions}
    for _ in range(BLOCKS):
        for name in block_order(sorted(sessions), chance):
            seconds = workers.sample(sessions[name], calls, alone=threads == 1)
            taken[name].append(seconds / calls / count)
    stock, again, tuned = (tuple(taken[name]) for name in sessions)
    stage, _, number = cell
    return Line(
        stage=stage.name,
        threads=threads,
        launch=number,
        key=spot.key,
        stock=stock,
        again=again,
        tuned=tuned,
    )


def copies(call_s: float) -> int:
    """How many executions a call holds, of an op that takes so long in the profile."""
    return max(1, min(MOST_COPIES, math.ceil(CALL_S / max(call_s, 1e-7))))


def _without(cell: tuple[Stage, int, int], spot: Spot, reason: str) -> Line:
    stage, threads, number = cell
    return Line(stage=stage.name, threads=threads, launch=number, key=spot.key, reason=reason)
