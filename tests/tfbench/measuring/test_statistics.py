from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from tests.builders.comparisons import with_interval
from tests.builders.examples import at_most

from tfbench.measuring.statistics import (
    LEVEL,
    MOST_CONTRASTS,
    Contrast,
    Thresholds,
    average_contrasts,
    choose_verdict,
    combine_cells,
    compute_contrast,
    compute_level,
    compute_log_ratio,
    compute_medians,
    estimate_geometric_mean,
    has_trend,
    sum_seconds,
)
from tfcore.comparisons.interval import Interval, Verdict
from tfcore.errors import SampleError

seconds = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=6)
# Logarithms of ratios, in steps that a clock could show.
ratios = st.integers(-500_000, 500_000).map(lambda millionths: millionths / 1e6)
launches = st.lists(st.lists(ratios, min_size=1, max_size=6), min_size=2, max_size=6)
cells = st.lists(launches, min_size=1, max_size=4)
few = at_most(40)
STOCK, REPEAT, ARM = "stock", "stock again", "arm"


@st.composite
def tables(draw: st.DrawFn, *, fewest: int = 2) -> dict[str, list[float]]:
    """Levels of some arms, the first two of which are the baseline and its repeat."""
    count = draw(st.integers(2, 6))
    names = (STOCK, REPEAT, ARM, "another", "and another")
    arms = names[: draw(st.integers(fewest, len(names)))]
    row = st.lists(ratios, min_size=count, max_size=count)
    return {arm: draw(row) for arm in arms}


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def holds(interval: Interval, truth: float) -> bool:
    return interval.low <= truth <= interval.high


def over(actual: Sequence[list[list[float]]]) -> Interval:
    """Workloads, each of them launches of blocks."""
    return combine_cells([compute_medians(cell) for cell in actual])


def same(interval: Interval, other_interval: Interval, rel_tol: float = 1e-9) -> bool:
    pairs = (
        (interval.value, other_interval.value),
        (interval.low, other_interval.low),
        (interval.high, other_interval.high),
    )
    return all(math.isclose(a, b, rel_tol=rel_tol) for a, b in pairs)


# --- a block's ratio ------------------------------------------------------------------------------


@given(a=seconds, scale=st.floats(1e-3, 1e3))
def test_a_ratio_does_not_depend_on_the_unit(a: list[float], scale: float) -> None:
    b = [value * 1.5 for value in reversed(a)]
    scaled = compute_log_ratio([x * scale for x in a], [x * scale for x in b])
    assert math.isclose(compute_log_ratio(a, b), scaled, abs_tol=1e-9)


@given(a=seconds)
def test_swapping_the_arms_swaps_the_sign(a: list[float]) -> None:
    b = [value**0.5 for value in a]
    assert math.isclose(compute_log_ratio(a, b), -compute_log_ratio(b, a), abs_tol=1e-12)


def test_a_candidate_that_needs_half_the_time_is_twice_as_fast() -> None:
    assert math.isclose(math.exp(compute_log_ratio([2.0, 2.0], [1.0, 1.0])), 2.0)


def test_unequal_sample_counts_are_refused() -> None:
    with pytest.raises(SampleError, match=r"2 samples .* 1 "):
        compute_log_ratio([1.0, 1.0], [1.0])


@pytest.mark.parametrize("times", [[], [0.0], [-0.1, 1.0], [math.nan], [1.0, math.inf]])
def test_times_that_are_none_are_refused(times: list[float]) -> None:
    for refusing in (sum_seconds, compute_level):
        with pytest.raises(SampleError):
            refusing(times)


# --- a launch's level -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([5.0], 5.0),
        ([9.0, 2.0], 2.0),
        ([3.0, 1.0, 8.0], 2.0),
        ([4.0, 7.0, 2.0, 9.0], 3.0),
        ([1.0, 2.0, 3.0, 50.0, 60.0], 2.0),
    ],
)
def test_a_level_of_few_is_the_mean_of_the_faster_half(times: list[float], expected: float) -> None:
    """Of an odd number the one in the middle is in it."""
    assert compute_level(times) == pytest.approx(math.log(expected))


