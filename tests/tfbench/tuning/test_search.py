"""Which setups are measured next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.comparisons import with_interval

from tfbench.measuring.statistics import Thresholds, choose_verdict
from tfbench.tuning.changes import Change, Setup
from tfbench.tuning.search import (
    FINALISTS,
    build_ladder,
    choose_setup,
    count_halvings,
    find_promising,
    select_better_half,
    split_groups,
)
from tfbuild.comparisons.comparison import Agreement, ComparedCell, Gates, Speedup
from tfbuild.comparisons.interval import Interval

NOISE = 0.01


def interval(value: float, half: float = 0.01) -> Interval:
    return Interval(value=value, low=value * (1 - half), high=value * (1 + half))


def speedup(arm: str, value: float, half: float = 0.01) -> Speedup:
    actual = interval(value, half)
    return Speedup(
        arm=arm,
        interval=actual,
        verdict=choose_verdict(with_interval(actual), Thresholds(floor=NOISE)),
        confidence=0.5,
    )


def cell(
    values: Mapping[str, float], *, half: float = 0.01, wrong: tuple[str, ...] = ()
) -> ComparedCell:
    whole: dict[str, Any] = {
        "workload": "lstm_text",
        "vcpus": 2,
        "batch": 128,
        "steps": 10,
        "launches": 3,
        "blocks": 6,
        "seconds": 60.0,
        "stopped_by": "launches",
        "looks": (),
        "gates": Gates(dropped=0, reasons=()),
        "others": 0.0,
        "unsteady": 0,
        "arms": (),
        "noise": interval(1.0, NOISE),
    }
    return ComparedCell(
        **whole,
        agreements=tuple(
            Agreement(arm=arm, losses=1.0 if arm in wrong else 0.0, predictions=0.0, tolerance=1e-3)
            for arm in values
        ),
        speedups=tuple(speedup(arm, value, half) for arm, value in values.items()),
    )


def setup(*words: str) -> Setup:
    pairs = (word.partition("=") for word in words)
    return tuple(Change(lever=lever, value=value) for lever, _, value in pairs)


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
