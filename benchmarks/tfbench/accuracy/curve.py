"""Accuracy over training time, and when it is first high enough. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tfbench.reports.wording import listed

_SHOWN = 4
"""Spans of epochs that are named; more make no sentence."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CurvePoint:
    """The end of an epoch: seconds since training began, and the accuracy then, from 0 to 1."""

    epoch: float
    seconds: float
    accuracy: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Reached:
    """The first point that is high enough. `missing` are spans of epochs before it which the curve
    lacks: the target may have been reached in one of them."""

    epoch: float
    seconds: float
    accuracy: float
    missing: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        if not self.missing:
            return f"reached at epoch {self.epoch:g}"
        shown = [_span(*each) for each in self.missing[:_SHOWN]]
        more = ["others"] if self.missing[_SHOWN:] else []
        one = len(shown) == 1 and shown[0].isdecimal()
        epoch, isnt = ("epoch", "is not") if one else ("epochs", "are not")
        spans = listed([*shown, *more])
        return f"reached at epoch {self.epoch:g} or before: {epoch} {spans} {isnt} in the curve"


def reached(points: Sequence[CurvePoint], target: float) -> Reached | None:
    """The first point with that accuracy or more, as DAWNBench reads a curve; None without one.

    `points` are in the order of their epochs.
    """
    for place, point in enumerate(points):
        if point.accuracy >= target:
            return Reached(
                epoch=point.epoch,
                seconds=point.seconds,
                accuracy=point.accuracy,
                missing=tuple(_missing(points[: place + 1])),
            )
    return None


def best(points: Sequence[CurvePoint]) -> CurvePoint:
    """The first of the highest."""
    return max(points, key=lambda point: point.accuracy)


def _missing(points: Sequence[CurvePoint]) -> Iterator[tuple[int, int]]:
    """Whole epochs that no point stands for. A curve begins with epoch 0 or 1; a log that counts
    examples has parts of epochs, as 1.00096."""
    numbers = [math.floor(point.epoch) for point in points]
    numbers.insert(0, min(0, numbers[0] - 1))
    for before, after in itertools.pairwise(numbers):
        if after - before > 1:
            yield before + 1, after - 1


def _span(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first} to {last}"


def share(accuracy: float) -> str:
    """In per cent, without zeros that nobody wrote: 97%, 75.7%."""
    return f"{100 * accuracy:.4g}%"
