from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.kernel_call_sites import TANH, ranked, series, timed

from tfbench.kernels.keep_rules import (
    RATE,
    Series,
    TimedCallSite,
    compute_control,
    confirm_candidates,
    create_rows,
    find_discoveries,
    find_losers,
    is_quiet,
    reject_candidates,
)
from tfcore.comparisons.kernels import TypedOp

FASTER = (0.20, 0.21, 0.19, 0.20)
EVEN = (0.01, -0.01, 0.012, -0.012)
SLOWER = (-0.10, -0.11, -0.09, -0.10)


def reasons(*sites: TimedCallSite) -> dict[str, str]:
    return {
        choice.op: reason
        for choice, reason in reject_candidates(create_rows(sites), RATE, {})[0].items()
    }


def test_a_ratio_is_stock_over_tuned() -> None:
    (row,) = create_rows([timed(ranked(), *FASTER)])
    assert row.ratio == pytest.approx(math.exp(0.2))
    assert 1 < row.low < row.ratio < row.high
    assert row.choice == TANH


def test_p_is_small_for_a_gain_and_large_for_a_loss() -> None:
    assert series(*FASTER).gain.p_faster < 0.001
    assert series(*SLOWER).gain.p_faster > 0.999
    assert series(*EVEN).gain.p_faster == pytest.approx(0.5)


def test_a_kernel_that_wins_and_loses_nowhere_is_worth_confirming() -> None:
    assert reasons(timed(ranked("Tanh", 9), *FASTER), timed(ranked("Tanh", 8), *EVEN)) == {
        "Tanh": ""
    }


def test_a_loss_at_one_place_throws_a_kernel_out() -> None:
    fields = reasons(
        timed(ranked("Tanh", 9), *FASTER), timed(ranked("Tanh", 8), *SLOWER, threads=2)
    )
    assert fields == {"Tanh": "0.905x at float[8], 2 threads"}


def test_a_loss_that_is_sure_but_tiny_does_not() -> None:
    tiny = (-0.004, -0.0041, -0.0039, -0.004)
    fields = reasons(timed(ranked("Tanh", 9), *FASTER), timed(ranked("Tanh", 8), *tiny))
    assert fields == {"Tanh": ""}


def test_gains_must_outweigh_what_is_lost() -> None:
    unsure = (-0.9, 0.1, -0.9, 0.1)
    fields = reasons(
        timed(ranked("Tanh", 9, share=0.001), *FASTER),
        timed(ranked("Tanh", 8, share=0.9), *unsure),
    )
    assert fields == {"Tanh": "no gain over all its call sites"}


def test_kernels_are_judged_apart() -> None:
    other_typed_op = TypedOp(op="Mul", types="T=1")
    fields = reasons(
        timed(ranked(), *FASTER), timed(ranked("Mul", 3), *EVEN, choice=other_typed_op)
    )
    assert fields == {"Tanh": "", "Mul": "no gain beyond noise"}


def test_a_gain_that_fresh_launches_do_not_show_is_dropped() -> None:
    rows = create_rows([timed(ranked(), *FASTER)])
    confirmed = confirm_candidates(rows, {0: series(*FASTER)}, RATE, {})
    assert confirmed[1] == (TANH,)
    assert confirmed[0][0].kept
    assert confirmed[0][0].confirmed is not None
    judged, none = confirm_candidates(rows, {0: series(*EVEN)}, RATE, {})
    assert none == ()
    assert judged[0].reason.startswith("not confirmed")


def test_a_loss_in_fresh_launches_drops_a_kernel() -> None:
    rows = create_rows([timed(ranked("Tanh", 9), *FASTER), timed(ranked("Tanh", 8), *EVEN)])
    judged, typed_ops = confirm_candidates(rows, {0: series(*FASTER), 1: series(*SLOWER)}, RATE, {})
    assert typed_ops == ()
    assert {row.reason for row in judged} == {"not confirmed: 0.905x at float[8], 1 thread"}


def test_a_place_that_was_not_timed_again_confirms_nothing() -> None:
    rows = create_rows([timed(ranked("Tanh", 9), *FASTER), timed(ranked("Tanh", 8), *EVEN)])
    judged, typed_ops = confirm_candidates(rows, {0: series(*FASTER)}, RATE, {})
    assert typed_ops == ()
    assert {row.reason for row in judged} == {"not confirmed: not timed at float[8], 1 thread"}


def test_a_kernel_that_was_not_timed_at_a_place_is_not_kept() -> None:
    rows, missing = create_rows([timed(ranked(), *FASTER)]), {TANH: "float[9]"}
    assert reject_candidates(rows, RATE, missing)[0] == {TANH: "not timed at float[9]"}
    judged, typed_ops = confirm_candidates(rows, {}, RATE, missing)
    assert (typed_ops, judged[0].reason) == ((), "not timed at float[9]")


