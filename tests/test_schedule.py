from __future__ import annotations

import math
from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbench.measuring.schedule import (
    FEWEST_BLOCKS,
    FEWEST_LAUNCHES,
    PADDING_BYTES,
    SHORTEST_S,
    TARGET_S,
    Effort,
    Stop,
    block_order,
    chance_of,
    launch_order,
    longer,
    padding,
    steps_per_sample,
    stop,
)
from tfbuild.errors import SampleError, UsageError

ARMS = ("stock", "tuned")
EFFORT = Effort(looks=(6, 10, 20), precision=0.015, budget_s=100.0)
WIDE, NARROW = 0.02, 0.015


def seeded(seed: int) -> Random:
    return Random(seed)  # noqa: S311  (a schedule, not a secret)


# --- orders ---------------------------------------------------------------------------------------


@given(seed=st.integers(), names=st.sets(st.text(min_size=1), min_size=2, max_size=5))
def test_a_block_has_every_arm_twice_and_is_its_own_mirror_image(
    seed: int, names: set[str]
) -> None:
    order = block_order(sorted(names), seeded(seed))
    assert order == order[::-1]
    assert Counter(order) == dict.fromkeys(names, 2)


@given(seed=st.integers())
def test_a_steady_drift_gives_both_arms_the_same_sum(seed: int) -> None:
    order = block_order(ARMS, seeded(seed))
    sums = {arm: sum(1.0 + 0.1 * i for i, a in enumerate(order) if a == arm) for arm in ARMS}
    assert math.isclose(sums["stock"], sums["tuned"])


def test_abba_and_baab_are_equally_likely() -> None:
    chance = seeded(0)
    firsts = Counter(block_order(ARMS, chance)[0] for _ in range(2000))
    assert 900 < firsts["stock"] < 1100


def orders(chance: Random) -> list[tuple[str, ...]]:
    return [launch_order(ARMS, chance)] + [block_order(ARMS, chance) for _ in range(20)]


def test_a_launch_has_the_same_schedule_whenever_it_is_measured() -> None:
    assert orders(chance_of(3, "mnist_mlp", 2, 7)) == orders(chance_of(3, "mnist_mlp", 2, 7))


@pytest.mark.parametrize(
    "other", [(4, "mnist_mlp", 2, 7), (3, "mnist_cnn", 2, 7), (3, "mnist_mlp", 1, 7)]
)
def test_seed_workload_and_vcpus_decide_the_schedule(other: tuple[int, str, int, int]) -> None:
    assert orders(chance_of(*other)) != orders(chance_of(3, "mnist_mlp", 2, 7))


def test_every_launch_has_another_schedule() -> None:
    found = [orders(chance_of(3, "mnist_mlp", 2, launch)) for launch in range(20)]
    assert all(one != other for place, one in enumerate(found) for other in found[:place])


@given(seed=st.integers())
def test_padding_stays_below_a_page(seed: int) -> None:
    assert 0 <= padding(seeded(seed)) < PADDING_BYTES


# --- steps ----------------------------------------------------------------------------------------


@given(paces=st.lists(st.floats(1e-6, 2 * TARGET_S), min_size=1, max_size=4))
def test_the_slowest_arms_sample_is_long_enough_and_short_enough(paces: list[float]) -> None:
    slowest = steps_per_sample(paces) * max(paces)
    assert slowest <= 2 * TARGET_S
    if steps_per_sample(paces) > 1:
        assert SHORTEST_S <= slowest <= TARGET_S * 4 / 3 * (1 + 1e-9)


def test_a_step_longer_than_a_sample_is_taken_alone() -> None:
    assert steps_per_sample([0.01, 2.5]) == 1


@pytest.mark.parametrize("paces", [[], [0.0], [-1.0, 1.0], [math.nan], [math.inf]])
def test_impossible_paces_are_refused(paces: list[float]) -> None:
    with pytest.raises(SampleError):
        steps_per_sample(paces)


@given(steps=st.integers(1, 10_000), pace=st.floats(1e-9, 0.19))
def test_calibration_grows_and_does_not_leap(steps: int, pace: float) -> None:
    again = longer(steps, steps * pace)
    assert steps * 2 <= again <= max(steps * 2, steps * 10)


# --- the end of a cell ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("launches", "spent_s", "half_width", "expected"),
    [
        (6, 10.0, NARROW, Stop.PRECISION),
        (10, 10.0, NARROW, Stop.PRECISION),
        (6, 10.0, WIDE, None),
        (7, 10.0, NARROW, None),  # nobody looks after seven
        (20, 10.0, WIDE, Stop.LAUNCHES),
        (20, 10.0, NARROW, Stop.PRECISION),
        (21, 10.0, NARROW, Stop.LAUNCHES),
        (4, 80.0, math.inf, None),  # a fifth launch ends with the budget
        (4, 80.1, math.inf, Stop.BUDGET),
        (6, 99.0, NARROW, Stop.PRECISION),  # both: the better reason
        (2, 500.0, math.inf, None),  # fewer than three say nothing
        (3, 500.0, math.inf, Stop.BUDGET),
        (0, 0.0, math.inf, None),
    ],
)
def test_a_cell_ends_at_a_look_or_with_its_budget(
    launches: int, spent_s: float, half_width: float, expected: Stop | None
) -> None:
    assert stop(launches, spent_s, half_width, EFFORT) is expected


def test_without_a_budget_only_looks_end_a_cell() -> None:
    endless = Effort(looks=(3, 5), precision=0.01)
    assert stop(4, 1e9, 0.001, endless) is None
    assert stop(5, 1e9, math.inf, endless) is Stop.LAUNCHES


@given(
    seconds=st.lists(st.floats(0.1, 200), min_size=1, max_size=25),
    width=st.floats(0, 1),
    budget_s=st.floats(1, 1000),
)
def test_every_cell_ends_and_past_the_least_launches_within_its_budget(
    seconds: list[float], width: float, budget_s: float
) -> None:
    """Launches whose lengths are equal end within the budget."""
    effort = Effort(looks=(6, 10, 20), precision=0.01, budget_s=budget_s)
    launches, each = 0, seconds[0]
    while (end := stop(launches, launches * each, width, effort)) is None:
        launches += 1
        assert launches <= 20
    assert launches >= FEWEST_LAUNCHES
    assert launches == FEWEST_LAUNCHES or launches * each <= budget_s * (1 + 1e-9)
    assert (end is Stop.PRECISION) <= (width <= 0.01 and launches in effort.looks)


@pytest.mark.parametrize("wrong", [{"blocks": FEWEST_BLOCKS - 1}, {"blocks": 0}, {"looks": ()}])
def test_an_effort_that_can_give_no_answer_is_refused(wrong: dict[str, Any]) -> None:
    """Its launches would never count, and never be enough."""
    with pytest.raises(UsageError):
        Effort(**wrong)
    assert Effort(blocks=FEWEST_BLOCKS, looks=(1,)).blocks == FEWEST_BLOCKS
