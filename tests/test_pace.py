from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbuild.watching.pace import Pace, Progress


def fed(pace: Pace, start: int, end: int, *, per_s: float, before: float = 0) -> Progress:
    """Fed once a second from `start` to `end` with a total of 10,000."""
    found = [
        pace.update(at, int(before + per_s * (at - start)), 10_000) for at in range(start, end)
    ]
    return found[-1]


def test_nothing_is_estimated_in_the_first_minute() -> None:
    found = fed(Pace(), 0, 60, per_s=10)
    assert (found.done, found.total) == (590, 10_000)
    assert found.per_minute is None
    assert found.left_s is None
    assert found.tempo == ""


def test_a_steady_build_has_one_rate_and_one_time() -> None:
    found = fed(Pace(), 0, 301, per_s=10)
    assert found.per_minute == pytest.approx(600)
    assert found.left_s == pytest.approx((700, 700))
    assert found.tempo == "600 a minute, 11 min 40 s left"


def test_a_build_that_became_slower_has_a_range() -> None:
    pace = Pace()
    fed(pace, 0, 300, per_s=10)
    found = fed(pace, 300, 600, per_s=5, before=3000)
    assert found.left_s is not None
    least, most = found.left_s
    left = 10_000 - found.done
    assert left / 10 < least < left / 5
    assert most == pytest.approx(left / 5, rel=0.01)
    assert " to " in found.tempo


def test_only_what_happened_lately_counts() -> None:
    """The cached actions of a build that goes on end in seconds, and say nothing of the rest."""
    pace = Pace()
    fed(pace, 0, 10, per_s=500)
    found = fed(pace, 10, 900, per_s=1, before=4500)
    assert found.per_minute == pytest.approx(60, rel=0.01)


def test_one_long_action_has_no_estimate() -> None:
    pace = Pace()
    fed(pace, 0, 300, per_s=10)
    found = fed(pace, 300, 600, per_s=0, before=3000)
    assert found.left_s is None
    assert found.tempo.endswith(" a minute")


def test_a_total_that_still_grows_has_no_estimate() -> None:
    pace = Pace()
    found = [pace.update(at, at * 10, 5000 + at * 20) for at in range(300)][-1]
    assert found.per_minute == pytest.approx(600)
    assert found.left_s is None


@given(
    st.lists(
        st.tuples(st.floats(0, 700), st.integers(0, 500), st.integers(0, 500)),
        min_size=1,
        max_size=60,
    )
)
def test_an_estimate_is_a_range_of_times(steps: list[tuple[float, int, int]]) -> None:
    """However far apart the lines come, and where done goes back as it may in a second build."""
    pace, at = Pace(), 0.0
    for seconds, done, more in steps:
        at += seconds
        found = pace.update(at, done, done + more)
        assert (found.done, found.total) == (done, done + more)
        assert found.per_minute is None or found.per_minute >= 0
        if found.left_s is not None:
            assert 0 <= found.left_s[0] <= found.left_s[1]
