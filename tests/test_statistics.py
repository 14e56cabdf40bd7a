from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from tests.examples import at_most

from tfbench.measuring.statistics import (
    Bar,
    Interval,
    Verdict,
    bootstrap,
    combined,
    estimate,
    geometric_mean,
    has_trend,
    locations,
    log_ratio,
    sign_test,
    total,
    verdict,
)
from tfbuild.errors import SampleError

seconds = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=6)
# Logarithms of ratios, in steps that a clock could show.
ratios = st.integers(-500_000, 500_000).map(lambda millionths: millionths / 1e6)
launches = st.lists(st.lists(ratios, min_size=1, max_size=6), min_size=2, max_size=6)
cells = st.lists(launches, min_size=1, max_size=4)
few = at_most(40)


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def holds(interval: Interval, truth: float) -> bool:
    return interval.low <= truth <= interval.high


def same(one: Interval, other: Interval, rel_tol: float = 1e-9) -> bool:
    pairs = ((one.value, other.value), (one.low, other.low), (one.high, other.high))
    return all(math.isclose(a, b, rel_tol=rel_tol) for a, b in pairs)


# --- a block's ratio ------------------------------------------------------------------------------


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


def test_unequal_sample_counts_are_refused() -> None:
    with pytest.raises(SampleError, match=r"2 samples .* 1 "):
        log_ratio([1.0, 1.0], [1.0])


@pytest.mark.parametrize("times", [[], [0.0], [-0.1, 1.0], [math.nan], [1.0, math.inf]])
def test_times_that_are_none_are_refused(times: list[float]) -> None:
    with pytest.raises(SampleError):
        total(times)


# --- one cell -------------------------------------------------------------------------------------


@given(cell=launches)
@few
def test_the_interval_is_scipys_t_interval_of_the_launches_medians(cell: list[list[float]]) -> None:
    medians = [float(np.median(blocks)) for blocks in cell]
    found = estimate(cell)
    assert math.isclose(math.log(found.value), np.mean(medians), abs_tol=1e-12)
    if len(set(medians)) == 1:  # scipy warns of it and gives nothing
        assert math.isclose(found.low, found.high)
        return
    expected = stats.ttest_1samp(medians, 0).confidence_interval(0.95)
    assert math.isclose(math.log(found.low), expected.low, rel_tol=1e-9, abs_tol=1e-12)
    assert math.isclose(math.log(found.high), expected.high, rel_tol=1e-9, abs_tol=1e-12)


def test_a_launch_counts_as_the_median_of_its_blocks() -> None:
    assert locations([[0.0, 0.1, 9.0], [0.3, 0.3, -9.0]]).tolist() == [0.1, 0.3]
    assert math.isclose(estimate([[0.0, 0.1, 9.0], [0.3, 0.3, -9.0]]).value, math.exp(0.2))


def test_launches_with_few_blocks_count_as_much_as_those_with_many() -> None:
    assert estimate([[0.1] * 2, [0.2] * 50]) == estimate([[0.1] * 50, [0.2] * 2])


@given(cell=launches)
@few
def test_the_inverse_ratio_has_the_inverse_interval(cell: list[list[float]]) -> None:
    forth, back = estimate(cell), estimate([[-value for value in blocks] for blocks in cell])
    mirrored = Interval(value=1 / back.value, low=1 / back.high, high=1 / back.low)
    assert same(forth, mirrored)
    assert math.isclose(forth.half_width, back.half_width, abs_tol=1e-9)
    assert math.isclose(forth.reach, back.reach, abs_tol=1e-9)


@given(cell=launches, shift=st.floats(-1, 1))
@few
def test_a_common_factor_moves_the_interval_and_leaves_its_width(
    cell: list[list[float]], shift: float
) -> None:
    here = estimate(cell)
    there = estimate([[value + shift for value in blocks] for blocks in cell])
    moved = Interval(**{n: getattr(here, n) * math.exp(shift) for n in ("value", "low", "high")})
    assert same(there, moved)


@given(cell=launches, scale=st.floats(0.1, 2))
@few
def test_wider_launches_give_a_wider_interval_in_proportion(
    cell: list[list[float]], scale: float
) -> None:
    scaled = estimate([[scale * value for value in blocks] for blocks in cell])
    assert math.isclose(scaled.half_width, scale * estimate(cell).half_width, abs_tol=1e-9)


@given(cell=launches, order=st.randoms())
@few
def test_neither_the_order_of_launches_nor_of_blocks_matters(
    cell: list[list[float]], order: random.Random
) -> None:
    shuffled = [order.sample(blocks, len(blocks)) for blocks in order.sample(cell, len(cell))]
    assert same(estimate(shuffled), estimate(cell))


