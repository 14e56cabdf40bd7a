"""Choices give the same program again, and are shrunk."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tfbuild.probe.choices import Choices, Numbers, shrink


def walk(choices: Choices) -> list[object]:
    return [
        choices.draw_below(7),
        choices.draw_between(3, 5),
        choices.choose("abc"),
        choices.decide(50),
        *(choices.draw_below(10) for _ in range(choices.draw_below(4))),
    ]


@given(seed=st.text())
def test_what_was_drawn_can_be_replayed(seed: str) -> None:
    first = Choices(seed=seed)
    expected = walk(first)
    assert walk(Choices(replay=first.drawn)) == expected
    assert walk(Choices(seed=seed)) == expected


@given(numbers=st.lists(st.integers(0, 1 << 40)))
def test_any_numbers_make_a_program(numbers: list[int]) -> None:
    drawn = Choices(replay=numbers)
    assert walk(drawn) == walk(Choices(replay=drawn.drawn))


def test_after_the_end_of_a_replay_come_the_simplest_members() -> None:
    assert walk(Choices(replay=())) == [0, 3, "a", False]


def test_a_probability_is_kept() -> None:
    choices = Choices(seed="x")
    taken = sum(choices.decide(20) for _ in range(2000))
    assert 300 < taken < 500
    assert not any(choices.decide(0) for _ in range(100))
    assert all(choices.decide(100) for _ in range(100))


@given(numbers=st.lists(st.integers(0, 100), min_size=3, max_size=60))
def test_what_is_shrunk_still_fails_and_is_as_short_as_it_can_be(numbers: list[int]) -> None:
    def fails(proposal: Numbers) -> bool:
        return len([number for number in proposal if number >= 10]) >= 2

    if not fails(tuple(numbers)):
        return
    assert shrink(tuple(numbers), fails, 10_000) == (10, 10)


def test_attempts_are_limited() -> None:
    asked = []

    def fails(proposal: Numbers) -> bool:
        asked.append(proposal)
        return False

    numbers = tuple(range(50))
    assert shrink(numbers, fails, 7) == numbers
    assert len(asked) == 7
