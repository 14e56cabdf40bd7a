"""Surveys every CPU kernel source of a release: does it compile, and does it pass?

The survey has two passes. The first compiles every source alone; the objects show which sources
form a kernel group (kernelbuild.closure). The second links every group and runs the conformance
test. Both work in batches, and save the results of each batch beside the workspace, so that a run
that was stopped, or whose time was up, can be continued.
"""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tfbuild.kernelbuild import admission, closure
from tfbuild.kernelbuild import build as builder
from tfbuild.kernelbuild import workspace as workspaces
from tfbuild.kernelbuild.admission import UnitVerdict
from tfbuild.kernelbuild.build_setup import BuildSetup, prepare_setup
from tfbuild.kernelbuild.closure import Symbols
from tfbuild.kernelbuild.workspace import Workspace
from tfbuild.planning.jobs import Jobs
from tfbuild.planning.plan import KernelsPlan
from tfbuild.upstream import registrations
from tfbuild.upstream.kernels import FOLDER, KernelUnit, SourceOutcome, SurveyRow
from tfcore import console, settings
from tfcore.cpus.compilers import Compiler
from tfcore.errors import RecordError
from tfcore.records import decode_record, load, save
from tfcore.settings import Paths

SCHEMA = 1
_BATCH = 24
_READERS = 2
_DISK_BYTES = 15_000_000_000
_SHOWN = 160  # characters of a reason
_PATH = re.compile(r"(?<![\w.])/(?:[^\s/:]+/)+")


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchResult:
    """The conformance test result of a kernel group in a batch; `reason` is empty if it passed."""

    reason: str = ""
    registrations: int = 0
    cases: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Survey:
    """The survey of a release's kernel sources.

    `units` is by the source that grows to the kernel group; `results` by group, for those
    that were tested in time.
    """

    plan: KernelsPlan
    table: Mapping[str, tuple[str, ...]]
    broken: Mapping[str, str]
    units: Mapping[str, KernelUnit]
    results: Mapping[str, BatchResult]
    finished: bool


def survey_sources(
    plan: KernelsPlan,
    compiler: Compiler,
    jobs: Jobs,
    *,
    paths: Paths,
    budget_s: float,
    given_source: Path | None = None,
    given_stock: Path | None = None,
) -> Survey:
    """Compile and test all sources of the plan's release for its target, until the time is up.

    No batch begins after that. The plan's own kernels do not matter.

    Raises what a build raises, except for a source that does not compile or pass.
    """
    end = time.monotonic() + budget_s
    settings.require_disk(paths.cache, _DISK_BYTES, "compiling every kernel source")
    ground = prepare_setup(plan, paths, given_source, given_stock)
    with console.report_step("find the registrations of each source"):
        table = registrations.find_registrations(ground.staged, _list_defines(plan))
    single_units = tuple(_build_single_unit(source) for source in table)

    def prepare_workspace(units: tuple[KernelUnit, ...]) -> Workspace:
        batch_plan = dataclasses.replace(plan, kernels=units)
        return workspaces.prepare_workspace(batch_plan, compiler, jobs, ground, paths)

    first = prepare_workspace(single_units)
    broken = _compile_sources(first, single_units, end)
    if broken is None:
        return Survey(plan=plan, table=table, broken={}, units={}, results={}, finished=False)
    with console.report_step("find the kernel groups"):
        symbols = _read_symbols(first, [source for source in table if source not in broken])
        units = closure.build_units(symbols, table)
    distinct = tuple(sorted(set(units.values()), key=lambda unit: unit.name))
    results = _test_units(prepare_workspace(distinct), distinct, ground, end)
    finished = len(results) == len(distinct)
    return Survey(
        plan=plan, table=table, broken=broken, units=units, results=results, finished=finished
    )


def _list_defines(plan: KernelsPlan) -> tuple[str, ...]:
    copts = plan.kernel_recipe.copts
    return tuple(word.removeprefix("-D") for word in copts if word.startswith("-D"))


def _build_single_unit(source: str) -> KernelUnit:
    return KernelUnit(name=source.removesuffix(".cc"), sources=(f"{FOLDER}/{source}",))


def _compile_sources(
    workspace: Workspace, units: Sequence[KernelUnit], end: float
) -> dict[str, str] | None:
    """Map the sources that do not compile to the reason; None if the time was too short."""
    notes = workspace.folder.parent / "survey-compiled.json"
    failed = _load_results(notes)
    waiting = [
        unit
        for unit in units
        if unit.name not in failed and not _locate_object(workspace, unit).is_file()
    ]
    for batch in _split_batches(waiting, end, "sources to compile"):
        reasons = workspaces.compile_units(workspace, batch, keep_going=True).failed
        for unit in batch:
            # A source that compiles but does not link alone is a helper: it needs others.
            if not _locate_object(workspace, unit).is_file():
                reason = reasons.get(unit.name, "Bazel reported no reason")
                failed[unit.name] = BatchResult(reason=shorten_reason(reason))
        # A compile that ran out of memory may succeed the next time.
        _save_results(
            notes,
            {name: result for name, result in failed.items() if "Killed" not in result.reason},
        )
    incomplete = any(
        unit.name not in failed and not _locate_object(workspace, unit).is_file()
        for unit in waiting
    )
    return None if incomplete else {f"{name}.cc": result.reason for name, result in failed.items()}


