"""Training runs that have a time and a price, and one of them relative to another. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tfbench.costs import cost
from tfbench.costs.cost import Amount, Relative
from tfbench.costs.prices import Price
from tfbuild.errors import SampleError, UsageError
from tfbuild.measured.interval import Interval


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingRun:
    """One training run on a machine. `speedup` is over the reference arm's run beside it, where the
    two were measured in pairs. A GPU's vCPUs are not counted.
    """

    workload: str
    vcpus: int | None
    arm: str
    seconds: Amount
    price: Price
    speedup: Interval | None = None

    @property
    def name(self) -> str:
        return run_name(self.arm, self.vcpus)

    @property
    def usd(self) -> Amount:
        """Raises SampleError for a time that is none."""
        return cost.usd(self.seconds, self.price)

    @property
    def place(self) -> tuple[float, float]:
        """Its time and cost, where the best are the lowest."""
        return cost.point(self.seconds), cost.point(self.usd)


@dataclass(frozen=True, kw_only=True, slots=True)
class Runs:
    """`reference` is the arm that speedups are over."""

    all: tuple[TrainingRun, ...]
    reference: str

    @property
    def workloads(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(run.workload for run in self.all))

    def of(self, workload: str) -> tuple[TrainingRun, ...]:
        return tuple(run for run in self.all if run.workload == workload)

    def find(self, workload: str, name: str) -> TrainingRun | None:
        return next((run for run in self.of(workload) if run.name == name), None)

    def beside(self, run: TrainingRun) -> TrainingRun | None:
        """The reference's run of the same workload at the same number of vCPUs."""
        return self.find(run.workload, run_name(self.reference, run.vcpus))

    def baseline(self, text: str) -> TrainingRun:
        """A run of that name, or of that arm at the largest number of vCPUs. Raises UsageError."""
        found = [run for run in self.all if text in (run.name, run.arm)]
        if not found:
            names = dict.fromkeys(run.name for run in self.all)
            raise UsageError(
                f"there is no run of {text!r}, which costs are to be relative to",
                hint=f"There are {', '.join(names)}",
            )
        return max(found, key=lambda run: run.vcpus or 0)

    def relative(self, run: TrainingRun, baseline: TrainingRun) -> Relative:
        """By the speedup that was measured in pairs where there is one, else from the two times."""
        if run == baseline:
            return Relative(time=1.0, usd=1.0)
        speedup = self._paired(run, baseline)
        if speedup is None:
            return Relative(
                time=cost.ratio(run.seconds, baseline.seconds),
                usd=cost.ratio(run.usd, baseline.usd),
            )
        seconds = cost.point(baseline.seconds)
        return cost.paired(speedup, run.price, baseline.price, baseline_s=seconds)

    def _paired(self, run: TrainingRun, baseline: TrainingRun) -> Amount | None:
        if (run.workload, run.vcpus) != (baseline.workload, baseline.vcpus):
            return None
        if baseline.arm == self.reference:
            return run.speedup
        if run.arm == self.reference and baseline.speedup is not None:
            return cost.inverse(baseline.speedup)
        return None


def cheapest(runs: Sequence[TrainingRun]) -> TrainingRun:
    """By cost, then by time."""
    return min(runs, key=lambda run: run.place[::-1])


def fastest(runs: Sequence[TrainingRun]) -> TrainingRun:
    """By time, then by cost."""
    return min(runs, key=lambda run: run.place)


def is_beaten(run: TrainingRun, others: Iterable[TrainingRun]) -> bool:
    """Whether one of them is as good in both time and cost, and better in one."""
    seconds, usd = run.place
    places = (each.place for each in others)
    return any(s <= seconds and u <= usd and (s, u) != run.place for s, u in places)


def run_name(arm: str, vcpus: int | None) -> str:
    return arm if vcpus is None else f"{arm}@{vcpus}"


def gather(runs: Iterable[TrainingRun], reference: str) -> Runs:
    """Raises SampleError for two of one workload that have the same name."""
    found: dict[tuple[str, str], TrainingRun] = {}
    for run in runs:
        key = (run.workload, run.name)
        if key in found:
            raise SampleError(f"{run.name} of {run.workload} is there twice")
        found[key] = run
    return Runs(all=tuple(found.values()), reference=reference)
