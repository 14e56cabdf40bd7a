from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.prices import price

from tfbench.costs import catalog
from tfbench.costs.cost import (
    Amount,
    amortise,
    apply_monotone,
    compute_billed_s,
    compute_geometric_mean,
    compute_images_per_usd,
    compute_ratio,
    compute_relative,
    compute_run_cost,
    compute_saving,
    compute_seconds_to_accuracy,
    get_value,
)
from tfbench.costs.prices import Mode
from tfcore.comparisons.interval import Interval
from tfcore.errors import SampleError, UsageError

IMAGENET = 1_281_167
amounts = st.floats(1e-3, 1e6)


def spread(value: float, low: float, high: float) -> Interval:
    return Interval(value=value, low=low, high=high)


def close(amount: Amount, other_amount: Amount) -> bool:
    if isinstance(amount, Interval) and isinstance(other_amount, Interval):
        pairs = zip(dataclasses.astuple(amount), dataclasses.astuple(other_amount), strict=True)
        return all(math.isclose(a, b) for a, b in pairs)
    return not isinstance(amount, Interval) and math.isclose(
        get_value(amount), get_value(other_amount)
    )


@pytest.mark.parametrize(
    ("machine", "mode", "images_s", "epochs", "hours", "printed"),
    [
        ("tpuv2", Mode.ON_DEMAND, 2796, 64, 8.15, 54.6),
        ("tpuv2", Mode.ON_DEMAND, 2796, 86, 10.95, 73.3),
        ("p3.8xlarge", Mode.ON_DEMAND, 2839, 84, 10.53, 128.9),
        ("p3.8xlarge", Mode.RESERVED_1Y, 2839, 84, 10.53, 87.8),
    ],
)
def test_the_time_and_cost_to_accuracy_of_2018_come_out(
    machine: str, mode: Mode, images_s: float, epochs: int, hours: float, printed: float
) -> None:
    """RiseML: 75.7 % top-1 after 64 epochs on the TPU and 84 on the GPUs, 76.4 % after 86."""
    actual = catalog.find_book("2018-04-riseml").restrict(mode=mode).find_price(machine)
    seconds = compute_seconds_to_accuracy(epochs=epochs, images=IMAGENET, images_s=images_s)
    assert round(get_value(seconds) / 3600, 2) == hours
    assert round(get_value(compute_run_cost(seconds, actual)), 1) == printed


@pytest.mark.parametrize(
    ("machine", "mode", "images_s", "per_usd"),
    [
        ("tpuv2", Mode.ON_DEMAND, 3186, 475.5),
        ("p3.8xlarge", Mode.ON_DEMAND, 3128, 255.6),
        ("p3.8xlarge", Mode.RESERVED_1Y, 3128, 375.1),
    ],
)
def test_the_images_per_dollar_of_2018_come_out(
    machine: str, mode: Mode, images_s: float, per_usd: float
) -> None:
    actual = catalog.find_book("2018-04-riseml").restrict(mode=mode).find_price(machine)
    assert round(get_value(compute_images_per_usd(images_s, actual)), 1) == per_usd


def test_a_slower_rate_is_the_upper_end_of_the_time_to_accuracy() -> None:
    seconds = compute_seconds_to_accuracy(epochs=2, images=1000, images_s=spread(100, 80, 125))
    assert close(seconds, spread(20, 16, 25))


@pytest.mark.parametrize(
    ("seconds", "increment", "minimum", "paid"),
    [
        (61.5, 0, 0, 61.5),
        (61.5, 1, 0, 62),
        (61.5, 60, 0, 120),
        (120.0, 60, 0, 120),
        (61.5, 1, 600, 600),
        (601.5, 1, 600, 602),
        (0.3, 0.1, 0, 0.3),  # 0.3 / 0.1 is a little below 3
        (1.1, 0.1, 0, 1.1),  # 1.1 / 0.1 is a little above 11
    ],
)
def test_seconds_are_billed_in_whole_increments_and_a_minimum(
    seconds: float, increment: float, minimum: float, paid: float
) -> None:
    billing = price(billing_increment_s=increment, minimum_s=minimum)
    assert math.isclose(compute_billed_s(seconds, billing), paid)


