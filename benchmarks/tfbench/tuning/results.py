"""What tuning found, as records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from tfbench.arms.levers import Pairs
from tfbench.tuning.changes import Change, Setup
from tfbuild.measured.comparison import ComparedCell
from tfbuild.measured.host import Host
from tfbuild.measured.interval import Interval, Verdict

SCHEMA = 1


class TuningStage(StrEnum):
    """In the order in which they are measured."""

    SCREEN = "screen"
    AGAIN = "again"
    COMBINE = "combine"
    CONFIRM = "confirm"


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstSteps:
    """The workload's first steps on the baseline."""

    batch: int
    parameters: int
    step_s: float
    """Of the fastest of a few steps."""
    onednn: bool
    """Whether oneDNN's operations are on by default here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TriedArm:
    """One arm in one stage. `speedup` is None where it was not timed, and `reason` says why."""

    stage: TuningStage
    arm: str
    changes: tuple[Change, ...]
    speedup: Interval | None
    noise: Interval | None
    """The baseline against itself in the same blocks."""
    verdict: Verdict | None
    losses: float | None
    """The largest relative difference of the first losses from the baseline's."""
    predictions: float | None
    """The largest difference of the predictions after them."""
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
    """`workload` is its name, or the path of the user's file with its `program_sha256`.

    `tried` is in the order of the stages. The verdicts of the search choose what is confirmed; only
    those of the confirmation are answers.
    """

    schema: int
    made: str
    seconds: float
    """Of measuring, in all runs that it took."""
    workload: str
    program_sha256: str
    vcpus: tuple[int, ...]
    budget_s: float
    seed: int
    host: Host
    baseline: str
    """The wheel that all is relative to."""
    trial: FirstSteps
    tried: tuple[TriedArm, ...]
    variables: Pairs
    """The environment variables of the best setup; none where nothing was faster."""
    wheel: str
    """The wheel of the best setup."""

    @property
    def confirmed(self) -> tuple[TriedArm, ...]:
        return tuple(each for each in self.tried if each.stage is TuningStage.CONFIRM)

    @property
    def best(self) -> TriedArm | None:
        """The settings that are faster beyond noise."""
        own = (each for each in self.confirmed if each.is_faster and not each.is_advice)
        return next(own, None)


def outcomes(
    stage: TuningStage, cell: ComparedCell, changes: Mapping[str, Setup]
) -> tuple[TriedArm, ...]:
    """What a cell says of its arms; `changes` are theirs, by arm."""
    found = []
    for arm, own in changes.items():
        said = cell.get_result(arm)
        speedup, agreement = said.speedup, said.agreement
        reason = ""
        if said.failure:
            reason = said.failure.reason.strip().splitlines()[0]
        elif agreement and not agreement.agrees:
            reason = "computes something else"
        found.append(
            TriedArm(
                stage=stage,
                arm=arm,
                changes=own,
                speedup=speedup.interval if speedup else None,
                noise=cell.noise,
                verdict=speedup.verdict if speedup else None,
                losses=agreement.losses_apart if agreement else None,
                predictions=agreement.predictions_apart if agreement else None,
                tolerance=agreement.tolerance if agreement else 0.0,
                reason=reason or ("" if speedup else "not timed"),
            )
        )
    return tuple(found)
