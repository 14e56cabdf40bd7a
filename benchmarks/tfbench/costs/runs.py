"""Training runs with a time and a price, and their ratios to a baseline. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tfbench.costs import cost
from tfbench.costs.cost import Amount, Relative
from tfbench.costs.prices import Price
from tfcore.comparisons.interval import Interval
from tfcore.errors import SampleError, UsageError


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingRun:
    """One training run on a machine. `speedup` is over the reference arm's run in the same
    cell, if the two were measured in pairs. `vcpus` is None for a GPU.
    """

    workload: str
    vcpus: int | None
    arm: str
    seconds: Amount
    price: Price
    speedup: Interval | None = None

    @property
    def name(self) -> str:
        return format_run_name(self.arm, self.vcpus)

    @property
    def usd(self) -> Amount:
        """Return the cost in USD. Raises SampleError if the time is not positive."""
        return cost.compute_run_cost(self.seconds, self.price)

    @property
    def place(self) -> tuple[float, float]:
        """Return its time and cost; lower is better."""
        return cost.get_value(self.seconds), cost.get_value(self.usd)


@dataclass(frozen=True, kw_only=True, slots=True)
class Runs:
    """Training runs by workload and name. `reference` is the arm that speedups are relative to."""

    all: tuple[TrainingRun, ...]
    reference: str

    @property
    def workloads(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(run.workload for run in self.all))

    def list_runs(self, workload: str) -> tuple[TrainingRun, ...]:
        return tuple(run for run in self.all if run.workload == workload)

    def find_run(self, workload: str, name: str) -> TrainingRun | None:
        return next((run for run in self.list_runs(workload) if run.name == name), None)

    def find_reference_run(self, run: TrainingRun) -> TrainingRun | None:
        """Find the reference's run of the same workload at the same number of vCPUs."""
        return self.find_run(run.workload, format_run_name(self.reference, run.vcpus))

    def find_baseline(self, text: str) -> TrainingRun:
        """Find a run by its name, or by its arm at the largest number of vCPUs.

        Raises UsageError if there is none.
        """
        matches = [run for run in self.all if text in (run.name, run.arm)]
        if not matches:
            names = dict.fromkeys(run.name for run in self.all)
            raise UsageError(
                f"no run of the baseline {text!r}",
                hint=f"Use one of {', '.join(names)}",
            )
        return max(matches, key=lambda run: run.vcpus or 0)

    def compute_relative(self, run: TrainingRun, baseline: TrainingRun) -> Relative:
        """Compute time and cost relative to a baseline, from the paired speedup if there is one,
        else from the two times.
        """
        if run == baseline:
            return Relative(time=1.0, usd=1.0)
        speedup = self._get_paired_speedup(run, baseline)
        if speedup is None:
            return Relative(
                time=cost.compute_ratio(run.seconds, baseline.seconds),
                usd=cost.compute_ratio(run.usd, baseline.usd),
            )
        seconds = cost.get_value(baseline.seconds)
        return cost.compute_relative(speedup, run.price, baseline.price, baseline_s=seconds)

    def _get_paired_speedup(self, run: TrainingRun, baseline: TrainingRun) -> Amount | None:
        if (run.workload, run.vcpus) != (baseline.workload, baseline.vcpus):
            return None
        if baseline.arm == self.reference:
            return run.speedup
        if run.arm == self.reference and baseline.speedup is not None:
            return cost.invert(baseline.speedup)
        return None


def find_cheapest(runs: Sequence[TrainingRun]) -> TrainingRun:
    """Find the run of the lowest cost, then of the shortest time."""
    return min(runs, key=lambda run: run.place[::-1])


def find_fastest(runs: Sequence[TrainingRun]) -> TrainingRun:
    """Find the run of the shortest time, then of the lowest cost."""
    return min(runs, key=lambda run: run.place)


def is_dominated(run: TrainingRun, other_runs: Iterable[TrainingRun]) -> bool:
    """Return whether another run is as good in both time and cost, and better in one."""
    seconds, usd = run.place
    places = (other_run.place for other_run in other_runs)
    return any(s <= seconds and u <= usd and (s, u) != run.place for s, u in places)


def format_run_name(arm: str, vcpus: int | None) -> str:
    return arm if vcpus is None else f"{arm}@{vcpus}"


def collect_runs(runs: Iterable[TrainingRun], reference: str) -> Runs:
    """Collect runs by workload and name. Raises SampleError if two have both in common."""
    runs_by_key: dict[tuple[str, str], TrainingRun] = {}
    for run in runs:
        key = (run.workload, run.name)
        if key in runs_by_key:
            raise SampleError(f"{run.workload} has two runs named {run.name}")
        runs_by_key[key] = run
    return Runs(all=tuple(runs_by_key.values()), reference=reference)