def test_one_wild_block_does_not_move_the_estimate() -> None:
    calm = [[0.1] * 10, [0.11] * 10]
    wild = [[0.1] * 9 + [5.0], [0.11] * 10]
    assert estimate(calm) == estimate(wild)


def test_launches_that_agree_to_the_last_digit_leave_no_width() -> None:
    found = estimate([[0.25, 0.25], [0.25]])
    assert found.low == found.value == found.high == math.exp(0.25)
    assert found.half_width == 0


def test_launches_that_differ_widen_the_interval_beyond_what_blocks_show() -> None:
    noise = generator(1).normal(0, 0.001, (4, 20))
    alike = estimate(noise.tolist())
    apart = estimate((noise + np.array([[-0.05], [0.05], [-0.05], [0.05]])).tolist())
    assert apart.half_width > 10 * alike.half_width


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ([], "no samples"),
        ([[0.1, 0.2], []], "no samples"),
        ([[0.1, 0.2]], "one launch"),
        ([[0.1], [math.nan]], "not a number"),
        ([[0.1], [0.1, math.inf]], "not a number"),
    ],
)
def test_samples_that_allow_no_answer_are_refused(cell: list[list[float]], words: str) -> None:
    for refusing in (estimate, locations):
        with pytest.raises(SampleError, match=words):
            refusing(cell)
    with pytest.raises(SampleError, match=words):
        geometric_mean([[[0.1], [0.2]], cell])
    with pytest.raises(SampleError, match=words):
        bootstrap([cell], generator())


# --- several cells --------------------------------------------------------------------------------


@given(cell=launches)
@few
def test_the_mean_of_one_cell_is_its_estimate(cell: list[list[float]]) -> None:
    assert geometric_mean([cell]) == estimate(cell)


@given(found=cells, order=st.randoms())
@few
def test_the_order_of_cells_does_not_matter(
    found: list[list[list[float]]], order: random.Random
) -> None:
    shuffled = order.sample(found, len(found))
    assert same(geometric_mean(shuffled), geometric_mean(found))


@given(cell=launches, times=st.integers(2, 6))
@few
def test_equal_cells_have_the_width_of_one_over_the_root_of_their_number(
    cell: list[list[float]], times: int
) -> None:
    """Each with n launches, they have n - 1 degrees of freedom each."""
    found = geometric_mean([cell] * times)
    medians = locations(cell)
    error = float(medians.std(ddof=1)) / math.sqrt(len(cell) * times)
    half = float(stats.t.ppf(0.975, times * (len(cell) - 1))) * error
    assert math.isclose(found.value, estimate(cell).value, rel_tol=1e-9)
    assert math.isclose(found.half_width, half, rel_tol=1e-6, abs_tol=1e-12)


def test_the_mean_of_two_cells_is_welchs_interval() -> None:
    """The mean of two is half the sum, and a sum's interval is that of a difference, mirrored."""
    chance = generator(3)
    one, other = chance.normal(0.1, 0.01, 5), chance.normal(0.3, 0.05, 9)
    welch = stats.ttest_ind(one, -other, equal_var=False).confidence_interval(0.95)
    found = combined([one, other])
    assert math.isclose(math.log(found.low), welch.low / 2, rel_tol=1e-9)
    assert math.isclose(math.log(found.high), welch.high / 2, rel_tol=1e-9)


def test_the_geometric_mean_weighs_workloads_alike() -> None:
    twice, half = [[math.log(2.0)] * 20] * 5, [[math.log(0.5)] * 2] * 2
    assert math.isclose(geometric_mean([twice, half]).value, 1.0)


def test_a_mean_over_workloads_is_better_known_than_each() -> None:
    chance = generator(5)
    found = [simulated(0.1, chance, between=0.01) for _ in range(6)]
    assert geometric_mean(found).half_width < min(estimate(cell).half_width for cell in found)


def test_no_workloads_have_no_mean() -> None:
    with pytest.raises(SampleError, match="no workloads"):
        geometric_mean([])


# --- the second opinion ---------------------------------------------------------------------------


@given(found=cells)
@at_most(20)
def test_a_bootstrap_interval_lies_within_the_blocks(found: list[list[list[float]]]) -> None:
    interval = bootstrap(found, generator(), resamples=200)
    least = np.mean([min(min(blocks) for blocks in cell) for cell in found])
    most = np.mean([max(max(blocks) for blocks in cell) for cell in found])
    assert math.exp(least) * (1 - 1e-9) <= interval.low <= interval.high
    assert interval.high <= math.exp(most) * (1 + 1e-9)
    assert math.isclose(interval.value, geometric_mean(found).value, rel_tol=1e-9)


