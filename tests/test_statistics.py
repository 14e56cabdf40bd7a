from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfbench.statistics import (
    Interval,
    Verdict,
    bootstrap,
    estimate,
    geometric_mean,
    interval,
    location,
    log_ratio,
    total,
    verdict,
)
from tfbuild.errors import SampleError

seconds = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=6)
launches = st.lists(st.lists(st.floats(-0.5, 0.5), min_size=2, max_size=8), min_size=1, max_size=4)


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@given(a=seconds, scale=st.floats(1e-3, 1e3))
def test_a_ratio_does_not_depend_on_the_unit(a: list[float], scale: float) -> None:
    b = [each * 1.5 for each in reversed(a)]
    scaled = log_ratio([x * scale for x in a], [x * scale for x in b])
    assert math.isclose(log_ratio(a, b), scaled, abs_tol=1e-9)


@given(a=seconds)
def test_swapping_the_arms_swaps_the_sign(a: list[float]) -> None:
    b = [each**0.5 for each in a]
    assert math.isclose(log_ratio(a, b), -log_ratio(b, a), abs_tol=1e-12)


def test_a_candidate_that_needs_half_the_time_is_twice_as_fast() -> None:
    assert math.isclose(math.exp(log_ratio([2.0, 2.0], [1.0, 1.0])), 2.0)


@given(cells=launches)
@settings(max_examples=40)
def test_the_inverse_ratio_has_the_inverse_interval(cells: list[list[float]]) -> None:
    forth = estimate(cells, generator())
    back = estimate([[-value for value in blocks] for blocks in cells], generator())
    assert math.isclose(forth.value, 1 / back.value, rel_tol=1e-9)
    # The same draws, mirrored: quantiles mirror too.
    assert math.isclose(forth.low, 1 / back.high, rel_tol=1e-6)
    assert math.isclose(forth.high, 1 / back.low, rel_tol=1e-6)


@given(cells=launches, shift=st.floats(-1, 1))
@settings(max_examples=40)
def test_a_common_factor_moves_the_interval_and_leaves_its_width(
    cells: list[list[float]], shift: float
) -> None:
    here = estimate(cells, generator())
    there = estimate([[value + shift for value in blocks] for blocks in cells], generator())
    for before, after in ((here.low, there.low), (here.high, there.high)):
        assert math.isclose(after, before * math.exp(shift), rel_tol=1e-9)


@given(cells=launches)
@settings(max_examples=40)
def test_an_interval_lies_within_the_blocks(cells: list[list[float]]) -> None:
    found = estimate(cells, generator())
    values = [value for blocks in cells for value in blocks]
    assert math.exp(min(values)) * (1 - 1e-9) <= found.low <= found.high
    assert found.high <= math.exp(max(values)) * (1 + 1e-9)


def test_the_location_is_the_mean_of_medians() -> None:
    assert math.isclose(location([[0.0, 0.1, 9.0], [0.3, 0.3, -9.0]]), 0.2)


def test_one_wild_block_does_not_move_the_estimate() -> None:
    calm = [[0.1] * 9 + [0.1], [0.1] * 10]
    wild = [[0.1] * 9 + [5.0], [0.1] * 10]
    assert estimate(calm, generator()) == estimate(wild, generator())


def test_launches_that_differ_widen_the_interval_beyond_what_blocks_show() -> None:
    noise = generator(1).normal(0, 0.001, (2, 20))
    alike = estimate(noise.tolist(), generator())
    apart = estimate((noise + np.array([[-0.05], [0.05]])).tolist(), generator())
    assert apart.high - apart.low > 10 * (alike.high - alike.low)


def simulated(
    truth: float, chance: np.random.Generator, *, between: float, within: float
) -> list[list[float]]:
    """Five launches of 20 blocks: a shift per launch, and blocks of which some are far off."""
    shifts = chance.normal(truth, between, (5, 1))
    noise = within * chance.standard_t(3, (5, 20))
    return [[float(value) for value in blocks] for blocks in shifts + noise]


