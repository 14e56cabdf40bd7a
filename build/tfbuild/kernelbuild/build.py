"""From a plan to a tuned wheel: the kernels scope, stage after stage."""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from packaging.version import Version

from tfbuild import console, interpreters, packages, settings
from tfbuild.cpus import flags
from tfbuild.cpus.compilers import Compiler, can_link, name_cross_package
from tfbuild.errors import KernelError, PythonError, ToolError, WheelError
from tfbuild.kernelbuild import admission, assemble, pool, structures
from tfbuild.kernelbuild import workspace as workspaces
from tfbuild.kernelbuild.admission import UnitVerdict
from tfbuild.kernelbuild.assemble import LinkedLibrary
from tfbuild.kernelbuild.ground import Ground, ground_for, installed, stock_wheel_of
from tfbuild.kernelbuild.pool import Built, Part
from tfbuild.kernelbuild.verdicts import verdicts_in
from tfbuild.kernelbuild.workspace import CompiledUnits, Workspace
from tfbuild.measured.kernels import TypedOp
from tfbuild.packing import wheel
from tfbuild.planning import defaults
from tfbuild.planning.fleet import Fleet
from tfbuild.planning.jobs import Jobs
from tfbuild.planning.plan import Plan, require_stock
from tfbuild.planning.stand_in import choose_proxy_plan, list_missing_features
from tfbuild.settings import Paths
from tfbuild.tools import emulation

DISK_BYTES = 4_500_000_000
_OLDEST_PROBED = Version("3.10")
"""The oldest Python that tfbuild.probe runs in."""


def build(
    fleet: Fleet,
    *,
    compiler: Compiler,
    jobs: Jobs,
    paths: Paths,
    given_source: Path | None = None,
    given_stock: Path | None = None,
    keep_going: bool = False,
) -> Built:
    """Make the fleet's wheel, or find it finished. What an earlier run has done is not done again.

    Raises whatever a stage raises; the pool gets a whole wheel or nothing.
    """
    (built,) = build_all(
        (fleet,),
        compiler=compiler,
        jobs=jobs,
        paths=paths,
        given_source=given_source,
        given_stock=given_stock,
        keep_going=keep_going,
    )
    return built


def build_all(
    fleets: Sequence[Fleet],
    *,
    compiler: Compiler,
    jobs: Jobs,
    paths: Paths,
    given_source: Path | None = None,
    given_stock: Path | None = None,
    keep_going: bool = False,
) -> tuple[Built, ...]:
    """The wheels of fleets that differ in Python only, as `build` makes one: their libraries are
    built once."""
    for fleet in fleets:
        require_stock(fleet.first)
    found = {fleet.key: pool.find(fleet, paths) for fleet in fleets}
    finished = {key: built for key, built in found.items() if built is not None}
    for built in finished.values():
        console.print_note(f"{built.wheel.name} is already built")
    left = [fleet for fleet in fleets if fleet.key not in finished]
    if left:
        # One that is finished is built again from the caches, in seconds.
        first = min(fleets, key=lambda each: (bool(_untried(each)), each.key not in finished))
        for plan in first.plans:
            for each in plan.defaults:
                console.print_message(f"{plan.target.spec}: default {defaults.describe(each)}")
        _need_probed(first)
        need_linker(first, compiler)
        settings.require_disk(paths.cache, DISK_BYTES, "building a tuned wheel")
        ground = ground_for(first.first, paths, given_source, given_stock)
        make = _Making(ground=ground, paths=paths, given_stock=given_stock)
        make.libraries(first, compiler, jobs, keep_going=keep_going)
        finished |= {fleet.key: make.wheel(fleet) for fleet in left}
    return tuple(finished[fleet.key] for fleet in fleets)


def _untried(fleet: Fleet) -> str:
    """Why the fleet's wheel cannot be tried here; empty if it can."""
    plan = fleet.first
    if Version(plan.python) < _OLDEST_PROBED:
        return f"Python {plan.python} is older than what tries it"
    if plan.target.family != platform.machine():
        right = plan.python == emulation.PYTHON
        return "" if right else f"what is emulated has Python {emulation.PYTHON} only"
    here = interpreters.is_here(plan.python)
    return "" if here else f"no Python {plan.python} that works is here"


