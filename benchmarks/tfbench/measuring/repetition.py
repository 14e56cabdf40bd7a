"""How long launches are, and how many there are: from what a start costs and what it brings. Pure.

A start of all workers takes seconds in which nothing is measured, a block takes seconds in which
everything is. Blocks of one launch share what its start brought, so more of them help less and
less. Kalibera and Jones (ISMM 2013) give the best number of blocks per launch: the square root of
cost ratio times variance ratio. Where time is limited, launches are few, and what matters as much
is the t quantile: then the number of launches is taken that gives the narrowest interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from tfbench.measuring.effort import FEWEST_LAUNCHES
from tfbench.measuring.statistics import LEVEL
from tfbuild.measured.effort import FEWEST_BLOCKS, Effort

MOST_BLOCKS = 40
"""Of a launch, where no budget ends it."""
FAVOURED = 4
"""So many launches may take more than half of the time to start: fewer have too wide intervals."""
OVER = 0.1
"""The share of its budget that a cell may take beyond it."""
WARM_UP = 0.25
"""The share of its budget that a cell's warm-up may take, where the fewest rounds take less."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchCost:
    """Seconds of a launch before and after its blocks, and seconds of a block of all arms."""

    start_s: float
    block_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """Variances of an arm's ln ratio: of what starts bring, and of one block."""

    between: float
    within: float


USUAL = Spread(between=1.0, within=3.0)
"""Only their ratio counts: (1.0 %)² and (1.75 %)² of mnist_mlp on a Sapphire Rapids class VM."""


def spread_of(launches: Sequence[Sequence[float]]) -> Spread:
    """From ln ratios of blocks, by the moments of a one-way random effects model; USUAL where
    launches or blocks are too few to tell."""
    sizes = [len(blocks) for blocks in launches]
    if len(sizes) < FEWEST_LAUNCHES or min(sizes) < FEWEST_BLOCKS:
        return USUAL
    within = float(np.mean([np.var(blocks, ddof=1) for blocks in launches]))
    means = float(np.var([np.mean(blocks) for blocks in launches], ddof=1))
    between = means - within * float(np.mean([1 / size for size in sizes]))
    if not within > 0:
        return USUAL
    # Few launches tell little of what starts bring: neither nothing nor all is believed.
    return Spread(between=min(max(between, within / 10), within), within=within)


def mean_of(spreads: Sequence[Spread]) -> Spread:
    """Over arms. USUAL for none."""
    if not spreads:
        return USUAL
    return Spread(
        between=float(np.mean([each.between for each in spreads])),
        within=float(np.mean([each.within for each in spreads])),
    )


def blocks(
    effort: Effort, cost: LaunchCost, spread: Spread, *, past: Sequence[int], spent_s: float
) -> int:
    """Of the next launch, where the `past` ones had so many; 0 when the budget is spent.

    A cell's first launches are measured, however short the budget is, in FEWEST_BLOCKS each.
    """
    if effort.blocks:
        enough = len(past) < FEWEST_LAUNCHES or _fits(effort, cost, effort.blocks, spent_s)
        return effort.blocks if enough else 0
    if effort.budget_s is None:
        return _unlimited(cost, spread)
    found = _narrowest(effort, cost, spread, past, effort.budget_s - spent_s)
    return found or (FEWEST_BLOCKS if len(past) < FEWEST_LAUNCHES else 0)


def warm_up_s(effort: Effort) -> float:
    """What the warm-up of a launch may take."""
    return math.inf if effort.budget_s is None else WARM_UP * effort.budget_s / FEWEST_LAUNCHES


def shortest_s(cost: LaunchCost) -> float:
    """What the fewest launches of the fewest blocks take."""
    return FEWEST_LAUNCHES * (cost.start_s + FEWEST_BLOCKS * cost.block_s)


def _fits(effort: Effort, cost: LaunchCost, count: int, spent_s: float) -> bool:
    one_s = cost.start_s + count * cost.block_s
    return effort.budget_s is None or spent_s + one_s <= (1 + OVER / 2) * effort.budget_s


def _unlimited(cost: LaunchCost, spread: Spread) -> int:
    """Kalibera and Jones's, and so many that half of the time is samples."""
    ratio = cost.start_s / cost.block_s
    best = math.sqrt(ratio * spread.within / spread.between)
    return max(FEWEST_BLOCKS, min(MOST_BLOCKS, math.ceil(max(best, ratio))))


def _narrowest(
    effort: Effort, cost: LaunchCost, spread: Spread, past: Sequence[int], left_s: float
) -> int:
    """Blocks of each launch that is left, for the narrowest interval; 0 where none is left."""
    best, width = 0, math.inf
    known = math.fsum(spread.between + spread.within / each for each in past)
    for more in range(max(1, FEWEST_LAUNCHES - len(past)), effort.looks[-1] - len(past) + 1):
        each = int((left_s / more - cost.start_s) / cost.block_s)
        total = len(past) + more
        idle = total > FAVOURED and cost.start_s > each * cost.block_s
        if each < FEWEST_BLOCKS or idle:
            break
        variance = (known + more * (spread.between + spread.within / each)) / total**2
        # Two degrees of freedom per launch: those of three arms, see `statistics.contrast`.
        expected = stats.t.ppf((1 + LEVEL) / 2, 2 * (total - 1)) * math.sqrt(variance)
        if expected < width:
            best, width = each, expected
    return best
