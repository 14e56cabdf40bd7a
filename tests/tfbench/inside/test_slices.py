"""Samples cut into slices."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbench.inside.slices import SLICES, Call, time_calls


class Clock:
    """Both clocks of a program whose calls take what they are told to; the CPU's half as much."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(time, "process_time", lambda: self.now / 2)

    def call(self, steps: int, seconds: float) -> Call:
        def work() -> float:
            self.now += seconds
            return 0.5

        return steps, work


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.mark.parametrize(
    ("steps", "parts"),
    [
        (40, [4] * 10),
        (25, [3, 2] * 5),
        (12, [2, 1, 1, 1, 1, 2, 1, 1, 1, 1]),
        (3, [1, 1, 1]),
        (1, [1]),
        (0, []),
    ],
)
def test_a_sample_has_slices_of_equal_numbers_of_steps(
    clock: Clock, steps: int, parts: list[int]
) -> None:
    """They do not depend on how long a step takes."""
    fast, slow = (time_calls([clock.call(1, s)] * steps, steps) for s in (0.001, 0.1))
    assert [call_slice.steps for call_slice in fast] == parts
    assert [call_slice.steps for call_slice in slow] == parts
    assert sum(call_slice.wall_s for call_slice in slow) == pytest.approx(0.1 * steps)
    assert sum(call_slice.cpu_s for call_slice in slow) == pytest.approx(0.05 * steps)


@pytest.mark.parametrize(
    ("steps", "parts"),
    [(16, [8, 8]), (24, [8, 8, 8]), (88, [16, *[8] * 9]), (19, [8, 11]), (5, [5])],
)
def test_slices_are_cut_where_a_call_of_any_arm_ends(
    clock: Clock, steps: int, parts: list[int]
) -> None:
    full, rest = divmod(steps, 8)
    single = time_calls([clock.call(1, 0.01)] * steps, steps, 8)
    several = [clock.call(8, 0.06)] * full + [clock.call(1, 0.01)] * rest
    assert [call_slice.steps for call_slice in single] == parts
    assert [call_slice.steps for call_slice in time_calls(several, steps, 8)] == parts


def test_a_long_call_is_a_slice(clock: Clock) -> None:
    actual = time_calls([*[clock.call(8, 0.02)] * 2, *[clock.call(1, 0.03)] * 3], 19)
    assert [call_slice.steps for call_slice in actual] == [8, 8, 2, 1]
    (whole,) = time_calls([clock.call(19, 0.02)], 19)
    assert whole.steps == 19


def test_the_last_result_is_read_before_the_clock(clock: Clock) -> None:
    class Late:
        def __float__(self) -> float:
            clock.now += 1.0
            return 0.5

    (call_slice,) = time_calls([(1, Late)], 1)
    assert call_slice.wall_s == pytest.approx(1.0)


@given(st.lists(st.tuples(st.integers(1, 9), st.floats(1e-6, 0.1)), min_size=1, max_size=60))
def test_slices_make_up_the_sample(calls: list[tuple[int, float]]) -> None:
    steps = sum(several for several, _ in calls)
    with pytest.MonkeyPatch.context() as patch:
        clock = Clock(patch)
        actual = time_calls([clock.call(*call) for call in calls], steps)
    assert sum(call_slice.steps for call_slice in actual) == steps
    assert sum(call_slice.wall_s for call_slice in actual) == pytest.approx(
        sum(s for _, s in calls)
    )
    assert 1 <= len(actual) <= min(SLICES, len(calls))


def test_real_clocks_tell_what_a_real_step_takes() -> None:
    def busy() -> float:
        until = time.process_time() + 0.005
        while time.process_time() < until:
            pass
        return 0.0

    calls: Iterator[tuple[int, Callable[[], float]]] = iter([(1, busy)] * 12)
    actual = time_calls(calls, 12)
    assert sum(call_slice.steps for call_slice in actual) == 12
    assert sum(call_slice.cpu_s for call_slice in actual) >= 12 * 0.005
    assert all(call_slice.wall_s > 0 for call_slice in actual)
