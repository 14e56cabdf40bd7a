"""Times of requests as counts in bins."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbench.inside.bins import WIDTH, compute_bin_middle, compute_quantile, find_bin

times = st.floats(1e-6, 1e3)


@given(seconds=times)
def test_a_time_lies_within_half_a_bin_of_its_bin_s_middle(seconds: float) -> None:
    assert compute_bin_middle(find_bin(seconds)) == pytest.approx(seconds, rel=WIDTH / 2 + 1e-9)


@given(values=st.lists(times, min_size=1, max_size=300), share=st.floats(0.01, 1.0))
def test_a_quantile_is_the_one_of_the_times_to_half_a_bin(
    values: list[float], share: float
) -> None:
    counts = Counter(map(find_bin, values))
    exact = next(
        value
        for value, count in zip(sorted(values), itertools.count(1), strict=False)
        if count >= share * len(values)
    )
    assert compute_quantile(counts, share) == pytest.approx(exact, rel=WIDTH / 2 + 1e-9)


def test_what_the_clock_cannot_tell_from_nothing_is_in_the_first_bin() -> None:
    assert find_bin(1e-9) == 0


def test_nothing_has_no_quantile() -> None:
    with pytest.raises(ValueError, match="no times"):
        compute_quantile({}, 0.5)
