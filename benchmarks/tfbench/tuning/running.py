"""The search: every change alone, the better half again, the best combined, the result confirmed.

Each stage is a comparison like those of `invoke compare`, in its own folder, so a stopped run
resumes in its current stage.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tfbench.arms.arm import Arm
from tfbench.arms.lever_table import SEARCHED, WHEEL, SearchContext
from tfbench.arms.levers import Pairs, list_installed_mallocs
from tfbench.engine import folder
from tfbench.engine.folder import RunKind
from tfbench.inside.workload_name import parse_name
from tfbench.inside.workloads import PROGRAM
from tfbench.measuring import comparing as comparisons
from tfbench.measuring.comparing import make_setting
from tfbench.measuring.stopping import TARGET_S
from tfbench.tuning import search
from tfbench.tuning.changes import Change, Setup, create_arm, list_variables
from tfbench.tuning.results import (
    SCHEMA,
    FirstSteps,
    TriedArm,
    Tuning,
    TuningStage,
    collect_tried_arms,
)
from tfbench.tuning.trial import try_out
from tfcore import console, records
from tfcore.comparisons.comparison import ComparedCell, Comparison
from tfcore.comparisons.comparison import load as load_comparison
from tfcore.comparisons.effort import Effort
from tfcore.comparisons.host import Host
from tfcore.errors import RecordError, UsageError, WorkerError
from tfcore.records import format_now

KIND = RunKind(name="tuning", prefix="tune", result="tune.json")
TRIAL = "trial.json"
SHARES = {
    TuningStage.SCREEN: 0.35,
    TuningStage.AGAIN: 0.15,
    TuningStage.COMBINE: 0.15,
    TuningStage.CONFIRM: 0.35,
}
"""Shares of the budget. The fewest launches that give an interval are measured in any case."""
_SEARCH = Effort(looks=(3, 6, 10), precision=0.015)
_CONFIRM = Effort(precision=0.007)


@dataclass(frozen=True, kw_only=True, slots=True)
class TuningSetting:
    """The setting that decides a run.

    `wheels` are the installed ones by their text, the baseline first; `program` is the path
    of the user's file, empty for one of the six workloads.
    """

    schema: int = SCHEMA
    host: Host
    workload: str
    program: str = ""
    program_sha256: str = ""
    wheels: tuple[tuple[str, Arm], ...]
    vcpus: int
    budget_s: float
    seed: int
    levers: tuple[str, ...] = tuple(SEARCHED)
    """The levers of SEARCHED that may be changed, in its order."""

    @property
    def cpus(self) -> tuple[int, ...]:
        return self.host.affinity[: self.vcpus]

    @property
    def title(self) -> str:
        return self.program or self.workload

    @property
    def program_variables(self) -> Pairs:
        """Return the variables that name the user's file to a worker."""
        return ((PROGRAM, self.program),) if self.program else ()

    def build_arm(self, setup: Setup) -> Arm:
        return create_arm(setup, dict(self.wheels), self.program_variables)


def tune(setting: TuningSetting, out: Path) -> Tuning:
    """Measure until the budget is spent, in `out`.

    The caller writes the result there, last of all: with it a run is finished. Raises UsageError
    if a file cannot be trained, if there is nothing to try, or if `out` holds another run,
    RecordError if a file in it is damaged, and WorkerError if the baseline fails.
    """
    folder.begin(KIND, setting, out)
    folder.require_unfinished(KIND, out)
    run = TuningRun(setting=setting, out=out, trial=_load_trial(setting, out))
    best = run.search()
    return run.create_result(best)


def list_candidates(setting: TuningSetting, trial: FirstSteps | None) -> tuple[Setup, ...]:
    """List every single change; without a trial, all that may be tried.

    Raises UsageError if there are none.
    """
    context = SearchContext(
        vcpus=setting.vcpus,
        onednn=trial.onednn if trial else None,
        steps_per_sample=TARGET_S / trial.step_s if trial else math.inf,
        mallocs=list_installed_mallocs(),
        wheels=tuple(text for text, _ in setting.wheels[1:]),
    )
    is_trained = not parse_name(setting.workload).clients
    setups = tuple(
        (Change(lever=name, value=value),)
        for name in setting.levers
        if is_trained or not SEARCHED[name].argument
        for value in SEARCHED[name].list_tried_values(context)
    )
    if not setups:
        raise UsageError(
            f"no settings to try with {console.format_vcpus(setting.vcpus)}: "
            f"{', '.join(setting.levers)}",
            hint="Allow more --levers, or give two wheels with --arms",
        )
    return setups


def _load_trial(setting: TuningSetting, out: Path) -> FirstSteps:
    """Load the trial of a stopped run, on which the stages depend, or try the workload."""
    path = out / TRIAL
    if path.exists():
        fields = records.load(path, schema=SCHEMA)
        try:
            return records.decode_record(FirstSteps, fields["trial"])
        except (TypeError, ValueError, KeyError) as error:
            raise RecordError(
                f"{path} is not a valid trial ({error})",
                hint="Delete it and run the same command again",
            ) from error
    with console.report_step(f"try {setting.title}"):
        arm = setting.build_arm(())
        trial = try_out(arm, setting.workload, setting.cpus, setting.seed, out / "logs")
    records.save(path, {"schema": SCHEMA, "trial": trial})
    console.print_note(f"{1000 * trial.step_s:.2f} ms per step, batches of {trial.batch}")
    return trial