def test_the_same_generator_gives_the_same_bootstrap() -> None:
    cell = simulated(0.1, generator(2), between=0.01)
    assert bootstrap([cell], generator(3)) == bootstrap([cell], generator(3))
    assert bootstrap([cell], generator(3)) != bootstrap([cell], generator(4))


def test_with_many_alike_launches_both_opinions_agree() -> None:
    chance = generator(6)
    cell = (chance.normal(0.1, 0.01, (40, 1)) + chance.normal(0, 1e-4, (40, 4))).tolist()
    first, second = estimate(cell), bootstrap([cell], generator())
    for one, other in ((first.low, second.low), (first.high, second.high)):
        assert math.isclose(one, other, abs_tol=first.half_width / 10)


def simulated(
    truth: float, chance: np.random.Generator, *, between: float, count: int = 6
) -> list[list[float]]:
    """Launches of 4 blocks: a shift per launch, and blocks of which some are far off."""
    shifts = chance.normal(truth, between, (count, 1))
    blocks = shifts + 0.005 * chance.standard_t(3, (count, 4))
    return [[float(value) for value in launch] for launch in blocks]


def covered(trials: int, *, between: float) -> tuple[float, float]:
    """How often the t interval held the truth, and how often the bootstrap's."""
    chance, truth = generator(11), math.log(1.05)
    hits = [0, 0]
    for _ in range(trials):
        cell = simulated(truth, chance, between=between)
        hits[0] += holds(estimate(cell), 1.05)
        hits[1] += holds(bootstrap([cell], chance, resamples=300), 1.05)
    return hits[0] / trials, hits[1] / trials


def test_where_launches_differ_t_covers_the_truth_and_the_bootstrap_too_seldom() -> None:
    """Nominally 95 %; launches that differ by 1 % are what shared machines show."""
    by_t, by_bootstrap = covered(400, between=0.01)
    assert by_t >= 0.92
    assert by_bootstrap < 0.92


def test_where_launches_do_not_differ_t_covers_as_often() -> None:
    by_t, _ = covered(200, between=0.0)
    assert by_t >= 0.92


def test_the_mean_of_workloads_that_are_known_unequally_well_covers_the_truth() -> None:
    chance, trials, hits = generator(14), 400, 0
    for _ in range(trials):
        found = [simulated(0.1, chance, between=sd) for sd in (0.002, 0.01, 0.03)]
        hits += holds(geometric_mean(found), math.exp(0.1))
    assert hits / trials >= 0.92


def test_equal_arms_are_rarely_called_different() -> None:
    chance, trials, wrong = generator(12), 400, 0
    for _ in range(trials):
        found = estimate(simulated(0.0, chance, between=0.005))
        wrong += verdict(found, Bar(floor=0.0)) in (Verdict.FASTER, Verdict.SLOWER)
    assert 0 < wrong / trials <= 0.08


def test_a_gain_of_five_per_cent_is_found_in_one_per_cent_noise() -> None:
    found = estimate(simulated(math.log(1.05), generator(13), between=0.01))
    assert verdict(found, Bar(floor=0.01)) is Verdict.FASTER


# --- signs and trends -----------------------------------------------------------------------------


def test_signs_that_are_all_alike_are_unlikely_and_balanced_ones_are_not() -> None:
    assert math.isclose(sign_test([[0.1] * 4, [0.2] * 4]), 2 / 2**8)
    assert sign_test([[0.1, -0.1], [0.2, -0.2]]) == 1.0
    assert math.isclose(sign_test([[0.1] * 4]), sign_test([[-0.1] * 4]))


def test_ties_do_not_count() -> None:
    assert sign_test([[0.0, 0.0]]) == sign_test([]) == 1.0
    assert sign_test([[0.0, 0.1, 0.1]]) == sign_test([[0.1, 0.1]])


@pytest.mark.parametrize(
    ("values", "trend"),
    [
        ([5.0, 4.0, 3.0, 2.0, 1.0, 0.0], True),
        ([0.0, 0.1, 0.2, 0.3, 0.4, 0.5], True),
        ([1.0] * 6, False),
        ([1.0, -1.0, 1.0, -1.0, 1.0, -1.0], False),
        ([9.0, 1.0, 1.0, 1.0, 1.0, 1.0], False),
    ],
)
def test_a_trend_is_seen_and_one_slow_round_is_none(values: Sequence[float], trend: bool) -> None:
    assert has_trend(values) is trend


def test_noise_without_a_trend_seldom_shows_one() -> None:
    chance = generator(8)
    seen = sum(has_trend(chance.normal(0, 1, 6).tolist()) for _ in range(400))
    assert seen / 400 <= 0.08


