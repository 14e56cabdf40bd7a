"""The number and the length of launches, from the cost and the variance of a start. Pure.

A start of all workers takes seconds in which nothing is measured. Blocks of one launch share the
effects of its start, so each further block helps less. Kalibera and Jones (ISMM 2013) give the best
number of blocks per launch: the square root of the cost ratio times the variance ratio. If time is
limited, there are few launches, and the t quantile matters as much. Then the number of launches is
the one with the narrowest interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from tfbench.measuring.statistics import LEVEL
from tfbench.measuring.stopping import FEWEST_LAUNCHES
from tfcore.comparisons.effort import FEWEST_BLOCKS, Effort

MOST_BLOCKS = 40
"""Per launch, if no budget ends it."""
FAVOURED = 4
"""This many launches may spend over half of the time on starts: fewer give too wide intervals."""
OVER = 0.1
"""The share of its budget by which a cell may exceed it."""
WARM_UP = 0.25
"""The share of its budget that a cell's warm-up may take; the fewest rounds may take more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchCost:
    """The cost of a launch: its seconds before and after the blocks, and the seconds of a block
    of all arms.
    """

    start_s: float
    block_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """The variances of an arm's ln ratio: between launches, and of one block within a launch."""

    between: float
    within: float


USUAL = Spread(between=1.0, within=3.0)
"""Only their ratio matters: (1.0 %)² and (1.75 %)² of mnist_mlp on a Sapphire Rapids class VM."""


def estimate_spread(launches: Sequence[Sequence[float]]) -> Spread:
    """Estimate the spread from ln ratios of blocks, by moments of a one-way random effects model.

    Return USUAL if there are too few launches or blocks.
    """
    sizes = [len(blocks) for blocks in launches]
    if len(sizes) < FEWEST_LAUNCHES or min(sizes) < FEWEST_BLOCKS:
        return USUAL
    within = float(np.mean([np.var(blocks, ddof=1) for blocks in launches]))
    means = float(np.var([np.mean(blocks) for blocks in launches], ddof=1))
    between = means - within * float(np.mean([1 / size for size in sizes]))
    if not within > 0:
        return USUAL
    # Few launches estimate `between` poorly: it is at least a tenth of `within`, at most all of it.
    return Spread(between=min(max(between, within / 10), within), within=within)


def average_spreads(spreads: Sequence[Spread]) -> Spread:
    """Average the spreads over arms; USUAL if there are none."""
    if not spreads:
        return USUAL
    return Spread(
        between=float(np.mean([spread.between for spread in spreads])),
        within=float(np.mean([spread.within for spread in spreads])),
    )


def choose_block_count(
    effort: Effort, cost: LaunchCost, spread: Spread, *, past: Sequence[int], spent_s: float
) -> int:
    """Choose the number of blocks of the next launch; 0 if the budget is spent.

    `past` has the number of blocks of each earlier launch. A cell's first launches are
    measured however short the budget is, in FEWEST_BLOCKS each.
    """
    if effort.blocks:
        enough = len(past) < FEWEST_LAUNCHES or _has_budget(effort, cost, effort.blocks, spent_s)
        return effort.blocks if enough else 0
    if effort.budget_s is None:
        return _compute_unlimited_blocks(cost, spread)
    block_count = _choose_narrowest(effort, cost, spread, past, effort.budget_s - spent_s)
    return block_count or (FEWEST_BLOCKS if len(past) < FEWEST_LAUNCHES else 0)


def compute_warm_up_limit(effort: Effort) -> float:
    """Compute the most seconds that the warm-up of a launch may take."""
    return math.inf if effort.budget_s is None else WARM_UP * effort.budget_s / FEWEST_LAUNCHES


def estimate_shortest_s(cost: LaunchCost) -> float:
    """Estimate the seconds of the fewest launches of the fewest blocks."""
    return FEWEST_LAUNCHES * (cost.start_s + FEWEST_BLOCKS * cost.block_s)


def _has_budget(effort: Effort, cost: LaunchCost, count: int, spent_s: float) -> bool:
    one_s = cost.start_s + count * cost.block_s
    return effort.budget_s is None or spent_s + one_s <= (1 + OVER / 2) * effort.budget_s


def _compute_unlimited_blocks(cost: LaunchCost, spread: Spread) -> int:
    """Compute the number of blocks by Kalibera and Jones, but enough that samples take half of
    the time.
    """
    ratio = cost.start_s / cost.block_s
    best = math.sqrt(ratio * spread.within / spread.between)
    return max(FEWEST_BLOCKS, min(MOST_BLOCKS, math.ceil(max(best, ratio))))


def _choose_narrowest(
    effort: Effort, cost: LaunchCost, spread: Spread, past: Sequence[int], left_s: float
) -> int:
    """Choose the blocks of each remaining launch for the narrowest interval; 0 if none is left."""
    best, width = 0, math.inf
    known = math.fsum(spread.between + spread.within / past_blocks for past_blocks in past)
    for more in range(max(1, FEWEST_LAUNCHES - len(past)), effort.looks[-1] - len(past) + 1):
        blocks = int((left_s / more - cost.start_s) / cost.block_s)
        total = len(past) + more
        idle = total > FAVOURED and cost.start_s > blocks * cost.block_s
        if blocks < FEWEST_BLOCKS or idle:
            break
        variance = (known + more * (spread.between + spread.within / blocks)) / total**2
        # Two degrees of freedom per launch, as for three arms that vary equally: see
        # `statistics.compute_contrast`.
        expected = stats.t.ppf((1 + LEVEL) / 2, 2 * (total - 1)) * math.sqrt(variance)
        if expected < width:
            best, width = blocks, expected
    return best