@pytest.mark.parametrize(
    ("count", "fastest"), [(9, 5), (10, 5), (16, 5), (20, 5), (21, 6), (24, 6), (100, 25)]
)
def test_a_level_of_many_is_the_mean_of_the_fastest_quarter(count: int, fastest: int) -> None:
    times = [*range(count, 0, -1)]
    assert compute_level(times) == pytest.approx(math.log((1 + fastest) / 2))


@given(times=seconds, scale=st.floats(1e-3, 1e3), order=st.randoms())
def test_a_level_knows_no_unit_and_no_order(
    times: list[float], scale: float, order: random.Random
) -> None:
    scaled = [scale * value for value in order.sample(times, len(times))]
    assert math.isclose(compute_level(scaled), math.log(scale) + compute_level(times), abs_tol=1e-9)
    least, middle = math.log(min(times)), math.log(float(np.median(times)))
    assert least - 1e-9 <= compute_level(times) <= middle + 1e-9


@given(times=seconds, late=st.floats(0, 1e6))
def test_the_slower_ones_may_take_as_long_as_they_like(times: list[float], late: float) -> None:
    kept_number = (len(times) + 1) // 2
    slow = [time + late * (place >= kept_number) for place, time in enumerate(sorted(times))]
    assert compute_level(slow) == compute_level(times)


# --- one cell -------------------------------------------------------------------------------------


@given(cell=launches)
@few
def test_the_interval_is_scipys_t_interval_of_the_launches_medians(cell: list[list[float]]) -> None:
    medians = [float(np.median(blocks)) for blocks in cell]
    interval = estimate_geometric_mean(cell)
    assert math.isclose(math.log(interval.value), np.mean(medians), abs_tol=1e-12)
    if len(set(medians)) == 1:  # scipy warns of it and gives nothing
        assert math.isclose(interval.low, interval.high)
        return
    expected = stats.ttest_1samp(medians, 0).confidence_interval(0.95)
    assert math.isclose(math.log(interval.low), expected.low, rel_tol=1e-9, abs_tol=1e-12)
    assert math.isclose(math.log(interval.high), expected.high, rel_tol=1e-9, abs_tol=1e-12)


def test_a_launch_counts_as_the_median_of_its_blocks() -> None:
    assert compute_medians([[0.0, 0.1, 9.0], [0.3, 0.3, -9.0]]).tolist() == [0.1, 0.3]
    assert math.isclose(
        estimate_geometric_mean([[0.0, 0.1, 9.0], [0.3, 0.3, -9.0]]).value, math.exp(0.2)
    )


def test_launches_with_few_blocks_count_as_much_as_those_with_many() -> None:
    assert estimate_geometric_mean([[0.1] * 2, [0.2] * 50]) == estimate_geometric_mean(
        [[0.1] * 50, [0.2] * 2]
    )


@given(cell=launches)
@few
def test_the_inverse_ratio_has_the_inverse_interval(cell: list[list[float]]) -> None:
    forth, back = (
        estimate_geometric_mean(cell),
        estimate_geometric_mean([[-value for value in blocks] for blocks in cell]),
    )
    mirrored = Interval(value=1 / back.value, low=1 / back.high, high=1 / back.low)
    assert same(forth, mirrored)
    assert math.isclose(forth.half_width, back.half_width, abs_tol=1e-9)
    assert math.isclose(forth.reach, back.reach, abs_tol=1e-9)


@given(cell=launches, shift=st.floats(-1, 1))
@few
def test_a_common_factor_moves_the_interval_and_leaves_its_width(
    cell: list[list[float]], shift: float
) -> None:
    interval = estimate_geometric_mean(cell)
    shifted = estimate_geometric_mean([[value + shift for value in blocks] for blocks in cell])
    moved = Interval(
        **{n: getattr(interval, n) * math.exp(shift) for n in ("value", "low", "high")}
    )
    assert same(shifted, moved)


