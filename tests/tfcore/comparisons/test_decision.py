from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfcore.comparisons.decision import (
    NO_VERDICT,
    Decision,
    Reason,
    compute_floor,
    compute_limit,
)
from tfcore.comparisons.interval import Interval, Verdict


@given(value=st.floats(0.8, 1.25), width=st.floats(1e-4, 0.2))
def test_the_floor_counts_from_the_faster_of_the_two_workers(value: float, width: float) -> None:
    noise = Interval(value=value, low=value / (1 + width), high=value * (1 + width))
    difference = abs(math.log(value))
    expected = difference + math.log1p(width) + difference / 2
    assert compute_floor(noise) == pytest.approx(expected)


def test_the_higher_of_floor_and_threshold_is_the_limit() -> None:
    assert compute_limit(0.02, 0.01) == 0.02
    assert compute_limit(0.0, 0.01) == math.log1p(0.01)


@pytest.mark.parametrize("reason", Reason)
def test_the_outcome_is_the_verdict_or_why_there_is_none(reason: Reason) -> None:
    decision = Decision(arm="tuned", verdict=Verdict.SLOWER, reason=reason, noise_floor=0.01)
    assert decision.outcome == (reason if reason in NO_VERDICT else "slower")
    assert decision.counts == (reason not in NO_VERDICT)
