"""Comparisons of arms on the same workloads, from the setting to `comparison.json`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfbench.arms.arm import Arm, check_arms, create_repeat
from tfbench.engine import engine, folder
from tfbench.engine.folder import RunKind
from tfbench.engine.journal import open_journal
from tfbench.inside.workload_name import parse_name
from tfbench.inside.workloads import NAMES, format_label
from tfbench.measuring.measurement import CellSpec, MeasuredCell
from tfbench.measuring.observations import ObservedCell
from tfbench.measuring.repetition import FAVOURED
from tfbench.measuring.samples import KINDS
from tfbench.measuring.statistics import LEVEL, MARGIN
from tfbench.measuring.stopping import FEWEST_LAUNCHES
from tfbench.measuring.summary import Criteria, collect_arm_facts, summarise_cell, summarise_overall
from tfcore import console
from tfcore.comparisons.comparison import FILE, SCHEMA, ComparedCell, Comparison, load, save
from tfcore.comparisons.deciding import decide, find_decision, find_mean_decision
from tfcore.comparisons.effort import Effort
from tfcore.comparisons.host import Host, read_host
from tfcore.comparisons.interval import Verdict
from tfcore.errors import (
    AgreementError,
    InconclusiveError,
    RegressionError,
    UsageError,
    WorkerError,
)
from tfcore.records import format_now

QUICK = Effort(precision=0.015, budget_s=120.0)
THOROUGH = Effort(looks=(10, 20, 40), phase_blocks=2, precision=0.005, budget_s=300.0)
"""More launches rather than longer ones, because more launches narrow the interval."""
KIND = RunKind(name="comparison", prefix="", result=FILE, journal="samples.jsonl")

Progress = Callable[[int, int, str], None]
"""Receives the number of finished launches, the expected total, and the current launch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparisonSetting:
    """The setting of a comparison, which decides its samples. A run resumes from its journal
    only under an equal setting.
    """

    schema: int = SCHEMA
    host: Host
    arms: tuple[Arm, ...]
    workloads: tuple[str, ...]
    vcpus: tuple[int, ...]
    effort: Effort
    threshold: float
    margin: float = MARGIN
    seed: int

    @property
    def specs(self) -> tuple[CellSpec, ...]:
        """List all cells of the comparison.

        The baseline is followed by its repeat, which gives the noise floor. Workloads of
        several clients have as many clients as vCPUs.
        """
        baseline, *other_arms = self.arms
        return tuple(
            CellSpec(
                workload=name,
                vcpus=self.host.affinity[:count],
                arms=(baseline, create_repeat(baseline), *other_arms),
                seed=self.seed,
            )
            for count in self.vcpus
            for name in self.workloads
            if parse_name(name).clients in {0, 1, count}
        )


def compare(
    setting: ComparisonSetting, out: Path, on_progress: Progress | None = None
) -> Comparison:
    """Measure every workload at every number of vCPUs; the first arm is the baseline.

    `out` gets run.json, samples.jsonl as samples come, comparison.json after each cell, and
    logs; an unfinished run in it is resumed. Cells that fail are marked, and the others are
    measured. Raises UsageError if `out` holds another run, HostError if that run is of
    another machine, RecordError if it is damaged, and DiskError.
    """
    folder.begin(KIND, setting, out)
    folder.require_unfinished(KIND, out)
    timestamp = format_now()
    done: list[ObservedCell] = []
    with open_journal(out / KIND.journal, KINDS) as (known, keep):
        for spec in setting.specs:
            listen = functools.partial(
                _report_progress, on_progress or _ignore_progress, setting, spec, done
            )
            cell = MeasuredCell(spec=spec, effort=setting.effort, logs=out / "logs", listen=listen)
            done.append(cell.observe(engine.run(cell, known, keep)))
            save(out / KIND.result, summarise_run(setting, done, timestamp=timestamp))
    return load(out / KIND.result)


def make_setting(
    arms: Sequence[Arm],
    workloads: Sequence[str],
    vcpus: Sequence[int],
    *,
    effort: Effort,
    threshold: float,
    margin: float = MARGIN,
    seed: int,
) -> ComparisonSetting:
    """Create the setting of a comparison on this machine.

    Raises UsageError if arms, workloads or vCPUs cannot be measured here.
    """
    host = read_host()
    check_arms(arms)
    check_cells(workloads, vcpus, host.vcpus.usable)
    return ComparisonSetting(
        host=host,
        arms=tuple(arms),
        workloads=tuple(dict.fromkeys(workloads)),
        vcpus=tuple(dict.fromkeys(vcpus)),
        effort=effort,
        threshold=threshold,
        margin=margin,
        seed=seed,
    )


def check_cells(workloads: Sequence[str], vcpus: Sequence[int], usable: int) -> None:
    """Raise UsageError if a workload or a number of vCPUs cannot be measured here."""
    names = {name: parse_name(name) for name in workloads}
    unknown = [name for name, parts in names.items() if not parts.own and parts.model not in NAMES]
    if unknown:
        raise UsageError(f"unknown workload {unknown[0]}", hint=f"Use one of {', '.join(NAMES)}")
    if not workloads or not vcpus:
        raise UsageError("nothing to compare: give a workload and a number of vCPUs")
    out_of_range = [count for count in vcpus if not 1 <= count <= usable]
    if out_of_range:
        raise UsageError(
            f"cannot measure {console.format_vcpus(out_of_range[0])}: only {usable} usable here",
            hint=f"Use 1 to {usable}, or a machine with more vCPUs",
        )


