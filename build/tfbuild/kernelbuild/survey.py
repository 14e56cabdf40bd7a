"""What became of every CPU kernel source of a release: compiled, whole, admitted, or why not.

Two passes. Every source is compiled alone; its object says what it needs, and so the units
(kernelbuild.closure); then every unit is linked and admitted. Both go in batches, and what a batch
has shown is kept beside its workspace: a run that was stopped, or whose time was up, goes on there.
"""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tfbuild import console, settings
from tfbuild.cpus.compilers import Compiler
from tfbuild.errors import RecordError
from tfbuild.kernelbuild import admission, closure
from tfbuild.kernelbuild import build as builder
from tfbuild.kernelbuild import workspace as workspaces
from tfbuild.kernelbuild.admission import UnitVerdict
from tfbuild.kernelbuild.closure import Symbols
from tfbuild.kernelbuild.ground import Ground, ground_for
from tfbuild.kernelbuild.workspace import Workspace
from tfbuild.planning.jobs import Jobs
from tfbuild.planning.plan import Plan
from tfbuild.records import decode_record, load, save
from tfbuild.settings import Paths
from tfbuild.upstream import registrations
from tfbuild.upstream.kernels import FOLDER, KernelUnit, SourceOutcome, SurveyRow

SCHEMA = 1
_BATCH = 24
_READERS = 2
_DISK_BYTES = 15_000_000_000
_SHOWN = 160  # characters of a reason
_PATH = re.compile(r"(?<![\w.])/(?:[^\s/:]+/)+")


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchResult:
    """The result of a unit in a batch of admissions; `reason` is empty if it was admitted."""

    reason: str = ""
    registrations: int = 0
    cases: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Survey:
    """`units` by the source that grows to them; `results` by unit, in so far as time was enough."""

    plan: Plan
    table: Mapping[str, tuple[str, ...]]
    broken: Mapping[str, str]
    units: Mapping[str, KernelUnit]
    results: Mapping[str, BatchResult]
    finished: bool


def survey(
    plan: Plan,
    compiler: Compiler,
    jobs: Jobs,
    *,
    paths: Paths,
    budget_s: float,
    given_source: Path | None = None,
    given_stock: Path | None = None,
) -> Survey:
    """Look at all sources of the plan's release for its target, until the time is up: no batch
    begins after that. The plan's own kernels do not matter.

    Raises what a build raises, but for a source that does not compile or is not admitted.
    """
    end = time.monotonic() + budget_s
    settings.require_disk(paths.cache, _DISK_BYTES, "compiling every kernel source")
    ground = ground_for(plan, paths, given_source, given_stock)
    with console.report_step("which sources register what"):
        table = registrations.find_registrations(ground.staged, _defines(plan))
    alone = tuple(_alone(source) for source in table)

    def prepared(units: tuple[KernelUnit, ...]) -> Workspace:
        own = dataclasses.replace(plan, kernels=units)
        return workspaces.prepare(own, compiler, jobs, ground, paths)

    first = prepared(alone)
    broken = _compiled(first, alone, end)
    if broken is None:
        return Survey(plan=plan, table=table, broken={}, units={}, results={}, finished=False)
    with console.report_step("which sources belong together"):
        symbols = _symbols(first, [source for source in table if source not in broken])
        units = closure.units(symbols, table)
    distinct = tuple(sorted(set(units.values()), key=lambda unit: unit.name))
    results = _admitted(prepared(distinct), distinct, ground, end)
    finished = len(results) == len(distinct)
    return Survey(
        plan=plan, table=table, broken=broken, units=units, results=results, finished=finished
    )


def _defines(plan: Plan) -> tuple[str, ...]:
    recipe = plan.kernel_recipe
    assert recipe is not None  # noqa: S101  (a kernels plan has one)
    return tuple(word.removeprefix("-D") for word in recipe.copts if word.startswith("-D"))


def _alone(source: str) -> KernelUnit:
    return KernelUnit(name=source.removesuffix(".cc"), sources=(f"{FOLDER}/{source}",))


def _compiled(
    workspace: Workspace, units: Sequence[KernelUnit], end: float
) -> dict[str, str] | None:
    """Source → why it does not compile, of those that do not; None when the time was too short."""
    notes = workspace.folder.parent / "survey-compiled.json"
    failed = _kept(notes)
    waiting = [
        unit for unit in units if unit.name not in failed and not _object(workspace, unit).is_file()
    ]
    for batch in _batches(waiting, end, "sources to compile"):
        reasons = workspaces.compile_units(workspace, batch, keep_going=True).failed
        for unit in batch:
            # What only cannot be linked alone is a helper that needs others.
            if not _object(workspace, unit).is_file():
                reason = reasons.get(unit.name, "Bazel did not say why")
                failed[unit.name] = BatchResult(reason=shortened(reason))
        # What memory was short for may compile the next time.
        _keep(notes, {name: each for name, each in failed.items() if "Killed" not in each.reason})
    late = any(
        unit.name not in failed and not _object(workspace, unit).is_file() for unit in waiting
    )
    return None if late else {f"{name}.cc": each.reason for name, each in failed.items()}


