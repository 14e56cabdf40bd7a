"""Check that arms compute the same first losses and predictions. Pure."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tfbench.inside.workload_name import parse_name
from tfbench.measuring.samples import Start
from tfcore.comparisons.comparison import SENSITIVITY, Agreement
from tfcore.errors import SampleError, WorkerError

Numbers: TypeAlias = Sequence[float | None]
"""None stands for a value that is not finite."""

Difference: TypeAlias = tuple[float | None, float]
"""A difference from the baseline, and the baseline's shift by one rounding of the parameters."""


def compute_agreements(
    starts: Iterable[Start], tolerances: Mapping[str, float]
) -> tuple[Agreement, ...]:
    """Compare what each arm but the baseline computes with the baseline, over all launches.

    `tolerances` names the arms, the baseline first. Launches in which the baseline did not
    start are ignored. Raises WorkerError, with the arm, if an arm did not start from the
    baseline's data and parameters.
    """
    baseline = next(iter(tolerances))
    launches = [launch for launch in _group_by_launch(starts) if baseline in launch]
    rounding = _measure_rounding(launches, baseline)
    pairs = {
        arm: [(launch[baseline], launch[arm]) for launch in launches if arm in launch]
        for arm in tolerances
        if arm != baseline
    }
    return tuple(
        _compute_agreement(arm, tolerances[arm], arm_pairs, rounding)
        for arm, arm_pairs in pairs.items()
        if arm_pairs
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class RoundingShift:
    """The largest shift of the baseline's numbers under one rounding of the parameters.

    `losses` has that of each loss (relative), `predictions` that of the predictions (absolute).
    For losses beyond these it is unknown.
    """

    losses: tuple[float, ...] = ()
    predictions: float = 0.0


def _measure_rounding(launches: Iterable[Mapping[str, Start]], baseline: str) -> RoundingShift:
    """Measure how far one rounding of the parameters shifts the baseline's numbers.

    The first loss of steps comes from nearly equal parameters, so its shift is 0 and only the
    tolerance holds. The first loss of `fit` is the mean of an epoch.
    """
    shift = RoundingShift()
    for launch in launches:
        for start in (candidate for candidate in launch.values() if candidate.nudged):
            base = launch[baseline]
            losses = [
                difference or 0.0 for difference in _compute_differences(base.losses, start.losses)
            ]
            if not parse_name(start.workload).fit:
                losses[:1] = [0.0]
            loss_shifts = itertools.zip_longest(shift.losses, losses, fillvalue=0.0)
            prediction_shift = compare_predictions(base.predictions, start.predictions) or 0.0
            shift = RoundingShift(
                losses=tuple(map(max, loss_shifts)),
                predictions=max(shift.predictions, prediction_shift),
            )
    return shift


def _compute_agreement(
    arm: str, tolerance: float, pairs: Sequence[tuple[Start, Start]], rounding: RoundingShift
) -> Agreement:
    losses: list[Difference] = []
    predictions: list[Difference] = []
    for base, start in pairs:
        _require_equal_starts(base, start)
        loss_differences = _compute_differences(base.losses, start.losses)
        losses += itertools.zip_longest(
            loss_differences, rounding.losses[: len(loss_differences)], fillvalue=0.0
        )
        predictions.append(
            (compare_predictions(base.predictions, start.predictions), rounding.predictions)
        )
    loss, loss_by_rounding = _find_largest(losses, tolerance)
    prediction, prediction_by_rounding = _find_largest(predictions, tolerance)
    return Agreement(
        arm=arm,
        losses=loss,
        predictions=prediction,
        tolerance=tolerance,
        held=len({start.keras for pair in pairs for start in pair}) == 1,
        losses_by_rounding=loss_by_rounding,
        predictions_by_rounding=prediction_by_rounding,
    )


def _find_largest(
    differences: Sequence[Difference], tolerance: float
) -> tuple[float | None, float]:
    """Return the largest difference except those that rounding explains, and the largest of these.

    Rounding explains a difference beyond the tolerance that is at most SENSITIVITY times its own
    shift. The first result is None if a difference is not a finite number.
    """
    largest, explained = 0.0, 0.0
    for difference, rounding in differences:
        if difference is None:
            return None, 0.0
        if tolerance < difference <= SENSITIVITY * rounding:
            explained = max(explained, difference)
        else:
            largest = max(largest, difference)
    return largest, explained


def compare_losses(losses: Numbers, other_losses: Numbers) -> float | None:
    """Return the largest relative difference of the losses; None if a loss is not finite.

    Models that were not trained have no losses: the difference is 0. Raises SampleError if one
    side has more losses than the other.
    """
    differences = [
        difference
        for difference in _compute_differences(losses, other_losses)
        if difference is not None
    ]
    return max(differences, default=0.0) if len(differences) == len(losses) else None


def _compute_differences(losses: Numbers, other_losses: Numbers) -> list[float | None]:
    """Return the relative difference of each pair of losses."""
    if not losses and not other_losses:
        return []
    return [
        None if a is None or b is None else abs(a - b) / max(abs(a), abs(b), 1e-12)
        for a, b in _pair_values(losses, other_losses, "losses")
    ]


def compare_predictions(predictions: Numbers, other_predictions: Numbers) -> float | None:
    """Return the largest absolute difference of the predictions; None if one is not finite.

    A model without call() has no predictions: the difference is 0. Raises SampleError if one
    side has more predictions than the other.
    """
    if not predictions and not other_predictions:
        return 0.0
    pairs = _pair_values(predictions, other_predictions, "predictions")
    differences = [abs(a - b) for a, b in pairs if a is not None and b is not None]
    return max(differences) if len(differences) == len(pairs) else None


def _group_by_launch(starts: Iterable[Start]) -> Iterable[dict[str, Start]]:
    launches: dict[int, dict[str, Start]] = defaultdict(dict)
    for start in starts:
        launches[start.launch][start.arm] = start
    return launches.values()


def _require_equal_starts(baseline: Start, start: Start) -> None:
    if start.facts["inputs_sha256"] != baseline.facts["inputs_sha256"]:
        raise WorkerError(
            f"{baseline.arm} and {start.arm} started from different data or parameters",
            hint="Install the same version of NumPy in both arms' environments",
            arm=start.arm,
        )


def _pair_values(
    values: Numbers, other_values: Numbers, noun: str
) -> list[tuple[float | None, float | None]]:
    if len(values) != len(other_values) or not values:
        raise SampleError(f"cannot compare {len(values)} {noun} with {len(other_values)}")
    return list(zip(values, other_values, strict=True))