@given(cell=launches, scale=st.floats(0.1, 2))
@few
def test_wider_launches_give_a_wider_interval_in_proportion(
    cell: list[list[float]], scale: float
) -> None:
    scaled = estimate_geometric_mean([[scale * value for value in blocks] for blocks in cell])
    assert math.isclose(
        scaled.half_width, scale * estimate_geometric_mean(cell).half_width, abs_tol=1e-9
    )


@given(cell=launches, order=st.randoms())
@few
def test_neither_the_order_of_launches_nor_of_blocks_matters(
    cell: list[list[float]], order: random.Random
) -> None:
    shuffled = [order.sample(blocks, len(blocks)) for blocks in order.sample(cell, len(cell))]
    assert same(estimate_geometric_mean(shuffled), estimate_geometric_mean(cell))


def test_one_wild_block_does_not_move_the_estimate() -> None:
    calm = [[0.1] * 10, [0.11] * 10]
    wild = [[0.1] * 9 + [5.0], [0.11] * 10]
    assert estimate_geometric_mean(calm) == estimate_geometric_mean(wild)


def test_launches_that_agree_to_the_last_digit_leave_no_width() -> None:
    interval = estimate_geometric_mean([[0.25, 0.25], [0.25]])
    assert interval.low == interval.value == interval.high == math.exp(0.25)
    assert interval.half_width == 0


def test_launches_that_differ_widen_the_interval_beyond_what_blocks_show() -> None:
    noise = generator(1).normal(0, 0.001, (4, 20))
    alike = estimate_geometric_mean(noise.tolist())
    apart = estimate_geometric_mean((noise + np.array([[-0.05], [0.05], [-0.05], [0.05]])).tolist())
    assert apart.half_width > 10 * alike.half_width


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ([], "no samples"),
        ([[0.1, 0.2], []], "no samples"),
        ([[0.1, 0.2]], "two launches"),
        ([[0.1], [math.nan]], "not finite"),
        ([[0.1], [0.1, math.inf]], "not finite"),
    ],
)
def test_samples_that_allow_no_answer_are_refused(cell: list[list[float]], words: str) -> None:
    for refusing in (estimate_geometric_mean, compute_medians):
        with pytest.raises(SampleError, match=words):
            refusing(cell)
    with pytest.raises(SampleError, match=words):
        over([[[0.1], [0.2]], cell])


# --- a contrast between arms ----------------------------------------------------------------------


def fitted(levels: dict[str, list[float]]) -> float:
    """The residual variance of launches and arms as least squares find it."""
    table = np.array(list(levels.values())).T
    rows, columns = table.shape
    places = [(row, column) for row in range(rows) for column in range(columns)]
    design = np.array(
        [[*np.eye(rows)[row], *np.eye(columns)[column, 1:]] for row, column in places]
    )
    values = np.array([table[place] for place in places])
    actual = np.linalg.lstsq(design, values, rcond=None)[0]
    squares = float(((values - design @ actual) ** 2).sum())
    return squares / float((rows - 1) * (columns - 1))


@given(levels=tables())
@few
def test_of_two_arms_a_contrast_is_scipys_paired_t_test(levels: dict[str, list[float]]) -> None:
    two = {arm: levels[arm] for arm in (STOCK, REPEAT)}
    differences = np.subtract(two[STOCK], two[REPEAT])
    contrast = compute_contrast(two, REPEAT, [STOCK])
    assert math.isclose(contrast.mean, differences.mean(), abs_tol=1e-12)
    assert contrast.freedom == len(differences) - 1
    if np.ptp(differences) < 1e-9:  # scipy warns of it and gives nothing
        return
    test = stats.ttest_rel(two[STOCK], two[REPEAT], alternative="greater")
    assert contrast.p_faster == pytest.approx(test.pvalue)
    expected = stats.ttest_rel(two[STOCK], two[REPEAT]).confidence_interval(LEVEL)
    assert math.log(contrast.interval.low) == pytest.approx(expected.low, abs=1e-9)
    assert math.log(contrast.interval.high) == pytest.approx(expected.high, abs=1e-9)


