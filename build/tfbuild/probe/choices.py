"""Choices from which a random program is made, and the search for fewer that still fail.

A program is made from a sequence of numbers alone, so the same sequence gives the same program in
any process and release of TensorFlow, until a choice is added before one that it uses. To shrink a
program, the sequence is made shorter and its numbers smaller, as Hypothesis does (MacIver and
Donaldson, "Test-Case Reduction via Test-Case Generation", ECOOP 2020); the programs run inside
TensorFlow's environment, which does not have Hypothesis.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

_Member = TypeVar("_Member")
_CHUNKS = (16, 8, 4, 2, 1)
Numbers = tuple[int, ...]


class Choices:
    """Numbers that are drawn, or replayed; after the end of a replay all are 0."""

    def __init__(self, seed: str | None = None, replay: Sequence[int] = ()) -> None:
        self._rng = None if seed is None else random.Random(seed)  # noqa: S311
        self._replay = iter(replay)
        self._drawn: list[int] = []

    @property
    def drawn(self) -> Numbers:
        """Return the numbers that were drawn so far."""
        return tuple(self._drawn)

    def draw_below(self, count: int) -> int:
        """Draw a number from 0 to `count` - 1."""
        number = self._rng.randrange(count) if self._rng else next(self._replay, 0) % count
        self._drawn.append(number)
        return number

    def draw_between(self, low: int, high: int) -> int:
        """Draw a number from `low` to `high`."""
        return low + self.draw_below(high - low + 1)

    def choose(self, members: Sequence[_Member]) -> _Member:
        """Choose a member; simple ones should come first, because shrinking leads to them."""
        return members[self.draw_below(len(members))]

    def decide(self, percent: int) -> bool:
        """Decide with this probability in percent; False is the simpler one."""
        return self.draw_below(100) >= 100 - percent


def shrink(numbers: Numbers, fails: Callable[[Numbers], bool], attempts: int) -> Numbers:
    """Return a shorter or smaller sequence that still fails, after at most so many attempts."""
    shrinker = _Shrinker(numbers, fails, attempts)
    before: Numbers | None = None
    while before != shrinker.best:
        before = shrinker.best
        shrinker.delete_chunks()
        shrinker.lower_numbers()
    return shrinker.best


class _Shrinker:
    """The best sequence so far, and the attempts that are left."""

    def __init__(self, numbers: Numbers, fails: Callable[[Numbers], bool], attempts: int) -> None:
        self.best = numbers
        self._fails = fails
        self._left = attempts

    def _accept(self, proposal: Numbers) -> bool:
        """Take the proposal if it fails, too."""
        if self._left <= 0 or proposal == self.best:
            return False
        self._left -= 1
        if self._fails(proposal):
            self.best = proposal
            return True
        return False

    def delete_chunks(self) -> None:
        for size in _CHUNKS:
            begin = 0
            while begin < len(self.best):
                if not self._accept(self.best[:begin] + self.best[begin + size :]):
                    begin += size

    def lower_numbers(self) -> None:
        """Search the smallest number at each place by bisection."""
        for place in range(len(self.best)):
            low, high = 0, self.best[place]
            if high == 0 or self._accept(self._replace(place, 0)):
                continue
            while high - low > 1:
                middle = (low + high) // 2
                if self._accept(self._replace(place, middle)):
                    high = middle
                else:
                    low = middle

    def _replace(self, place: int, number: int) -> Numbers:
        return (*self.best[:place], number, *self.best[place + 1 :])
