"""Which setups are measured next."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.tuning_cells import cell, setup

from tfbench.tuning.search import (
    FINALISTS,
    build_ladder,
    choose_setup,
    count_halvings,
    find_promising,
    select_better_half,
    split_groups,
)


@given(st.lists(st.integers(), min_size=1, max_size=40), st.integers(1, 8))
def test_groups_hold_everything_once_and_are_about_equal(items: list[int], most: int) -> None:
    groups = split_groups(items, most)
    assert sorted(number for group in groups for number in group) == sorted(items)
    sizes = [len(group) for group in groups]
    assert max(sizes) <= most
    assert max(sizes) - min(sizes) <= 1


def test_nothing_makes_no_group() -> None:
    assert split_groups(()) == ()


def test_what_is_clearly_worse_or_computes_something_else_is_out() -> None:
    speedups = find_promising(
        [cell({"fast": 1.2, "slow": 0.8, "even": 1.001}), cell({"wrong": 2.0}, wrong=("wrong",))]
    )
    assert [arm_speedup.arm for arm_speedup in speedups] == ["fast", "even"]


def test_a_wide_interval_keeps_what_seems_slower() -> None:
    assert [
        arm_speedup.arm for arm_speedup in find_promising([cell({"maybe": 0.95}, half=0.2)])
    ] == ["maybe"]


@given(st.lists(st.integers(), min_size=1, max_size=30))
def test_halving_keeps_the_best_and_ends(ranked: list[int]) -> None:
    remaining, rounds = tuple(ranked), 0
    while len(remaining) > FINALISTS:
        remaining, rounds = select_better_half(remaining), rounds + 1
    assert remaining == tuple(ranked[: len(remaining)])
    assert rounds == count_halvings(len(ranked)) <= 5


def test_a_ladder_adds_the_next_best_of_another_lever() -> None:
    ranked = [
        setup("intra=1"),
        setup("malloc=a"),
        setup("malloc=b"),
        setup("intra=4"),
        setup("inter=1"),
    ]
    assert build_ladder(ranked) == (
        setup("intra=1"),
        setup("intra=1", "malloc=a"),
        setup("intra=1", "malloc=a", "inter=1"),
    )
    assert build_ladder([]) == ()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"one": 1.10, "two": 1.105}, "one"),
        ({"one": 1.10, "two": 1.20}, "two"),
        ({"one": 1.10, "two": 0.90}, "one"),
        ({"one": 0.999, "two": 1.05}, "two"),
        ({"one": 0.999, "two": 0.998}, ""),
        ({}, ""),
    ],
)
def test_a_further_change_must_gain_beyond_noise(values: dict[str, float], expected: str) -> None:
    rungs = {"one": setup("intra=1"), "two": setup("intra=1", "inter=1")}
    assert choose_setup(cell(values), rungs) == rungs.get(expected, ())
