"""From a profile and a wheel to a selection: time candidates, choose winners, time them again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfbench.arms.arm import Arm
from tfbench.engine import folder
from tfbench.engine.folder import RunKind
from tfbench.kernels import keep_rules
from tfbench.kernels.keep_rules import Control, Series, TimedCallSite
from tfbench.kernels.profiles import RankedCallSite
from tfbench.kernels.serving import find_registration
from tfbench.kernels.timing_cache import TimingCache
from tfbench.kernels.timings import (
    Bench,
    TimingStage,
    group_series,
    read_known_lines,
    time_call_sites,
)
from tfbench.kernels.wheel_kernels import WheelKernels
from tfbench.measuring.stopping import FEWEST_LAUNCHES
from tfbuild.planning.selection import Selection, find_fused_ops
from tfcore import console
from tfcore.comparisons.kernels import KernelRow, TypedOp
from tfcore.cpus.targets import parse_target
from tfcore.errors import SampleError
from tfcore.records import format_now, save

SCHEMA = 2
KIND = RunKind(name="selection", prefix="select", result="selection.json")
TIMINGS_FILE = "evidence.json"
MATTERS = 0.001
"""Call sites with a smaller share of the op time of every program are ignored: they hardly change
the total."""
SEARCH, CONFIRM = "search", "confirm"
SEARCH_SHARE = 0.6
"""The search's share of the budget; the rest is for the confirmation."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SelectionSetting:
    """The setting of a selection; a run under another setting does not resume from its journal."""

    schema: int = SCHEMA
    cpu: str
    arms: tuple[Arm, Arm]
    spots: tuple[str, ...]
    threads: tuple[int, ...]
    launches: int
    rate: float
    seed: int
    budget_s: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedCallSite:
    """A call site and the kernel of the wheel that serves it."""

    site: RankedCallSite
    choice: TypedOp


@dataclass(frozen=True, kw_only=True, slots=True)
class Untimed:
    """A call site that a kernel of the wheel serves, and why it was not timed with every number
    of threads.
    """

    choice: TypedOp
    shapes: str
    attributes: str
    reason: str

    @property
    def place(self) -> str:
        """Return the inputs and what else distinguishes it from other call sites of the op."""
        return f"{self.shapes} {self.attributes}".strip()


@dataclass(frozen=True, kw_only=True, slots=True)
class SelectionResult:
    """A selection with the figures behind it.

    `served` is the share of op time that the wheel's kernels serve, `kept` that of the kept
    ones, `gain` the share of all op time that they save, with the first number of threads.
    `recalled` rows came from the cache.
    """

    schema: int = SCHEMA
    selection: Selection
    control: Control
    served: float
    kept: float
    gain: float
    recalled: int
    untimed: tuple[Untimed, ...]


def match_call_sites(
    wheel_kernels: WheelKernels, sites: Sequence[RankedCallSite]
) -> tuple[ServedCallSite, ...]:
    """Match the call sites that matter with the kernels of the wheel."""
    mattering = (site for site in sites if site.most >= MATTERS)
    matches = (
        (site, find_registration(site.place, wheel_kernels.library.registrations))
        for site in mattering
    )
    return tuple(
        ServedCallSite(site=site, choice=choice) for site, choice in matches if choice is not None
    )


def select(
    setting: SelectionSetting,
    served: Sequence[ServedCallSite],
    wheel_kernels: WheelKernels,
    memory: TimingCache,
    bench: Bench,
) -> SelectionResult:
    """Time the call sites, find candidates, confirm them, and return the result.

    `bench.out` gets the journal as times come, and the selection. Raises UsageError if the folder
    holds another run or a finished one, SampleError if nothing could be timed, WorkerError and
    DiskError.
    """
    folder.begin(KIND, setting, bench.out)
    folder.require_unfinished(KIND, bench.out)
    recalled, series, reasons = time_served(setting, served, wheel_kernels, memory, bench)
    timed = list_timed(served, setting.threads, series)
    untimed = _list_untimed(setting, served, series, reasons)
    if not timed:
        raise SampleError("no call site could be timed", hint=untimed[0].reason)
    rows, missing = (
        keep_rules.create_rows(timed),
        {untimed_site.choice: untimed_site.place for untimed_site in untimed},
    )
    fresh_series = _time_candidates(setting, timed, rows, missing, bench)
    outcome_rows, choices = keep_rules.confirm_candidates(rows, fresh_series, setting.rate, missing)
    selection = _create_selection(setting, wheel_kernels, outcome_rows, choices)
    result = SelectionResult(
        selection=selection,
        control=keep_rules.compute_control(timed, setting.rate),
        served=sum(site.site.share for site in served),
        kept=sum(row.share for row in _filter_first_threads(outcome_rows, setting) if row.kept),
        gain=sum(
            _compute_saving(row) for row in _filter_first_threads(outcome_rows, setting) if row.kept
        ),
        recalled=recalled,
        untimed=untimed,
    )
    save(bench.out / TIMINGS_FILE, result)
    save(bench.out / KIND.result, selection)  # (last: it completes the run)
    return result


