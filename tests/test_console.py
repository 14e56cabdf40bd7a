from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbuild import console


@pytest.mark.parametrize(
    ("seconds", "said"),
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
def test_durations(seconds: float, said: str) -> None:
    assert console.duration(seconds) == said


@given(st.floats(0, 1e6))
def test_no_duration_has_sixty_seconds_or_minutes(seconds: float) -> None:
    said = console.duration(seconds)
    assert re.fullmatch(r"\d+\.\d s|\d+ min \d\d s|\d+ h \d\d min", said)
    assert not re.search(r"\b60(\.0)? (s|min)", said)


@pytest.mark.parametrize(
    ("count", "said"),
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
def test_sizes(count: float, said: str) -> None:
    assert console.size(count) == said


@given(st.integers(0, 10**15))
def test_sizes_keep_to_their_unit(count: int) -> None:
    number = console.size(count).split()[0]
    assert console.size(count).endswith("TB") or float(number) < 1000


def test_one_and_many() -> None:
    assert console.count(1, "launch", "launches") == "1 launch"
    assert console.count(2, "launch", "launches") == "2 launches"
    assert console.count(0, "arm") == "0 arms"
    assert (console.vcpus(1), console.vcpus(2)) == ("1 vCPU", "2 vCPUs")


def test_what_is_probably_meant_is_asked() -> None:
    known = ["skylake", "skylake_avx512", "zen4"]
    assert console.did_you_mean("skylak", known) == "Did you mean skylake or skylake_avx512?"
    assert console.did_you_mean("ZEN5", known) == "Did you mean zen4?"
    assert console.near("x", known) == []
    assert console.did_you_mean("x", known) == ""


@given(st.text(), st.lists(st.text(), max_size=5))
def test_only_what_there_is_is_proposed(word: str, known: list[str]) -> None:
    assert set(console.near(word, known)) <= set(known)


def test_everything_is_said_on_stderr_and_as_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    console.say("[bold]brackets[/bold] stay " + "x" * 300)
    console.note("a note")
    console.warn("careful")
    with console.step("work"):
        console.say("inside")
    out, err = capfd.readouterr()
    assert out == ""
    assert "[bold]brackets[/bold] stay " + "x" * 300 + "\n  a note\nwarning: careful\n" in err
    assert re.search(r"→ work\ninside\n  done in \d+\.\d s\n$", err)
    assert "\x1b" not in err


def test_a_step_that_fails_is_not_said_to_be_done(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="no"), console.step("work"):
        raise ValueError("no")
    assert "done" not in capfd.readouterr().err


def test_progress_estimates_what_is_left() -> None:
    with console.counting("actions", 10) as count:
        assert count.line().startswith("0 of 10 actions, ")
        assert "left" not in count.line()
        count.advance(4, detail="tanh.cc")
        assert re.fullmatch(
            r"4 of 10 actions, 0\.\d s, about 0\.\d s left {2}tanh\.cc", count.line()
        )
        count.advance(12, 12)
        assert re.fullmatch(r"12 of 12 actions, 0\.\d s", count.line())


@pytest.mark.parametrize(
    ("several", "one"),
    [
        ("kernel units", "kernel unit"),
        ("launches", "launch"),
        ("archives", "archive"),
        ("MB", "MB"),
    ],
)
def test_one_is_singular(several: str, one: str) -> None:
    with console.counting(several, 1) as count:
        assert count.line().startswith(f"0 of 1 {one}, ")
        count.advance(1, 2)
        assert count.line().startswith(f"1 of 2 {several}, ")
