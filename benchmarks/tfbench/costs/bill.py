"""Costs of the training runs of a comparison, or of the 2017 article, by machine. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tfbench.costs import article, cost
from tfbench.costs.cost import Amortisation, Amount
from tfbench.costs.prices import Price, PriceBook
from tfbench.costs.runs import (
    Runs,
    TrainingRun,
    collect_runs,
    find_cheapest,
    find_fastest,
    is_dominated,
)
from tfcore.comparisons.comparison import ComparedCell, Comparison
from tfcore.errors import SampleError

COMPOSED = (
    "The time of a run is computed from its parts, not measured as a whole: the article's epochs,"
    " each with its training steps, its validation and its augmentation, if any. Start-up is"
    " excluded."
)
TIMED = (
    "The time of a run is the sum of its logged epochs, including validation. Each run was"
    " measured once, so no figure has an interval."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class BillRow:
    """One training run. Relative figures are over the bill's baseline: below 1 is better.

    `cheapest`, `fastest` and `on_front` compare all rows of the workload. The baseline's arm has
    no `break_even_price_ratio`. `amortisation` is that of the arm's build, from the saving per run
    over the comparison's baseline arm, or `pip`, on the same machine; None for arms of the
    baseline's wheel.
    """

    workload: str
    vcpus: int | None
    """None if they do not characterise the machine, as with a GPU."""
    arm: str
    machine: str
    run_s: Amount
    usd: Amount
    relative_time: Amount
    relative_cost: Amount
    cheapest: bool
    fastest: bool
    on_front: bool
    break_even_price_ratio: Amount | None
    amortisation: Amortisation | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Bill:
    """The costs of training runs, at the prices of `book` at `as_of`.

    `baseline` is an arm, with "@" and its number of vCPUs, if it has one.
    """

    book: str
    as_of: str
    baseline: str
    composed: str
    """How the times of the runs were obtained, in a sentence or two."""
    rows: tuple[BillRow, ...]
    speedups: tuple[tuple[int, str, Amount], ...]
    """vCPUs, arm, and the geometric mean of its runs' speedups over the comparison's baseline arm,
    or over `pip`, at the same number of vCPUs."""
    skipped: tuple[str, ...]
    """The runs that could not be priced, with the reason."""
    machines: tuple[Price, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Build:
    """The cost of a build, and the runs per day that are to pay it back; None if unknown."""

    usd: float
    runs_per_day: float | None = None


def compute_bill(
    comparison: Comparison,
    book: PriceBook,
    machines: Mapping[int, Price],
    *,
    baseline: str = "",
    build: Build | None = None,
    extra_runs: Sequence[TrainingRun] = (),
) -> Bill:
    """Compute the bill of a comparison's composed runs, each on the machine for its vCPUs.

    `machines` come from `find_machines`. `extra_runs` are runs of the same workloads that were
    measured elsewhere, as on a GPU. `baseline` is ARM@VCPUS, or ARM at the largest number
    that it ran at; if empty, it is the comparison's baseline. Raises UsageError if the
    baseline has no run, and SampleError if the comparison has no runs.
    """
    composed_runs = tuple(_compose_runs(comparison, machines))
    workloads = {run.workload for run in composed_runs}
    other_runs = (run for run in extra_runs if run.workload in workloads)
    runs = collect_runs((*composed_runs, *other_runs), comparison.baseline)
    skipped = tuple(line for cell in comparison.cells for line in _describe_missing_runs(cell))
    if not runs.all:
        raise SampleError(
            "no cell has a training run to price" + (f" ({skipped[0]})" if skipped else ""),
            hint="Measure all phases of a run: invoke compare --thorough",
        )
    rates = _Rates(book=book, build=build, built=_list_built_arms(comparison))
    return _create_bill(runs, baseline or runs.reference, rates, COMPOSED, skipped)


def compute_bill_from_totals(
    totals: Sequence[TrainingRun],
    book: PriceBook,
    *,
    baseline: str = article.BASELINE,
    build: Build | None = None,
) -> Bill:
    """Compute the bill of the 2017 article's runs, or of similar logs. Speedups are over the
    `pip` build.

    Raises UsageError if the baseline has no run, and SampleError if a run is there twice.
    """
    runs = collect_runs(totals, article.PIP)
    built = frozenset(run.arm for run in runs.all) - {article.PIP}
    return _create_bill(runs, baseline, _Rates(book=book, build=build, built=built), TIMED, ())


@dataclass(frozen=True, kw_only=True, slots=True)
class _Rates:
    """The prices of machines and of the build; `built` are the arms that needed the build."""

    book: PriceBook
    build: Build | None
    built: frozenset[str]


def _compose_runs(comparison: Comparison, machines: Mapping[int, Price]) -> Iterator[TrainingRun]:
    for cell in comparison.cells:
        for times in cell.arms:
            if times.run_s is not None:
                speedup = cell.get_result(times.arm).speedup
                yield TrainingRun(
                    workload=cell.workload,
                    vcpus=cell.vcpus,
                    arm=times.arm,
                    seconds=times.run_s,
                    price=machines[cell.vcpus],
                    speedup=speedup.run if speedup else None,
                )


def _describe_missing_runs(cell: ComparedCell) -> Iterator[str]:
    for failure in cell.failures:
        yield f"{cell.workload} {failure.arm}@{cell.vcpus}: {failure.reason}"
    for times in cell.arms:
        if times.run_s is None:
            reason = "not all phases of a run were timed" if times.phases else "nothing was timed"
            yield f"{cell.workload} {times.arm}@{cell.vcpus}: {reason}"


def _list_built_arms(comparison: Comparison) -> frozenset[str]:
    """List the arms that need the build: all but the baseline's wheel with other settings."""
    base, other_arms = comparison.arms[:1], comparison.arms[1:]
    wheels = {arm.wheel_sha256 for arm in base if arm.wheel_sha256}
    return frozenset(arm.name for arm in other_arms if arm.wheel_sha256 not in wheels)