@given(levels=tables(fewest=3), both=st.booleans())
@few
def test_a_contrast_has_the_larger_of_its_own_and_the_pooled_variance(
    levels: dict[str, list[float]], both: bool
) -> None:
    baseline = [STOCK, REPEAT] if both else [STOCK]
    launches = len(levels[STOCK])
    base = np.mean([levels[name] for name in baseline], axis=0)
    differences = base - np.array(levels[ARM])
    pooled = (1 + 1 / len(baseline)) * fitted(levels)
    contrast = compute_contrast(levels, ARM, baseline)
    assert contrast.mean == pytest.approx(differences.mean(), abs=1e-12)
    assert contrast.variance * launches == pytest.approx(
        max(float(differences.var(ddof=1)), pooled), abs=1e-12
    )


@pytest.mark.parametrize(("arms", "per_launch"), [(2, 1), (3, 2), (4, 2), (9, 2)])
def test_a_pooled_variance_has_the_freedom_of_three_arms_at_most(
    arms: int, per_launch: int
) -> None:
    draws = generator(4).normal(0, 0.01, (arms, 5))
    draws[1] = draws[0] + 0.1 * draws[1]
    levels = {str(number): row.tolist() for number, row in enumerate(draws)}
    assert per_launch <= MOST_CONTRASTS
    assert compute_contrast(levels, "1", ["0"]).freedom == per_launch * 4


@pytest.mark.parametrize("arms", [3, 4, 9])
def test_a_variance_of_its_own_has_the_freedom_of_its_own_launches(arms: int) -> None:
    draws = generator(4).normal(0, 0.01, (arms, 5))
    draws[1] *= 9
    levels = {str(number): row.tolist() for number, row in enumerate(draws)}
    assert compute_contrast(levels, "1", ["0"]).freedom == 4


@pytest.mark.parametrize("launches", [3, 6])
def test_the_interval_of_an_arm_that_varies_more_than_the_baseline_covers_the_truth(
    launches: int,
) -> None:
    """1500 cells without any difference; where both variances had the freedom of three arms, 7 to
    11 % of these intervals excluded 1."""
    cells = generator(3).normal(0, 0.01, (1500, 3, launches)) * [[1.0], [1.0], [4.0]]
    contrasts = [
        compute_contrast(dict(zip((STOCK, REPEAT, ARM), rows, strict=True)), ARM, [STOCK, REPEAT])
        for rows in cells.tolist()
    ]
    excluding = sum(contrast.interval.excludes_1 for contrast in contrasts) / len(cells)
    assert 0.03 <= excluding <= 0.065


@given(levels=tables(), shifts=st.lists(ratios, min_size=6, max_size=6))
@few
def test_what_a_launch_brings_to_all_arms_does_not_count(
    levels: dict[str, list[float]], shifts: list[float]
) -> None:
    moved = {
        arm: [value + shift for value, shift in zip(row, shifts, strict=False)]
        for arm, row in levels.items()
    }
    contrast, shifted = (
        compute_contrast(levels, REPEAT, [STOCK]),
        compute_contrast(moved, REPEAT, [STOCK]),
    )
    assert contrast.mean == pytest.approx(shifted.mean, abs=1e-9)
    assert contrast.variance == pytest.approx(shifted.variance, abs=1e-9)


@given(levels=tables())
@few
def test_swapping_the_arms_of_a_contrast_mirrors_it(levels: dict[str, list[float]]) -> None:
    forth, back = (
        compute_contrast(levels, REPEAT, [STOCK]),
        compute_contrast(levels, STOCK, [REPEAT]),
    )
    assert math.isclose(forth.mean, -back.mean, abs_tol=1e-12)
    assert math.isclose(forth.variance, back.variance, abs_tol=1e-12)
    assert forth.freedom == back.freedom


def test_an_arm_that_varies_more_than_the_others_gets_a_wider_interval() -> None:
    chance = generator(9)
    calm = {name: chance.normal(0, 0.01, 6).tolist() for name in (STOCK, REPEAT, "calm", "calmer")}
    levels = calm | {ARM: chance.normal(0, 0.1, 6).tolist()}
    wild, quiet = (
        compute_contrast(levels, ARM, [STOCK, REPEAT]),
        compute_contrast(levels, "calm", [STOCK, REPEAT]),
    )
    assert wild.variance > 1.5 * quiet.variance
    assert quiet.variance > compute_contrast(calm, "calm", [STOCK, REPEAT]).variance


