"""Accuracy over training time, and when it first reaches a target. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tfbench.reports.wording import join_words

_SHOWN = 4
"""The most spans of missing epochs that a sentence lists."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CurvePoint:
    """The end of an epoch: seconds since training began, and the accuracy from 0 to 1."""

    epoch: float
    seconds: float
    accuracy: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Reached:
    """The first point that reaches the target. `missing` are spans of epochs before it that the
    curve lacks: the target may have been reached in one of them.
    """

    epoch: float
    seconds: float
    accuracy: float
    missing: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        if not self.missing:
            return f"reached at epoch {self.epoch:g}"
        shown = [_format_span(*span) for span in self.missing[:_SHOWN]]
        more = ["others"] if self.missing[_SHOWN:] else []
        is_single = len(shown) == 1 and shown[0].isdecimal()
        epoch, isnt = ("epoch", "is not") if is_single else ("epochs", "are not")
        spans = join_words([*shown, *more])
        return f"reached at epoch {self.epoch:g} or before: {epoch} {spans} {isnt} in the curve"


def find_target(points: Sequence[CurvePoint], target: float) -> Reached | None:
    """Return the first point with that accuracy or more, as DAWNBench reads a curve; None if
    there is none.

    `points` are in the order of their epochs.
    """
    for position, point in enumerate(points):
        if point.accuracy >= target:
            return Reached(
                epoch=point.epoch,
                seconds=point.seconds,
                accuracy=point.accuracy,
                missing=tuple(_find_missing_epochs(points[: position + 1])),
            )
    return None


def find_best(points: Sequence[CurvePoint]) -> CurvePoint:
    """Return the first point with the highest accuracy."""
    return max(points, key=lambda point: point.accuracy)


def _find_missing_epochs(points: Sequence[CurvePoint]) -> Iterator[tuple[int, int]]:
    """Yield the spans of whole epochs without a point. A curve begins with epoch 0 or 1; a log
    that counts examples has fractions of epochs, such as 1.00096.
    """
    numbers = [math.floor(point.epoch) for point in points]
    numbers.insert(0, min(0, numbers[0] - 1))
    for before, after in itertools.pairwise(numbers):
        if after - before > 1:
            yield before + 1, after - 1


def _format_span(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first} to {last}"


def format_accuracy(accuracy: float) -> str:
    """Format an accuracy in per cent without trailing zeros: 97%, 75.7%."""
    return f"{100 * accuracy:.4g}%"
