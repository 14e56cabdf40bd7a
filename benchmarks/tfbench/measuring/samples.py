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


class _OfArm(Protocol):
    @property
    def arm(self) -> str: ...


def need_times(sample: _OfArm, *names: str) -> None:
    """Raises SampleError for one of these that is not a positive number."""
    for name in names:
        value = getattr(sample, name)
        if not _is_time(value):
            raise SampleError(f"{sample.arm}: {name} of a sample is {value}, which is not a time")


def _is_time(value: float) -> bool:
    return math.isfinite(value) and value > 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """An arm's start in one launch: its worker's facts, first losses and predictions, None where
    one is no finite number."""

    workload: str
    vcpus: int
    launch: int
    arm: str
    facts: Mapping[str, Any]
    losses: tuple[float | None, ...]
    predictions: tuple[float | None, ...]

    @property
    def keras(self) -> int:
        """The generation of its Keras; workers from before Keras 3 was known do not say it."""
        return int(self.facts.get("keras", 2))

    @property
    def nudged(self) -> bool:
        """Whether its parameters were one rounding away; none of older workers were."""
        return bool(self.facts.get("nudged"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """`steps` steps of one arm. Its place in the schedule makes it one of its kind.

    Raises SampleError for times that are not positive numbers.
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
        """Seconds that the sample would have taken with its CPU to itself."""
        return self._own_s(self.wall_s, self.cpu_s)

    @property
    def step_s(self) -> tuple[float, ...]:
        """The same of a step, in each slice."""
        every = self.slices or ((1.0, self.wall_s, self.cpu_s),)
        return tuple(self._own_s(wall, cpu) / (share * self.steps) for share, wall, cpu in every)

    def _own_s(self, wall_s: float, cpu_s: float) -> float:
        """On one CPU: the CPU time, and its part of what that CPU was idle for (beyond what ticks
        can tell). On several CPUs nothing says whether it waited for what others took: there it is
        the wall time.
        """
        if self.vcpus > 1:
            return wall_s
        idle_s = self.wall_s - self.busy_s - self.steal_s
        waited_s = idle_s * wall_s / self.wall_s if idle_s > _GRAIN_S else 0.0
        return min(wall_s, cpu_s + waited_s)

    def __post_init__(self) -> None:
        need_times(self, "wall_s", "elapsed_s", "cpu_s", "canary_s")
        if wrong := [each for each in self.slices if not all(map(_is_time, each))]:
            raise SampleError(f"{self.arm}: a slice of a sample is {wrong[0]}")


@dataclass(frozen=True, kw_only=True, slots=True)
class End:
    """A launch that was measured to its end. `profiles` are of arms with tuned kernels."""

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
    """The worker of an arm failed and ended the launch. The arm is left out of all later ones."""

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
