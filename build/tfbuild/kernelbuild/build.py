"""Builds a tuned wheel from a plan: the stages of --scope kernels."""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from packaging.version import Version

from tfbuild import interpreters
from tfbuild.kernelbuild import admission, assemble, pool, structures
from tfbuild.kernelbuild import workspace as workspaces
from tfbuild.kernelbuild.admission import UnitVerdict
from tfbuild.kernelbuild.assemble import LinkedLibrary
from tfbuild.kernelbuild.build_setup import (
    BuildSetup,
    create_environment,
    fetch_stock_wheel,
    prepare_setup,
)
from tfbuild.kernelbuild.pool import BuiltWheel, WheelPart
from tfbuild.kernelbuild.verdicts import open_verdicts
from tfbuild.kernelbuild.workspace import CompiledUnits, Workspace
from tfbuild.packing import wheel
from tfbuild.planning import defaults
from tfbuild.planning.fleet import Fleet
from tfbuild.planning.jobs import Jobs
from tfbuild.planning.plan import KernelsPlan, require_stock
from tfbuild.planning.proxy_targets import choose_proxy_plan, list_missing_features
from tfbuild.tools import emulation
from tfcore import console, packages, settings
from tfcore.comparisons.kernels import TypedOp
from tfcore.cpus import flags
from tfcore.cpus.compilers import Compiler, can_link, name_cross_package
from tfcore.errors import KernelError, PythonError, ToolError, WheelError
from tfcore.settings import Paths

DISK_BYTES = 4_500_000_000
_OLDEST_PROBED = Version("3.10")
"""The oldest Python version that runs tfbuild.probe."""


def build_wheel(
    fleet: Fleet[KernelsPlan],
    *,
    compiler: Compiler,
    jobs: Jobs,
    paths: Paths,
    given_source: Path | None = None,
    given_stock: Path | None = None,
    keep_going: bool = False,
) -> BuiltWheel:
    """Build the fleet's wheel, or return it from the pool.

    Finished work of earlier runs is reused. Raises whatever a stage raises; the pool gets a whole
    wheel or nothing.
    """
    (built,) = build_wheels(
        (fleet,),
        compiler=compiler,
        jobs=jobs,
        paths=paths,
        given_source=given_source,
        given_stock=given_stock,
        keep_going=keep_going,
    )
    return built


def build_wheels(
    fleets: Sequence[Fleet[KernelsPlan]],
    *,
    compiler: Compiler,
    jobs: Jobs,
    paths: Paths,
    given_source: Path | None = None,
    given_stock: Path | None = None,
    keep_going: bool = False,
) -> tuple[BuiltWheel, ...]:
    """Build the wheels of fleets that differ only in Python, as `build_wheel` builds one.

    Their libraries are built once.
    """
    for fleet in fleets:
        require_stock(fleet.first)
    pooled = {fleet.key: pool.find_wheel(fleet, paths) for fleet in fleets}
    finished = {key: built for key, built in pooled.items() if built is not None}
    for built in finished.values():
        console.print_note(f"{built.wheel.name} is already built")
    remaining = [fleet for fleet in fleets if fleet.key not in finished]
    if remaining:
        # A finished wheel is built again from the caches, in seconds.
        first = min(
            fleets,
            key=lambda candidate: (
                bool(_find_test_obstacle(candidate)),
                candidate.key not in finished,
            ),
        )
        for plan in first.plans:
            for default in plan.defaults:
                console.print_message(f"{plan.target.spec}: default {defaults.describe(default)}")
        _require_python(first)
        require_linker(first, compiler)
        settings.require_disk(paths.cache, DISK_BYTES, "building a tuned wheel")
        ground = prepare_setup(first.first, paths, given_source, given_stock)
        fleet_builder = _FleetBuilder(ground=ground, paths=paths, given_stock=given_stock)
        fleet_builder.build_libraries(first, compiler, jobs, keep_going=keep_going)
        finished |= {fleet.key: fleet_builder.build_wheel(fleet) for fleet in remaining}
    return tuple(finished[fleet.key] for fleet in fleets)


