"""Candidates timed, judged, timed again: from a profile and a wheel to a selection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfbench.arms.arm import Arm
from tfbench.engine import folder
from tfbench.engine.folder import RunKind
from tfbench.kernels import judging
from tfbench.kernels.judging import Control, Series, TimedCallSite
from tfbench.kernels.known import Memory
from tfbench.kernels.profiles import RankedCallSite
from tfbench.kernels.serving import serving
from tfbench.kernels.timings import Bench, TimingStage, known_lines, series, time_call_sites
from tfbench.kernels.wheel_kernels import WheelKernels
from tfbench.measuring.effort import FEWEST_LAUNCHES
from tfbuild import console
from tfbuild.cpus.targets import parse_target
from tfbuild.errors import SampleError
from tfbuild.measured.kernels import KernelRow, TypedOp
from tfbuild.planning.selection import Selection, find_fused_ops
from tfbuild.records import format_now, save

SCHEMA = 2
KIND = RunKind(name="selection", prefix="select", result="selection.json")
TIMINGS_FILE = "evidence.json"
MATTERS = 0.001
"""A call site with less of the op time of every program is not looked at: nothing is won there, and
nothing to speak of lost."""
SEARCH, CONFIRM = "search", "confirm"
SEARCH_SHARE = 0.6
"""Of the budget; the rest is for the confirmation."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SelectionSetting:
    """What a run is asked: another one does not go on from its journal."""

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
    """A call site that a kernel of the wheel serves, and why it was not timed with every number of
    threads."""

    choice: TypedOp
    shapes: str
    attributes: str
    reason: str

    @property
    def place(self) -> str:
        """The inputs and what else tells it from other call sites of the op."""
        return f"{self.shapes} {self.attributes}".strip()


@dataclass(frozen=True, kw_only=True, slots=True)
class Selected:
    """A selection and what to know about it.

    `served` is the share of op time that the wheel's kernels serve, `kept` that of the kept ones,
    `gain` what of all op time they save, with the first number of threads. `recalled` rows came
    from the cache.
    """

    schema: int = SCHEMA
    selection: Selection
    control: Control
    served: float
    kept: float
    gain: float
    recalled: int
    untimed: tuple[Untimed, ...]


def served_by(
    wheel_kernels: WheelKernels, sites: Sequence[RankedCallSite]
) -> tuple[ServedCallSite, ...]:
    """The call sites that matter and that the wheel has a kernel for."""
    mattering = (site for site in sites if site.most >= MATTERS)
    found = ((site, serving(site.place, wheel_kernels.library.registrations)) for site in mattering)
    return tuple(
        ServedCallSite(site=site, choice=choice) for site, choice in found if choice is not None
    )


def select(
    setting: SelectionSetting,
    served: Sequence[ServedCallSite],
    wheel_kernels: WheelKernels,
    memory: Memory,
    bench: Bench,
) -> Selected:
    """Time, judge, confirm. `bench.out` gets the journal as times come, and the selection.

    Raises UsageError for a folder with another run in it, WorkerError, DiskError, SampleError when
    nothing could be timed.
    """
    folder.begin(KIND, setting, bench.out)
    recalled, found, reasons = searched(setting, served, wheel_kernels, memory, bench)
    timed = timed_of(served, setting.threads, found)
    untimed = _untimed(setting, served, found, reasons)
    if not timed:
        raise SampleError("no call site could be timed", hint=untimed[0].reason)
    rows, missing = judging.rows(timed), {each.choice: each.place for each in untimed}
    fresh = _confirmed(setting, timed, rows, missing, bench)
    judged, kept = judging.confirmed(rows, fresh, setting.rate, missing)
    selection = _selection(setting, wheel_kernels, judged, kept)
    chosen = Selected(
        selection=selection,
        control=judging.control(timed, setting.rate),
        served=sum(each.site.share for each in served),
        kept=sum(row.share for row in _first(judged, setting) if row.kept),
        gain=sum(_saved(row) for row in _first(judged, setting) if row.kept),
        recalled=recalled,
        untimed=untimed,
    )
    save(bench.out / TIMINGS_FILE, chosen)
    save(bench.out / KIND.result, selection)  # (last: with it a run is whole)
    return chosen


