from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfcore import console


@pytest.mark.parametrize(
    ("seconds", "message"),
    [
        (0, "0.0 s"),
        (4.24, "4.2 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (60, "1 min 00 s"),
        (185, "3 min 05 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h 00 min"),
        (7800, "2 h 10 min"),
        (90_000, "25 h 00 min"),
    ],
)
def test_durations(seconds: float, message: str) -> None:
    assert console.format_duration(seconds) == message


@given(st.floats(0, 1e6))
def test_no_duration_has_sixty_seconds_or_minutes(seconds: float) -> None:
    text = console.format_duration(seconds)
    assert re.fullmatch(r"\d+\.\d s|\d+ min \d\d s|\d+ h \d\d min", text)
    assert not re.search(r"\b60(\.0)? (s|min)", text)


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (1000, "1.0 kB"),
        (198_410_249, "198.4 MB"),
        (4_500_000_000, "4.5 GB"),
        (2e12, "2.0 TB"),
    ],
)
def test_sizes(count: float, message: str) -> None:
    assert console.format_size(count) == message


@given(st.integers(0, 10**15))
def test_sizes_keep_to_their_unit(count: int) -> None:
    number = console.format_size(count).split()[0]
    assert console.format_size(count).endswith("TB") or float(number) < 1000


def test_one_and_many() -> None:
    assert console.format_count(1, "launch", "launches") == "1 launch"
    assert console.format_count(2, "launch", "launches") == "2 launches"
    assert console.format_count(0, "arm") == "0 arms"
    assert (console.format_vcpus(1), console.format_vcpus(2)) == ("1 vCPU", "2 vCPUs")


def test_what_is_probably_meant_is_asked() -> None:
    known = ["skylake", "skylake_avx512", "zen4"]
    assert console.suggest_spelling("skylak", known) == "Did you mean skylake or skylake_avx512?"
    assert console.suggest_spelling("ZEN5", known) == "Did you mean zen4?"
    assert console.find_similar("x", known) == []
    assert console.suggest_spelling("x", known) == ""


@given(st.text(), st.lists(st.text(), max_size=5))
def test_only_what_there_is_is_proposed(word: str, known: list[str]) -> None:
    assert set(console.find_similar(word, known)) <= set(known)


def test_everything_is_said_on_stderr_and_as_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    console.print_message("[bold]brackets[/bold] stay " + "x" * 300)
    console.print_note("a note")
    console.warn("careful")
    with console.report_step("work"):
        console.print_message("inside")
    out, err = capfd.readouterr()
    assert out == ""
    assert "[bold]brackets[/bold] stay " + "x" * 300 + "\n  a note\nwarning: careful\n" in err
    assert re.search(r"→ work\ninside\n  done in \d+\.\d s\n$", err)
    assert "\x1b" not in err


def test_a_step_that_fails_is_not_said_to_be_done(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="no"), console.report_step("work"):
        raise ValueError("no")
    assert "done" not in capfd.readouterr().err


def test_progress_estimates_what_is_left() -> None:
    with console.track_progress("actions", 10) as count:
        assert count.format_line().startswith("0 of 10 actions, ")
        assert "left" not in count.format_line()
        count.advance(4, detail="tanh.cc")
        assert re.fullmatch(
            r"4 of 10 actions, 0\.\d s, about 0\.\d s left {2}tanh\.cc", count.format_line()
        )
        count.advance(12, 12)
        assert re.fullmatch(r"12 of 12 actions, 0\.\d s", count.format_line())


@pytest.mark.parametrize(
    ("several", "first"),
    [
        ("kernel units", "kernel unit"),
        ("launches", "launch"),
        ("archives", "archive"),
        ("MB", "MB"),
    ],
)
def test_one_is_singular(several: str, first: str) -> None:
    with console.track_progress(several, 1) as count:
        assert count.format_line().startswith(f"0 of 1 {first}, ")
        count.advance(1, 2)
        assert count.format_line().startswith(f"1 of 2 {several}, ")