def _find_test_obstacle(fleet: Fleet[KernelsPlan]) -> str:
    """Return why the fleet's wheel cannot be tested here; "" if it can."""
    plan = fleet.first
    if Version(plan.python) < _OLDEST_PROBED:
        return f"the tests need Python {_OLDEST_PROBED} or later, not {plan.python}"
    if plan.target.family != platform.machine():
        has_python = plan.python == emulation.PYTHON
        return "" if has_python else f"the emulated environment has only Python {emulation.PYTHON}"
    available = interpreters.is_here(plan.python)
    return "" if available else f"this machine has no working Python {plan.python}"


class _FleetBuilder:
    """A builder of a fleet's libraries, and of the wheels of its Pythons that contain them."""

    def __init__(self, *, ground: BuildSetup, paths: Paths, given_stock: Path | None) -> None:
        self._ground = ground
        self._paths = paths
        self._given_stock = given_stock
        self._made: tuple[LinkedLibrary, ...] = ()
        self._first: Workspace | None = None

    def build_libraries(
        self, fleet: Fleet[KernelsPlan], compiler: Compiler, jobs: Jobs, *, keep_going: bool
    ) -> None:
        """Compile, test and link the library of every target."""
        ground, paths = self._ground, self._paths
        proxies = [
            choose_proxy_plan(plan, fleet.plans, ground.cpu, compiler) for plan in fleet.plans
        ]
        distinct = {plan.key: plan for plan in (*fleet.plans, *proxies)}
        plan_workspaces = {
            key: dataclasses.replace(
                workspaces.prepare_workspace(plan, compiler, jobs, ground, paths), stays=True
            )
            for key, plan in distinct.items()
        }
        self._first = plan_workspaces[fleet.first.key]
        with _ConformanceTests(
            ground=ground, plan_workspaces=plan_workspaces, keep_going=keep_going
        ) as tests:
            self._made = tuple(
                _link_library(plan, proxy, tests, dispatched=() if index else fleet.plans)
                for index, (plan, proxy) in enumerate(zip(fleet.plans, proxies, strict=True))
            )

    def build_wheel(self, fleet: Fleet[KernelsPlan]) -> BuiltWheel:
        """Assemble the wheel of this fleet's Python, and test it if that Python is here."""
        first, paths = self._first, self._paths
        assert first is not None  # noqa: S101  (build_libraries runs first)
        is_same_stock = fleet.first.stock == first.plan.stock
        stock = self._ground.stock if is_same_stock else self._fetch_stock(fleet.first)
        linked_libraries = [
            dataclasses.replace(linked, plan=plan)
            for linked, plan in zip(self._made, fleet.plans, strict=True)
        ]
        with console.report_step(f"assemble the wheel for Python {fleet.first.python}"):
            new_wheel = assemble.assemble_wheel(
                fleet,
                linked_libraries,
                workspaces.locate_dispatcher(first),
                stock=stock,
                bazel=first.bazel.version,
                source_sha256=self._ground.source_sha256,
                nearness=self._ground.nearness,
                tree=self._ground.staged,
                out_dir=paths.work / fleet.key[:16] / "wheel",
            )
        parts = tuple(
            WheelPart(
                target=m.plan.target.spec,
                ran_as=m.ran_as,
                size=m.library.stat().st_size,
                verdicts=m.verdicts,
            )
            for m in linked_libraries
        )
        return pool.add_wheel(
            new_wheel, fleet, parts, paths, smoke=self._test_wheel(new_wheel, fleet, stock)
        )

    def _fetch_stock(self, plan: KernelsPlan) -> Path:
        """Fetch the stock wheel of another Python.

        Raises WheelError if its libraries are not those that the kernels were linked to and
        tested in.
        """
        stock = fetch_stock_wheel(plan, require_stock(plan), self._paths, self._given_stock)
        theirs, ours = (
            {line.name: line.digest for line in wheel.read_record(path)}
            for path in (stock, self._ground.stock)
        )
        for name in plan.kernel_recipe.libraries:
            if theirs.get(name) != ours[name]:
                raise WheelError(
                    f"{Path(name).name} of {stock.name} differs from that of "
                    f"{self._ground.stock.name}",
                    hint=f"Build this wheel separately: --python {plan.python}",
                )
        return stock

    def _test_wheel(self, fresh: Path, fleet: Fleet[KernelsPlan], stock: Path) -> dict[str, Any]:
        """Test the wheel in its own interpreter, and return the report; {} if that is not here."""
        plan, paths = fleet.first, self._paths
        if obstacle := _find_test_obstacle(fleet):
            console.warn(
                f"{fresh.name} was not tested: {obstacle}. Its libraries were tested in Python "
                f"{self._ground.python}"
            )
            return {}
        with console.report_step(f"install the wheel and test it in Python {plan.python}"):
            emulator = self._ground.emulator
            stock_environment = create_environment(plan, stock, emulator, paths)
            arm = create_environment(plan, fresh, emulator, paths, stock_environment)
            report = assemble.check_wheel(fresh, fleet, arm, cpu=self._ground.cpu, paths=paths)
        return {name: report[name] for name in report if name != "file"}


