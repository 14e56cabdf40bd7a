"""What is made of a journal of timings; real workers are in tests/integration."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.journals import STOCK, TUNED
from tests.builders.kernel_call_sites import ranked

from tfbench.engine.engine import RunProgress
from tfbench.kernels.profiles import RankedCallSite
from tfbench.kernels.timings import (
    CALL_S,
    MOST_COPIES,
    Bench,
    TimingLine,
    Timings,
    TimingStage,
    choose_copies,
    group_series,
)


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


@pytest.mark.parametrize("cached", [{}, {2: [], 4: []}])
def test_a_budget_counts_only_the_threads_with_which_something_is_timed(
    cached: dict[int, list[RankedCallSite]],
) -> None:
    """Three launches took 30 s: there is time for a fourth."""
    timings = Timings(
        bench=Bench(stock=STOCK, tuned=TUNED, cpus=(0,), out=Path("out")),
        stage=TimingStage(name="search", launches=6, budget_s=45.0, seed=1),
        wanted={1: [dataclasses.replace(ranked(), key="a")], **cached},
        listen=lambda _done, _total: None,
    )
    lines = [line(launch, 1.0) for launch in range(3)]
    launch = timings.choose_next(lines, RunProgress(launches=3, seconds=30.0))
    assert launch is not None
    assert (launch.number, launch.threads) == (3, 1)
    assert timings.choose_next(lines, RunProgress(launches=3, seconds=40.0)) is None


@given(st.floats(0, 1e6))
def test_a_call_is_long_enough_or_has_as_many_copies_as_there_may_be(call_s: float) -> None:
    count = choose_copies(call_s)
    assert 1 <= count <= MOST_COPIES
    assert count == MOST_COPIES or count * call_s >= CALL_S * (1 - 1e-9)
