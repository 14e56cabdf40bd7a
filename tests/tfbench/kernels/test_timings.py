"""What is made of a journal of timings; real workers are in tests/integration."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbench.kernels.timings import CALL_S, MOST_COPIES, TimingLine, choose_copies, group_series


def line(launch: int, tuned_s: float, **fields: str) -> TimingLine:
    return TimingLine(
        stage="search",
        threads=1,
        launch=launch,
        key="a",
        stock=(2.0, 2.0, 2.0, 2.0),
        again=(2.0, 2.0, 2.0, 2.0),
        tuned=(tuned_s,) * 4,
        **fields,
    )


def test_a_launch_is_one_number_for_each_arm() -> None:
    series, reasons = group_series([line(0, 1.0), line(1, 4.0)])
    site_series = series["a", 1]
    assert site_series.ratios == pytest.approx([math.log(2), -math.log(2)])
    assert site_series.again == site_series.stock == pytest.approx([math.log(2), math.log(2)])
    assert (site_series.stock_s, site_series.tuned_s) == (2.0, 2.5)
    assert reasons == {}


def test_a_place_that_failed_once_has_no_times() -> None:
    series, reasons = group_series([line(0, 1.0), line(1, 1.0, reason="it does not run")])
    assert series == {}
    assert reasons == {"a": "it does not run"}


@given(st.floats(0, 1e6))
def test_a_call_is_long_enough_or_has_as_many_copies_as_there_may_be(call_s: float) -> None:
    count = choose_copies(call_s)
    assert 1 <= count <= MOST_COPIES
    assert count == MOST_COPIES or count * call_s >= CALL_S * (1 - 1e-9)
