"""A wheel of kernels, made again of what it says of itself: `invoke audit --rebuild`.

It is compiled, linked and packed by the code of a build, but its kernels are not run, so that it
works for targets that this CPU lacks: the bytes of a library depend on its units and on what it
registers, and tuned.json says both. Whether those may be registered, `invoke admit` shows.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tfbuild import console, settings
from tfbuild.errors import BuildError, RebuildError
from tfbuild.kernelbuild import assemble, proof
from tfbuild.kernelbuild import build as builder
from tfbuild.kernelbuild import workspace as workspaces
from tfbuild.kernelbuild.admission import UnitVerdict
from tfbuild.kernelbuild.assemble import LinkedLibrary
from tfbuild.kernelbuild.ground import Inputs, inputs_for
from tfbuild.kernelbuild.origin import Origin, compiler_for, need_kernels, origin_of
from tfbuild.kernelbuild.proof import Pair, Rebuilt, Steps
from tfbuild.kernelbuild.workspace import CompiledUnits, Workspace
from tfbuild.packing import tuned
from tfbuild.packing.tuned import KernelLibrary
from tfbuild.packing.wheel import read_identity
from tfbuild.planning import render
from tfbuild.planning.jobs import Jobs
from tfbuild.planning.plan import Plan
from tfbuild.settings import Paths
from tfbuild.tools import pgo
from tfbuild.upstream import given, source

_FOLDER = ".again."


def origin_for(wheel: Path, given_source: Path | None) -> Origin:
    """What is to be made again of a wheel. Nothing is fetched.

    Raises RebuildError for what this version of Tensorwright, or this machine, cannot make.
    """
    facts, identity = need_kernels(tuned.read_tuned(wheel)), read_identity(wheel)
    near = facts.nearness
    if near is not None and not near.own and given_source is None:
        commit = f" ({near.commit})" if near.commit else ""
        raise RebuildError(
            "its kernels are not of the release's own sources, but of "
            f"{facts.source_file}{commit}, sha256 {facts.source_sha256}",
            hint="Give them: --source PATH",
        )
    return origin_of(facts, identity, compiler_for(facts, identity.machine))


def rebuild(
    wheel: Path,
    origin: Origin,
    jobs: Jobs,
    *,
    paths: Paths,
    given_source: Path | None = None,
    given_stock: Path | None = None,
) -> Rebuilt:
    """Make the wheel again, in a folder of its own, and compare. The pool is neither asked nor
    written.

    Raises whatever a stage of a build raises.
    """
    fleet = origin.fleet
    builder.need_linker(fleet, origin.compiler)
    settings.require_disk(paths.cache, builder.DISK_BYTES, "making a wheel again")
    _bring_profiles(wheel, origin, paths)
    inputs = inputs_for(fleet.first, paths, _source(origin, given_source, paths), given_stock)
    rooms = [workspaces.prepare(plan, origin.compiler, jobs, inputs, paths) for plan in fleet.plans]
    made = [
        _made(room, origin, dispatched=() if number else fleet.plans)
        for number, room in enumerate(rooms)
    ]
    for left in paths.work.glob(f"{_FOLDER}*"):  # by a run that was killed
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_FOLDER, dir=paths.work) as folder:
        fresh = _assembled(origin, made, rooms[0], inputs, Path(folder) / "wheel")
        with console.report_step("compare"):
            said = tuned.read_tuned(fresh)
            assert said is not None  # noqa: S101  (we have just made it)
            pair = Pair(
                wheel=wheel,
                fresh=fresh,
                origin=origin,
                made=said,
                papers=assemble.papers_of(origin.facts, fleet, inputs.stock, inputs.staged),
                folder=Path(folder),
            )
            return proof.prove(pair, tuple(map(_steps, rooms)))


def _assembled(
    origin: Origin, made: Sequence[LinkedLibrary], first: Workspace, inputs: Inputs, folder: Path
) -> Path:
    with console.report_step("assemble the wheel"):
        return assemble.assemble(
            origin.fleet,
            made,
            workspaces.dispatcher_of(first),
            stock=inputs.stock,
            bazel=first.bazel.version,
            source_sha256=inputs.source_sha256,
            nearness=inputs.nearness,
            tree=inputs.staged,
            out_dir=folder,
        )


def _source(origin: Origin, path: Path | None, paths: Paths) -> Path:
    """Of what the release can be had from, the very archive that the wheel names."""
    pins = origin.fleet.first.sources
    if pins[0].kind == given.KIND and path is not None and path.is_dir():
        return path
    wanted = tuple(pin for pin in pins if pin.file.sha256 == origin.facts.source_sha256)
    return source.fetch_source(wanted, paths, path)


def _bring_profiles(wheel: Path, origin: Origin, paths: Paths) -> None:
    names = {name for plan in origin.fleet.plans for name in render.list_profiles(plan)}
    try:
        pgo.bring(names, [wheel.parent], paths)
    except BuildError as error:
        hint = "Put it beside the wheel: invoke flags left it beside the selection"
        raise RebuildError(error.message, hint=hint) from error


def _made(room: Workspace, origin: Origin, *, dispatched: Sequence[Plan]) -> LinkedLibrary:
    """The library of one target, of the units and with the registrations that tuned.json names."""
    plan = room.plan
    said = next(each for each in origin.facts.libraries if each.target == plan.target.spec)
    units = tuple(unit for unit in plan.kernels if unit.name in said.kernels)
    nothing = CompiledUnits(libraries={}, failed={}, complete=False)
    with console.report_step(
        f"compile and link {console.format_count(len(units), 'kernel unit')} for {plan.target.spec}"
    ):
        library = workspaces.link(room, units, said.registrations, dispatched, compiled=nothing)
    return LinkedLibrary(
        plan=plan,
        ran_as=next(iter(said.ran_as), ""),
        library=library,
        verdicts=_verdicts(said),
        registrations=said.registrations,
    )


def _verdicts(said: KernelLibrary) -> tuple[UnitVerdict, ...]:
    """Admission's, as far as tuned.json keeps them."""
    every = {
        unit: UnitVerdict(unit=unit, reason=reason) for unit, reason in said.stay_stock.items()
    }
    for unit in said.kernels:
        own = said.list_registrations(unit) if unit in said.admission else ()
        every[unit] = UnitVerdict(unit=unit, registrations=own)
    return tuple(every[unit] for unit in sorted(every))


def _steps(room: Workspace) -> Steps:
    run, cached = workspaces.steps_of(room)
    return Steps(target=room.plan.target.spec, run=run, cached=cached)