@given(seconds=amounts, increment=st.sampled_from([0.0, 1.0, 60.0, 3600.0]), minimum=amounts)
def test_nobody_pays_for_less_than_was_used(
    seconds: float, increment: float, minimum: float
) -> None:
    paid = compute_billed_s(seconds, price(billing_increment_s=increment, minimum_s=minimum))
    assert seconds * (1 - 1e-8) <= paid <= max(seconds + increment, minimum)


def test_the_interval_of_a_cost_comes_from_that_of_the_time() -> None:
    seconds = spread(100.0, 90.0, 119.0)
    assert close(compute_run_cost(seconds, price(usd_hour=3.6)), spread(0.100, 0.090, 0.119))
    by_the_minute = price(usd_hour=3.6, billing_increment_s=60)
    assert close(compute_run_cost(seconds, by_the_minute), spread(0.12, 0.12, 0.12))


@pytest.mark.parametrize(
    "seconds",
    [0.0, -1.0, math.nan, math.inf, spread(1, 0, 2), spread(1, 0.5, math.nan), spread(3, 1, 2)],
)
def test_a_run_without_a_time_has_no_cost(seconds: Amount) -> None:
    with pytest.raises(SampleError, match="time"):
        compute_run_cost(seconds, price())


def test_a_falling_function_swaps_the_ends() -> None:
    assert close(apply_monotone(spread(2, 1, 4), lambda value: 1 / value), spread(0.5, 0.25, 1))
    assert apply_monotone(2.0, lambda value: 1 / value) == 0.5


def test_a_ratio_is_no_surer_than_its_parts() -> None:
    above, below = spread(10, 8, 12), spread(5, 4.5, 6)
    ratio = compute_ratio(above, below)
    assert isinstance(ratio, Interval)
    assert ratio.value == 2
    assert ratio.low < 8 / 5
    assert ratio.high > 12 / 5
    assert ratio.low > 8 / 6
    assert ratio.high < 12 / 4.5
    assert close(compute_ratio(above, 5.0), spread(2, 1.6, 2.4))
    assert close(compute_ratio(10.0, below), spread(2, 10 / 6, 10 / 4.5))


def test_a_ratios_interval_covers_as_often_as_it_says() -> None:
    """Two independent log-normal estimates with known 95 % intervals."""
    draw = np.random.default_rng(3)
    deviations, trials, hits = (0.02, 0.05), 4000, 0
    for errors in draw.normal(size=(trials, 2)) * deviations:
        parts = [
            spread(*(math.exp(error + z * 1.96 * s) for z in (0, -1, 1)))
            for error, s in zip(errors, deviations, strict=True)
        ]
        ratio = compute_ratio(parts[0], parts[1])
        assert isinstance(ratio, Interval)
        hits += ratio.low <= 1 <= ratio.high
    assert 0.94 <= hits / trials <= 0.96


def test_a_paired_speedup_keeps_its_own_narrow_interval() -> None:
    relative = compute_relative(
        spread(1.25, 1.0, 2.0), price(usd_hour=1.0), price(usd_hour=2.0), baseline_s=100.0
    )
    assert close(relative.time, spread(0.8, 0.5, 1.0))
    assert close(relative.usd, spread(0.4, 0.25, 0.5))
    with pytest.raises(SampleError, match="speedup"):
        compute_relative(math.nan, price(), price(), baseline_s=100.0)


def test_a_paired_speedup_is_billed_in_increments_where_the_run_is() -> None:
    by_the_minute = price(billing_increment_s=60)
    relative = compute_relative(
        spread(1.25, 1.0, 2.0), by_the_minute, by_the_minute, baseline_s=100.0
    )
    assert close(relative.time, spread(0.8, 0.5, 1.0))
    assert close(relative.usd, spread(1.0, 0.5, 1.0))
    cheap = compute_relative(
        2.0, price(usd_hour=1.0, minimum_s=80.0), price(usd_hour=2.0), baseline_s=100.0
    )
    assert close(cheap.usd, 0.4)


@given(slow=amounts, speedup=st.floats(0.1, 10))
def test_without_increments_a_paired_cost_is_that_of_any_seconds(
    slow: float, speedup: float
) -> None:
    relative = compute_relative(speedup, price(usd_hour=1.0), price(usd_hour=2.0), baseline_s=slow)
    assert close(relative.usd, 1.0 / 2.0 / speedup)


