"""Identical workloads on each arm: the run from a question to `comparison.json`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfbench.arms.arm import Arm, check_arms, create_repeat
from tfbench.engine import engine, folder
from tfbench.engine.folder import RunKind
from tfbench.engine.journal import open_journal
from tfbench.inside.workloads import NAMES, count_clients, format_label, is_own
from tfbench.measuring.effort import FEWEST_LAUNCHES
from tfbench.measuring.measurement import CellSpec, MeasuredCell
from tfbench.measuring.observations import ObservedCell
from tfbench.measuring.repetition import FAVOURED
from tfbench.measuring.samples import KINDS
from tfbench.measuring.statistics import LEVEL, MARGIN
from tfbench.measuring.summary import Criteria, arm_facts, cell, overall
from tfbuild import console
from tfbuild.errors import (
    AgreementError,
    InconclusiveError,
    RegressionError,
    UsageError,
    WorkerError,
)
from tfbuild.measured.comparison import FILE, SCHEMA, ComparedCell, Comparison, load, save
from tfbuild.measured.effort import Effort
from tfbuild.measured.host import Host, read_host
from tfbuild.measured.interval import Verdict
from tfbuild.records import format_now

QUICK = Effort(precision=0.015, budget_s=120.0)
THOROUGH = Effort(looks=(10, 20, 40), phase_blocks=2, precision=0.005, budget_s=300.0)
"""More launches, not longer ones: they are what narrows an interval."""
KIND = RunKind(name="comparison", prefix="", result=FILE, journal="samples.jsonl")

Progress = Callable[[int, int, str], None]
"""Told how many launches are done, of how many, and what is running."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparisonSetting:
    """What decides a run's samples. A run goes on from its journal only in an equal one."""

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
        """Every cell. The baseline is followed by its repeat, which gives the noise floor. Several
        clients are as many as vCPUs."""
        baseline, *others = self.arms
        return tuple(
            CellSpec(
                workload=name,
                vcpus=self.host.affinity[:count],
                arms=(baseline, create_repeat(baseline), *others),
                seed=self.seed,
            )
            for count in self.vcpus
            for name in self.workloads
            if count_clients(name) in {0, 1, count}
        )


def compare(
    setting: ComparisonSetting, out: Path, on_progress: Progress | None = None
) -> Comparison:
    """Measure every workload at every number of vCPUs; the first arm is the baseline.

    `out` gets run.json, samples.jsonl as samples come, comparison.json after each cell, and logs;
    an unfinished run that is there already goes on. Cells that fail are marked, the others are
    measured. Raises UsageError for an `out` with another run in it, HostError for one of another
    machine, RecordError for a damaged one, and DiskError.
    """
    folder.begin(KIND, setting, out)
    folder.require_unfinished(KIND, out)
    made = format_now()
    done: list[ObservedCell] = []
    with open_journal(out / KIND.journal, KINDS) as (known, keep):
        for spec in setting.specs:
            listen = functools.partial(_say, on_progress or _silent, setting, spec, done)
            cell = MeasuredCell(spec=spec, effort=setting.effort, logs=out / "logs", listen=listen)
            done.append(cell.measured(engine.run(cell, known, keep)))
            save(out / KIND.result, summarised(setting, done, made=made))
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
    """Raises UsageError for arms, workloads or vCPUs that cannot be measured here."""
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
    """Raises UsageError for a workload or a number of vCPUs that cannot be measured here."""
    unknown = [
        name for name in workloads if name.partition(":")[0] not in NAMES and not is_own(name)
    ]
    if unknown:
        raise UsageError(f"unknown workload {unknown[0]}", hint=f"Known: {', '.join(NAMES)}")
    if not workloads or not vcpus:
        raise UsageError("nothing to compare: no workload or no number of vCPUs was given")
    wrong = [count for count in vcpus if not 1 <= count <= usable]
    if wrong:
        raise UsageError(
            f"{console.format_vcpus(wrong[0])} cannot be measured here, {usable} are usable",
            hint=f"Ask for 1 to {usable}, or run the comparison on a machine that has them",
        )


def judge(comparison: Comparison, *, gate: bool) -> None:
    """Raises AgreementError for arms that compute something else, WorkerError for cells that gave
    no answer, and with `gate` RegressionError for an arm that is slower anywhere, InconclusiveError
    for one that is not known to be faster, slower or as fast over all workloads."""
    wrong = [line for each in comparison.cells for line in _disagreements(each)]
    if wrong:
        raise AgreementError(
            "the arms do not compute the same: " + "; ".join(wrong),
            hint="A wheel that fails here must not be used; the rest was measured",
        )
    failed = [(each, one) for each in comparison.cells for one in each.failures]
    if failed:
        where = "; ".join(f"{_place(each)}: {_first(one.reason)}" for each, one in failed)
        raise WorkerError(
            f"{console.format_count(len(failed), 'arm')} failed: {where}",
            hint="The rest was measured and is in the report",
        )
    if gate:
        _gate(comparison)