def _create_bill(
    runs: Runs, baseline: str, rates: _Rates, composed: str, skipped: tuple[str, ...]
) -> Bill:
    name = runs.find_baseline(baseline).name
    bases = {workload: runs.find_run(workload, name) for workload in runs.workloads}
    missing = [
        f"{workload}: the baseline {name} has no run"
        for workload, base in bases.items()
        if base is None
    ]
    return Bill(
        book=rates.book.name,
        as_of=rates.book.as_of,
        baseline=name,
        composed=composed,
        rows=tuple(
            row for base in bases.values() if base for row in _create_rows(runs, base, rates)
        ),
        speedups=tuple(_compute_speedups(runs)),
        skipped=(*skipped, *missing),
        machines=tuple(dict.fromkeys(run.price for run in runs.all)),
    )


def _create_rows(runs: Runs, baseline: TrainingRun, rates: _Rates) -> Iterator[BillRow]:
    """Create the rows of the baseline's workload."""
    workload_runs = runs.list_runs(baseline.workload)
    for run in workload_runs:
        relative = runs.compute_relative(run, baseline)
        yield BillRow(
            workload=run.workload,
            vcpus=run.vcpus,
            arm=run.arm,
            machine=run.price.name,
            run_s=run.seconds,
            usd=run.usd,
            relative_time=relative.time,
            relative_cost=relative.usd,
            cheapest=run == find_cheapest(workload_runs),
            fastest=run == find_fastest(workload_runs),
            on_front=not is_dominated(run, workload_runs),
            break_even_price_ratio=cost.invert(relative.time) if run.arm != baseline.arm else None,
            amortisation=_compute_amortisation(runs, run, rates.build)
            if run.arm in rates.built
            else None,
        )


def _compute_amortisation(runs: Runs, run: TrainingRun, build: Build | None) -> Amortisation | None:
    reference_run = runs.find_reference_run(run)
    if build is None or reference_run is None:
        return None
    saving = cost.compute_saving(
        cost.get_value(reference_run.usd), runs.compute_relative(run, reference_run).usd
    )
    return cost.amortise(build.usd, saving, runs_per_day=build.runs_per_day)


def _compute_speedups(runs: Runs) -> Iterator[tuple[int, str, Amount]]:
    """Compute the mean speedups over the workloads with a run of both the arm and the reference."""
    speedups: dict[tuple[int, str], list[Amount]] = {}
    for run in runs.all:
        reference_run = runs.find_reference_run(run)
        if run.vcpus is not None and run.arm != runs.reference and reference_run is not None:
            speedup = cost.invert(runs.compute_relative(run, reference_run).time)
            speedups.setdefault((run.vcpus, run.arm), []).append(speedup)
    for vcpus, arm in sorted(speedups, key=lambda key: key[0]):
        yield vcpus, arm, cost.compute_geometric_mean(speedups[vcpus, arm])