class _ConformanceTests:
    """The compiled kernel groups of a build's workspaces, and their conformance test results.

    `plan_workspaces` maps the plans' keys to their workspaces. Each plan is compiled and tested
    once, even if its target is the proxy of several. Bazel stays in the workspaces for their links.
    """

    def __init__(
        self, *, ground: BuildSetup, plan_workspaces: Mapping[str, Workspace], keep_going: bool
    ) -> None:
        self.ground = ground
        self.plan_workspaces = plan_workspaces
        self._keep_going = keep_going
        self._compiled: dict[str, CompiledUnits] = {}
        self._verdicts: dict[str, tuple[UnitVerdict, ...]] = {}
        self._open: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._open:
            workspaces.stop_bazel(self.plan_workspaces[self._open.pop()])

    def close_workspace(self, plan: KernelsPlan) -> None:
        """Stop Bazel in the workspace of a linked plan: a server that stays takes memory."""
        self._open.remove(plan.key)
        workspaces.stop_bazel(self.plan_workspaces[plan.key])

    def compile_units(self, plan: KernelsPlan) -> CompiledUnits:
        if plan.key not in self._compiled:
            with console.report_step(
                f"compile {console.format_count(len(plan.kernels), 'kernel group')} for "
                f"{plan.target.spec}"
            ):
                self._open.add(plan.key)
                self._compiled[plan.key] = workspaces.compile_units(
                    self.plan_workspaces[plan.key], plan.kernels, keep_going=self._keep_going
                )
        return self._compiled[plan.key]

    def test_units(self, plan: KernelsPlan) -> tuple[UnitVerdict, ...]:
        """Test the kernel groups of a plan whose kernels this CPU runs; return the verdicts."""
        if plan.key not in self._verdicts:
            compiled = self.compile_units(plan)
            with console.report_step(
                f"conformance test: each kernel group for {plan.target.spec} against stock"
            ):
                workspace = self.plan_workspaces[plan.key]
                verdicts = resolve_verdicts(workspace, compiled.libraries, self.ground)
                admission.require_tested(verdicts, workspace.folder.parent)
                self._verdicts[plan.key] = _add_compile_failures(verdicts, compiled)
        return self._verdicts[plan.key]

    def transfer_verdicts(self, plan: KernelsPlan, runner: KernelsPlan) -> tuple[UnitVerdict, ...]:
        """Return the verdicts on the kernel groups of a plan that this CPU cannot run.

        They are those of `runner`, the same sources for a target that it can run, and of the
        static checks of the plan's own libraries.
        """
        recipe = plan.kernel_recipe
        verdicts = self.test_units(runner)
        compiled = self.compile_units(plan)
        _require_same_structures(self.plan_workspaces[plan.key])
        with console.report_step(f"static checks of the kernels for {plan.target.spec}"):
            transferred = admission.transfer_verdicts(
                verdicts,
                compiled.libraries,
                self.compile_units(runner).libraries,
                staged=self.ground.staged,
                stock_libraries=[self.ground.headers / library for library in recipe.libraries],
            )
        return _add_compile_failures(transferred, compiled)