@pytest.mark.parametrize(
    ("levels", "words"),
    [
        ({STOCK: [0.1, 0.2]}, "different launches"),
        ({STOCK: [0.1, 0.2], REPEAT: [0.1]}, "different launches"),
        ({STOCK: [0.1], REPEAT: [0.1]}, "two launches"),
        ({STOCK: [], REPEAT: []}, "no samples"),
        ({STOCK: [0.1, 0.2], REPEAT: [0.1, math.nan]}, "not finite"),
        ({STOCK: [0.1, math.inf], REPEAT: [0.1, 0.2]}, "not finite"),
    ],
)
def test_arms_that_cannot_be_compared_are_refused(
    levels: dict[str, list[float]], words: str
) -> None:
    with pytest.raises(SampleError, match=words):
        compute_contrast(levels, STOCK, [STOCK])


def drawn(spreads: dict[str, float], chance: np.random.Generator) -> dict[str, list[float]]:
    """Four launches, a machine that is slower by 5 % in one or the other, and an arm that is faster
    by 5 %."""
    machine = chance.normal(0, 0.05, 4)
    gains = {ARM: 0.05}
    return {
        arm: (machine - gains.get(arm, 0.0) + chance.normal(0, spread, 4)).tolist()
        for arm, spread in spreads.items()
    }


@pytest.mark.parametrize("spread", [0.005, 0.01, 0.05])
def test_a_contrast_covers_the_truth_whether_its_arm_varies_less_or_more(spread: float) -> None:
    """Nominally 95 %."""
    chance, trials, hits = generator(15), 400, 0
    for _ in range(trials):
        levels = drawn({STOCK: 0.01, REPEAT: 0.01, ARM: spread}, chance)
        hits += holds(compute_contrast(levels, ARM, [STOCK, REPEAT]).interval, math.exp(0.05))
    assert hits / trials >= 0.92


def test_what_the_twin_shows_makes_a_contrast_better_known() -> None:
    chance, spreads = generator(16), {STOCK: 0.01, REPEAT: 0.01, ARM: 0.01}
    pairs = [drawn(spreads, chance) for _ in range(200)]
    pooled = [
        compute_contrast(levels, ARM, [STOCK, REPEAT]).interval.half_width for levels in pairs
    ]
    paired = [
        compute_contrast(
            {arm: levels[arm] for arm in (STOCK, ARM)}, ARM, [STOCK]
        ).interval.half_width
        for levels in pairs
    ]
    assert np.median(pooled) < 0.9 * np.median(paired)


# --- what a contrast says -------------------------------------------------------------------------


contrasts = st.builds(
    Contrast,
    mean=ratios,
    variance=st.floats(1e-8, 0.1),
    freedom=st.floats(1, 40),
)


@given(contrast=contrasts)
def test_confidence_and_interval_say_the_same(contrast: Contrast) -> None:
    interval = contrast.interval
    assert interval.low <= interval.value <= interval.high
    assert 0 <= contrast.confidence <= 1
    if abs(contrast.confidence - LEVEL) > 1e-9:
        assert (contrast.confidence > LEVEL) is (interval.low > 1 or interval.high < 1)
    assert (contrast.p_faster <= 0.5) is (contrast.mean >= 0)


@pytest.mark.parametrize(
    ("mean", "p_faster", "confidence"), [(0.1, 0.0, 1.0), (0.0, 0.5, 0.0), (-0.1, 1.0, 1.0)]
)
def test_a_contrast_without_a_spread_is_known(
    mean: float, p_faster: float, confidence: float
) -> None:
    contrast = Contrast(mean=mean, variance=0.0, freedom=3)
    assert (contrast.p_faster, contrast.confidence) == (p_faster, confidence)
    assert (
        contrast.interval.low == contrast.interval.value == contrast.interval.high == math.exp(mean)
    )


