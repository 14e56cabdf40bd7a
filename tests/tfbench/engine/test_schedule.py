from __future__ import annotations

import dataclasses
import math
from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbench.engine.schedule import (
    PADDING_BYTES,
    create_random,
    draw_block_order,
    draw_launch_order,
    draw_padding,
    group_cpus,
)
from tfbench.measuring.stopping import (
    SHORTEST_S,
    TARGET_S,
    choose_sample_steps,
    find_stop_reason,
    increase_steps,
)
from tfcore.comparisons.effort import FEWEST_BLOCKS, Effort, Stop
from tfcore.errors import SampleError, UsageError

ARMS = ("stock", "tuned")
EFFORT = Effort(looks=(6, 10, 20), precision=0.015)
WIDE, NARROW = 0.02, 0.015


def seeded(seed: int) -> Random:
    return Random(seed)  # noqa: S311  (a schedule, not a secret)


# --- orders ---------------------------------------------------------------------------------------


@given(seed=st.integers(), names=st.sets(st.text(min_size=1), min_size=2, max_size=5))
def test_a_block_has_every_arm_twice_and_is_its_own_mirror_image(
    seed: int, names: set[str]
) -> None:
    order = draw_block_order(sorted(names), seeded(seed))
    assert order == order[::-1]
    assert Counter(order) == dict.fromkeys(names, 2)


@pytest.mark.parametrize(
    ("vcpus", "available", "groups"),
    [
        ((0,), {0, 1}, ((0,), (1,))),
        ((0, 1), {0, 1}, ((0, 1),)),
        ((4, 6), {2, 4, 5, 6, 7, 9}, ((4, 6), (2, 5), (7, 9))),
        ((0,), {0, 1, 64, 65}, ((0,), (1,))),
        ((0, 64), {0, 1, 2, 64, 65}, ((0, 64), (1, 2))),
    ],
    ids=["two vCPUs", "all of them", "a rest", "another node", "both nodes"],
)
def test_workers_load_on_cpus_of_their_own_beside_the_memory_that_they_use(
    vcpus: tuple[int, ...], available: set[int], groups: tuple[tuple[int, ...], ...]
) -> None:
    nodes = {cpu: cpu // 64 for cpu in available}
    assert group_cpus(vcpus, available, nodes) == groups
    if len(set(nodes.values())) == 1:
        assert group_cpus(vcpus, available, {}) == groups


@given(seed=st.integers())
def test_a_steady_drift_gives_both_arms_the_same_sum(seed: int) -> None:
    order = draw_block_order(ARMS, seeded(seed))
    sums = {arm: sum(1.0 + 0.1 * i for i, a in enumerate(order) if a == arm) for arm in ARMS}
    assert math.isclose(sums["stock"], sums["tuned"])


def test_abba_and_baab_are_equally_likely() -> None:
    chance = seeded(0)
    firsts = Counter(draw_block_order(ARMS, chance)[0] for _ in range(2000))
    assert 900 < firsts["stock"] < 1100


def orders(chance: Random) -> list[tuple[str, ...]]:
    return [draw_launch_order(ARMS, chance)] + [draw_block_order(ARMS, chance) for _ in range(20)]


def test_a_launch_has_the_same_schedule_whenever_it_is_measured() -> None:
    assert orders(create_random(3, "mnist_mlp", 2, 7)) == orders(
        create_random(3, "mnist_mlp", 2, 7)
    )


@pytest.mark.parametrize(
    "second", [(4, "mnist_mlp", 2, 7), (3, "mnist_cnn", 2, 7), (3, "mnist_mlp", 1, 7)]
)
def test_seed_workload_and_vcpus_decide_the_schedule(second: tuple[int, str, int, int]) -> None:
    assert orders(create_random(*second)) != orders(create_random(3, "mnist_mlp", 2, 7))


def test_every_launch_has_another_schedule() -> None:
    actual = [orders(create_random(3, "mnist_mlp", 2, launch)) for launch in range(20)]
    assert all(first != second for place, first in enumerate(actual) for second in actual[:place])


@given(seed=st.integers())
def test_padding_stays_below_a_page(seed: int) -> None:
    assert 0 <= draw_padding(seeded(seed)) < PADDING_BYTES


# --- steps ----------------------------------------------------------------------------------------


@given(paces=st.lists(st.floats(1e-6, 2 * TARGET_S), min_size=1, max_size=4))
def test_the_slowest_arms_sample_is_long_enough_and_short_enough(paces: list[float]) -> None:
    slowest = choose_sample_steps(paces) * max(paces)
    assert slowest <= 2 * TARGET_S
    if choose_sample_steps(paces) > 1:
        assert SHORTEST_S <= slowest <= TARGET_S * 4 / 3 * (1 + 1e-9)


def test_a_step_longer_than_a_sample_is_taken_alone() -> None:
    assert choose_sample_steps([0.01, 2.5]) == 1


@pytest.mark.parametrize("paces", [[], [0.0], [-1.0, 1.0], [math.nan], [math.inf]])
def test_impossible_paces_are_refused(paces: list[float]) -> None:
    with pytest.raises(SampleError):
        choose_sample_steps(paces)


@given(steps=st.integers(1, 10_000), pace=st.floats(1e-9, 0.19))
def test_calibration_grows_and_does_not_leap(steps: int, pace: float) -> None:
    again = increase_steps(steps, steps * pace)
    assert steps * 2 <= again <= max(steps * 2, steps * 10)


# --- the end of a cell ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("launches", "half_width", "expected"),
    [
        (6, NARROW, Stop.PRECISION),
        (10, NARROW, Stop.PRECISION),
        (6, WIDE, None),
        (7, NARROW, None),  # nobody looks after seven
        (20, WIDE, Stop.LAUNCHES),
        (20, NARROW, Stop.PRECISION),  # both: the better reason
        (21, NARROW, Stop.LAUNCHES),
        (2, math.inf, None),
        (0, math.inf, None),
    ],
)
def test_a_cell_ends_at_a_look(launches: int, half_width: float, expected: Stop | None) -> None:
    assert find_stop_reason(launches, half_width, EFFORT) is expected


