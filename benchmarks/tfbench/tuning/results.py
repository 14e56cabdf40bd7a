"""Results of a tuning, as records."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from tfbench.arms.levers import Pairs
from tfbench.tuning.changes import Change, Setup
from tfcore.comparisons.comparison import Comparison
from tfcore.comparisons.deciding import find_decision
from tfcore.comparisons.host import Host
from tfcore.comparisons.interval import Interval, Verdict

SCHEMA = 1


class TuningStage(StrEnum):
    """The stages of a search, in the order in which they are measured."""

    SCREEN = "screen"
    AGAIN = "again"
    COMBINE = "combine"
    CONFIRM = "confirm"


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstSteps:
    """The workload's first steps on the baseline. Raises ValueError for an invalid time."""

    batch: int
    parameters: int
    step_s: float
    """The time of the fastest of a few steps."""
    onednn: bool
    """Whether oneDNN's operations are on by default here."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.step_s) and self.step_s > 0):
            raise ValueError(f"a step takes {self.step_s:g} s")


@dataclass(frozen=True, kw_only=True, slots=True)
class TriedArm:
    """The result of one arm in one stage. `speedup` is None if it was not timed; `reason`
    explains why.
    """

    stage: TuningStage
    arm: str
    changes: tuple[Change, ...]
    speedup: Interval | None
    noise: Interval | None
    """The baseline compared with itself in the same blocks."""
    verdict: Verdict | None
    losses: float | None
    """The largest relative difference of the first losses from the baseline's."""
    predictions: float | None
    """The largest difference of the predictions after the first losses."""
    tolerance: float
    reason: str = ""

    @property
    def is_faster(self) -> bool:
        return self.verdict is Verdict.FASTER and not self.reason

    @property
    def is_advice(self) -> bool:
        return any(change.is_advice for change in self.changes)


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuning:
    """The result of a tuning.

    `workload` is its name, or the path of the user's file with its `program_sha256`. `tried`
    is in the order of the stages. The verdicts of the search choose what is confirmed; only
    those of the confirmation are results.
    """

    schema: int
    made: str
    seconds: float
    """Seconds of measuring, over all runs of the tuning."""
    workload: str
    program_sha256: str
    vcpus: tuple[int, ...]
    budget_s: float
    seed: int
    host: Host
    baseline: str
    """The wheel that speedups are relative to."""
    trial: FirstSteps
    tried: tuple[TriedArm, ...]
    variables: Pairs
    """The environment variables of the best setup; empty if nothing was faster."""
    wheel: str
    """The wheel of the best setup."""

    @property
    def confirmed(self) -> tuple[TriedArm, ...]:
        return tuple(arm for arm in self.tried if arm.stage is TuningStage.CONFIRM)

    @property
    def best(self) -> TriedArm | None:
        """Return the settings that are faster beyond noise; None if there are none."""
        faster = (arm for arm in self.confirmed if arm.is_faster and not arm.is_advice)
        return next(faster, None)


def collect_tried_arms(
    stage: TuningStage, comparison: Comparison, changes: Mapping[str, Setup]
) -> tuple[TriedArm, ...]:
    """Collect the results of the arms in the only cell; `changes` are theirs, by arm."""
    (cell,) = comparison.cells
    tried_arms = []
    for arm, setup in changes.items():
        result, decision = cell.get_result(arm), find_decision(comparison, cell, arm)
        speedup, agreement = result.speedup, result.agreement
        reason = "" if decision.counts else decision.outcome
        if result.failure:
            reason = result.failure.reason.strip().splitlines()[0]
        tried_arms.append(
            TriedArm(
                stage=stage,
                arm=arm,
                changes=setup,
                speedup=speedup.interval if speedup else None,
                noise=cell.noise,
                verdict=decision.verdict,
                losses=agreement.losses_apart if agreement else None,
                predictions=agreement.predictions_apart if agreement else None,
                tolerance=agreement.tolerance if agreement else 0.0,
                reason=reason,
            )
        )
    return tuple(tried_arms)
