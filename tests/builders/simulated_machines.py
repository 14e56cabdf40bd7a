"""Made-up machines: what samples of arms with known speeds take where it is noisy.

Noise is one-sided, as on virtual machines: what disturbs a sample makes it longer. `python -m
tests.tools.estimators` compares estimators on it; `test_estimators.py` checks the one in use.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
from tests.builders.journals import sample

from tfbench.engine.schedule import draw_block_order
from tfbench.measuring.samples import Sample
from tfbench.measuring.stopping import TARGET_S

STARTS = 0.008
"""Standard deviation of what a start brings to an arm, as ln: seen were 0.7 to 1 %."""
WHITE, WHITE_SLICE = 0.01, 0.015
"""The same of every sample, and of every slice of it: seen were 1.1 and 1.5 %."""
SLICES = 10
"""Of a sample."""


@dataclass(kw_only=True, slots=True)
class Machine:
    """One virtual CPU through time. `slow` gives a sample's factor by the time and the draw,
    `shortly` that of some slices, `taken` the seconds that others take while it runs."""

    name: str
    slow: Callable[[float, np.random.Generator], float] = field(default=lambda _, __: 1.0)
    shortly: Callable[[np.random.Generator], float] = field(default=lambda _: 1.0)
    taken: Callable[[float, np.random.Generator], float] = field(default=lambda _, __: 0.0)
    steals: bool = False


def bursts(_: float, draw: np.random.Generator) -> float:
    """Two samples of five are a tenth slower, on average."""
    return 1 + draw.exponential(0.1) if draw.random() < 0.4 else 1.0


def short_bursts(draw: np.random.Generator) -> float:
    """A fifth of the time a third slower."""
    return 1.15 + draw.exponential(0.18) if draw.random() < 0.2 else 1.0


def drift(now_s: float, _: np.random.Generator) -> float:
    """Up and down by 5 % within a minute."""
    return 1 + 0.05 * math.sin(now_s * math.tau / 60) ** 2


def steps(now_s: float, _: np.random.Generator) -> float:
    """Two frequencies, a tenth apart, each for some seconds."""
    return 1.1 if math.sin(now_s * 1.7) + math.sin(now_s * 0.9 + 1) > 0 else 1.0


def stolen(seconds: float, draw: np.random.Generator) -> float:
    """Pieces of 40 ms, one in half a second."""
    return 0.04 * float(draw.poisson(2 * seconds))


def shared(seconds: float, draw: np.random.Generator) -> float:
    """A busy process beside it has half of the CPU, in slices."""
    return seconds * math.exp(draw.normal(0, 0.08))


MACHINES = (
    Machine(name="quiet"),
    Machine(name="bursts", slow=bursts),
    Machine(name="short bursts", shortly=short_bursts),
    Machine(name="drift", slow=drift),
    Machine(name="frequency steps", slow=steps),
    Machine(name="steal", taken=stolen, steals=True),
    Machine(name="busy process", slow=bursts, taken=shared),
)


def launches(
    machine: Machine, speeds: Mapping[str, float], *, count: int, blocks: int, seed: int
) -> list[tuple[Sample, ...]]:
    """Samples of arms on one vCPU, by launch; `speeds` are their true ones, 1 the baseline's."""
    draw = np.random.default_rng(seed)
    now_s, actual = float(draw.uniform(0, 600)), []
    for launch in range(count):
        now_s += 8.0
        chance = Random(f"{seed} {launch}")  # noqa: S311  (a schedule, not a secret)
        own_values = {
            arm: math.exp(draw.normal(0, STARTS)) / speed for arm, speed in speeds.items()
        }
        taken = []
        for block in range(blocks):
            for position, arm in enumerate(draw_block_order(sorted(speeds), chance)):
                row = _sample(machine, TARGET_S * own_values[arm], now_s, draw)
                now_s += row["wall_s"]
                where = {"launch": launch, "block": block, "position": position}
                taken.append(sample(arm, vcpus=1, **where, **row))
        actual.append(tuple(taken))
    return actual


def _sample(
    machine: Machine, seconds: float, now_s: float, draw: np.random.Generator
) -> dict[str, Any]:
    sample_s = seconds * machine.slow(now_s, draw) * math.exp(draw.normal(0, WHITE))
    # A burst takes three slices, 75 ms.
    bursts = np.repeat([machine.shortly(draw) for _ in range(0, SLICES, 3)], 3)[:SLICES]
    white = np.exp(draw.normal(0, WHITE_SLICE, SLICES))
    each_s = sample_s / SLICES * bursts * white
    cpu_s = float(each_s.sum())
    others_s = machine.taken(cpu_s, draw)
    wall_s = cpu_s + others_s
    busy_s = cpu_s if machine.steals else wall_s
    return {
        "wall_s": wall_s,
        "elapsed_s": wall_s + 0.002,
        "cpu_s": cpu_s,
        "slices": tuple((1 / SLICES, float(s * wall_s / cpu_s), float(s)) for s in each_s),
        "busy_s": _ticks(busy_s, draw),
        "steal_s": _ticks(others_s, draw) if machine.steals else 0.0,
    }


def _ticks(seconds: float, draw: np.random.Generator) -> float:
    """As the kernel counts it, in 10 ms."""
    return math.floor(seconds * 100 + draw.random()) / 100


Level = Callable[[Sequence[float]], float]


def table(
    actual: Sequence[Sequence[Sample]],
    arms: Sequence[str],
    seconds: Callable[[Sequence[Sample]], Sequence[float]],
    level: Level,
) -> dict[str, list[float]]:
    """By arm, ln of each launch's level."""
    return {
        arm: [
            level(seconds([timed_sample for timed_sample in samples if timed_sample.arm == arm]))
            for samples in actual
        ]
        for arm in arms
    }