@given(launches=st.integers(0, 30), width=st.floats(0, 1), budget_s=st.floats(0, 1000))
def test_what_time_is_left_does_not_end_a_cell_here(
    launches: int, width: float, budget_s: float
) -> None:
    limited = dataclasses.replace(EFFORT, budget_s=budget_s)
    assert find_stop_reason(launches, width, limited) is find_stop_reason(launches, width, EFFORT)


@given(
    widths=st.lists(st.floats(0, 0.05), min_size=21, max_size=21),
    looks=st.sets(st.integers(1, 20), min_size=1, max_size=4).map(sorted).map(tuple),
)
def test_every_cell_ends_at_the_first_look_that_is_narrow_or_at_the_last(
    widths: list[float], looks: tuple[int, ...]
) -> None:
    effort = Effort(looks=looks, precision=0.01)
    launches = 0
    while (end := find_stop_reason(launches, widths[launches], effort)) is None:
        launches += 1
    narrow = [number for number in looks if widths[number] <= 0.01]
    assert launches == (narrow[0] if narrow else looks[-1])
    assert end is (Stop.PRECISION if narrow else Stop.LAUNCHES)


@pytest.mark.parametrize("wrong", [{"blocks": FEWEST_BLOCKS - 1}, {"blocks": -1}, {"looks": ()}])
def test_an_effort_that_can_give_no_answer_is_refused(wrong: dict[str, Any]) -> None:
    """Its launches would never count, and never be enough."""
    with pytest.raises(UsageError):
        Effort(**wrong)
    assert Effort(blocks=FEWEST_BLOCKS, looks=(1,)).blocks == FEWEST_BLOCKS


def test_no_number_of_blocks_is_as_many_as_suit() -> None:
    assert Effort().blocks == Effort(blocks=0).blocks == 0