@given(contrast=contrasts, times=st.integers(1, 6))
def test_the_mean_of_equal_contrasts_is_known_better_by_their_number(
    contrast: Contrast, times: int
) -> None:
    mean = average_contrasts([contrast] * times)
    assert mean.mean == pytest.approx(contrast.mean, abs=1e-12)
    assert mean.variance == pytest.approx(contrast.variance / times)
    assert mean.freedom == pytest.approx(contrast.freedom * times)


@given(actual=st.lists(contrasts, min_size=1, max_size=5))
def test_a_mean_has_the_freedom_of_the_least_known_or_more(actual: list[Contrast]) -> None:
    least, all_of_it = min(x.freedom for x in actual), sum(x.freedom for x in actual)
    assert least * (1 - 1e-9) <= average_contrasts(actual).freedom <= all_of_it * (1 + 1e-9)


def test_the_mean_of_what_is_known_exactly_is_known_exactly() -> None:
    contrast, second = (Contrast(mean=value, variance=0.0, freedom=2) for value in (0.1, 0.3))
    actual = average_contrasts([contrast, second])
    assert actual.interval.low == actual.interval.high == pytest.approx(math.exp(0.2))


# --- several cells --------------------------------------------------------------------------------


@given(cell=launches)
@few
def test_the_mean_of_one_cell_is_its_estimate(cell: list[list[float]]) -> None:
    assert over([cell]) == estimate_geometric_mean(cell)


@given(actual=cells, order=st.randoms())
@few
def test_the_order_of_cells_does_not_matter(
    actual: list[list[list[float]]], order: random.Random
) -> None:
    shuffled = order.sample(actual, len(actual))
    assert same(over(shuffled), over(actual))


@given(cell=launches, times=st.integers(2, 6))
@few
def test_equal_cells_have_the_width_of_one_over_the_root_of_their_number(
    cell: list[list[float]], times: int
) -> None:
    """Each with n launches, they have n - 1 degrees of freedom each."""
    interval = over([cell] * times)
    medians = compute_medians(cell)
    error = float(medians.std(ddof=1)) / math.sqrt(len(cell) * times)
    half = float(stats.t.ppf(0.975, times * (len(cell) - 1))) * error
    assert math.isclose(interval.value, estimate_geometric_mean(cell).value, rel_tol=1e-9)
    assert math.isclose(interval.half_width, half, rel_tol=1e-6, abs_tol=1e-12)


def test_the_mean_of_two_cells_is_welchs_interval() -> None:
    """The mean of two is half the sum, and a sum's interval is that of a difference, mirrored."""
    chance = generator(3)
    first, second = chance.normal(0.1, 0.01, 5), chance.normal(0.3, 0.05, 9)
    welch = stats.ttest_ind(first, -second, equal_var=False).confidence_interval(0.95)
    interval = combine_cells([first, second])
    assert math.isclose(math.log(interval.low), welch.low / 2, rel_tol=1e-9)
    assert math.isclose(math.log(interval.high), welch.high / 2, rel_tol=1e-9)


def test_the_geometric_mean_weighs_workloads_alike() -> None:
    twice, half = [[math.log(2.0)] * 20] * 5, [[math.log(0.5)] * 2] * 2
    assert math.isclose(over([twice, half]).value, 1.0)


def test_a_mean_over_workloads_is_better_known_than_each() -> None:
    chance = generator(5)
    actual = [simulated(0.1, chance, between=0.01) for _ in range(6)]
    assert over(actual).half_width < min(
        estimate_geometric_mean(cell).half_width for cell in actual
    )


def test_no_workloads_have_no_mean() -> None:
    with pytest.raises(SampleError, match="no workloads"):
        over([])
    with pytest.raises(SampleError, match="no workloads"):
        average_contrasts([])


# --- how often the truth is in it -----------------------------------------------------------------