def time_served(
    setting: SelectionSetting,
    served: Sequence[ServedCallSite],
    wheel_kernels: WheelKernels,
    memory: TimingCache,
    bench: Bench,
) -> tuple[int, dict[tuple[str, int], Series], dict[str, str]]:
    """Time every call site, or take its times from the cache if these have enough launches.

    Return the number of cached cells, the times, and the reason for each call site without any.
    A cell that a stopped run began to time is not taken from the cache.
    """
    begun = {(line.key, line.threads) for line in read_known_lines(bench) if line.stage == SEARCH}
    recipes = {
        site.site.key: wheel_kernels.recipes[wheel_kernels.units[site.choice]] for site in served
    }
    cached: dict[tuple[str, int], Series] = {}
    uncached: dict[int, list[RankedCallSite]] = {threads: [] for threads in setting.threads}
    for served_call_site in served:
        for threads in setting.threads:
            cell = (served_call_site.site.key, threads)
            known = memory.load_series(
                recipes[served_call_site.site.key], served_call_site.site.place, threads
            )
            if known is None or len(known.stock) < setting.launches or cell in begun:
                uncached[threads].append(served_call_site.site)
            else:
                cached[cell] = known
    fresh, reasons = _run_stage(setting, SEARCH, uncached, bench)
    by_key = {site.site.key: site.site for site in served}
    for (key, threads), cell_series in fresh.items():
        if keep_rules.is_quiet(cell_series):
            memory.save_series(recipes[key], by_key[key].place, threads, cell_series)
    return len(cached), cached | fresh, reasons


def _time_candidates(
    setting: SelectionSetting,
    timed: Sequence[TimedCallSite],
    rows: Sequence[KernelRow],
    missing: Mapping[TypedOp, str],
    bench: Bench,
) -> dict[int, Series]:
    """Time the rows of all registrations that seem worth keeping, in fresh launches."""
    reasons, _ = keep_rules.reject_candidates(rows, setting.rate, missing)
    numbers = [number for number, row in enumerate(rows) if not reasons[row.choice]]
    requested: dict[int, list[RankedCallSite]] = {threads: [] for threads in setting.threads}
    for number in numbers:
        requested[timed[number].threads].append(timed[number].site)
    fresh, _ = _run_stage(setting, CONFIRM, requested, bench)
    cells = {number: (timed[number].site.key, timed[number].threads) for number in numbers}
    return {number: fresh[cell] for number, cell in cells.items() if cell in fresh}


def _run_stage(
    setting: SelectionSetting,
    name: str,
    sites_by_threads: Mapping[int, Sequence[RankedCallSite]],
    bench: Bench,
) -> tuple[dict[tuple[str, int], Series], dict[str, str]]:
    """Return the times of the requested call sites that have enough launches, and why others
    have none.
    """
    total = sum(map(len, sites_by_threads.values()))
    if not total:
        return {}, {}
    share = SEARCH_SHARE if name == SEARCH else 1 - SEARCH_SHARE
    stage = TimingStage(
        name=name,
        launches=setting.launches,
        budget_s=None if setting.budget_s is None else setting.budget_s * share,
        seed=setting.seed,
    )
    with (
        console.report_step(
            f"{name}: {console.format_count(total, 'cell')} in {setting.launches} launches"
        ),
        console.track_progress("timings", total * setting.launches) as count,
    ):
        all_series, reasons = group_series(
            time_call_sites(bench, stage, sites_by_threads, count.advance)
        )
    complete = {
        cell: cell_series
        for cell, cell_series in all_series.items()
        if len(cell_series.stock) >= FEWEST_LAUNCHES
    }
    return complete, reasons


def list_timed(
    served: Sequence[ServedCallSite],
    threads: Sequence[int],
    series: Mapping[tuple[str, int], Series],
) -> tuple[TimedCallSite, ...]:
    return tuple(
        TimedCallSite(
            site=call_site.site,
            choice=call_site.choice,
            threads=n,
            series=series[call_site.site.key, n],
        )
        for call_site in served
        for n in threads
        if (call_site.site.key, n) in series
    )


def _list_untimed(
    setting: SelectionSetting,
    served: Sequence[ServedCallSite],
    series: Mapping[tuple[str, int], Series],
    reasons: Mapping[str, str],
) -> tuple[Untimed, ...]:
    return tuple(
        Untimed(
            choice=call_site.choice,
            shapes=call_site.site.place.shapes,
            attributes=call_site.site.place.details,
            reason=reasons.get(call_site.site.key, f"fewer than {FEWEST_LAUNCHES} launches"),
        )
        for call_site in served
        if any((call_site.site.key, threads) not in series for threads in setting.threads)
    )


def _create_selection(
    setting: SelectionSetting,
    wheel_kernels: WheelKernels,
    rows: tuple[KernelRow, ...],
    kept_units: tuple[TypedOp, ...],
) -> Selection:
    units = frozenset(wheel_kernels.units[choice] for choice in kept_units)
    return Selection(
        made=format_now(),
        cpu=setting.cpu,
        release=wheel_kernels.release,
        target=wheel_kernels.library.target,
        plan_key=wheel_kernels.library.plan_key,
        rate=setting.rate,
        kernels=tuple(sorted(units)),
        flags=wheel_kernels.select_flags(units),
        kept=kept_units,
        rows=rows,
        own=find_fused_ops(parse_target(wheel_kernels.library.target)),
    )


def _filter_first_threads(rows: Sequence[KernelRow], setting: SelectionSetting) -> list[KernelRow]:
    """Return the rows of the first number of threads, so that a call site counts once."""
    return [row for row in rows if row.threads == setting.threads[0]]


def _compute_saving(row: KernelRow) -> float:
    """Compute the share of all op time that a kept row saves, by its fresh ratio if it has one."""
    ratio = row.ratio if row.confirmed is None else row.confirmed[0]
    return row.share * (1 - 1 / ratio)
