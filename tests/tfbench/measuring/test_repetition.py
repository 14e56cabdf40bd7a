"""How many launches and blocks a measurement has."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbench.measuring.repetition import (
    FAVOURED,
    MOST_BLOCKS,
    OVER,
    USUAL,
    WARM_UP,
    LaunchCost,
    Spread,
    average_spreads,
    choose_block_count,
    compute_warm_up_limit,
    estimate_shortest_s,
    estimate_spread,
)
from tfbench.measuring.stopping import FEWEST_LAUNCHES
from tfcore.comparisons.effort import FEWEST_BLOCKS, Effort

costs = st.builds(LaunchCost, start_s=st.floats(0.1, 60), block_s=st.floats(0.2, 20))
spreads = st.builds(Spread, between=st.floats(1e-6, 1e-2), within=st.floats(1e-6, 1e-2))
starts_left = st.integers(0, 25)


@given(cost=costs, spread=spreads, launches=starts_left, spent_s=st.floats(0, 1e5))
def test_without_a_budget_half_of_the_time_is_samples(
    cost: LaunchCost, spread: Spread, launches: int, spent_s: float
) -> None:
    """But in launches that would be longer than any is."""
    count = choose_block_count(Effort(), cost, spread, past=[4] * launches, spent_s=spent_s)
    assert FEWEST_BLOCKS <= count <= MOST_BLOCKS
    assert count == MOST_BLOCKS or count * cost.block_s >= cost.start_s


@pytest.mark.parametrize(
    ("cost", "spread", "expected"),
    [
        (LaunchCost(start_s=4.0, block_s=1.0), Spread(between=1.0, within=9.0), 6),
        (LaunchCost(start_s=4.0, block_s=1.0), Spread(between=1.0, within=1.0), 4),
        (LaunchCost(start_s=0.1, block_s=1.0), Spread(between=1.0, within=1.0), FEWEST_BLOCKS),
        (LaunchCost(start_s=60.0, block_s=1.0), Spread(between=1.0, within=1.0), MOST_BLOCKS),
    ],
)
def test_without_a_budget_a_launch_is_as_long_as_kalibera_and_jones_have_it(
    cost: LaunchCost, spread: Spread, expected: int
) -> None:
    assert choose_block_count(Effort(), cost, spread, past=[4] * 3, spent_s=60.0) == expected


def planned(
    effort: Effort, cost: LaunchCost, spread: Spread, *, factors: Sequence[float] = (1.0,)
) -> tuple[list[int], float]:
    """The blocks of a cell's launches, and its seconds. What a launch really costs is by a factor
    more, each in turn; the next one is planned by the median of those before."""
    numbers: list[int] = []
    widths: list[float] = []
    spent_s = 0.0
    while len(numbers) < effort.looks[-1]:
        usual = statistics.median(widths or [1.0])
        known = LaunchCost(start_s=usual * cost.start_s, block_s=usual * cost.block_s)
        count = choose_block_count(effort, known, spread, past=numbers, spent_s=spent_s)
        if not count:
            break
        factor = factors[len(numbers) % len(factors)]
        numbers.append(count)
        widths.append(factor)
        spent_s += factor * (cost.start_s + count * cost.block_s)
    return numbers, spent_s


@given(cost=costs, spread=spreads, times=st.floats(1, 60))
def test_what_is_planned_fits_a_budget_that_is_long_enough(
    cost: LaunchCost, spread: Spread, times: float
) -> None:
    effort = Effort(budget_s=times * estimate_shortest_s(cost) * (1 + 1e-9))
    numbers, spent_s = planned(effort, cost, spread)
    assert len(numbers) >= FEWEST_LAUNCHES
    assert min(numbers) >= FEWEST_BLOCKS
    assert effort.budget_s is not None
    assert spent_s <= effort.budget_s * (1 + 1e-9)
    if len(numbers) < effort.looks[-1]:
        one_s = cost.start_s + max(cost.start_s, FEWEST_BLOCKS * cost.block_s)
        assert effort.budget_s - spent_s < one_s + cost.block_s, "no launch more is worth it"


@given(
    cost=costs,
    spread=spreads,
    times=st.floats(1.5, 60),
    factors=st.lists(st.floats(0.96, 1.04), min_size=20, max_size=20),
)
def test_launches_that_take_a_little_more_or_less_than_planned_fit_it_within_a_tenth(
    cost: LaunchCost, spread: Spread, times: float, factors: list[float]
) -> None:
    effort = Effort(budget_s=times * estimate_shortest_s(cost))
    numbers, spent_s = planned(effort, cost, spread, factors=factors)
    assert len(numbers) >= FEWEST_LAUNCHES
    assert effort.budget_s is not None
    assert spent_s <= (1 + OVER) * effort.budget_s


@given(cost=costs, spread=spreads, share=st.floats(0, 0.99))
def test_the_fewest_launches_are_measured_however_short_the_budget_is(
    cost: LaunchCost, spread: Spread, share: float
) -> None:
    numbers, spent_s = planned(Effort(budget_s=share * estimate_shortest_s(cost)), cost, spread)
    assert numbers == [FEWEST_BLOCKS] * FEWEST_LAUNCHES
    assert spent_s == pytest.approx(estimate_shortest_s(cost))


@given(cost=costs, spread=spreads, launches=st.integers(FEWEST_LAUNCHES, 25), fixed=st.booleans())
def test_a_budget_that_is_spent_ends_a_cell(
    cost: LaunchCost, spread: Spread, launches: int, fixed: bool
) -> None:
    effort = Effort(budget_s=100.0, blocks=4 if fixed else 0)
    for spent_s in (100.0 + 0.1 * 100.0, 200.0):
        assert choose_block_count(effort, cost, spread, past=[4] * launches, spent_s=spent_s) == 0


@given(cost=costs, spread=spreads, count=st.integers(FEWEST_BLOCKS, 60), times=st.floats(0, 30))
def test_a_number_of_blocks_that_was_asked_is_kept(
    cost: LaunchCost, spread: Spread, count: int, times: float
) -> None:
    assert planned(Effort(blocks=count), cost, spread)[0] == [count] * Effort().looks[-1]
    launch_s = cost.start_s + count * cost.block_s
    numbers, spent_s = planned(Effort(blocks=count, budget_s=times * launch_s), cost, spread)
    assert set(numbers) == {count}
    assert len(numbers) == FEWEST_LAUNCHES or spent_s <= (1 + OVER) * times * launch_s
    assert len(numbers) == Effort().looks[-1] or len(numbers) > times - 1


@given(cost=costs, spread=spreads, times=st.floats(1, 30))
def test_where_starts_differ_more_launches_are_not_longer(
    cost: LaunchCost, spread: Spread, times: float
) -> None:
    more = dataclasses.replace(spread, between=4 * spread.between)
    for effort in (Effort(), Effort(budget_s=times * estimate_shortest_s(cost))):
        blocks, other_blocks = (
            choose_block_count(effort, cost, chosen_spread, past=(), spent_s=0.0)
            for chosen_spread in (spread, more)
        )
        assert other_blocks <= blocks


def test_in_a_minute_there_are_more_launches_than_the_fewest() -> None:
    """mnist_mlp with three arms: 8 s to start, 1.6 s a block."""
    cost = LaunchCost(start_s=8.0, block_s=1.6)
    numbers, spent_s = planned(Effort(budget_s=60.0), cost, USUAL)
    assert len(numbers) == FAVOURED
    assert 54 <= spent_s <= 60


@given(st.floats(1.0, 1e4))
def test_the_warm_ups_of_a_cell_take_no_more_than_their_share(budget_s: float) -> None:
    assert (
        FEWEST_LAUNCHES * compute_warm_up_limit(Effort(budget_s=budget_s))
        <= WARM_UP * budget_s * 1.001
    )
    assert compute_warm_up_limit(Effort()) == math.inf


def simulated(
    between: float, within: float, sizes: Sequence[int], *, seed: int = 0
) -> list[list[float]]:
    chance = np.random.default_rng(seed)
    return [
        (chance.normal(0, math.sqrt(between)) + chance.normal(0, math.sqrt(within), size)).tolist()
        for size in sizes
    ]


@pytest.mark.parametrize("between", [0.5e-4, 1e-4, 2e-4])
@pytest.mark.parametrize("sizes", [(5,), (2, 12)])
def test_known_variances_are_found_again(between: float, sizes: tuple[int, ...]) -> None:
    """Also where launches are not equally long."""
    spread = estimate_spread(simulated(between, 3e-4, sizes * (600 // len(sizes))))
    assert spread.within == pytest.approx(3e-4, rel=0.1)
    assert spread.between == pytest.approx(between, rel=0.3)


@pytest.mark.parametrize(("between", "share"), [(0.0, 0.1), (1e-5, 0.1), (1e-2, 1.0)])
def test_neither_nothing_nor_all_is_believed_of_what_starts_bring(
    between: float, share: float
) -> None:
    spread = estimate_spread(simulated(between, 3e-4, (5,) * 600))
    assert spread.between == pytest.approx(share * spread.within)


@pytest.mark.parametrize(
    "launches",
    [
        [],
        [[0.1, 0.2, 0.3]] * 2,
        [[0.1, 0.2], [0.1, 0.3], [0.2]],
        [[0.1, 0.1], [0.2, 0.2], [0.3, 0.3]],
    ],
)
def test_too_little_to_tell_is_taken_for_the_usual(launches: list[list[float]]) -> None:
    assert estimate_spread(launches) == USUAL


def test_spreads_are_averaged_over_arms() -> None:
    spread, second = Spread(between=1.0, within=4.0), Spread(between=3.0, within=2.0)
    assert average_spreads([spread, second]) == Spread(between=2.0, within=3.0)
    assert average_spreads([]) == USUAL