class _Making:
    """The libraries of a fleet, and the wheels of its Pythons that they are put into."""

    def __init__(self, *, ground: Ground, paths: Paths, given_stock: Path | None) -> None:
        self._ground = ground
        self._paths = paths
        self._given_stock = given_stock
        self._made: tuple[LinkedLibrary, ...] = ()
        self._first: Workspace | None = None

    def libraries(self, fleet: Fleet, compiler: Compiler, jobs: Jobs, *, keep_going: bool) -> None:
        """The linked library of every target, compiled and admitted."""
        ground, paths = self._ground, self._paths
        runners = [
            choose_proxy_plan(plan, fleet.plans, ground.cpu, compiler) for plan in fleet.plans
        ]
        distinct = {plan.key: plan for plan in (*fleet.plans, *runners)}
        rooms = {
            key: dataclasses.replace(
                workspaces.prepare(plan, compiler, jobs, ground, paths), stays=True
            )
            for key, plan in distinct.items()
        }
        self._first = rooms[fleet.first.key]
        with _Admissions(ground=ground, rooms=rooms, keep_going=keep_going) as tried:
            self._made = tuple(
                _made(plan, runner, tried, dispatched=() if number else fleet.plans)
                for number, (plan, runner) in enumerate(zip(fleet.plans, runners, strict=True))
            )

    def wheel(self, fleet: Fleet) -> Built:
        """The wheel of this fleet's Python, tried where that Python is here."""
        first, paths = self._first, self._paths
        assert first is not None  # noqa: S101  (libraries comes first)
        own = fleet.first.stock == first.plan.stock
        stock = self._ground.stock if own else self._stock_of(fleet.first)
        made = [
            dataclasses.replace(each, plan=plan)
            for each, plan in zip(self._made, fleet.plans, strict=True)
        ]
        with console.report_step(f"assemble the wheel for Python {fleet.first.python}"):
            fresh = assemble.assemble(
                fleet,
                made,
                workspaces.dispatcher_of(first),
                stock=stock,
                bazel=first.bazel.version,
                source_sha256=self._ground.source_sha256,
                nearness=self._ground.nearness,
                tree=self._ground.staged,
                out_dir=paths.work / fleet.key[:16] / "wheel",
            )
        parts = tuple(
            Part(
                target=m.plan.target.spec,
                ran_as=m.ran_as,
                size=m.library.stat().st_size,
                verdicts=m.verdicts,
            )
            for m in made
        )
        return pool.admit(fresh, fleet, parts, paths, smoke=self._tried(fresh, fleet, stock))

    def _stock_of(self, plan: Plan) -> Path:
        """The stock wheel of another Python. Raises WheelError where its libraries are not those
        that the kernels were linked to and admitted in."""
        pin, recipe = require_stock(plan), plan.kernel_recipe
        assert recipe is not None  # noqa: S101  (a kernels plan has one)
        stock = stock_wheel_of(plan, pin, self._paths, self._given_stock)
        theirs, ours = (
            {line.name: line.digest for line in wheel.read_record(path)}
            for path in (stock, self._ground.stock)
        )
        for name in recipe.libraries:
            if theirs.get(name) != ours[name]:
                raise WheelError(
                    f"{stock.name} has another {Path(name).name} than {self._ground.stock.name}",
                    hint=f"Build it by itself: --python {plan.python}",
                )
        return stock

    def _tried(self, fresh: Path, fleet: Fleet, stock: Path) -> dict[str, Any]:
        """What was seen of the wheel in its own interpreter; nothing where that is not here."""
        plan, paths = fleet.first, self._paths
        if why := _untried(fleet):
            console.warn(
                f"{fresh.name} was not tried: {why}. Its libraries are those that ran in Python "
                f"{self._ground.python}"
            )
            return {}
        with console.report_step(f"install the wheel and try it in Python {plan.python}"):
            emulator = self._ground.emulator
            like = installed(plan, stock, emulator, paths)
            arm = installed(plan, fresh, emulator, paths, like)
            found = assemble.try_out(fresh, fleet, arm, cpu=self._ground.cpu, paths=paths)
        return {name: found[name] for name in found if name != "file"}


