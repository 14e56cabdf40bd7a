from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbuild.watching.pace import Pace, Progress


def fed(pace: Pace, start: int, end: int, *, per_s: float, before: float = 0) -> Progress:
    """Fed once a second from `start` to `end` with a total of 10,000."""
    actual = [
        pace.update(at, int(before + per_s * (at - start)), 10_000) for at in range(start, end)
    ]
    return actual[-1]


def test_nothing_is_estimated_in_the_first_minute() -> None:
    progress = fed(Pace(), 0, 60, per_s=10)
    assert (progress.done, progress.total) == (590, 10_000)
    assert progress.per_minute is None
    assert progress.left_s is None
    assert progress.tempo == ""


def test_a_steady_build_has_one_rate_and_one_time() -> None:
    progress = fed(Pace(), 0, 301, per_s=10)
    assert progress.per_minute == pytest.approx(600)
    assert progress.left_s == pytest.approx((700, 700))
    assert progress.tempo == "600 a minute, 11 min 40 s left"


def test_a_build_that_became_slower_has_a_range() -> None:
    pace = Pace()
    fed(pace, 0, 300, per_s=10)
    progress = fed(pace, 300, 600, per_s=5, before=3000)
    assert progress.left_s is not None
    least, most = progress.left_s
    remaining = 10_000 - progress.done
    assert remaining / 10 < least < remaining / 5
    assert most == pytest.approx(remaining / 5, rel=0.01)
    assert " to " in progress.tempo


def test_only_what_happened_lately_counts() -> None:
    """The cached actions of a build that goes on end in seconds, and say nothing of the rest."""
    pace = Pace()
    fed(pace, 0, 10, per_s=500)
    progress = fed(pace, 10, 900, per_s=1, before=4500)
    assert progress.per_minute == pytest.approx(60, rel=0.01)


def test_one_long_action_has_no_estimate() -> None:
    pace = Pace()
    fed(pace, 0, 300, per_s=10)
    progress = fed(pace, 300, 600, per_s=0, before=3000)
    assert progress.left_s is None
    assert progress.tempo.endswith(" a minute")


def test_a_total_that_still_grows_has_no_estimate() -> None:
    pace = Pace()
    progress = [pace.update(at, at * 10, 5000 + at * 20) for at in range(300)][-1]
    assert progress.per_minute == pytest.approx(600)
    assert progress.left_s is None


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
        progress = pace.update(at, done, done + more)
        assert (progress.done, progress.total) == (done, done + more)
        assert progress.per_minute is None or progress.per_minute >= 0
        if progress.left_s is not None:
            assert 0 <= progress.left_s[0] <= progress.left_s[1]
