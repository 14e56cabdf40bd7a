"""Whether the arms compute the same: first losses, and predictions after them. Pure."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tfbench.measuring.samples import Start
from tfbuild.errors import SampleError, WorkerError
from tfbuild.measured.comparison import SENSITIVITY, Agreement

Numbers: TypeAlias = Sequence[float | None]
"""None stands for what is no finite number."""

Difference: TypeAlias = tuple[float | None, float]
"""Of a number from the baseline's, and how far one rounding of the parameters moved that."""


def agreements(starts: Iterable[Start], tolerances: Mapping[str, float]) -> tuple[Agreement, ...]:
    """For each arm but the baseline how it differs from it, over all launches.

    `tolerances` names the arms, the baseline first. Launches in which the baseline did not start
    count for nothing. Raises WorkerError, with the arm, when one did not start from the baseline's
    data and parameters.
    """
    baseline = next(iter(tolerances))
    launches = [launch for launch in _by_launch(starts) if baseline in launch]
    moved = _moved(launches, baseline)
    pairs = {
        arm: [(launch[baseline], launch[arm]) for launch in launches if arm in launch]
        for arm in tolerances
        if arm != baseline
    }
    return tuple(_agreement(arm, tolerances[arm], of, moved) for arm, of in pairs.items() if of)


@dataclass(frozen=True, kw_only=True, slots=True)
class Moved:
    """How far one rounding of the parameters moved the baseline's numbers, at most: each of its
    losses (relative), the predictions (absolute). Nothing is known of losses beyond these."""

    losses: tuple[float, ...] = ()
    predictions: float = 0.0


def _moved(launches: Iterable[Mapping[str, Start]], baseline: str) -> Moved:
    """The first loss, of parameters that are all but the same, is held to the tolerance alone."""
    found = Moved()
    for launch in launches:
        for start in (each for each in launch.values() if each.nudged):
            base = launch[baseline]
            losses = [each or 0.0 for each in _each(base.losses, start.losses)]
            both = itertools.zip_longest(found.losses, [0.0, *losses[1:]], fillvalue=0.0)
            away = absolute(base.predictions, start.predictions) or 0.0
            found = Moved(losses=tuple(map(max, both)), predictions=max(found.predictions, away))
    return found


def _agreement(
    arm: str, tolerance: float, pairs: Sequence[tuple[Start, Start]], moved: Moved
) -> Agreement:
    losses: list[Difference] = []
    predictions: list[Difference] = []
    for base, start in pairs:
        _need_equal_starts(base, start)
        each = _each(base.losses, start.losses)
        losses += itertools.zip_longest(each, moved.losses[: len(each)], fillvalue=0.0)
        predictions.append((absolute(base.predictions, start.predictions), moved.predictions))
    loss, loss_by_rounding = _largest(losses, tolerance)
    prediction, prediction_by_rounding = _largest(predictions, tolerance)
    return Agreement(
        arm=arm,
        losses=loss,
        predictions=prediction,
        tolerance=tolerance,
        held=len({start.keras for pair in pairs for start in pair}) == 1,
        losses_by_rounding=loss_by_rounding,
        predictions_by_rounding=prediction_by_rounding,
    )


def _largest(found: Sequence[Difference], tolerance: float) -> tuple[float | None, float]:
    """Of the differences, then of those beyond the tolerance that rounding explains."""
    own, explained = 0.0, 0.0
    for apart, moved in found:
        if apart is None:
            return None, 0.0
        if tolerance < apart <= SENSITIVITY * moved:
            explained = max(explained, apart)
        else:
            own = max(own, apart)
    return own, explained


def relative(losses: Numbers, others: Numbers) -> float | None:
    """The largest relative difference, None when a loss is no number; 0 of models that were not
    trained and have none. Raises SampleError."""
    each = [apart for apart in _each(losses, others) if apart is not None]
    return max(each, default=0.0) if len(each) == len(losses) else None


def _each(losses: Numbers, others: Numbers) -> list[float | None]:
    """Relative differences."""
    if not losses and not others:
        return []
    return [
        None if a is None or b is None else abs(a - b) / max(abs(a), abs(b), 1e-12)
        for a, b in _pairs(losses, others, "losses")
    ]


def absolute(predictions: Numbers, others: Numbers) -> float | None:
    """The largest difference, None when a prediction is no number. Raises SampleError."""
    pairs = _pairs(predictions, others, "predictions")
    apart = [abs(a - b) for a, b in pairs if a is not None and b is not None]
    return max(apart) if len(apart) == len(pairs) else None


def _by_launch(starts: Iterable[Start]) -> Iterable[dict[str, Start]]:
    launches: dict[int, dict[str, Start]] = defaultdict(dict)
    for start in starts:
        launches[start.launch][start.arm] = start
    return launches.values()


def _need_equal_starts(baseline: Start, start: Start) -> None:
    if start.facts["inputs_sha256"] != baseline.facts["inputs_sha256"]:
        raise WorkerError(
            f"{baseline.arm} and {start.arm} did not start from equal data and parameters",
            hint="Give both arms' environments the same version of NumPy",
            arm=start.arm,
        )


def _pairs(values: Numbers, others: Numbers, what: str) -> list[tuple[float | None, float | None]]:
    if len(values) != len(others) or not values:
        raise SampleError(f"{len(values)} {what} cannot be compared with {len(others)}")
    return list(zip(values, others, strict=True))
