from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbench.reports import wording
from tfcore.comparisons.interval import Interval

INTERVAL = Interval(value=0.5, low=0.25, high=0.75)


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        (0.0134567, "0.0135"),
        (54.63, "54.6"),
        (128.9, "129"),
        (12345.0, "12345"),
        (0.0000123456, "0.0000123"),
        (-0.0134567, "-0.0135"),
        (0.0, "0"),
        (INTERVAL, "0.500 (0.250 to 0.750)"),
    ],
)
def test_dollars_have_three_significant_digits(amount: float | Interval, shown: str) -> None:
    assert wording.format_usd(amount) == shown


@given(st.floats(min_value=1e-9, max_value=1e9))
def test_dollars_are_within_half_a_percent_of_what_they_were(value: float) -> None:
    assert math.isclose(float(wording.format_usd(value)), value, rel_tol=0.00501)


def test_what_was_seen_once_has_fewer_digits_than_what_has_an_interval() -> None:
    assert wording.format_relative(0.4999) == "0.50"
    assert wording.format_relative(INTERVAL) == "0.500 (0.250 to 0.750)"
    assert wording.format_factor_span(1.4296) == "1.430x"
    assert wording.format_factor_span(INTERVAL) == "0.500x (0.250 to 0.750)"
    assert wording.format_seconds(65.06) == "65.1"
    assert wording.format_seconds(INTERVAL) == "0.5 (0.2 to 0.8)"


def test_one_and_many() -> None:
    assert wording.format_cell("lstm_text", 1) == "lstm_text on 1 vCPU"
    assert wording.format_cell("lstm_text", 2) == "lstm_text on 2 vCPUs"
    assert wording.join_words(["a"]) == "a"
    assert wording.join_words(["a", "b"]) == "a and b"
    assert wording.join_words(["a", "b", "c"]) == "a, b and c"


def test_places_of_a_workload_are_named_together_and_counted() -> None:
    cells = [("a", 1), ("lstm_text:batch=32:clients=2", 2), ("a", 4)]
    assert wording.format_cells(cells) == "a on 1 and 4 vCPUs; lstm_text 32x2 on 2 vCPUs"
    assert wording.format_cells(cells[:1], of=cells) == "a on 1 vCPU"
    assert wording.format_cells([("a", 1), ("b", 1)]) == "a and b on 1 vCPU"
    some = wording.format_cells(cells[:2], of=cells)
    assert some == "2 of 3 cells (a on 1 vCPU; lstm_text 32x2 on 2 vCPUs)"
    assert wording.format_cells(cells, of=cells) == "all 3 cells"
    all_cells = [(name, number) for name in "abcd" for number in (1, 2)]
    assert wording.format_cells(all_cells[1:], of=all_cells) == "7 of 8 cells (all but a on 1 vCPU)"


def test_times_are_shown_in_utc() -> None:
    assert wording.format_time("2026-01-02T03:04:05+02:00") == "2026-01-02 01:04 UTC"
    assert wording.format_time("yesterday") == "yesterday"
    assert wording.format_time("") == "at an unknown time"
