"""What training to an accuracy found, as records. Pure."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tfbench.accuracy.curve import CurvePoint, Reached, best, reached
from tfbench.accuracy.curve_file import Curve
from tfbench.accuracy.median import Median, median
from tfbench.cells.cell import Cell, LaunchResult, Outcome
from tfbench.cells.experiment import Wheel
from tfbench.costs.cost import compute_run_cost, get_value
from tfbench.costs.prices import Price
from tfbuild.measured.host import Host
from tfbuild.records import decode_record

SCHEMA = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Epoch:
    """Seconds of training and of the test behind it; the share of test examples that were told, and
    the mean loss in training, None where it was no number."""

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
class Trained:
    """One seed of one arm. `images` are trained on in an epoch. Without an outcome of OK there are
    no epochs, and `reason` says why; a target that was not reached is OK."""

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
        return points_of(self.epochs)

    @property
    def best(self) -> CurvePoint | None:
        return best(self.points) if self.epochs else None

    @property
    def test_s(self) -> float:
        return math.fsum(each.test_s for each in self.epochs)

    @property
    def images_s(self) -> float:
        return self.images * len(self.epochs) / math.fsum(each.train_s for each in self.epochs)


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmSummary:
    """An arm over its seeds: `reached` the target of `trained`; `failed` were not trained to an
    end. Medians are over those trained; a target that was not reached counts as a longer time than
    all others. Times are seconds; `compute_run_cost` is what `seconds` of training cost."""

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
    """What was to be found: the accuracy `target` on the test examples within `epochs`. `examples`
    are counts of those trained on and tested, `sha256` is their digest."""

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
    """The result: every seed of every arm, and what they say together."""

    schema: int
    made: str
    host: Host
    asked: Goal
    price: Price | None
    arms: tuple[Wheel, ...]
    runs: tuple[Trained, ...]
    summaries: tuple[ArmSummary, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportedCurve:
    """What a curve that others measured says of a target."""

    schema: int
    curve: Curve
    target: float
    reached: Reached | None
    usd: float | None
    """Of the time until then, None without a price."""


def points_of(epochs: Sequence[Epoch]) -> tuple[CurvePoint, ...]:
    """Their curve over training time, tests left out."""
    passed = itertools.accumulate(each.train_s for each in epochs)
    return tuple(
        CurvePoint(epoch=each.epoch, seconds=seconds, accuracy=each.accuracy)
        for each, seconds in zip(epochs, passed, strict=True)
    )


def trained(cell: Cell, launch: LaunchResult, target: float) -> Trained:
    """What a process said."""
    answer = launch.answer
    epochs = tuple(decode_record(Epoch, each) for each in answer.get("epochs", ()))
    names = StartUp.__dataclass_fields__
    return Trained(
        arm=cell.arm,
        seed=cell.request["seed"],
        outcome=launch.outcome,
        reason=launch.reason,
        images=answer.get("images", 0),
        start_up=StartUp(**{name: answer[name] for name in names}) if answer else None,
        epochs=epochs,
        reached=reached(points_of(epochs), target),
    )


def summarised(arm: str, runs: Sequence[Trained], price: Price | None) -> ArmSummary:
    """Of the runs of one arm."""
    whole = [run for run in runs if run.outcome is Outcome.OK]
    took = [run.reached.seconds if run.reached else None for run in whole]
    seconds = _median(took)
    return ArmSummary(
        arm=arm,
        seeds=len(runs),
        trained=len(whole),
        reached=sum(each is not None for each in took),
        failed=len(runs) - len(whole),
        seconds=seconds,
        usd=seconds.map(functools.partial(usd_of, price)) if seconds and price else None,
        images_s=_median([run.images_s for run in whole]),
        test_s=_median([run.test_s for run in whole]),
        start_up_s=_median([run.start_up.seconds for run in whole if run.start_up]),
    )


def _median(values: Sequence[float | None]) -> Median | None:
    return median(values) if values else None


def usd_of(price: Price, seconds: float) -> float:
    """What a machine costs for so long. Raises SampleError for no time."""
    return get_value(compute_run_cost(seconds, price))


def imported(curve: Curve, target: float, price: Price | None) -> ImportedCurve:
    """`price` counts before the curve's own."""
    found, paid = reached(curve.points, target), price or curve.price
    return ImportedCurve(
        schema=SCHEMA,
        curve=Curve(name=curve.name, column=curve.column, points=curve.points, price=paid),
        target=target,
        reached=found,
        usd=usd_of(paid, found.seconds) if found and found.seconds and paid else None,
    )