def _add_compile_failures(
    verdicts: Sequence[UnitVerdict], compiled: CompiledUnits
) -> tuple[UnitVerdict, ...]:
    """Return a verdict on every kernel group, by name, with those that do not compile."""
    broken = {
        name: UnitVerdict(unit=name, reason=f"it does not compile: {message}")
        for name, message in compiled.failed.items()
    }
    by_unit = {verdict.unit: verdict for verdict in verdicts} | broken
    return tuple(by_unit[name] for name in sorted(by_unit))


def _link_library(
    plan: KernelsPlan,
    runner: KernelsPlan,
    tried: _ConformanceTests,
    *,
    dispatched: Sequence[KernelsPlan],
) -> LinkedLibrary:
    """Link the library of one target from the kernel groups that passed.

    They were tested as compiled for the target of `runner`. The dispatcher of the
    `dispatched` plans is linked beside it.
    """
    if runner.target != plan.target:
        missing = ", ".join(list_missing_features(plan, tried.ground.cpu))
        console.print_message(
            f"{plan.target.spec}: {_describe_host(tried.ground)} lacks {missing}. The tests run "
            f"the same sources compiled for the proxy target {runner.target.spec}"
        )
        verdicts = tried.transfer_verdicts(plan, runner)
    else:
        verdicts = tried.test_units(plan)
    _require_passed(verdicts)
    workspace, compiled = tried.plan_workspaces[plan.key], tried.compile_units(plan)
    with console.report_step("link"):
        passed = {verdict.unit for verdict in verdicts if verdict.admitted}
        units = tuple(unit for unit in plan.kernels if unit.name in passed)
        registered = admission.select_registrations(verdicts, plan.selection)
        _require_registered(plan, registered)
        library = workspaces.link_library(
            workspace, units, registered, dispatched, compiled=compiled
        )
        tried.close_workspace(plan)
        return LinkedLibrary(
            plan=plan,
            ran_as=_describe_runner(runner, tried.ground),
            library=library,
            verdicts=verdicts,
            registrations=registered,
        )


def _require_python(fleet: Fleet[KernelsPlan]) -> None:
    """Raise PythonError if the fleet's Python is too old to run the conformance tests."""
    python = fleet.first.python
    if Version(python) < _OLDEST_PROBED:
        raise PythonError(
            f"the conformance test needs Python {_OLDEST_PROBED} or later, not {python}",
            hint=f"Add such a Python; both wheels get its libraries: --python {python},3.11",
        )


def _describe_host(ground: BuildSetup) -> str:
    return f"the CPU of {ground.emulator.name}" if ground.emulator else "this CPU"


def _describe_runner(runner: KernelsPlan, ground: BuildSetup) -> str:
    """Return the target that the kernels ran as, and the emulator, if there was one."""
    spec = runner.target.spec
    return f"{spec} under {ground.emulator.name}" if ground.emulator else spec


