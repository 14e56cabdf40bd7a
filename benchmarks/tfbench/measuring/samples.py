"""The entries of a comparison's journal.

They are how each arm of a launch started, each sample, and the end of the launch, or whose worker
ended it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

from tfbuild.errors import SampleError

_GRAIN_S = 0.02
"""Two of the ticks that `busy_s` and `steal_s` are counted in."""


class _HasArm(Protocol):
    @property
    def arm(self) -> str: ...


def require_times(sample: _HasArm, *names: str) -> None:
    """Raise SampleError if one of the named fields is not a positive number."""
    for name in names:
        value = getattr(sample, name)
        if not _is_time(value):
            raise SampleError(f"{sample.arm}: {name} of a sample is {value}, which is not a time")


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

    Raises SampleError if a time is not a positive number.
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
    """Seconds since the cell's launch began, when the sample ended."""
    wall_s: float
    elapsed_s: float
    """The same by the clock of the process that asked for it, with the question and the answer."""
    cpu_s: float
    idle_s: float
    """Wall seconds since the worker's sample before, in which it had nothing to do."""
    idle_cpu_s: float
    """CPU time that its threads took nevertheless."""
    run_delay_s: float
    """Over all threads, the time that they were ready and had no CPU."""
    busy_s: float
    """CPU time that all processes together took of the cell's CPUs, in ticks of 10 ms."""
    steal_s: float
    """What the hypervisor took from the CPUs of the cell."""
    throttled_s: float
    """What the cgroup's quota took."""
    switches: int
    """Involuntary context switches."""
    canary_s: float
    """A fixed piece of Python, right before and after: it does not depend on the arm."""
    answered: Mapping[str, int] = field(default_factory=dict)
    """Of requests: how many took how long, by the numbers of `bins`."""
    slices: tuple[tuple[float, float, float], ...] = ()
    """Of each: its share of the steps, its wall and its CPU seconds; none by older workers."""
    beside_s: float = 0.0
    """What `fit` took beside its epochs: not in `wall_s`, but in `elapsed_s`."""

    @property
    def own_s(self) -> float:
        """Return the seconds that the sample would have taken with its CPU to itself."""
        return self._compute_own_s(self.wall_s, self.cpu_s)

    @property
    def step_s(self) -> tuple[float, ...]:
        """Return the seconds of a step in each slice, as with the CPU to itself."""
        slices = self.slices or ((1.0, self.wall_s, self.cpu_s),)
        return tuple(
            self._compute_own_s(wall, cpu) / (share * self.steps) for share, wall, cpu in slices
        )

    def _compute_own_s(self, wall_s: float, cpu_s: float) -> float:
        """Compute the seconds that a part of the sample would have taken with its CPU to itself.

        On one CPU this is the CPU time and its part of the time that CPU was idle (beyond the
        resolution of ticks). On several CPUs it is the wall time, because nothing shows
        whether the sample waited for CPU time that others took.
        """
        if self.vcpus > 1:
            return wall_s
        idle_s = self.wall_s - self.busy_s - self.steal_s
        waited_s = idle_s * wall_s / self.wall_s if idle_s > _GRAIN_S else 0.0
        return min(wall_s, cpu_s + waited_s)

    def __post_init__(self) -> None:
        require_times(self, "wall_s", "elapsed_s", "cpu_s", "canary_s")
        if invalid := [part for part in self.slices if not all(map(_is_time, part))]:
            raise SampleError(f"{self.arm}: a slice of a sample is {invalid[0]}")


@dataclass(frozen=True, kw_only=True, slots=True)
class End:
    """The end of a launch that was measured completely. `profiles` are of arms with tuned
    kernels.
    """

    workload: str
    vcpus: int
    launch: int
    seconds: float
    warm_up: int
    """Rounds of warming up."""
    steady: bool
    """Whether the last of them had no trend."""
    peak_mb: Mapping[str, float]
    """The largest resident memory of each arm's worker so far."""
    profiles: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """A failure of an arm's worker that ended the launch. The arm is excluded from all later
    launches.
    """

    workload: str
    vcpus: int
    launch: int
    arm: str
    reason: str


Entry: TypeAlias = Start | Sample | End | Fault
KINDS: Mapping[str, type[Entry]] = MappingProxyType(
    {"start": Start, "sample": Sample, "end": End, "fault": Fault}
)
"""What a journal calls them."""
