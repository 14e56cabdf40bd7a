"""Estimators compared on made-up machines: `python -m tests.tools.estimators`, half a minute.

For each: how often stock against stock is called a difference, how often 5 % are seen, how often
the interval holds the truth, and its half-width; four launches of five blocks, as in a minute.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from tests.builders.simulated_machines import MACHINES, Level, Machine, launches, table

from tfbench.measuring.samples import Sample, list_step_seconds
from tfbench.measuring.statistics import compute_contrast, compute_level

Times: TypeAlias = Callable[[Sequence[Sample]], Sequence[float]]
"""Seconds per step of an arm's samples in a launch, one number or several for each."""
ARMS = ("stock", "stock again", "arm")
TRUTH = 1 / 1.05


def middle(seconds: Sequence[float]) -> float:
    return math.log(statistics.median(seconds))


def mean(seconds: Sequence[float]) -> float:
    return math.log(statistics.fmean(seconds))


def least(seconds: Sequence[float]) -> float:
    return math.log(min(seconds))


def half(seconds: Sequence[float]) -> float:
    faster = sorted(seconds)[: (len(seconds) + 1) // 2]
    return math.log(statistics.fmean(faster))


def tenth(seconds: Sequence[float]) -> float:
    fastest = sorted(seconds)[: (len(seconds) + 9) // 10]
    return math.log(statistics.fmean(fastest))


def own(samples: Sequence[Sample]) -> Sequence[float]:
    return list_step_seconds([dataclasses.replace(sample, slices=()) for sample in samples])


def wall(samples: Sequence[Sample]) -> Sequence[float]:
    return [sample.wall_s / sample.steps for sample in samples]


LEVELS: Mapping[str, Level] = {
    "level": compute_level,
    "faster half": half,
    "fastest tenth": tenth,
    "median": middle,
    "mean": mean,
    "minimum": least,
}
TIMES: Mapping[str, Times] = {"slices": list_step_seconds, "own": own, "wall": wall}


def judged(
    machine: Machine, seconds: Times, level: Level, trials: int
) -> tuple[float, float, float, float]:
    """False positives, 5 % seen, coverage as shares, and the median half-width."""
    false, found_slower, held, widths = 0, 0, 0, []
    for seed in range(trials):
        speeds = dict(zip(ARMS, (1.0, 1.0, TRUTH), strict=True))
        actual = launches(machine, speeds, count=4, blocks=5, seed=seed)
        levels = table(actual, ARMS, seconds, level)
        same = compute_contrast(levels, ARMS[1], ARMS[:1]).interval
        arm = compute_contrast(levels, ARMS[2], ARMS[:2]).interval
        false += same.low > 1 or same.high < 1
        found_slower += arm.high < 1
        held += arm.low <= TRUTH <= arm.high
        widths.append(arm.half_width)
    return false / trials, found_slower / trials, held / trials, statistics.median(widths)


def main(trials: int) -> None:
    print(f"{'machine':16}{'time':9}{'level':17}  false  5% seen   held  half-width")
    for machine in MACHINES:
        for time, seconds in TIMES.items():
            for name, level in LEVELS.items():
                false, found_slower, held, width = judged(machine, seconds, level, trials)
                shares = f"{false:7.1%}{found_slower:9.1%}{held:7.1%}"
                print(f"{machine.name:16}{time:9}{name:17}{shares}{width:11.2%}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