def _object(workspace: Workspace, unit: KernelUnit) -> Path:
    return workspaces.object_of(workspace, unit.sources[0])


def _symbols(workspace: Workspace, sources: Sequence[str]) -> dict[str, Symbols]:
    paths = [workspaces.object_of(workspace, source) for source in sources]
    with ThreadPoolExecutor(_READERS) as pool:
        return dict(zip(sources, pool.map(closure.read_symbols, paths), strict=True))


def _admitted(
    workspace: Workspace, units: Sequence[KernelUnit], ground: Ground, end: float
) -> dict[str, BatchResult]:
    """What was seen of each unit that the time was enough for."""
    notes = workspace.folder.parent / f"survey-{admission.judge_sha256()[:8]}.json"
    results = _kept(notes)
    waiting = [unit for unit in units if unit.name not in results]
    for batch in _batches(waiting, end, "units to admit"):
        compiled = workspaces.compile_units(workspace, batch, keep_going=True)
        for verdict in _verdicts(workspace, compiled.libraries, ground):
            results[verdict.unit] = BatchResult(
                reason=shortened(verdict.reason),
                registrations=len(verdict.registrations),
                cases=verdict.cases,
            )
        for unit, reason in compiled.failed.items():
            results[unit] = BatchResult(reason=f"it does not link: {shortened(reason)}")
        _keep(notes, results)
    return results


def _verdicts(
    workspace: Workspace, libraries: Mapping[str, Path], ground: Ground
) -> Iterator[UnitVerdict]:
    """A verdict on each library. One that ends the probe itself takes those behind it along: they
    are looked at again, each alone."""
    for verdict in builder.admit(workspace, libraries, ground):
        if verdict.lost:
            yield from builder.admit(workspace, {verdict.unit: libraries[verdict.unit]}, ground)
        else:
            yield verdict


def _batches(
    waiting: Sequence[KernelUnit], end: float, what: str
) -> Iterator[Sequence[KernelUnit]]:
    done = 0
    while done < len(waiting):
        if time.monotonic() >= end:
            console.print_note(
                f"the time is up: {len(waiting) - done} {what} are left for the next run"
            )
            return
        with console.report_step(f"{len(waiting) - done} {what}"):
            yield waiting[done : done + _BATCH]
        done += _BATCH


def _keep(notes: Path, results: Mapping[str, BatchResult]) -> None:
    save(notes, {"schema": SCHEMA, "seen": dict(results)})


def _kept(notes: Path) -> dict[str, BatchResult]:
    """What earlier runs have seen; nothing where there was none."""
    if not notes.is_file():
        return {}
    try:
        fields = load(notes, schema=SCHEMA)["seen"]
        return {name: decode_record(BatchResult, row) for name, row in fields.items()}
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise RecordError(f"{notes} holds no survey ({error})", hint="Remove it") from error


def shortened(reason: str) -> str:
    """The first line of a reason that says what is wrong, without paths of this machine."""
    line = _PATH.sub("", reason.partition("\n")[0]).strip()
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"


def rows(found: Survey) -> tuple[SurveyRow, ...]:
    """A row for each source, by name."""
    return tuple(_row(found, source) for source in sorted(found.table))


def _row(found: Survey, source: str) -> SurveyRow:
    bare = SurveyRow(source=source, ops=found.table[source])
    if source in found.broken:
        return dataclasses.replace(bare, outcome=SourceOutcome.BROKEN, reason=found.broken[source])
    unit = found.units.get(source)
    if unit is None:
        return _without_unit(found, bare)
    placed = dataclasses.replace(
        bare,
        unit=unit.name,
        sources=tuple(each.removeprefix(f"{FOLDER}/") for each in unit.sources),
    )
    result = found.results.get(unit.name)
    if result is None:
        return placed
    return dataclasses.replace(
        placed,
        outcome=SourceOutcome.REFUSED if result.reason else SourceOutcome.ADMITTED,
        registrations=result.registrations,
        cases=result.cases,
        reason=result.reason,
    )


def _without_unit(found: Survey, bare: SurveyRow) -> SurveyRow:
    if not found.units:  # (before the first pass has ended)
        return bare
    if not bare.ops:
        return dataclasses.replace(bare, outcome=SourceOutcome.HELPER)
    lost = [source for source in sorted(found.broken) if set(found.table[source]) & set(bare.ops)]
    what = f"{lost[0]}, which registers its ops too, does" if lost else "what it needs does"
    reason = f"{what} not compile"
    return dataclasses.replace(bare, outcome=SourceOutcome.REFUSED, reason=reason)
