"""From a plan to a tuned wheel: the kernels scope, stage after stage."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfbuild import settings, talk
from tfbuild.cpus import flags
from tfbuild.cpus.compilers import Compiler, can_link
from tfbuild.cpus.cpu import read_cpu
from tfbuild.errors import KernelError, ToolError
from tfbuild.kernelbuild import admission, assemble, pool
from tfbuild.kernelbuild import workspace as workspaces
from tfbuild.kernelbuild.admission import Verdict
from tfbuild.kernelbuild.assemble import Made
from tfbuild.kernelbuild.pool import Built, Part
from tfbuild.kernelbuild.verdicts import verdicts_in
from tfbuild.kernelbuild.workspace import Compiled, Workspace
from tfbuild.packing import wheel
from tfbuild.planning.fleet import Fleet
from tfbuild.planning.jobs import Jobs
from tfbuild.planning.plan import KernelRecipe, Plan, need_stock
from tfbuild.planning.selection import Choice
from tfbuild.planning.stand_in import absent, stand_in
from tfbuild.settings import Places
from tfbuild.talk import did_you_mean
from tfbuild.tools import environment
from tfbuild.tools.environment import Environment
from tfbuild.upstream import releases, source
from tfbuild.upstream.download import sha256_of
from tfbuild.upstream.kernels import FOLDER

_DISK_BYTES = 4_500_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Ground:
    """What every target of a fleet is built on: the stock wheel and its parts, the sources."""

    stock: Path
    headers: Path
    staged: Path
    source_sha256: str
    arm: Environment


def build(
    fleet: Fleet,
    *,
    compiler: Compiler,
    jobs: Jobs,
    places: Places,
    given_source: Path | None = None,
    given_stock: Path | None = None,
    keep_going: bool = False,
) -> Built:
    """Make the fleet's wheel, or find it finished. What an earlier run has done is not done again.

    Raises whatever a stage raises; the pool gets a whole wheel or nothing.
    """
    need_stock(fleet.first)
    finished = pool.find(fleet, places)
    if finished is not None:
        talk.note(f"{finished.wheel.name} is already built")
        return finished
    _need_linker(fleet, compiler)
    settings.need_disk(places.cache, _DISK_BYTES, "building a tuned wheel")
    ground = ground_for(fleet.first, places, given_source, given_stock)

    def prepared(plan: Plan) -> Workspace:
        return workspaces.prepare(
            plan, compiler, jobs, places=places, staged=ground.staged, headers=ground.headers
        )

    cpu = read_cpu()
    runners = [stand_in(plan, fleet.plans, cpu, compiler) for plan in fleet.plans]
    distinct = {plan.key: plan for plan in (*fleet.plans, *runners)}
    rooms = {key: prepared(plan) for key, plan in distinct.items()}
    tried = _Tried(ground=ground, rooms=rooms, keep_going=keep_going)
    made = [
        _made(plan, runner, tried, dispatched=() if number else fleet.plans)
        for number, (plan, runner) in enumerate(zip(fleet.plans, runners, strict=True))
    ]
    first = rooms[fleet.first.key]
    with talk.step("assemble the wheel"):
        fresh = assemble.assemble(
            fleet,
            made,
            workspaces.dispatcher_of(first),
            stock=ground.stock,
            bazel=first.bazel.version,
            source_sha256=ground.source_sha256,
            places=places,
        )
    with talk.step("install the wheel and try it"):
        lock = lock_of(fleet.first)
        found = assemble.try_out(fresh, fleet, ground.arm, lock=lock, cpu=cpu, places=places)
        parts = tuple(
            Part(
                target=m.plan.target.spec,
                ran_as=m.ran_as,
                size=m.library.stat().st_size,
                verdicts=m.verdicts,
            )
            for m in made
        )
        smoke = {name: found[name] for name in found if name != "file"}
        return pool.admit(fresh, fleet, parts, places, smoke=smoke)


class _Tried:
    """What was compiled and admitted in the workspaces (`rooms`, by their plans' keys) of a build:
    each once, though one target may stand in for several."""

    def __init__(self, *, ground: Ground, rooms: Mapping[str, Workspace], keep_going: bool) -> None:
        self.ground = ground
        self.rooms = rooms
        self._keep_going = keep_going
        self._compiled: dict[str, Compiled] = {}
        self._verdicts: dict[str, tuple[Verdict, ...]] = {}

    def compiled(self, plan: Plan) -> Compiled:
        if plan.key not in self._compiled:
            with talk.step(f"compile {len(plan.kernels)} kernel units for {plan.target.spec}"):
                self._compiled[plan.key] = workspaces.compile_units(
                    self.rooms[plan.key], plan.kernels, keep_going=self._keep_going
                )
        return self._compiled[plan.key]

    def verdicts(self, plan: Plan) -> tuple[Verdict, ...]:
        """Of a plan that this CPU runs."""
        if plan.key not in self._verdicts:
            compiled = self.compiled(plan)
            with talk.step(
                f"admission: each unit for {plan.target.spec} against the stock kernels"
            ):
                verdicts = admit(self.rooms[plan.key], compiled.libraries, self.ground)
                self._verdicts[plan.key] = _with_broken(verdicts, compiled)
        return self._verdicts[plan.key]

    def vouched(self, plan: Plan, runner: Plan) -> tuple[Verdict, ...]:
        """Of a plan that this CPU does not run, by the `runner` of its sources."""
        recipe = plan.kernel_recipe
        assert recipe is not None  # noqa: S101  (a kernels plan has one)
        verdicts = self.verdicts(runner)
        compiled = self.compiled(plan)
        with talk.step(f"what shows of {plan.target.spec} without running it"):
            found = admission.vouched(
                verdicts,
                compiled.libraries,
                self.compiled(runner).libraries,
                staged=self.ground.staged,
                stock_libraries=[self.ground.headers / each for each in recipe.libraries],
            )
        return _with_broken(found, compiled)


def _with_broken(verdicts: Sequence[Verdict], compiled: Compiled) -> tuple[Verdict, ...]:
    """A verdict on every unit, by name; one that does not compile has that for its reason."""
    broken = {
        name: Verdict(unit=name, reason=f"it does not compile: {why}")
        for name, why in compiled.failed.items()
    }
    every = {verdict.unit: verdict for verdict in verdicts} | broken
    return tuple(every[name] for name in sorted(every))


def _made(plan: Plan, runner: Plan, tried: _Tried, *, dispatched: Sequence[Plan]) -> Made:
    """The library of one target, of the units that agree with the stock kernels as compiled for the
    target of `runner`; beside it the dispatcher of these plans."""
    if runner.target != plan.target:
        lacks = ", ".join(absent(plan, read_cpu()))
        talk.say(
            f"{plan.target.spec}: this CPU lacks {lacks}; the same sources compiled for "
            f"{runner.target.spec} are run instead"
        )
        verdicts = tried.vouched(plan, runner)
    else:
        verdicts = tried.verdicts(plan)
    _need_admitted(verdicts)
    workspace, compiled = tried.rooms[plan.key], tried.compiled(plan)
    with talk.step("link"):
        good = {verdict.unit for verdict in verdicts if verdict.admitted}
        units = tuple(unit for unit in plan.kernels if unit.name in good)
        registered = admission.registered(verdicts, plan.selection)
        _need_registered(plan, registered)
        library = workspaces.link(workspace, units, registered, dispatched, compiled=compiled)
        return Made(
            plan=plan,
            ran_as=runner.target.spec,
            library=library,
            verdicts=verdicts,
            registrations=registered,
        )


def _need_linker(fleet: Fleet, compiler: Compiler) -> None:
    """Raises ToolError for what the link would miss after the compiles."""
    for plan in fleet.plans:
        words = {word for each in plan.source_flags.values() for word in each}
        asked = flags.link_flags(compiler.family, words)
        if asked and not can_link(compiler, asked):
            major = compiler.version.partition(".")[0]
            clang = f"Run: apt-get install lld-{major} libclang-rt-{major}-dev"
            raise ToolError(
                f"{compiler.path.name} cannot link with {' '.join(asked)}",
                hint=clang if compiler.family == "clang" else "Leave out -flto",
            )


def _need_registered(plan: Plan, registered: Collection[Choice]) -> None:
    """Tells of what was selected and is not admitted. Raises KernelError when that is all."""
    for each in sorted({*(plan.selection or ())} - {*registered}):
        talk.warn(f"{each.op} {each.types} was selected, but is not admitted: it stays stock")
    if not registered:
        raise KernelError("nothing that was selected is admitted", hint="Run invoke select again")


def ground_for(
    plan: Plan, places: Places, given_source: Path | None, given_stock: Path | None
) -> Ground:
    """Fetch, unpack and install what the plan is built on.

    Raises ReleaseError before anything is fetched when the dependencies are not locked.
    """
    recipe, pin, lock = plan.kernel_recipe, need_stock(plan), lock_of(plan)
    assert recipe is not None  # noqa: S101  (a kernels plan has one)
    with talk.step(f"stock wheel {pin.name}"):
        requirement = f"{plan.package}=={plan.release}"
        stock = environment.fetch_wheel(requirement, pin, places, given_stock)
        headers = unpack_stock(stock, pin.sha256, recipe, places)
    with talk.step(f"TensorFlow {plan.release} sources"):
        archive = source.fetch_source(plan.sources, places, given_source)
        sha256 = sha256_of(archive)
        staged = source.stage(archive, sha256, recipe.staging, places)
        _need_sources(plan, staged)
    with talk.step("stock environment"):
        arm = environment.create(stock, python=plan.python, lock=lock, places=places)
    return Ground(stock=stock, headers=headers, staged=staged, source_sha256=sha256, arm=arm)


def lock_of(plan: Plan) -> str:
    """The name of the locked dependencies for the plan's stock wheel."""
    release = releases.find_release(plan.release)
    tag = releases.python_tag(plan.python)
    stock = releases.stock_wheel(release, plan.package, tag, plan.target.family)
    return releases.dependency_lock(stock).name


def unpack_stock(stock: Path, sha256: str, recipe: KernelRecipe, places: Places) -> Path:
    """Headers and libraries of the stock wheel, in a folder named by its hash."""
    folder = places.stock / sha256[:16]
    if not folder.is_dir():
        wheel.extract(stock, (f"{recipe.include_roots[0]}/", *recipe.libraries), folder)
    return folder


def _need_sources(plan: Plan, staged: Path) -> None:
    for unit in plan.kernels:
        for name in unit.sources:
            if not (staged / name).is_file():
                present = [path.stem for path in (staged / FOLDER).rglob("*.cc")]
                file = name.removeprefix(f"{FOLDER}/")
                raise KernelError(
                    f"TensorFlow {plan.release} has no kernel source {file}",
                    hint=did_you_mean(unit.name, present),
                )


def admit(
    workspace: Workspace, libraries: Mapping[str, Path], ground: Ground
) -> tuple[Verdict, ...]:
    """A verdict on each unit's library; what was found before is not looked for again."""
    recipe = workspace.plan.kernel_recipe
    assert recipe is not None  # noqa: S101
    folder = workspace.places.verdicts
    verdicts = verdicts_in(folder, ground.arm, ground.staged, recipe.copts, read_cpu())
    recalled = {unit: verdicts.recall(unit, path) for unit, path in libraries.items()}
    known = {unit: verdict for unit, verdict in recalled.items() if verdict is not None}
    if known:
        talk.note(f"{len(known)} of {talk.count(len(libraries), 'unit')} were looked at before")
    fresh = admission.admit(
        {unit: path for unit, path in libraries.items() if unit not in known},
        staged=ground.staged,
        stock_libraries=[ground.headers / library for library in recipe.libraries],
        copts=recipe.copts,
        environment=ground.arm,
        folder=workspace.folder.parent,
    )
    for verdict in fresh:
        verdicts.keep(libraries[verdict.unit], verdict)
    late = {verdict.unit: verdict for verdict in fresh}
    return tuple((known | late)[unit] for unit in libraries)


def _need_admitted(verdicts: Sequence[Verdict]) -> None:
    """Tells of the units that stay stock. Raises KernelError when those are all."""
    for verdict in verdicts:
        if not verdict.admitted:
            talk.warn(f"kernel {verdict.unit} stays stock: {verdict.reason.splitlines()[0]}")
    if not any(verdict.admitted for verdict in verdicts):
        raise KernelError("no kernel was admitted, so there is no wheel to make")
