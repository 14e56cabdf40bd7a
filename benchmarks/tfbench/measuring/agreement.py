"""Whether the arms compute the same: first losses, and predictions after them. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from tfbench.measuring.samples import Start
from tfbuild.errors import SampleError, WorkerError
from tfbuild.measured.comparison import Agreement

Numbers: TypeAlias = Sequence[float | None]
"""None stands for what is no finite number."""


def agreements(starts: Iterable[Start], tolerances: Mapping[str, float]) -> tuple[Agreement, ...]:
    """For each arm but the baseline its worst difference from it, over all launches.

    `tolerances` names the arms, the baseline first. Launches in which the baseline did not start
    count for nothing. Raises WorkerError, with the arm, when one did not start from the baseline's
    data and parameters.
    """
    baseline = next(iter(tolerances))
    found: dict[str, list[tuple[float | None, float | None]]] = defaultdict(list)
    generations: dict[str, set[int]] = defaultdict(set)
    for launch in _by_launch(starts):
        if baseline in launch:
            for arm in tolerances:
                if arm != baseline and arm in launch:
                    pair = (launch[baseline], launch[arm])
                    found[arm].append(_differences(*pair))
                    generations[arm].update(each.keras for each in pair)
    return tuple(
        Agreement(
            arm=arm,
            losses=_worst([losses for losses, _ in found[arm]]),
            predictions=_worst([predictions for _, predictions in found[arm]]),
            tolerance=tolerances[arm],
            held=len(generations[arm]) == 1,
        )
        for arm in tolerances
        if arm in found
    )


def relative(losses: Numbers, others: Numbers) -> float | None:
    """The largest relative difference, None when a loss is no number; 0 of models that were not
    trained and have none. Raises SampleError."""
    if not losses and not others:
        return 0.0
    pairs = _pairs(losses, others, "losses")
    if pairs is None:
        return None
    return max(abs(a - b) / max(abs(a), abs(b), 1e-12) for a, b in pairs)


def absolute(predictions: Numbers, others: Numbers) -> float | None:
    """The largest difference, None when a prediction is no number. Raises SampleError."""
    pairs = _pairs(predictions, others, "predictions")
    return None if pairs is None else max(abs(a - b) for a, b in pairs)


def _by_launch(starts: Iterable[Start]) -> Iterable[dict[str, Start]]:
    launches: dict[int, dict[str, Start]] = defaultdict(dict)
    for start in starts:
        launches[start.launch][start.arm] = start
    return launches.values()


def _differences(baseline: Start, start: Start) -> tuple[float | None, float | None]:
    if start.facts["inputs_sha256"] != baseline.facts["inputs_sha256"]:
        raise WorkerError(
            f"{baseline.arm} and {start.arm} did not start from equal data and parameters",
            hint="Give both arms' environments the same version of NumPy",
            arm=start.arm,
        )
    return (
        relative(baseline.losses, start.losses),
        absolute(baseline.predictions, start.predictions),
    )


def _worst(differences: Sequence[float | None]) -> float | None:
    finite = [each for each in differences if each is not None]
    return max(finite) if len(finite) == len(differences) else None


def _pairs(values: Numbers, others: Numbers, what: str) -> list[tuple[float, float]] | None:
    """None when one of them is no number."""
    if len(values) != len(others) or not values:
        raise SampleError(f"{len(values)} {what} cannot be compared with {len(others)}")
    both = zip(values, others, strict=True)
    pairs = [(a, b) for a, b in both if a is not None and b is not None]
    return pairs if len(pairs) == len(values) else None