def searched(
    setting: SelectionSetting,
    served: Sequence[ServedCallSite],
    wheel_kernels: WheelKernels,
    memory: Memory,
    bench: Bench,
) -> tuple[int, dict[tuple[str, int], Series], dict[str, str]]:
    """Every call site's times, from the cache where it has as many launches: how many, the times,
    and why not, by the call sites' keys. What a stopped run began to time itself is not from the
    cache."""
    begun = {(each.key, each.threads) for each in known_lines(bench) if each.stage == SEARCH}
    recipes = {
        each.site.key: wheel_kernels.recipes[wheel_kernels.units[each.choice]] for each in served
    }
    found: dict[tuple[str, int], Series] = {}
    wanted: dict[int, list[RankedCallSite]] = {threads: [] for threads in setting.threads}
    for each in served:
        for threads in setting.threads:
            cell = (each.site.key, threads)
            known = memory.recall(recipes[each.site.key], each.site.place, threads)
            if known is None or len(known.stock) < setting.launches or cell in begun:
                wanted[threads].append(each.site)
            else:
                found[cell] = known
    fresh, reasons = _stage(setting, SEARCH, wanted, bench)
    by_key = {each.site.key: each.site for each in served}
    for (key, threads), each_series in fresh.items():
        if judging.quiet(each_series):
            memory.keep(recipes[key], by_key[key].place, threads, each_series)
    return len(found), found | fresh, reasons


def _confirmed(
    setting: SelectionSetting,
    timed: Sequence[TimedCallSite],
    rows: Sequence[KernelRow],
    missing: Mapping[TypedOp, str],
    bench: Bench,
) -> dict[int, Series]:
    """The rows of all registrations that seem worth keeping, timed in fresh launches."""
    reasons, _ = judging.candidates(rows, setting.rate, missing)
    numbers = [number for number, row in enumerate(rows) if not reasons[row.choice]]
    wanted: dict[int, list[RankedCallSite]] = {threads: [] for threads in setting.threads}
    for number in numbers:
        wanted[timed[number].threads].append(timed[number].site)
    fresh, _ = _stage(setting, CONFIRM, wanted, bench)
    cells = {number: (timed[number].site.key, timed[number].threads) for number in numbers}
    return {number: fresh[cell] for number, cell in cells.items() if cell in fresh}


def _stage(
    setting: SelectionSetting,
    name: str,
    wanted: Mapping[int, Sequence[RankedCallSite]],
    bench: Bench,
) -> tuple[dict[tuple[str, int], Series], dict[str, str]]:
    """Times of the wanted call sites that have enough launches, and why others have none."""
    total = sum(map(len, wanted.values()))
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
        found, reasons = series(time_call_sites(bench, stage, wanted, count.advance))
    whole = {cell: each for cell, each in found.items() if len(each.stock) >= FEWEST_LAUNCHES}
    return whole, reasons


def timed_of(
    served: Sequence[ServedCallSite],
    threads: Sequence[int],
    found: Mapping[tuple[str, int], Series],
) -> tuple[TimedCallSite, ...]:
    return tuple(
        TimedCallSite(site=each.site, choice=each.choice, threads=n, series=found[each.site.key, n])
        for each in served
        for n in threads
        if (each.site.key, n) in found
    )


def _untimed(
    setting: SelectionSetting,
    served: Sequence[ServedCallSite],
    found: Mapping[tuple[str, int], Series],
    reasons: Mapping[str, str],
) -> tuple[Untimed, ...]:
    return tuple(
        Untimed(
            choice=each.choice,
            shapes=each.site.place.shapes,
            attributes=each.site.place.details,
            reason=reasons.get(each.site.key, f"fewer than {FEWEST_LAUNCHES} launches"),
        )
        for each in served
        if any((each.site.key, threads) not in found for threads in setting.threads)
    )


def _selection(
    setting: SelectionSetting,
    wheel_kernels: WheelKernels,
    rows: tuple[KernelRow, ...],
    kept: tuple[TypedOp, ...],
) -> Selection:
    units = frozenset(wheel_kernels.units[each] for each in kept)
    return Selection(
        made=format_now(),
        cpu=setting.cpu,
        release=wheel_kernels.release,
        target=wheel_kernels.library.target,
        plan_key=wheel_kernels.library.plan_key,
        rate=setting.rate,
        kernels=tuple(sorted(units)),
        flags=wheel_kernels.flags(units),
        kept=kept,
        rows=rows,
        own=find_fused_ops(wheel_kernels.release, parse_target(wheel_kernels.library.target)),
    )


def _first(rows: Sequence[KernelRow], setting: SelectionSetting) -> list[KernelRow]:
    """The rows of the first number of threads, so that a call site counts once."""
    return [row for row in rows if row.threads == setting.threads[0]]


def _saved(row: KernelRow) -> float:
    """The share of all op time that a kept row saves, by its fresh ratio where it has one."""
    ratio = row.ratio if row.confirmed is None else row.confirmed[0]
    return row.share * (1 - 1 / ratio)
