"""What a comparison found, as records, and the file that holds them."""

from __future__ import annotations

import dataclasses
import types
import typing
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from tfbench.host import Host
from tfbench.statistics import Interval, Verdict
from tfbuild.errors import RecordError
from tfbuild.records import load as load_fields
from tfbuild.records import save as save_record

SCHEMA = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Effort:
    """How much is measured: `blocks` per launch, fewer where a cell's `budget_s` runs out.

    The budget holds the start of the workers, too.
    """

    launches: int
    blocks: int
    budget_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmFacts:
    """An arm as its workers saw it. `raised_kernels` counts CPU kernels above priority 0: tuned
    wheels have many, the stock wheel has the few of tf.data.
    """

    name: str
    label: str
    wheel_sha256: str
    env: tuple[tuple[str, str], ...]
    """The arm's own settings; what its workers really saw stands with each cell."""
    tensorflow: str
    tensorflow_file: str
    git_version: str
    compiler_version: str
    python: str
    numpy: str
    raised_kernels: int
    kernel_library: str | None
    """The library of tuned kernels in the worker's memory; None when it ran stock kernels only."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OpShare:
    """An op's share of the time of all ops, and how often its tuned kernels ran per step."""

    op: str
    share: float
    runs_per_step: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Coverage:
    """The share of op time that is spent in ops whose tuned kernels ran."""

    share: float
    ops: tuple[OpShare, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmTimes:
    """One arm in one cell. Start-up seconds are medians over launches and no part of a step."""

    arm: str
    step_ms: Interval | None
    losses: tuple[float, ...]
    import_s: float
    build_s: float
    first_step_s: float
    environment: tuple[tuple[str, str], ...]
    """Variables of TensorFlow, OpenMP, oneDNN and malloc in the worker."""
    coverage: Coverage | None = None
    """None for an arm without tuned kernels."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Speedup:
    """Baseline time over this arm's time: above 1 this arm is faster."""

    arm: str
    interval: Interval
    verdict: Verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """The largest relative difference of an arm's first losses from the baseline's."""

    arm: str
    difference: float | None
    """None when a loss is not a finite number."""
    tolerance: float

    @property
    def agrees(self) -> bool:
        return self.difference is not None and self.difference <= self.tolerance


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One workload at one number of vCPUs. Without agreement nothing was timed."""

    workload: str
    vcpus: int
    batch: int
    steps: int
    launches: int
    blocks: int
    arms: tuple[ArmTimes, ...]
    agreements: tuple[Agreement, ...]
    speedups: tuple[Speedup, ...]

    @property
    def agrees(self) -> bool:
        return all(each.agrees for each in self.agreements)


@dataclass(frozen=True, kw_only=True, slots=True)
class Overall:
    """An arm's geometric mean over all cells with the same number of vCPUs."""

    vcpus: int
    workloads: int
    speedup: Speedup


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """The first arm is the baseline. `margin` and `level` are what the verdicts were made with."""

    schema: int
    made: str
    seconds: float
    seed: int
    effort: Effort
    margin: float
    level: float
    host: Host
    arms: tuple[ArmFacts, ...]
    cells: tuple[Cell, ...]
    overall: tuple[Overall, ...]

    @property
    def baseline(self) -> ArmFacts:
        return self.arms[0]


def save(path: Path, comparison: Comparison) -> None:
    save_record(path, comparison)


def load(path: Path) -> Comparison:
    """Raises RecordError for a missing, torn or foreign file."""
    fields = load_fields(path, schema=SCHEMA)
    try:
        comparison = _read(Comparison, fields)
    except (TypeError, ValueError, KeyError) as error:
        raise RecordError(f"{path} is not a comparison ({error})") from error
    assert isinstance(comparison, Comparison)  # noqa: S101  (what was asked for)
    return comparison


def _read(kind: Any, value: Any) -> Any:  # noqa: ANN401  (the border between JSON and records)
    """A value of the annotated `kind` from JSON. Raises TypeError, ValueError, KeyError."""
    origin, members = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        return None if value is None else _read(members[0], value)
    if origin is not None:
        return _read_members(origin, members, value)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = typing.get_type_hints(kind)
        return kind(**{name: _read(hints[name], member) for name, member in value.items()})
    if issubclass(kind, Enum) or (kind is float and type(value) is int):
        return kind(value)
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is not a {kind.__name__}")
    return value


def _read_members(origin: type, members: tuple[Any, ...], value: Any) -> object:  # noqa: ANN401
    """A tuple or frozenset from a JSON list."""
    alike = origin is frozenset or members[-1] is Ellipsis
    kinds = members[:1] * len(value) if alike else members
    return origin(_read(each, member) for each, member in zip(kinds, value, strict=True))
