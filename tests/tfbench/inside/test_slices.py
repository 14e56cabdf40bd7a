"""Samples cut into slices."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbench.inside.slices import SLICE_S, Call, time_calls


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


def test_a_slice_ends_with_the_step_in_which_its_time_has_passed(clock: Clock) -> None:
    actual = time_calls([clock.call(1, 0.01)] * 8)
    assert [call_slice.steps for call_slice in actual] == [3, 5]  # the last two are too few for one
    assert [call_slice.wall_s for call_slice in actual] == pytest.approx([0.03, 0.05])
    assert [call_slice.cpu_s for call_slice in actual] == pytest.approx([0.015, 0.025])


def test_long_steps_are_slices_of_their_own(clock: Clock) -> None:
    actual = time_calls([clock.call(1, 0.1), clock.call(1, 0.2), clock.call(1, 0.3)])
    assert [call_slice.wall_s for call_slice in actual] == pytest.approx([0.1, 0.2, 0.3])


def test_a_call_may_take_several_steps(clock: Clock) -> None:
    actual = time_calls([clock.call(8, 0.02), clock.call(8, 0.02), clock.call(3, 0.03)])
    assert [call_slice.steps for call_slice in actual] == [16, 3]


def test_a_sample_shorter_than_a_slice_is_one(clock: Clock) -> None:
    (call_slice,) = time_calls([clock.call(1, 0.001)] * 3)
    assert call_slice.steps == 3
    assert call_slice.wall_s == pytest.approx(0.003)
    assert time_calls([]) == []


def test_the_last_result_is_read_before_the_clock(clock: Clock) -> None:
    class Late:
        def __float__(self) -> float:
            clock.now += 1.0
            return 0.5

    (call_slice,) = time_calls([(1, Late)])
    assert call_slice.wall_s == pytest.approx(1.0)


@given(st.lists(st.tuples(st.integers(1, 9), st.floats(1e-6, 0.1)), min_size=1, max_size=60))
def test_slices_make_up_the_sample(calls: list[tuple[int, float]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        clock = Clock(patch)
        actual = time_calls([clock.call(*call) for call in calls])
    assert sum(call_slice.steps for call_slice in actual) == sum(steps for steps, _ in calls)
    assert sum(call_slice.wall_s for call_slice in actual) == pytest.approx(
        sum(s for _, s in calls)
    )
    assert all(call_slice.wall_s >= SLICE_S * (1 - 1e-9) for call_slice in actual[:-1])


def test_real_clocks_tell_what_a_real_step_takes() -> None:
    def busy() -> float:
        until = time.process_time() + 0.005
        while time.process_time() < until:
            pass
        return 0.0

    calls: Iterator[tuple[int, Callable[[], float]]] = iter([(1, busy)] * 12)
    actual = time_calls(calls)
    assert sum(call_slice.steps for call_slice in actual) == 12
    assert sum(call_slice.cpu_s for call_slice in actual) >= 12 * 0.005
    assert all(call_slice.wall_s > 0 for call_slice in actual)
