"""Rebuilds a kernel wheel from its tuned.json: `invoke audit --rebuild`.

The code of a build compiles, links and packs it, but runs no kernel, so it also works for targets
that this CPU cannot run. The bytes of a library depend on its kernel groups and registrations, and
tuned.json has both. `invoke admit` tests whether the kernels may be registered.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tfbuild.kernelbuild import assemble, proof
from tfbuild.kernelbuild import build as builder
from tfbuild.kernelbuild import workspace as workspaces
from tfbuild.kernelbuild.admission import UnitVerdict
from tfbuild.kernelbuild.assemble import LinkedLibrary
from tfbuild.kernelbuild.build_setup import BuildInputs, prepare_inputs
from tfbuild.kernelbuild.origin import Origin, require_kernels, resolve_origin, select_compiler
from tfbuild.kernelbuild.proof import RebuildResult, StepCounts, WheelPair
from tfbuild.kernelbuild.workspace import CompiledUnits, Workspace
from tfbuild.packing import tuned
from tfbuild.packing.tuned import KernelLibrary
from tfbuild.packing.wheel import read_identity
from tfbuild.planning.jobs import Jobs
from tfbuild.planning.plan import KernelsPlan
from tfbuild.upstream import local_sources, source
from tfcore import console, settings
from tfcore.errors import RebuildError
from tfcore.settings import Paths

_FOLDER = ".again."


def read_origin(wheel: Path, given_source: Path | None) -> Origin:
    """Return the plans that a rebuild of the wheel needs. Fetches nothing.

    Raises RebuildError for what this version of Tensorwright, or this machine, cannot make.
    """
    facts, identity = require_kernels(tuned.read_tuned(wheel)), read_identity(wheel)
    near = facts.nearness
    if near is not None and not near.own and given_source is None:
        commit = f" ({near.commit})" if near.commit else ""
        raise RebuildError(
            "its kernels were not built from the release's sources, but from "
            f"{facts.source_file}{commit}, sha256 {facts.source_sha256}",
            hint="Pass these sources: --source PATH",
        )
    return resolve_origin(facts, identity, select_compiler(facts, identity.machine))


def rebuild(
    wheel: Path,
    origin: Origin,
    jobs: Jobs,
    *,
    paths: Paths,
    given_source: Path | None = None,
    given_stock: Path | None = None,
) -> RebuildResult:
    """Rebuild the wheel in a folder of its own, and compare.

    The pool is neither read nor written. Raises whatever a stage of a build raises.
    """
    fleet = origin.fleet
    builder.require_linker(fleet, origin.compiler)
    settings.require_disk(paths.cache, builder.DISK_BYTES, "rebuilding a wheel")
    inputs = prepare_inputs(
        fleet.first, paths, _fetch_source(origin, given_source, paths), given_stock
    )
    plan_workspaces = [
        workspaces.prepare_workspace(plan, origin.compiler, jobs, inputs, paths)
        for plan in fleet.plans
    ]
    libraries = [
        _link_library(workspace, origin, dispatched=() if index else fleet.plans)
        for index, workspace in enumerate(plan_workspaces)
    ]
    for leftover in paths.work.glob(f"{_FOLDER}*"):  # of a run that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_FOLDER, dir=paths.work) as folder:
        fresh = _assemble_wheel(
            origin, libraries, plan_workspaces[0], inputs, Path(folder) / "wheel"
        )
        with console.report_step("compare"):
            facts = tuned.read_tuned(fresh)
            assert facts is not None  # noqa: S101  (_assemble_wheel wrote it)
            pair = WheelPair(
                wheel=wheel,
                fresh=fresh,
                origin=origin,
                made=facts,
                papers=assemble.render_metadata(origin.facts, fleet, inputs.stock, inputs.staged),
                folder=Path(folder),
            )
            return proof.compare_wheels(pair, tuple(map(_count_steps, plan_workspaces)))


def _assemble_wheel(
    origin: Origin,
    libraries: Sequence[LinkedLibrary],
    first: Workspace,
    inputs: BuildInputs,
    folder: Path,
) -> Path:
    with console.report_step("assemble the wheel"):
        return assemble.assemble_wheel(
            origin.fleet,
            libraries,
            workspaces.locate_dispatcher(first),
            stock=inputs.stock,
            bazel=first.bazel.version,
            source_sha256=inputs.source_sha256,
            nearness=inputs.nearness,
            tree=inputs.staged,
            out_dir=folder,
        )


def _fetch_source(origin: Origin, path: Path | None, paths: Paths) -> Path:
    """Fetch exactly the archive that the wheel names, of all that the release can be had from."""
    pins = origin.fleet.first.sources
    if pins[0].kind == local_sources.KIND and path is not None and path.is_dir():
        return path
    matches = tuple(pin for pin in pins if pin.file.sha256 == origin.facts.source_sha256)
    return source.fetch_source(matches, paths, path)


def _link_library(
    workspace: Workspace, origin: Origin, *, dispatched: Sequence[KernelsPlan]
) -> LinkedLibrary:
    """Link the library of one target from the kernel groups and registrations in tuned.json."""
    plan = workspace.plan
    recorded = next(entry for entry in origin.facts.libraries if entry.target == plan.target.spec)
    units = tuple(unit for unit in plan.kernels if unit.name in recorded.kernels)
    no_units = CompiledUnits(libraries={}, failed={}, complete=False)
    with console.report_step(
        f"compile and link {console.format_count(len(units), 'kernel group')} for "
        f"{plan.target.spec}"
    ):
        library = workspaces.link_library(
            workspace, units, recorded.registrations, dispatched, compiled=no_units
        )
    return LinkedLibrary(
        plan=plan,
        ran_as=next(iter(recorded.ran_as), ""),
        library=library,
        verdicts=_restore_verdicts(recorded),
        registrations=recorded.registrations,
    )


def _restore_verdicts(library: KernelLibrary) -> tuple[UnitVerdict, ...]:
    """Return the conformance test results, as far as tuned.json keeps them."""
    by_unit = {
        unit: UnitVerdict(unit=unit, reason=reason) for unit, reason in library.stay_stock.items()
    }
    for unit in library.kernels:
        kernels = library.list_registrations(unit) if unit in library.admission else ()
        by_unit[unit] = UnitVerdict(unit=unit, registrations=kernels)
    return tuple(by_unit[unit] for unit in sorted(by_unit))


def _count_steps(workspace: Workspace) -> StepCounts:
    run, cached = workspaces.read_link_steps(workspace)
    return StepCounts(target=workspace.plan.target.spec, run=run, cached=cached)