def require_linker(fleet: Fleet[KernelsPlan], compiler: Compiler) -> None:
    """Raise ToolError if the link, after the compiles, would lack a tool."""
    if compiler.architecture != platform.machine():
        _require_cross_linker(compiler)
    for plan in fleet.plans:
        words = {word for source_words in plan.source_flags.values() for word in source_words}
        link_options = flags.compute_link_flags(compiler.family, words)
        if link_options and not can_link(compiler, link_options):
            major = compiler.version.partition(".")[0]
            clang = packages.suggest_install(
                f"lld and the runtime of LLVM {major}", f"lld-{major}", f"libclang-rt-{major}-dev"
            )
            raise ToolError(
                f"{compiler.path.name} cannot link with {' '.join(link_options)}",
                hint=clang if compiler.family == "clang" else "Remove -flto",
            )


def _require_cross_linker(compiler: Compiler) -> None:
    """Raise ToolError if the compiler cannot link libraries for another architecture here."""
    architecture = compiler.architecture
    if compiler.family == "gcc":
        # Under Bazel g++ finds only the linkers of this machine.
        raise ToolError(
            f"{compiler.path.name} cannot link kernels for {architecture} on this machine",
            hint=f"Use clang to cross-compile: --compiler {packages.choose_clang()}",
        )
    if not can_link(compiler, ("-lstdc++",)):
        raise ToolError(
            f"{compiler.path.name} finds no C++ library for {architecture}",
            hint=packages.suggest_install(
                f"a C++ library for {architecture}", name_cross_package(architecture)
            ),
        )


def _require_registered(plan: KernelsPlan, registered: Collection[TypedOp]) -> None:
    """Warn of selected kernels that did not pass. Raises KernelError if none passed."""
    for kernel in sorted({*(plan.selection or ())} - {*registered}):
        console.warn(f"{kernel.op} {kernel.types} was selected, but did not pass: it stays stock")
    if not registered:
        raise KernelError(
            "no selected kernel passed the conformance test", hint="Run invoke select again"
        )


def resolve_verdicts(
    workspace: Workspace, libraries: Mapping[str, Path], ground: BuildSetup
) -> tuple[UnitVerdict, ...]:
    """Return the verdict on each kernel group's library, cached or from a new conformance test.

    Raises KernelError, before any test, if kernels would see other structures than stock.
    """
    recipe = workspace.plan.kernel_recipe
    _require_same_structures(workspace)
    folder = workspace.paths.verdicts
    verdicts = open_verdicts(folder, ground.arm, ground.staged, recipe.copts, ground.cpu)
    recalled = {unit: verdicts.find(unit, path) for unit, path in libraries.items()}
    known = {unit: verdict for unit, verdict in recalled.items() if verdict is not None}
    if known:
        console.print_note(
            f"{len(known)} of {console.format_count(len(libraries), 'kernel group')} were tested "
            "by an earlier run"
        )
    fresh = admission.run_conformance_tests(
        {unit: path for unit, path in libraries.items() if unit not in known},
        staged=ground.staged,
        stock_libraries=[ground.headers / library for library in recipe.libraries],
        copts=recipe.copts,
        environment=ground.arm,
        folder=workspace.folder.parent,
        compiled=workspace.plan.selection if workspace.plan.only_selected else None,
    )
    for verdict in fresh:
        verdicts.store(libraries[verdict.unit], verdict)
    new_verdicts = {verdict.unit: verdict for verdict in fresh}
    return tuple((known | new_verdicts)[unit] for unit in libraries)


def _require_same_structures(workspace: Workspace) -> None:
    notes = workspace.folder.parent / structures.NOTES
    structures.require_same(workspaces.locate_structures(workspace), notes)


def _require_passed(verdicts: Sequence[UnitVerdict]) -> None:
    """Warn of the kernel groups that stay stock. Raises KernelError if none passed."""
    for verdict in verdicts:
        if not verdict.admitted:
            reason = verdict.reason.splitlines()[0]
            console.warn(f"kernel group {verdict.unit} stays stock: {reason}")
    if not any(verdict.admitted for verdict in verdicts):
        raise KernelError(
            "no kernel group passed the conformance test: there is no wheel to build",
            hint="Choose other kernels with --kernels",
        )