@pytest.mark.parametrize(("between", "least"), [(0.0, 0.93), (0.002, 0.90), (0.01, 0.80)])
def test_the_interval_covers_the_truth_as_often_as_known(between: float, least: float) -> None:
    """Nominally 95 %. Where launches differ more than blocks do, five of them are too few for a
    percentile bootstrap, and it covers less: the floors say by how much.
    """
    chance, truth, trials = generator(11), math.log(1.05), 300
    hits = 0
    for _ in range(trials):
        draws = bootstrap(
            simulated(truth, chance, between=between, within=0.01), chance, resamples=400
        )
        low, high = np.quantile(draws, [0.025, 0.975])
        hits += int(low <= truth <= high)
    assert hits / trials >= least


def test_equal_arms_are_rarely_called_different() -> None:
    chance, trials, wrong = generator(12), 200, 0
    for _ in range(trials):
        draws = bootstrap(simulated(0.0, chance, between=0.0, within=0.01), chance, resamples=400)
        wrong += verdict(interval(0.0, draws)) in (Verdict.FASTER, Verdict.SLOWER)
    assert wrong / trials <= 0.08


def test_a_gain_of_five_per_cent_is_found_in_one_per_cent_noise() -> None:
    chance = generator(13)
    found = estimate(simulated(math.log(1.05), chance, between=0.002, within=0.01), chance)
    assert verdict(found) is Verdict.FASTER


def test_the_same_generator_gives_the_same_interval() -> None:
    cells = simulated(0.1, generator(2), between=0.01, within=0.01)
    assert estimate(cells, generator(3)) == estimate(cells, generator(3))


def test_the_geometric_mean_weighs_workloads_alike() -> None:
    twice, half = [[math.log(2.0)] * 20], [[math.log(0.5)] * 2]
    found = geometric_mean([twice, half], generator())
    assert math.isclose(found.value, 1.0)
    assert math.isclose(found.low, 1.0)


def test_a_mean_over_workloads_is_better_known_than_each() -> None:
    chance = generator(5)
    cells = [simulated(0.1, chance, between=0.0, within=0.02) for _ in range(6)]
    one, all_six = estimate(cells[0], generator()), geometric_mean(cells, generator())
    assert all_six.high - all_six.low < one.high - one.low


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1.001, 1.1, Verdict.FASTER),
        (0.8, 0.999, Verdict.SLOWER),
        (0.985, 1.015, Verdict.WITHIN_NOISE),
        (1.0, 1.01, Verdict.WITHIN_NOISE),
        (0.97, 1.01, Verdict.INCONCLUSIVE),
        (0.99, 1.3, Verdict.INCONCLUSIVE),
    ],
)
def test_verdicts(low: float, high: float, expected: Verdict) -> None:
    assert verdict(Interval(value=(low + high) / 2, low=low, high=high)) is expected


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ([], "no samples"),
        ([[0.1, 0.2], []], "one launch"),
        ([[0.1]], "one block"),
        ([[0.1, math.nan]], "not a number"),
        ([[0.1, math.inf]], "not a number"),
    ],
)
def test_samples_that_allow_no_answer_are_refused(cells: list[list[float]], words: str) -> None:
    with pytest.raises(SampleError, match=words):
        estimate(cells, generator())


def test_no_workloads_have_no_mean() -> None:
    with pytest.raises(SampleError, match="no workloads"):
        geometric_mean([], generator())


def test_unequal_sample_counts_are_refused() -> None:
    with pytest.raises(SampleError, match="2 samples of one arm and 1 of the other"):
        log_ratio([1.0, 1.0], [1.0])


@pytest.mark.parametrize("times", [[], [0.0], [-0.1, 1.0], [math.nan], [1.0, math.inf]])
def test_times_that_are_none_are_refused(times: list[float]) -> None:
    with pytest.raises(SampleError):
        total(times)