def _gate(comparison: Comparison) -> None:
    slower = [
        f"{each.arm} in {_place(cell)} ({each.interval.value:.3f}x)"
        for cell in comparison.cells
        for each in cell.speedups
        if each.verdict is Verdict.SLOWER
    ] + _overall(comparison, Verdict.SLOWER)
    if slower:
        raise RegressionError(f"slower than {comparison.baseline}: {', '.join(slower)}")
    unknown = _overall(comparison, Verdict.INCONCLUSIVE)
    if unknown or not comparison.overall:
        raise InconclusiveError(
            f"no answer for {', '.join(unknown) or 'any arm'}", hint="Measure longer: --budget"
        )


def _overall(comparison: Comparison, verdict: Verdict) -> list[str]:
    return [
        f"{each.speedup.arm} over all workloads on {console.format_vcpus(each.vcpus)} "
        f"({each.speedup.interval.value:.3f}x)"
        for each in comparison.overall
        if each.speedup.verdict is verdict
    ]


def _place(each: ComparedCell) -> str:
    return f"{each.workload} on {console.format_vcpus(each.vcpus)}"


def _first(text: str) -> str:
    """Its first line: the worker's output stands below it, and in its log."""
    return text.strip().splitlines()[0].rstrip(":")


def _disagreements(each: ComparedCell) -> Iterator[str]:
    losses = {arm.arm: arm.losses for arm in each.arms}
    for agreement in each.agreements:
        if not agreement.agrees:
            baseline = each.arms[0].arm if each.arms else "the baseline"
            shown = [_shown(losses.get(name, ())) for name in (baseline, agreement.arm)]
            yield (
                f"{each.workload}, first losses of {baseline} {shown[0]}, of {agreement.arm} "
                f"{shown[1]}, predictions apart by {_number(agreement.predictions)}, "
                f"tolerance {agreement.tolerance:g}"
            )


def _shown(losses: Sequence[float | None]) -> str:
    return " ".join("nan" if each is None else f"{each:.6g}" for each in losses) or "not known"


def _number(value: float | None) -> str:
    return "something that is no number" if value is None else f"{value:.2g}"


def _silent(done: int, total: int, detail: str) -> None:
    """Nobody listens."""


def _say(
    progress: Progress,
    setting: ComparisonSetting,
    spec: CellSpec,
    done: Sequence[ObservedCell],
    now: ObservedCell,
) -> None:
    """How many launches there were, and how many there will be as far as is known."""
    finished = sum(len(each.launches) for each in done)
    launches = len(now.launches)
    expected = max(launches, _expected(setting.effort, now))
    rest = (len(setting.specs) - len(done) - 1) * expected
    where = f"{format_label(spec.workload)} on {console.format_vcpus(len(spec.vcpus))}"
    what = f"{where}, launch {launches + 1}" if launches < expected else where
    progress(finished + launches, finished + expected + rest, what)


def _expected(effort: Effort, now: ObservedCell) -> int:
    """Launches of a cell, as far as its first ones tell."""
    if effort.budget_s is None or not now.launches:
        return effort.looks[0] if effort.budget_s is None else FAVOURED
    each = now.seconds / len(now.launches)
    return min(effort.looks[-1], max(FEWEST_LAUNCHES, round(effort.budget_s / each)))


def summarised(
    setting: ComparisonSetting, done: Sequence[ObservedCell], *, made: str
) -> Comparison:
    """What the cells that are done say. Raises SampleError."""
    by = Criteria(
        effort=setting.effort,
        tolerances=setting.specs[0].tolerances,
        threshold=setting.threshold,
        margin=setting.margin,
    )
    return Comparison(
        schema=SCHEMA,
        made=made,
        seconds=sum(each.seconds for each in done),
        seed=setting.seed,
        effort=setting.effort,
        margin=setting.margin,
        threshold=setting.threshold,
        level=LEVEL,
        host=setting.host,
        arms=arm_facts(setting.arms, done),
        cells=tuple(cell(each, by) for each in done),
        overall=overall(done, by),
        complete=len(done) == len(setting.specs),
    )
