from __future__ import annotations

import math
from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbench.schedule import (
    LONGEST_S,
    PADDING_BYTES,
    SHORTEST_S,
    block_order,
    launch_order,
    longer,
    padding,
    steps_per_sample,
)
from tfbuild.errors import SampleError

ARMS = ("stock", "tuned")


def seeded(seed: int) -> Random:
    return Random(seed)  # noqa: S311  (a schedule, not a secret)


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


def test_the_seed_decides_the_schedule() -> None:
    def orders(seed: int) -> list[tuple[str, ...]]:
        chance = seeded(seed)
        return [launch_order(ARMS, chance)] + [block_order(ARMS, chance) for _ in range(20)]

    assert orders(3) == orders(3)
    assert orders(3) != orders(4)


@given(seed=st.integers())
def test_padding_stays_below_a_page(seed: int) -> None:
    assert 0 <= padding(seeded(seed)) < PADDING_BYTES


@given(paces=st.lists(st.floats(1e-6, LONGEST_S), min_size=1, max_size=4))
def test_the_slowest_arms_sample_is_long_enough_and_short_enough(paces: list[float]) -> None:
    slowest = steps_per_sample(paces) * max(paces)
    assert SHORTEST_S <= slowest <= LONGEST_S


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