def check_comparison(comparison: Comparison, *, gate: bool) -> None:
    """Raise an error if the comparison shows a fault.

    Raises AgreementError if arms compute something else than the baseline, and WorkerError if
    cells have no result. With `gate`, raises RegressionError if an arm is slower anywhere,
    and InconclusiveError if it is unknown over all workloads whether an arm is faster, slower
    or as fast.
    """
    disagreements = [line for cell in comparison.cells for line in _describe_disagreements(cell)]
    if disagreements:
        raise AgreementError(
            "the arms compute different results: " + "; ".join(disagreements),
            hint="Do not use this wheel; the other results are in the report",
        )
    failed = [(cell, failure) for cell in comparison.cells for failure in cell.failures]
    if failed:
        where = "; ".join(
            f"{_describe_cell(cell)}: {_get_first_line(failure.reason)}" for cell, failure in failed
        )
        raise WorkerError(
            f"{console.format_count(len(failed), 'arm')} failed: {where}",
            hint="The other results are in the report",
        )
    if gate:
        _check_speedups(comparison)


def _check_speedups(comparison: Comparison) -> None:
    slower = [
        f"{speedup.arm} in {_describe_cell(cell)} ({speedup.interval.value:.3f}x)"
        for cell in comparison.cells
        for speedup in cell.speedups
        if find_decision(comparison, cell, speedup.arm).verdict is Verdict.SLOWER
    ] + _describe_overall(comparison, Verdict.SLOWER)
    if slower:
        raise RegressionError(f"slower than {comparison.baseline}: {', '.join(slower)}")
    unknown = _describe_overall(comparison, Verdict.INCONCLUSIVE)
    if unknown or not comparison.overall:
        raise InconclusiveError(
            f"inconclusive: {', '.join(unknown) or 'all arms'}", hint="Measure longer: --budget"
        )


def _describe_overall(comparison: Comparison, verdict: Verdict) -> list[str]:
    return [
        f"{figure.speedup.arm} over all workloads on {console.format_vcpus(figure.vcpus)} "
        f"({figure.speedup.interval.value:.3f}x)"
        for figure in comparison.overall
        if find_mean_decision(comparison, figure).verdict is verdict
    ]


def _describe_cell(cell: ComparedCell) -> str:
    return f"{cell.workload} on {console.format_vcpus(cell.vcpus)}"


def _get_first_line(text: str) -> str:
    """Return the first line of a message; the worker's output follows it, and is in the log too."""
    return text.strip().splitlines()[0].rstrip(":")


def _describe_disagreements(cell: ComparedCell) -> Iterator[str]:
    losses = {arm.arm: arm.losses for arm in cell.arms}
    for agreement in cell.agreements:
        if not agreement.agrees:
            baseline = cell.arms[0].arm if cell.arms else "the baseline"
            formatted = [_format_losses(losses.get(name, ())) for name in (baseline, agreement.arm)]
            yield (
                f"{cell.workload}, first losses {formatted[0]} ({baseline}) and {formatted[1]} "
                f"({agreement.arm}), predictions differ by "
                f"{_format_difference(agreement.predictions)}, tolerance {agreement.tolerance:g}"
            )


def _format_losses(losses: Sequence[float | None]) -> str:
    return " ".join("nan" if loss is None else f"{loss:.6g}" for loss in losses) or "unknown"


def _format_difference(value: float | None) -> str:
    return "a value that is not finite" if value is None else f"{value:.2g}"


def _ignore_progress(done: int, total: int, detail: str) -> None:
    """Do nothing."""


def _report_progress(
    progress: Progress,
    setting: ComparisonSetting,
    spec: CellSpec,
    done: Sequence[ObservedCell],
    now: ObservedCell,
) -> None:
    """Report the number of finished launches and the expected total."""
    finished = sum(len(observed.launches) for observed in done)
    launches = len(now.launches)
    expected = max(launches, _estimate_launches(setting.effort, now))
    remaining = (len(setting.specs) - len(done) - 1) * expected
    where = f"{format_label(spec.workload)} on {console.format_vcpus(len(spec.vcpus))}"
    detail = f"{where}, launch {launches + 1}" if launches < expected else where
    progress(finished + launches, finished + expected + remaining, detail)


def _estimate_launches(effort: Effort, now: ObservedCell) -> int:
    """Estimate the number of launches of a cell from the time of its first ones."""
    if effort.budget_s is None or not now.launches:
        return effort.looks[0] if effort.budget_s is None else FAVOURED
    launch_s = now.seconds / len(now.launches)
    return min(effort.looks[-1], max(FEWEST_LAUNCHES, round(effort.budget_s / launch_s)))


def summarise_run(
    setting: ComparisonSetting, done: Sequence[ObservedCell], *, timestamp: str
) -> Comparison:
    """Summarise the finished cells of a run as a comparison.

    Raises SampleError if their samples allow no summary.
    """
    criteria = Criteria(
        effort=setting.effort,
        tolerances=setting.specs[0].tolerances,
        threshold=setting.threshold,
        margin=setting.margin,
    )
    comparison = Comparison(
        schema=SCHEMA,
        made=timestamp,
        seconds=sum(observed.seconds for observed in done),
        seed=setting.seed,
        effort=setting.effort,
        margin=setting.margin,
        threshold=setting.threshold,
        level=LEVEL,
        host=setting.host,
        arms=collect_arm_facts(setting.arms, done),
        cells=tuple(summarise_cell(observed, criteria) for observed in done),
        overall=summarise_overall(done, criteria),
        complete=len(done) == len(setting.specs),
    )
    return decide(comparison)