def _locate_object(workspace: Workspace, unit: KernelUnit) -> Path:
    return workspaces.locate_object(workspace, unit.sources[0])


def _read_symbols(workspace: Workspace, sources: Sequence[str]) -> dict[str, Symbols]:
    paths = [workspaces.locate_object(workspace, source) for source in sources]
    with ThreadPoolExecutor(_READERS) as pool:
        return dict(zip(sources, pool.map(closure.read_symbols, paths), strict=True))


def _test_units(
    workspace: Workspace, units: Sequence[KernelUnit], ground: BuildSetup, end: float
) -> dict[str, BatchResult]:
    """Return the result of each kernel group that was tested in time."""
    notes = workspace.folder.parent / f"survey-{admission.hash_test_code()[:8]}.json"
    results = _load_results(notes)
    waiting = [unit for unit in units if unit.name not in results]
    for batch in _split_batches(waiting, end, "kernel groups to test"):
        compiled = workspaces.compile_units(workspace, batch, keep_going=True)
        for verdict in _test_libraries(workspace, compiled.libraries, ground):
            results[verdict.unit] = BatchResult(
                reason=shorten_reason(verdict.reason),
                registrations=len(verdict.registrations),
                cases=verdict.cases,
            )
        for unit, reason in compiled.failed.items():
            results[unit] = BatchResult(reason=f"it does not link: {shorten_reason(reason)}")
        _save_results(notes, results)
    return results


def _test_libraries(
    workspace: Workspace, libraries: Mapping[str, Path], ground: BuildSetup
) -> Iterator[UnitVerdict]:
    """Test the libraries, and yield a verdict on each.

    A group that ends the probe itself also loses the groups after it: each of them is tested
    again alone.
    """
    for verdict in builder.resolve_verdicts(workspace, libraries, ground):
        if verdict.lost:
            yield from builder.resolve_verdicts(
                workspace, {verdict.unit: libraries[verdict.unit]}, ground
            )
        else:
            yield verdict


def _split_batches(
    waiting: Sequence[KernelUnit], end: float, noun: str
) -> Iterator[Sequence[KernelUnit]]:
    done = 0
    while done < len(waiting):
        if time.monotonic() >= end:
            console.print_note(
                f"the time is up: {len(waiting) - done} {noun} remain for the next run"
            )
            return
        with console.report_step(f"{len(waiting) - done} {noun}"):
            yield waiting[done : done + _BATCH]
        done += _BATCH


def _save_results(notes: Path, results: Mapping[str, BatchResult]) -> None:
    save(notes, {"schema": SCHEMA, "seen": dict(results)})


def _load_results(notes: Path) -> dict[str, BatchResult]:
    """Return the results of earlier runs; {} if there were none."""
    if not notes.is_file():
        return {}
    try:
        fields = load(notes, schema=SCHEMA)["seen"]
        return {name: decode_record(BatchResult, row) for name, row in fields.items()}
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise RecordError(f"{notes} is no survey record ({error})", hint="Remove it") from error


def shorten_reason(reason: str) -> str:
    """Return the first line of a reason, without paths of this machine and cut to length."""
    line = _PATH.sub("", reason.partition("\n")[0]).strip()
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"


def build_rows(survey: Survey) -> tuple[SurveyRow, ...]:
    """Build a row for each source, sorted by name."""
    return tuple(_build_row(survey, source) for source in sorted(survey.table))


def _build_row(survey: Survey, source: str) -> SurveyRow:
    row = SurveyRow(source=source, ops=survey.table[source])
    if source in survey.broken:
        return dataclasses.replace(row, outcome=SourceOutcome.BROKEN, reason=survey.broken[source])
    unit = survey.units.get(source)
    if unit is None:
        return _build_ungrouped_row(survey, row)
    with_unit = dataclasses.replace(
        row,
        unit=unit.name,
        sources=tuple(path.removeprefix(f"{FOLDER}/") for path in unit.sources),
    )
    result = survey.results.get(unit.name)
    if result is None:
        return with_unit
    return dataclasses.replace(
        with_unit,
        outcome=SourceOutcome.REFUSED if result.reason else SourceOutcome.ADMITTED,
        registrations=result.registrations,
        cases=result.cases,
        reason=result.reason,
    )


def _build_ungrouped_row(survey: Survey, bare: SurveyRow) -> SurveyRow:
    if not survey.units:  # (before the first pass has ended)
        return bare
    if not bare.ops:
        return dataclasses.replace(bare, outcome=SourceOutcome.HELPER)
    broken = [
        source for source in sorted(survey.broken) if set(survey.table[source]) & set(bare.ops)
    ]
    subject = f"{broken[0]}, which registers the same op," if broken else "a source that it needs"
    reason = f"{subject} does not compile"
    return dataclasses.replace(bare, outcome=SourceOutcome.REFUSED, reason=reason)
