"""Durations that are typed, and how the console's are read back."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbuild.commands import SurveyOptions
from tfcore import console, durations
from tfcore.errors import UsageError

UP_TO_A_MONTH = st.floats(0.1, 30 * 24 * 3600 - 60)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("20m", 1200),
        ("1h", 3600),
        ("1h30m", 5400),
        ("1h 30m 15s", 5415),
        ("1.5h", 5400),
        (" 0.5s ", 0.5),
        ("4.2 s", 4.2),
        ("3 min 05 s", 185),
        ("2 h 10 min", 7800),
        ("720h", 2_592_000),
    ],
)
def test_a_duration_has_its_units(text: str, seconds: float) -> None:
    assert durations.parse_duration(text, "--n") == pytest.approx(seconds)


@pytest.mark.parametrize(("text", "number"), [("20", "20"), ("0", "20"), (" 1.5 ", "1.5")])
def test_a_bare_number_is_refused_with_both_readings(text: str, number: str) -> None:
    with pytest.raises(UsageError) as caught:
        durations.parse_duration(text, "--budget")
    assert str(caught.value) == f"--budget {text} has no unit. Write {number}s or {number}m"


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "soon", "nan", "inf", "-1", "-1s", "1e9s", "²s", "٣s", "1,5h", "s", "h30m"),
        *("0s", "0h0m", "30m1h", "1s1s", "1d", "721h", "20ms", "1.s", "9" * 400 + "h"),
    ],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--n"):
        durations.parse_duration(text, "--n")


@given(st.integers(0, 99), st.integers(0, 99), st.integers(1, 99), st.sampled_from(["", " "]))
def test_units_are_added(hours: int, minutes: int, seconds: int, space: str) -> None:
    text = f"{hours}h{space}{minutes}m{space}{seconds}s"
    assert durations.parse_duration(text, "--n") == 3600 * hours + 60 * minutes + seconds


@given(UP_TO_A_MONTH)
def test_what_the_console_says_is_read_back(seconds: float) -> None:
    """To what it rounds to: a tenth of a second, a second, a minute."""
    text = console.format_duration(seconds)
    rounding = 60 if "h" in text else 1 if "min" in text else 0.05
    duration = durations.parse_duration(text, "--n")
    assert duration == pytest.approx(seconds, abs=rounding * 1.001)
    assert console.format_duration(duration) == text


@given(st.text())
def test_any_text_is_a_duration_or_one_line(text: str) -> None:
    with contextlib.suppress(UsageError):
        assert durations.parse_duration(text, "--n") > 0


def test_defaults_are_typed_in_the_same_form() -> None:
    assert durations.parse_duration(SurveyOptions().budget, "--budget") == 3600
