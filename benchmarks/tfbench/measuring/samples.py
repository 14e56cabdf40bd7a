"""The entries of a comparison's journal.

They are the start of each arm, each sample, and the end of the launch or the fault that ended it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

import numpy as np

from tfbench.inside.phases import FIT
from tfcore.errors import SampleError

_GRAIN_S = 0.02
"""Two ticks, the unit of `busy_s` and `steal_s`."""


class _HasArm(Protocol):
    @property
    def arm(self) -> str: ...


def require_positive(sample: _HasArm, *names: str) -> None:
    """Raise SampleError if one of the named fields is not a positive number."""
    for name in names:
        value = getattr(sample, name)
        if not _is_time(value):
            raise SampleError(f"{sample.arm}: invalid sample: {name} is {value}")


def _is_time(value: float) -> bool:
    return math.isfinite(value) and value > 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """The start of an arm in one launch: its worker's facts, first losses and predictions, which
    are None where not a finite number.
    """

    workload: str
    vcpus: int
    launch: int
    arm: str
    facts: Mapping[str, Any]
    losses: tuple[float | None, ...]
    predictions: tuple[float | None, ...]

    @property
    def keras(self) -> int:
        """Return the major version of its Keras; workers older than support for Keras 3 do not
        report it.
        """
        return int(self.facts.get("keras", 2))

    @property
    def nudged(self) -> bool:
        """Return whether its parameters were one rounding away; never for older workers."""
        return bool(self.facts.get("nudged"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """A timing of `steps` steps of one arm, identified by its position in the schedule.

    Raises SampleError if a time or `steps` is not a positive number.
    """

    workload: str
    vcpus: int
    launch: int
    phase: str
    block: int
    position: int
    arm: str
    steps: int
    at_s: float
    """Seconds from the start of the cell's launch to the end of the sample."""
    wall_s: float
    elapsed_s: float
    """The time by the clock of the requesting process, including request and answer."""
    cpu_s: float
    idle_s: float
    """Wall seconds since the worker's previous sample, in which the worker was idle."""
    idle_cpu_s: float
    """CPU time that its threads used while it was idle."""
    run_delay_s: float
    """Time that its threads were ready but had no CPU, summed over all threads."""
    busy_s: float
    """CPU time that all processes together used on the cell's CPUs, in ticks of 10 ms."""
    steal_s: float
    """Time that the hypervisor took from the cell's CPUs."""
    throttled_s: float
    """Time that the cgroup's quota took."""
    switches: int
    """Involuntary context switches."""
    canary_s: float
    """Time of a fixed piece of Python, right before and after the sample, whatever the arm."""
    answered: Mapping[str, int] = field(default_factory=dict)
    """Number of requests in each bin of duration, by the bin's number in `bins`."""
    slices: tuple[tuple[float, float, float], ...] = ()
    """Share of the steps, wall and CPU seconds of each slice; empty from older workers."""
    beside_s: float = 0.0
    """Seconds of `fit` outside its epochs: in `elapsed_s`, but not in `wall_s`."""

    def compute_step_s(self, waited_s: float) -> tuple[float, ...]:
        """Compute the seconds of a step in each slice, as with the CPU to itself.

        They are its CPU time and its share of `waited_s`, but not more than its wall time.
        """
        slices = self.slices or ((1.0, self.wall_s, self.cpu_s),)
        return tuple(
            min(wall, cpu + share * waited_s) / (share * self.steps) for share, wall, cpu in slices
        )

    def __post_init__(self) -> None:
        require_positive(self, "steps", "wall_s", "elapsed_s", "cpu_s", "canary_s")
        if invalid := [part for part in self.slices if not all(map(_is_time, part))]:
            raise SampleError(f"{self.arm}: a slice of a sample is {invalid[0]}")


def list_step_seconds(samples: Sequence[Sample]) -> list[float]:
    """List the seconds of a step in each slice of an arm's samples in one launch, as with the CPU
    to itself.
    """
    waited_s = estimate_waited_s(samples)
    return [seconds for sample in samples for seconds in sample.compute_step_s(waited_s)]


def estimate_waited_s(samples: Sequence[Sample]) -> float:
    """Estimate how many seconds of each sample an arm waited for something else than its CPU.

    On one CPU this is the median of the CPU's idle time, or 0 if ticks are too coarse to show it:
    the more samples, the less their median depends on ticks. On several CPUs it is infinite, so
    that the wall time counts, because nothing shows whether a sample waited for CPU time that
    others took. So it is in epochs of `fit`: `busy_s` has the CPU time between them, too.
    """
    idle_s = [
        sample.wall_s - sample.busy_s - sample.steal_s
        for sample in samples
        if sample.vcpus == 1 and sample.phase != FIT
    ]
    if not idle_s:
        return math.inf
    median = float(np.median(idle_s))
    return median if median > _GRAIN_S / math.sqrt(len(idle_s)) else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class End:
    """The end of a complete launch. `profiles` are of arms with tuned kernels."""

    workload: str
    vcpus: int
    launch: int
    seconds: float
    warm_up: int
    """Number of warm-up rounds."""
    steady: bool
    """Whether the last warm-up rounds had no trend."""
    peak_mb: Mapping[str, float]
    """The largest resident memory of each arm's worker so far."""
    profiles: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """A failure of an arm's worker that ended the launch. Later launches exclude the arm."""

    workload: str
    vcpus: int
    launch: int
    arm: str
    reason: str


Entry: TypeAlias = Start | Sample | End | Fault
KINDS: Mapping[str, type[Entry]] = MappingProxyType(
    {"start": Start, "sample": Sample, "end": End, "fault": Fault}
)
"""Entry types by their names in the journal."""