class _Admissions:
    """What was compiled and admitted in the workspaces (`rooms`, by their plans' keys) of a build:
    each once, though one target may stand in for several. Bazel stays in them for their links."""

    def __init__(self, *, ground: Ground, rooms: Mapping[str, Workspace], keep_going: bool) -> None:
        self.ground = ground
        self.rooms = rooms
        self._keep_going = keep_going
        self._compiled: dict[str, CompiledUnits] = {}
        self._verdicts: dict[str, tuple[UnitVerdict, ...]] = {}
        self._open: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._open:
            workspaces.close(self.rooms[self._open.pop()])

    def linked(self, plan: Plan) -> None:
        """Nothing more is asked of Bazel for the plan. What stays takes memory."""
        self._open.remove(plan.key)
        workspaces.close(self.rooms[plan.key])

    def compiled(self, plan: Plan) -> CompiledUnits:
        if plan.key not in self._compiled:
            with console.report_step(
                f"compile {console.format_count(len(plan.kernels), 'kernel unit')} for {plan.target.spec}"
            ):
                self._open.add(plan.key)
                self._compiled[plan.key] = workspaces.compile_units(
                    self.rooms[plan.key], plan.kernels, keep_going=self._keep_going
                )
        return self._compiled[plan.key]

    def verdicts(self, plan: Plan) -> tuple[UnitVerdict, ...]:
        """Verdicts on the units of a plan whose kernels this CPU runs."""
        if plan.key not in self._verdicts:
            compiled = self.compiled(plan)
            with console.report_step(
                f"admission: each unit for {plan.target.spec} against the stock kernels"
            ):
                room = self.rooms[plan.key]
                verdicts = admit(room, compiled.libraries, self.ground)
                admission.need_judged(verdicts, room.folder.parent)
                self._verdicts[plan.key] = _with_broken(verdicts, compiled)
        return self._verdicts[plan.key]

    def vouched(self, plan: Plan, runner: Plan) -> tuple[UnitVerdict, ...]:
        """Verdicts on the units of a plan that this CPU cannot run: those on `runner`, the same
        sources for a target that it can run, and what shows without running."""
        recipe = plan.kernel_recipe
        assert recipe is not None  # noqa: S101  (a kernels plan has one)
        verdicts = self.verdicts(runner)
        compiled = self.compiled(plan)
        _need_same_structures(self.rooms[plan.key])
        with console.report_step(f"what shows of {plan.target.spec} without running it"):
            found = admission.vouched(
                verdicts,
                compiled.libraries,
                self.compiled(runner).libraries,
                staged=self.ground.staged,
                stock_libraries=[self.ground.headers / each for each in recipe.libraries],
            )
        return _with_broken(found, compiled)


def _with_broken(
    verdicts: Sequence[UnitVerdict], compiled: CompiledUnits
) -> tuple[UnitVerdict, ...]:
    """A verdict on every unit, by name; one that does not compile has that for its reason."""
    broken = {
        name: UnitVerdict(unit=name, reason=f"it does not compile: {why}")
        for name, why in compiled.failed.items()
    }
    every = {verdict.unit: verdict for verdict in verdicts} | broken
    return tuple(every[name] for name in sorted(every))


def _made(
    plan: Plan, runner: Plan, tried: _Admissions, *, dispatched: Sequence[Plan]
) -> LinkedLibrary:
    """The library of one target, of the units that agree with the stock kernels as compiled for the
    target of `runner`; beside it the dispatcher of these plans."""
    if runner.target != plan.target:
        lacks = ", ".join(list_missing_features(plan, tried.ground.cpu))
        console.print_message(
            f"{plan.target.spec}: {_host(tried.ground)} lacks {lacks}; the same sources compiled "
            f"for {runner.target.spec} are run instead"
        )
        verdicts = tried.vouched(plan, runner)
    else:
        verdicts = tried.verdicts(plan)
    _need_admitted(verdicts)
    workspace, compiled = tried.rooms[plan.key], tried.compiled(plan)
    with console.report_step("link"):
        good = {verdict.unit for verdict in verdicts if verdict.admitted}
        units = tuple(unit for unit in plan.kernels if unit.name in good)
        registered = admission.registered(verdicts, plan.selection)
        _need_registered(plan, registered)
        library = workspaces.link(workspace, units, registered, dispatched, compiled=compiled)
        tried.linked(plan)
        return LinkedLibrary(
            plan=plan,
            ran_as=_ran_as(runner, tried.ground),
            library=library,
            verdicts=verdicts,
            registrations=registered,
        )


def _need_probed(fleet: Fleet) -> None:
    """Raises PythonError for one that kernels cannot be admitted in."""
    python = fleet.first.python
    if Version(python) < _OLDEST_PROBED:
        raise PythonError(
            f"kernels are admitted in Python {_OLDEST_PROBED} or later, not in {python}",
            hint=f"Add one, whose libraries {python} gets, too: --python {python},3.11",
        )