def test_a_mean_is_surer_than_its_parts() -> None:
    part = spread(2, 1.6, 2.5)
    assert close(compute_geometric_mean([part]), part)
    geometric_mean = compute_geometric_mean([part] * 4)
    assert close(geometric_mean, spread(2, 2 * math.sqrt(0.8), 2 * math.sqrt(1.25)))
    assert close(compute_geometric_mean([2.0, 8.0]), 4.0)
    assert close(compute_geometric_mean([part, 8.0]), 4.0)
    with pytest.raises(SampleError):
        compute_geometric_mean([])


def test_a_means_interval_covers_as_often_as_it_says() -> None:
    draw = np.random.default_rng(4)
    deviations, trials, hits = (0.02, 0.05, 0.01), 4000, 0
    for errors in draw.normal(size=(trials, 3)) * deviations:
        parts = [
            spread(*(math.exp(error + z * 1.96 * s) for z in (0, -1, 1)))
            for error, s in zip(errors, deviations, strict=True)
        ]
        geometric_mean = compute_geometric_mean(parts)
        assert isinstance(geometric_mean, Interval)
        hits += geometric_mean.low <= 1 <= geometric_mean.high
    assert 0.94 <= hits / trials <= 0.96


def test_a_build_pays_after_its_cost_over_the_saving() -> None:
    paid = amortise(10.0, 0.25, runs_per_day=8)
    assert (paid.runs, paid.days) == (40, 5.0)
    assert str(paid) == "after 40 runs, 5 days at 8 runs per day"
    assert str(amortise(10.0, 0.3)) == "after 34 runs"


@pytest.mark.parametrize("saved", [0.0, -0.1])
def test_a_build_that_saves_nothing_never_pays(saved: float) -> None:
    never = amortise(10.0, saved, runs_per_day=8)
    assert (never.runs, never.days) == (None, None)
    assert str(never) == "never: a run saves nothing"


def test_a_saving_that_may_be_none_may_never_pay() -> None:
    unsure = amortise(10.0, spread(0.1, -0.1, 0.5))
    assert (unsure.soonest, unsure.runs, unsure.latest) == (20, 100, None)
    assert str(unsure) == "after 100 runs (20 to never)"
    sure = amortise(10.0, spread(0.1, 0.05, 0.5), runs_per_day=10)
    assert str(sure) == "after 100 runs (20 to 200), 10 days at 10 runs per day"
    unlikely = amortise(10.0, spread(-0.1, -0.3, 0.1))
    assert str(unlikely) == "never: a run saves nothing (at best after 100 runs)"


@given(build=amounts, saved=amounts)
def test_the_break_even_run_is_the_first_that_pays(build: float, saved: float) -> None:
    runs = amortise(build, saved).runs
    assert runs is not None
    assert runs * saved >= build * (1 - 1e-8)
    assert (runs - 1) * saved < build


@pytest.mark.parametrize("runs", [1, 3, 7, 11, 49, 1000])
def test_rounding_does_not_add_a_run(runs: int) -> None:
    assert amortise(runs * 0.1, 0.1).runs == runs


def test_a_saving_too_small_to_count_never_pays() -> None:
    assert amortise(1.0, 5e-324).runs is None


def test_the_saving_is_what_the_relative_cost_leaves() -> None:
    assert close(compute_saving(2.0, spread(0.8, 0.7, 1.1)), spread(0.4, -0.2, 0.6))


@pytest.mark.parametrize("build", [-1.0, math.nan, math.inf])
def test_a_build_has_a_cost(build: float) -> None:
    with pytest.raises(UsageError, match="cost of a build"):
        amortise(build, 1.0)


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan])
def test_runs_come_at_a_rate(rate: float) -> None:
    with pytest.raises(UsageError, match="rate"):
        amortise(1.0, 1.0, runs_per_day=rate)


def test_a_saving_is_an_amount() -> None:
    with pytest.raises(SampleError, match="saving"):
        amortise(1.0, math.nan)


@pytest.mark.parametrize(("epochs", "images_s"), [(0, 100.0), (math.nan, 100.0), (1, 0.0)])
def test_training_to_accuracy_needs_a_rate_and_an_amount(epochs: float, images_s: float) -> None:
    with pytest.raises(SampleError):
        compute_seconds_to_accuracy(epochs=epochs, images=IMAGENET, images_s=images_s)
