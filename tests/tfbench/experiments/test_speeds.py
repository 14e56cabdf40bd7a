"""Examples per second: tf_cnn_benchmarks' figures worked out by hand, and ours over launches."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbench.experiments.speeds import compute_printed_speed, compute_speed
from tfcore.comparisons.interval import Interval
from tfcore.errors import SampleError

TIMES = st.lists(st.floats(1e-6, 1e3), min_size=2, max_size=30)


def test_the_printed_figures_are_those_of_the_script() -> None:
    # Speeds 100, 50, 100 and 200; the mean is the batch over the mean time, not their mean.
    printed_speed = compute_printed_speed([0.1, 0.2, 0.1, 0.05], batch=10)
    assert printed_speed.mean == pytest.approx(10 / 0.1125)
    spread = math.sqrt(((100 - 112.5) ** 2 * 2 + (50 - 112.5) ** 2 + (200 - 112.5) ** 2) / 4)
    assert printed_speed.uncertainty == pytest.approx(spread / 2)
    # Deviations from the median 100: 0, 50, 0, 100; their median is 25.
    assert printed_speed.jitter == pytest.approx(1.4826 * 25)


def test_steps_that_all_take_as_long_have_no_jitter() -> None:
    printed_speed = compute_printed_speed([0.25] * 7, batch=8)
    assert (printed_speed.mean, printed_speed.uncertainty, printed_speed.jitter) == (32.0, 0.0, 0.0)


@given(TIMES, st.integers(1, 512))
def test_the_mean_lies_between_the_slowest_and_the_fastest_step(
    times: list[float], batch: int
) -> None:
    mean = compute_printed_speed(times, batch).mean
    assert batch / max(times) * 0.999 <= mean <= batch / min(times) * 1.001


def test_of_one_launch_there_is_no_interval() -> None:
    assert compute_speed([{"step_s": [0.1, 0.3], "batch": 4}]) == pytest.approx(20.0)


def test_launches_are_the_replicates_and_not_their_steps() -> None:
    calm = [{"step_s": [0.1] * 50, "batch": 4}, {"step_s": [0.1] * 50, "batch": 4}]
    speed = compute_speed([*calm, {"step_s": [0.2] * 50, "batch": 4}])
    assert isinstance(speed, Interval)
    assert speed.value == pytest.approx((40 * 40 * 20) ** (1 / 3))
    assert speed.low < 20
    assert speed.high > 40


@pytest.mark.parametrize("times", [[], [0.0], [0.1, math.nan], [-1.0], [math.inf]])
def test_what_are_no_times_gives_no_speed(times: list[float]) -> None:
    with pytest.raises(SampleError):
        compute_printed_speed(times, 4)
    with pytest.raises(SampleError):
        compute_speed([{"step_s": times, "batch": 4}])
