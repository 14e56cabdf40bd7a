"""Records of training to an accuracy. Pure."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tfbench.costs.cost import compute_run_cost, get_value
from tfbench.costs.prices import Price
from tfbench.experiments.accuracy.curve import CurvePoint, Reached, find_best, find_target
from tfbench.experiments.accuracy.median import Median, compute_median
from tfbench.experiments.cell import Cell, LaunchResult, Outcome
from tfbench.experiments.experiment import Wheel
from tfcore.comparisons.host import Host
from tfcore.records import decode_record

SCHEMA = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Epoch:
    """One epoch: seconds of training and of the test after it, the share of test examples
    classified correctly, and the mean training loss, None if it was not a number.
    """

    epoch: int
    train_s: float
    test_s: float
    accuracy: float
    loss: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class StartUp:
    """Seconds before the first step: importing TensorFlow, reading the examples, building the
    model, and tracing its steps."""

    import_s: float
    read_s: float
    build_s: float
    trace_s: float

    @property
    def seconds(self) -> float:
        return self.import_s + self.read_s + self.build_s + self.trace_s


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingResult:
    """The training of one arm with one seed. `images` is the number of images of an epoch. If
    the outcome is not OK there are no epochs, and `reason` explains it; a target that was not
    reached is OK.
    """

    arm: str
    seed: int
    outcome: Outcome
    reason: str
    images: int
    start_up: StartUp | None
    epochs: tuple[Epoch, ...]
    reached: Reached | None

    @property
    def points(self) -> tuple[CurvePoint, ...]:
        return build_points(self.epochs)

    @property
    def best(self) -> CurvePoint | None:
        return find_best(self.points) if self.epochs else None

    @property
    def test_s(self) -> float:
        return math.fsum(epoch.test_s for epoch in self.epochs)

    @property
    def images_s(self) -> float:
        return self.images * len(self.epochs) / math.fsum(epoch.train_s for epoch in self.epochs)


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmSummary:
    """An arm over its seeds. `reached` counts the `trained` seeds that reached the target,
    `failed` those not trained to the end. Medians are over the trained seeds; a target that
    was not reached counts as longer than all other times. Times are in seconds; `usd` is the
    cost of `seconds` of training.
    """

    arm: str
    seeds: int
    trained: int
    reached: int
    failed: int
    seconds: Median | None
    usd: Median | None
    images_s: Median | None
    test_s: Median | None
    start_up_s: Median | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Goal:
    """The goal of training: the accuracy `target` on the test examples within `epochs`.
    `training` and `testing` count the examples, `examples_sha256` is their digest.
    """

    data: str
    source: str
    workload: str
    batch: int
    training: int
    testing: int
    examples_sha256: str
    target: float
    epochs: int
    seeds: tuple[int, ...]
    cpus: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Accuracy:
    """The result of training: every seed of every arm, and the summaries by arm."""

    schema: int
    made: str
    host: Host
    asked: Goal
    price: Price | None
    arms: tuple[Wheel, ...]
    runs: tuple[TrainingResult, ...]
    summaries: tuple[ArmSummary, ...]


def build_points(epochs: Sequence[Epoch]) -> tuple[CurvePoint, ...]:
    """Build the curve over training time, without the tests."""
    elapsed = itertools.accumulate(epoch.train_s for epoch in epochs)
    return tuple(
        CurvePoint(epoch=epoch.epoch, seconds=seconds, accuracy=epoch.accuracy)
        for epoch, seconds in zip(epochs, elapsed, strict=True)
    )


def build_result(cell: Cell, launch: LaunchResult, target: float) -> TrainingResult:
    """Build the result of a training from the process's answer."""
    answer = launch.answer
    epochs = tuple(decode_record(Epoch, fields) for fields in answer.get("epochs", ()))
    names = StartUp.__dataclass_fields__
    return TrainingResult(
        arm=cell.arm,
        seed=cell.request["seed"],
        outcome=launch.outcome,
        reason=launch.reason,
        images=answer.get("images", 0),
        start_up=StartUp(**{name: answer[name] for name in names}) if answer else None,
        epochs=epochs,
        reached=find_target(build_points(epochs), target),
    )


def summarise_arm(arm: str, runs: Sequence[TrainingResult], price: Price | None) -> ArmSummary:
    """Summarise the runs of one arm."""
    completed = [run for run in runs if run.outcome is Outcome.OK]
    times = [run.reached.seconds if run.reached else None for run in completed]
    seconds = _compute_median(times)
    return ArmSummary(
        arm=arm,
        seeds=len(runs),
        trained=len(completed),
        reached=sum(elapsed is not None for elapsed in times),
        failed=len(runs) - len(completed),
        seconds=seconds,
        usd=seconds.map(functools.partial(compute_usd, price)) if seconds and price else None,
        images_s=_compute_median([run.images_s for run in completed]),
        test_s=_compute_median([run.test_s for run in completed]),
        start_up_s=_compute_median([run.start_up.seconds for run in completed if run.start_up]),
    )


def _compute_median(values: Sequence[float | None]) -> Median | None:
    return compute_median(values) if values else None


def compute_usd(price: Price, seconds: float) -> float:
    """Return the cost of `seconds` of a machine. Raises SampleError if they are not positive."""
    return get_value(compute_run_cost(seconds, price))