@dataclass(kw_only=True, slots=True)
class TuningRun:
    """A search in progress."""

    setting: TuningSetting
    out: Path
    trial: FirstSteps
    tried: list[TriedArm] = field(default_factory=list)
    seconds: float = 0.0

    def search(self) -> Setup:
        """Search and return the best setup, confirmed or not; empty if no change was faster."""
        single = list_candidates(self.setting, self.trial)
        remaining = self._halve_settings(
            self._select_promising(TuningStage.SCREEN, search.split_groups(single))
        )
        hints = [setup for setup in remaining if setup[0].is_advice]
        best = self._combine_best([setup for setup in remaining if not setup[0].is_advice])
        self._confirm(best, hints)
        return best

    def create_result(self, best: Setup) -> Tuning:
        setting, confirmed = (
            self.setting,
            [arm for arm in self.tried if arm.stage is TuningStage.CONFIRM],
        )
        won = any(arm.is_faster and arm.changes == best for arm in confirmed)
        faster = best if won else ()
        return Tuning(
            schema=SCHEMA,
            made=format_now(),
            seconds=self.seconds,
            workload=setting.title,
            program_sha256=setting.program_sha256,
            vcpus=setting.cpus,
            budget_s=setting.budget_s,
            seed=setting.seed,
            host=setting.host,
            baseline=setting.build_arm(()).label,
            trial=self.trial,
            tried=tuple(self.tried),
            variables=list_variables(faster),
            wheel=setting.build_arm(
                tuple(change for change in faster if change.lever == WHEEL)
            ).label,
        )

    def _halve_settings(self, setups: Sequence[Setup]) -> tuple[Setup, ...]:
        """Halve the settings until few are left. Advice does not compete with them, so it stays."""
        hints = tuple(setup for setup in setups if setup[0].is_advice)
        competing = tuple(setup for setup in setups if not setup[0].is_advice)
        rounds = search.count_halvings(len(competing))
        while len(competing) > search.FINALISTS:
            competing = self._select_promising(
                TuningStage.AGAIN,
                search.split_groups(search.select_better_half(competing)),
                rounds=rounds,
            )
        return (*competing, *hints)

    def _combine_best(self, ranked: Sequence[Setup]) -> Setup:
        rungs = search.build_ladder(ranked)
        if len(rungs) < 2:  # noqa: PLR2004  (nothing to combine)
            return rungs[0] if rungs else ()
        (cell,) = self._measure(TuningStage.COMBINE, [rungs])
        return search.choose_setup(
            cell, {self.setting.build_arm(setup).name: setup for setup in rungs}
        )

    def _confirm(self, best: Setup, hints: Sequence[Setup]) -> None:
        """Measure the best setup, and the advice on top of it, in launches that chose nothing."""
        setups = ([best] if best else []) + [(*best, *hint) for hint in hints]
        if setups:
            self._measure(TuningStage.CONFIRM, [setups])

    def _select_promising(
        self, stage: TuningStage, groups: Sequence[Sequence[Setup]], rounds: int = 1
    ) -> tuple[Setup, ...]:
        names = {self.setting.build_arm(setup).name: setup for group in groups for setup in group}
        cells = self._measure(stage, groups, rounds)
        return tuple(names[speedup.arm] for speedup in search.find_promising(cells))

    def _measure(
        self, stage: TuningStage, groups: Sequence[Sequence[Setup]], rounds: int = 1
    ) -> list[ComparedCell]:
        """Measure a comparison for each group, beside the baseline and its repeat.

        The stage's share of the budget is divided among the groups and the rounds.
        """
        cells = []
        for number, group in enumerate(groups, start=1):
            part = f" {number} of {len(groups)}" if len(groups) > 1 else ""
            arms = {self.setting.build_arm(setup).name: setup for setup in group}
            with console.report_step(f"{stage}{part}: {', '.join(arms)}"):
                comparison = self._compare_group(stage, group, len(groups) * rounds)
            self.seconds += comparison.seconds
            (cell,) = comparison.cells
            _require_baseline(cell, comparison.baseline)
            self.tried += collect_tried_arms(stage, comparison, arms)
            cells.append(cell)
        return cells

    def _compare_group(self, stage: TuningStage, group: Sequence[Setup], parts: int) -> Comparison:
        setting = self.setting
        effort = _CONFIRM if stage is TuningStage.CONFIRM else _SEARCH
        comparison = make_setting(
            [setting.build_arm(()), *map(setting.build_arm, group)],
            [setting.workload],
            [setting.vcpus],
            effort=_set_budget(effort, SHARES[stage] * setting.budget_s / parts),
            threshold=0.0,
            seed=setting.seed,
        )
        return _load_or_compare(
            comparison, self.out / "stages" / records.hash_record(comparison)[:12]
        )


def _set_budget(effort: Effort, budget_s: float) -> Effort:
    return dataclasses.replace(effort, budget_s=budget_s)


def _load_or_compare(setting: comparisons.ComparisonSetting, out: Path) -> Comparison:
    """Load the finished comparison of a stopped run, or make a new one."""
    if folder.is_finished(comparisons.KIND, out):
        return load_comparison(out / comparisons.KIND.result)
    with console.track_progress("launches", 1) as count:
        return comparisons.compare(setting, out, count.advance)


def _require_baseline(cell: ComparedCell, baseline: str) -> None:
    failed = [
        failure for failure in cell.failures if failure.arm.removesuffix(" again") == baseline
    ]
    if failed:
        raise WorkerError(failed[0].reason, hint="Nothing can be compared without the baseline")