def simulated(
    truth: float, chance: np.random.Generator, *, between: float, count: int = 6
) -> list[list[float]]:
    """Launches of 4 blocks: a shift per launch, and blocks of which some are far off."""
    shifts = chance.normal(truth, between, (count, 1))
    blocks = shifts + 0.005 * chance.standard_t(3, (count, 4))
    return [[float(value) for value in launch] for launch in blocks]


@pytest.mark.parametrize("between", [0.0, 0.01])
def test_t_covers_the_truth_whether_launches_differ_or_not(between: float) -> None:
    """Nominally 95 %; launches that differ by 1 % are what shared machines show."""
    chance, trials, truth = generator(11), 400, 1.05
    cells = (simulated(math.log(truth), chance, between=between) for _ in range(trials))
    assert sum(holds(estimate_geometric_mean(cell), truth) for cell in cells) / trials >= 0.92


def test_the_mean_of_workloads_that_are_known_unequally_well_covers_the_truth() -> None:
    chance, trials, hits = generator(14), 400, 0
    for _ in range(trials):
        actual = [simulated(0.1, chance, between=sd) for sd in (0.002, 0.01, 0.03)]
        hits += holds(over(actual), math.exp(0.1))
    assert hits / trials >= 0.92


def test_equal_arms_are_rarely_called_different() -> None:
    chance, trials, wrong = generator(12), 400, 0
    for _ in range(trials):
        interval = estimate_geometric_mean(simulated(0.0, chance, between=0.005))
        wrong += said(interval, Thresholds(floor=0.0)) in (Verdict.FASTER, Verdict.SLOWER)
    assert 0 < wrong / trials <= 0.08


def test_a_gain_of_five_per_cent_is_found_in_one_per_cent_noise() -> None:
    interval = estimate_geometric_mean(simulated(math.log(1.05), generator(13), between=0.01))
    assert said(interval, Thresholds(floor=0.01)) is Verdict.FASTER


# --- trends ---------------------------------------------------------------------------------------


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
    trends = sum(has_trend(chance.normal(0, 1, 6).tolist()) for _ in range(400))
    assert trends / 400 <= 0.08


# --- verdicts -------------------------------------------------------------------------------------


def said(interval: Interval, thresholds: Thresholds) -> Verdict:
    return choose_verdict(with_interval(interval), thresholds, fair=True)


@pytest.mark.parametrize(
    ("low", "value", "high", "expected"),
    [
        (1.001, 1.05, 1.1, Verdict.FASTER),
        (0.81, 0.9, 0.999, Verdict.SLOWER),
        (0.985, 1.0, 1.015, Verdict.EQUIVALENT),
        (0.977, 1.0, 1.0235, Verdict.EQUIVALENT),  # that of 90 % lies within 0.98 and 1.02
        (0.975, 1.0, 1.026, Verdict.INCONCLUSIVE),
        (0.979, 0.996, 1.0133, Verdict.EQUIVALENT),
        (0.971, 0.991, 1.0113, Verdict.INCONCLUSIVE),
        (0.99, 1.1, 1.3, Verdict.INCONCLUSIVE),
        (1.0, 1.1, 1.3, Verdict.INCONCLUSIVE),
        (0.7, 0.9, 1.0, Verdict.INCONCLUSIVE),
    ],
)
def test_without_a_bar_only_the_interval_decides(
    low: float, value: float, high: float, expected: Verdict
) -> None:
    assert said(Interval(value=value, low=low, high=high), Thresholds(floor=0.0)) is expected


