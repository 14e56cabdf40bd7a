"""One cell measured: all arms' workers side by side, through launches and blocks."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tfbench.arms import Arm, environment
from tfbench.samples import Sample
from tfbench.schedule import (
    SHORTEST_S,
    block_order,
    launch_order,
    longer,
    padding,
    steps_per_sample,
)
from tfbench.sessions import Session, session
from tfbuild.errors import WorkerError

LOSSES = 5
FEWEST_BLOCKS = 2
"""Per launch, even where the deadline has passed."""
PROFILED_STEPS = 5
WARM_UP = -1
"""The number of the block that is thrown away."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A cell to be measured."""

    workload: str
    vcpus: tuple[int, ...]
    """The CPUs that every worker is held to."""
    arms: tuple[Arm, ...]
    seed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """An arm's start in one launch: its worker's facts and the first losses."""

    arm: str
    facts: Mapping[str, Any]
    losses: tuple[float, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """`profiles` are the answers of tuned arms, by name, and only of a cell's first launch."""

    starts: tuple[Start, ...]
    samples: tuple[Sample, ...]
    profiles: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """All launches of one cell. A launch without samples is one whose losses disagreed."""

    question: Question
    launches: tuple[Launch, ...]

    @property
    def timed(self) -> bool:
        return all(launch.samples for launch in self.launches)


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """`steps` per sample, None to calibrate. At most `blocks`, and none that would end after
    `deadline`, on the monotonic clock.
    """

    steps: int | None
    blocks: int
    deadline: float


def measure_launch(
    question: Question,
    number: int,
    limits: Limits,
    *,
    chance: Random,
    logs: Path,
    may_time: Callable[[Sequence[Start]], bool],
    keep: Callable[[Sample], None],
) -> Launch:
    """Start every arm's worker, ask for losses, then time blocks as far as the limits go.

    Without `may_time`'s consent to the starts nothing is timed. `keep` gets samples as they come.
    """
    names = [arm.name for arm in question.arms]
    with contextlib.ExitStack() as stack:
        sessions = {
            name: stack.enter_context(_opened(question, name, number, chance, logs))
            for name in launch_order(names, chance)
        }
        starts = {name: _start(question, opened) for name, opened in sessions.items()}
        ordered = tuple(starts[name] for name in names)
        if not may_time(ordered):
            return Launch(starts=ordered, samples=())
        paces = [_seconds_per_step(opened) for opened in sessions.values()]
        steps = limits.steps or steps_per_sample(paces)
        place = {"workload": question.workload, "vcpus": len(question.vcpus), "launch": number}
        samples = []
        for block in _block_numbers(limits):
            for sample in _block(sessions, chance, steps, place | {"block": block}):
                if block == WARM_UP:
                    continue
                keep(sample)
                samples.append(sample)
        profiles = _profiles(sessions, starts) if number == 0 else {}
    return Launch(starts=ordered, samples=tuple(samples), profiles=profiles)


def _profiles(
    sessions: Mapping[str, Session], starts: Mapping[str, Start]
) -> dict[str, Mapping[str, Any]]:
    """After the timing, since a profiler slows down what it looks at."""
    tuned = [name for name, start in starts.items() if start.facts["kernel_library"] is not None]
    return {name: sessions[name].profile(PROFILED_STEPS) for name in tuned}


@contextlib.contextmanager
def _opened(
    question: Question, name: str, number: int, chance: Random, logs: Path
) -> Iterator[Session]:
    arm = next(arm for arm in question.arms if arm.name == name)
    home = logs / "home"
    home.mkdir(parents=True, exist_ok=True)
    env = environment(
        arm,
        vcpus=len(question.vcpus),
        home=home,
        padding=padding(chance),
        inherited=os.environ,
    )
    log = logs / f"{question.workload}-{len(question.vcpus)}-{number}-{name}.log"
    with session(arm, env, log) as opened:
        yield opened


def _start(question: Question, opened: Session) -> Start:
    facts = opened.load(question.workload, question.seed, question.vcpus)
    if tuple(facts["vcpus"]) != question.vcpus:
        raise WorkerError(
            f"the worker of arm {opened.arm.name} got CPUs {facts['vcpus']}, not {question.vcpus}"
        )
    return Start(arm=opened.arm.name, facts=facts, losses=opened.losses(LOSSES))


def _seconds_per_step(opened: Session) -> float:
    """Grow the number of steps until they take long enough to be timed; this warms up as well."""
    steps = 1
    while (wall_s := float(opened.sample(steps)["wall_s"])) < SHORTEST_S:
        steps = longer(steps, wall_s)
    return wall_s / steps


def _block(
    sessions: Mapping[str, Session], chance: Random, steps: int, place: Mapping[str, Any]
) -> Iterator[Sample]:
    for position, name in enumerate(block_order(sorted(sessions), chance)):
        taken = sessions[name].sample(steps)
        yield Sample(**place, position=position, arm=name, steps=steps, **taken)


def _block_numbers(limits: Limits) -> Iterator[int]:
    """The warm-up, then numbers from 0 as long as one more block would end before the deadline."""
    yield WARM_UP
    began = time.monotonic()
    for number in range(limits.blocks):
        now = time.monotonic()
        one = (now - began) / max(number, 1)
        if number >= FEWEST_BLOCKS and now + one > limits.deadline:
            return
        yield number