def _host(ground: Ground) -> str:
    return f"a CPU of {ground.emulator.name}" if ground.emulator else "this CPU"


def _ran_as(runner: Plan, ground: Ground) -> str:
    """The target that kernels ran as, and the emulator, if it was no CPU."""
    spec = runner.target.spec
    return f"{spec} under {ground.emulator.name}" if ground.emulator else spec


def need_linker(fleet: Fleet, compiler: Compiler) -> None:
    """Raises ToolError for what the link would miss after the compiles."""
    if compiler.architecture != platform.machine():
        _need_cross(compiler)
    for plan in fleet.plans:
        words = {word for each in plan.source_flags.values() for word in each}
        asked = flags.compute_link_flags(compiler.family, words)
        if asked and not can_link(compiler, asked):
            major = compiler.version.partition(".")[0]
            clang = packages.suggest_install(
                f"lld and the runtime of LLVM {major}", f"lld-{major}", f"libclang-rt-{major}-dev"
            )
            raise ToolError(
                f"{compiler.path.name} cannot link with {' '.join(asked)}",
                hint=clang if compiler.family == "clang" else "Leave out -flto",
            )


def _need_cross(compiler: Compiler) -> None:
    """Raises ToolError for a compiler that makes no libraries for another architecture here."""
    architecture = compiler.architecture
    if compiler.family == "gcc":
        # Bazel has it look for its linker among this machine's.
        raise ToolError(
            f"{compiler.path.name} does not link kernels for {architecture} here",
            hint=f"Cross-compile with clang: --compiler {packages.choose_clang()}",
        )
    if not can_link(compiler, ("-lstdc++",)):
        raise ToolError(
            f"{compiler.path.name} finds no C++ library for {architecture}",
            hint=packages.suggest_install(
                f"a C++ library for {architecture}", name_cross_package(architecture)
            ),
        )


def _need_registered(plan: Plan, registered: Collection[TypedOp]) -> None:
    """Tells of what was selected and is not admitted. Raises KernelError when that is all."""
    for each in sorted({*(plan.selection or ())} - {*registered}):
        console.warn(f"{each.op} {each.types} was selected, but is not admitted: it stays stock")
    if not registered:
        raise KernelError("nothing that was selected is admitted", hint="Run invoke select again")


def admit(
    workspace: Workspace, libraries: Mapping[str, Path], ground: Ground
) -> tuple[UnitVerdict, ...]:
    """A verdict on each unit's library; what was found before is not looked for again.

    Raises KernelError, before anything is judged, where kernels would see other structures.
    """
    recipe = workspace.plan.kernel_recipe
    assert recipe is not None  # noqa: S101
    _need_same_structures(workspace)
    folder = workspace.paths.verdicts
    verdicts = verdicts_in(folder, ground.arm, ground.staged, recipe.copts, ground.cpu)
    recalled = {unit: verdicts.recall(unit, path) for unit, path in libraries.items()}
    known = {unit: verdict for unit, verdict in recalled.items() if verdict is not None}
    if known:
        console.print_note(
            f"{len(known)} of {console.format_count(len(libraries), 'unit')} were looked at before"
        )
    fresh = admission.admit(
        {unit: path for unit, path in libraries.items() if unit not in known},
        staged=ground.staged,
        stock_libraries=[ground.headers / library for library in recipe.libraries],
        copts=recipe.copts,
        environment=ground.arm,
        folder=workspace.folder.parent,
        compiled=workspace.plan.selection if workspace.plan.only_selected else None,
    )
    for verdict in fresh:
        verdicts.keep(libraries[verdict.unit], verdict)
    late = {verdict.unit: verdict for verdict in fresh}
    return tuple((known | late)[unit] for unit in libraries)


def _need_same_structures(workspace: Workspace) -> None:
    notes = workspace.folder.parent / structures.NOTES
    structures.need_same(workspaces.structures_of(workspace), notes)


def _need_admitted(verdicts: Sequence[UnitVerdict]) -> None:
    """Tells of the units that stay stock. Raises KernelError when those are all."""
    for verdict in verdicts:
        if not verdict.admitted:
            console.warn(f"kernel {verdict.unit} stays stock: {verdict.reason.splitlines()[0]}")
    if not any(verdict.admitted for verdict in verdicts):
        raise KernelError("no kernel was admitted, so there is no wheel to make")