# --- verdicts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "value", "high", "expected"),
    [
        (1.001, 1.05, 1.1, Verdict.FASTER),
        (0.8, 0.9, 0.999, Verdict.SLOWER),
        (0.985, 1.0, 1.015, Verdict.WITHIN_NOISE),
        (0.98, 1.0, 1.02, Verdict.WITHIN_NOISE),  # the margin's edges are within
        (1.0, 1.005, 1.01, Verdict.WITHIN_NOISE),  # 1 itself is not left out
        (0.979, 1.0, 1.02, Verdict.INCONCLUSIVE),
        (0.98, 1.0, 1.021, Verdict.INCONCLUSIVE),
        (0.99, 1.1, 1.3, Verdict.INCONCLUSIVE),
        (1.0, 1.1, 1.3, Verdict.INCONCLUSIVE),
        (0.7, 0.9, 1.0, Verdict.INCONCLUSIVE),
    ],
)
def test_without_a_bar_only_the_interval_decides(
    low: float, value: float, high: float, expected: Verdict
) -> None:
    assert verdict(Interval(value=value, low=low, high=high), Bar(floor=0.0)) is expected


@pytest.mark.parametrize(
    ("bar", "gain", "loss"),
    [
        (Bar(floor=math.log(1.04)), Verdict.FASTER, Verdict.SLOWER),
        (Bar(floor=0.0, threshold=0.04), Verdict.FASTER, Verdict.SLOWER),
        # Less than anyone cares for, and known to be.
        (Bar(floor=0.0, threshold=0.06), Verdict.WITHIN_NOISE, Verdict.WITHIN_NOISE),
        (Bar(floor=math.log(1.04), threshold=0.06), Verdict.WITHIN_NOISE, Verdict.WITHIN_NOISE),
        # The machine differs from itself as much.
        (Bar(floor=math.log(1.06)), Verdict.INCONCLUSIVE, Verdict.INCONCLUSIVE),
        (Bar(floor=math.log(1.06), threshold=0.04), Verdict.INCONCLUSIVE, Verdict.INCONCLUSIVE),
        (Bar(floor=math.inf), Verdict.INCONCLUSIVE, Verdict.INCONCLUSIVE),
    ],
)
def test_a_difference_must_pass_the_floor_and_the_threshold(
    bar: Bar, gain: Verdict, loss: Verdict
) -> None:
    """5 % either way, known to 1 %."""
    assert verdict(Interval(value=1.05, low=1.04, high=1.06), bar) is gain
    assert verdict(Interval(value=1 / 1.05, low=1 / 1.06, high=1 / 1.04), bar) is loss


@pytest.mark.parametrize(
    ("floor", "expected"),
    [(0.018, Verdict.FASTER), (0.0195, Verdict.WITHIN_NOISE), (0.021, Verdict.INCONCLUSIVE)],
)
def test_a_small_difference_below_the_floor_is_noise_where_the_floor_is_small_too(
    floor: float, expected: Verdict
) -> None:
    found = Interval(value=1.019, low=1.01, high=1.028)
    assert verdict(found, Bar(floor=floor)) is expected


def test_no_difference_is_one_whatever_the_floor() -> None:
    none = Interval(value=1.0, low=0.99, high=1.01)
    assert verdict(none, Bar(floor=0.3)) is Verdict.WITHIN_NOISE
    assert verdict(none, Bar(floor=0.3, margin=0.005)) is Verdict.INCONCLUSIVE


def test_the_bar_itself_is_not_passed() -> None:
    gain = Interval(value=1.05, low=1.04, high=1.06)
    assert verdict(gain, Bar(floor=math.log(1.05))) is Verdict.INCONCLUSIVE
    assert verdict(gain, Bar(floor=math.log(1.05) - 1e-9)) is Verdict.FASTER


@given(value=st.floats(0.5, 2), width=st.floats(1e-4, 0.5), floor=st.floats(0, 0.5))
def test_faster_and_slower_are_mirror_images(value: float, width: float, floor: float) -> None:
    one = Interval(value=value, low=value / (1 + width), high=value * (1 + width))
    other = Interval(value=1 / value, low=1 / one.high, high=1 / one.low)
    turned = {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}
    found = verdict(one, Bar(floor=floor, margin=0))
    if abs(abs(math.log(value)) - floor) > 1e-9:
        assert verdict(other, Bar(floor=floor, margin=0)) is turned.get(found, found)


def test_half_width_and_reach_are_logarithmic() -> None:
    interval = Interval(value=1.0, low=math.exp(-0.03), high=math.exp(0.01))
    assert math.isclose(interval.half_width, 0.02)
    assert math.isclose(interval.reach, 0.03)