def test_a_loss_counts_however_many_other_places_were_timed() -> None:
    """Of 41 places one is 2 % slower, with a p of 0.02 by itself."""
    slower = (-0.03, -0.01, -0.028, -0.012)
    even = [timed(ranked("Tanh", size), *EVEN) for size in range(1, 40)]
    (row,) = create_rows([timed(ranked("Tanh", 99), *slower)])
    assert RATE / 41 < 1 - row.p < RATE
    assert row.high < 1
    sites = (timed(ranked(share=0.9), *FASTER), *even)
    assert reasons(*sites) == {"Tanh": ""}
    assert reasons(*sites, timed(ranked("Tanh", 99), *slower)) == {
        "Tanh": "0.980x at float[99], 1 thread"
    }


def test_a_loss_counts_however_many_other_places_were_timed_again() -> None:
    slower = (-0.03, -0.01, -0.028, -0.012)
    sites = [timed(ranked("Tanh", size), *EVEN) for size in range(1, 40)]
    rows = create_rows([timed(ranked(share=0.9), *FASTER), *sites])
    again = {0: series(*FASTER)} | {number: series(*EVEN) for number in range(1, 40)}
    assert confirm_candidates(rows, again, RATE, {})[1] == (TANH,)
    judged, typed_ops = confirm_candidates(rows, again | {7: series(*slower)}, RATE, {})
    assert typed_ops == ()
    assert judged[0].reason == "not confirmed: 0.980x at float[7], 1 thread"


def test_a_loss_that_is_not_sure_throws_no_kernel_out() -> None:
    unsure = (-0.06, 0.03, -0.06, 0.03)
    sites = (timed(ranked(share=0.9), *FASTER), timed(ranked("Tanh", 8), *unsure))
    assert reasons(*sites) == {"Tanh": ""}


def test_stock_against_itself_wins_nothing() -> None:
    same = compute_control([timed(ranked(), *FASTER)], RATE)
    assert (same.cells, same.won, same.lost) == (1, 0, 0)
    assert 0 < same.reach < 0.01


@pytest.mark.parametrize(("again", "won", "lost"), [(FASTER, 1, 0), (SLOWER, 0, 1)])
def test_a_machine_that_drifts_is_seen_in_the_control(
    again: tuple[float, ...], won: int, lost: int
) -> None:
    cell = timed(ranked(), *FASTER)
    second = zip(cell.series.stock, again, strict=True)
    drifting = dataclasses.replace(
        cell.series, again=tuple(stock - ratio for stock, ratio in second)
    )
    control = compute_control([dataclasses.replace(cell, series=drifting)], RATE)
    assert (control.won, control.lost) == (won, lost)


def test_times_of_a_disturbed_machine_are_not_kept() -> None:
    assert is_quiet(series(*FASTER))
    assert not is_quiet(dataclasses.replace(series(*FASTER), again=(0.5, -0.5, 0.1, 0.0)))


def test_no_kernel_at_all_is_no_error() -> None:
    assert confirm_candidates((), {}, RATE, {}) == ((), ())
    assert find_discoveries([], RATE) == frozenset()


@given(st.lists(st.floats(0, 1), min_size=1))
def test_what_is_discovered_is_what_is_smallest(probabilities: list[float]) -> None:
    discoveries = find_discoveries(probabilities, RATE)
    worst = max((probabilities[number] for number in discoveries), default=0.0)
    assert all(p > worst for n, p in enumerate(probabilities) if n not in discoveries)
    assert all(probabilities[number] <= RATE for number in discoveries)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.5, 2)), min_size=1))
def test_nothing_wins_and_loses(cells: list[tuple[float, float]]) -> None:
    probabilities, ratios = zip(*cells, strict=True)
    slower = find_losers(probabilities, ratios, RATE)
    assert not slower & find_discoveries(probabilities, RATE)
    assert all(ratios[number] <= 0.99 for number in slower)


def test_among_kernels_without_gain_hardly_any_is_found() -> None:
    """60 selections of 40 places where nothing is gained: in about 5 % of them something is."""
    draws = np.random.default_rng(1).normal(0, 0.02, (60, 40, 3, 6)).tolist()

    def p(levels: list[list[float]]) -> float:
        stock, again, tuned = map(tuple, levels)
        actual = Series(stock_s=1.0, tuned_s=1.0, stock=stock, again=again, tuned=tuned)
        return actual.gain.p_faster

    wrong = sum(bool(find_discoveries([p(value) for value in draw], RATE)) for draw in draws)
    assert wrong <= 8