@pytest.mark.parametrize(
    ("thresholds", "gain", "loss"),
    [
        (Thresholds(floor=math.log(1.04)), Verdict.FASTER, Verdict.SLOWER),
        (Thresholds(floor=0.0, threshold=0.04), Verdict.FASTER, Verdict.SLOWER),
        # Less than anyone cares for, and known to be.
        (Thresholds(floor=0.0, threshold=0.06), Verdict.EQUIVALENT, Verdict.EQUIVALENT),
        (
            Thresholds(floor=math.log(1.04), threshold=0.06),
            Verdict.EQUIVALENT,
            Verdict.EQUIVALENT,
        ),
        # The machine differs from itself as much.
        (Thresholds(floor=math.log(1.06)), Verdict.INCONCLUSIVE, Verdict.INCONCLUSIVE),
        (
            Thresholds(floor=math.log(1.06), threshold=0.04),
            Verdict.INCONCLUSIVE,
            Verdict.INCONCLUSIVE,
        ),
        (Thresholds(floor=math.inf), Verdict.INCONCLUSIVE, Verdict.INCONCLUSIVE),
    ],
)
def test_a_difference_must_pass_the_floor_and_the_threshold(
    thresholds: Thresholds, gain: Verdict, loss: Verdict
) -> None:
    """5 % either way, known to 1 %."""
    assert said(Interval(value=1.05, low=1.04, high=1.06), thresholds) is gain
    assert said(Interval(value=1 / 1.05, low=1 / 1.06, high=1 / 1.04), thresholds) is loss


@pytest.mark.parametrize(
    ("floor", "expected"),
    [(0.018, Verdict.FASTER), (0.0195, Verdict.EQUIVALENT), (0.021, Verdict.INCONCLUSIVE)],
)
def test_a_small_difference_below_the_floor_is_noise_where_the_floor_is_small_too(
    floor: float, expected: Verdict
) -> None:
    interval = Interval(value=1.019, low=1.01, high=1.028)
    assert said(interval, Thresholds(floor=floor)) is expected


@given(
    mean=st.floats(-0.1, 0.1),
    spread=st.floats(1e-4, 0.05),
    freedom=st.integers(1, 40),
    margin=st.floats(0.001, 0.1),
)
def test_within_is_what_two_one_sided_tests_say(
    mean: float, spread: float, freedom: int, margin: float
) -> None:
    """Each of "it is below" and "it is above" is given up at 5 %."""
    contrast = Contrast(mean=mean, variance=spread**2, freedom=freedom)
    ends = math.log(1 - margin), math.log(1 + margin)
    below = stats.t.sf((mean - ends[0]) / spread, freedom)
    above = stats.t.sf((ends[1] - mean) / spread, freedom)
    if abs(max(below, above) - 0.05) > 1e-9:
        assert contrast.is_within(margin) == (max(below, above) < 0.05)


def test_no_difference_is_one_whatever_the_floor() -> None:
    none = Interval(value=1.0, low=0.99, high=1.01)
    assert said(none, Thresholds(floor=0.3)) is Verdict.EQUIVALENT
    assert said(none, Thresholds(floor=0.3, margin=0.005)) is Verdict.INCONCLUSIVE


def test_the_bar_itself_is_not_passed() -> None:
    gain = Interval(value=1.05, low=1.04, high=1.06)
    assert said(gain, Thresholds(floor=math.log(1.05))) is Verdict.INCONCLUSIVE
    assert said(gain, Thresholds(floor=math.log(1.05) - 1e-9)) is Verdict.FASTER


@given(value=st.floats(0.5, 2), width=st.floats(1e-4, 0.5), floor=st.floats(0, 0.5))
def test_faster_and_slower_are_mirror_images(value: float, width: float, floor: float) -> None:
    interval = Interval(value=value, low=value / (1 + width), high=value * (1 + width))
    other_interval = Interval(value=1 / value, low=1 / interval.high, high=1 / interval.low)
    turned = {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}
    verdict = said(interval, Thresholds(floor=floor, margin=0))
    if abs(abs(math.log(value)) - floor) > 1e-9:
        assert said(other_interval, Thresholds(floor=floor, margin=0)) is turned.get(
            verdict, verdict
        )


def test_1_itself_is_not_left_out() -> None:
    assert not Interval(value=1.005, low=1.0, high=1.01).excludes_1
    assert not Interval(value=0.995, low=0.99, high=1.0).excludes_1
    assert Interval(value=1.005, low=1.0001, high=1.01).excludes_1


def test_half_width_and_reach_are_logarithmic() -> None:
    interval = Interval(value=1.0, low=math.exp(-0.03), high=math.exp(0.01))
    assert math.isclose(interval.half_width, 0.02)
    assert math.isclose(interval.reach, 0.03)
