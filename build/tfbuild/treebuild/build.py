"""From a plan to a wheel that was built from nothing: the full scope, stage after stage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from tfbuild import console, packages
from tfbuild.auditing import audit
from tfbuild.cpus.compilers import Compiler, can_link
from tfbuild.cpus.cpu import read_cpu
from tfbuild.errors import ToolError, VendorError
from tfbuild.kernelbuild import pool
from tfbuild.kernelbuild.pool import BuiltWheel, WheelPart
from tfbuild.machine.memory import Budget
from tfbuild.packing import tuned
from tfbuild.planning.fleet import Fleet
from tfbuild.planning.plan import Plan
from tfbuild.records import load, save
from tfbuild.remote import caches, headers, toolchain
from tfbuild.remote.caches import Remote
from tfbuild.settings import Paths
from tfbuild.tools import environment, pgo
from tfbuild.tools.bazel import Bazel
from tfbuild.tools.requirement import ExactRequirement
from tfbuild.treebuild import compiling, finish, site
from tfbuild.treebuild.compiling import Call, compile_wheel
from tfbuild.treebuild.site import Site
from tfbuild.treebuild.stages import forget, stage
from tfbuild.upstream import source
from tfbuild.upstream.download import hash_file
from tfbuild.vendoring import declarations, vendor, vendored
from tfbuild.vendoring.vendored import VendorLock
from tfbuild.watching.attempt import Attempt

HISTORY = "course.json"
"""How the build of the wheel went: its attempts, and what each met."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """What a person chose beside the plan.

    `tree` is a checkout, `source` an archive, `vendored` a folder that `invoke vendor` made.
    `training` is the program of the plan's `training`. `requirements` is the text of the wheel's
    locked dependencies; None for those of the release.
    """

    budget: Budget
    tree: Path | None = None
    source: Path | None = None
    vendored: Path | None = None
    remote: Remote = field(default_factory=Remote)
    training: Path | None = None
    defines: tuple[str, ...] = ()
    auto_fix: bool = False
    requirements: str | None = None


def finished(plan: Plan, order: Order, paths: Paths) -> BuiltWheel | None:
    """The wheel in the pool that this order would make again. One of a checkout is always made: the
    plan's key does not have what is in it, and Bazel knows what is still as it was."""
    found = pool.find_wheel(Fleet(plans=(plan,)), paths)
    if found is None or order.tree:
        return None
    facts = tuned.read_tuned(found.wheel)
    history = load(found.manifest, schema=pool.SCHEMA)["course"]
    given = tuple(history["attempts"][0]["defines"]), history.get("bazelrc", "")
    other = given != (order.defines, order.remote.rc.build_sha256)
    if facts is None or not facts.source_sha256 or other:
        return None
    console.print_note(f"{found.wheel.name} is already built")
    return found


def build(plan: Plan, *, compiler: Compiler, order: Order, paths: Paths) -> BuiltWheel:
    """Make the wheel. Stages that an earlier run has ended are not run again, and Bazel goes on
    where it was.

    Raises whatever a stage raises; the pool gets a whole wheel or nothing.
    """
    _need_tools(plan, compiler)
    lock = _checked(plan, order.vendored)
    needs = _requirements(plan, order, paths)
    ground = _ready(plan, compiler, order, needs, lock, paths)
    caches.check_remote(order.remote, ground.bazel)
    if lock and lock.first_use:
        _pin(ground, order, lock)
    call = _call(ground, order, lock)
    learned = _learned(ground, call, order, needs)
    raw = _compiled(ground, call, order, learned)
    return _admitted(ground, raw, order, learned, needs)


def _need_tools(plan: Plan, compiler: Compiler) -> None:
    """Raises ToolError or HostError, in seconds, for what the link or the training run would miss
    after hours."""
    recipe = plan.full_recipe
    if recipe is not None and recipe.lto and not can_link(compiler, recipe.linkopts):
        major = compiler.version.partition(".")[0]
        raise ToolError(
            f"{compiler.path.name} does not find lld, and --lto needs it",
            hint=packages.suggest_install(f"lld of LLVM {major}", f"lld-{major}"),
        )
    if recipe is not None and recipe.training:
        pgo.require_support(compiler, plan.required, read_cpu())


def fill(plan: Plan, folder: Path, *, compiler: Compiler, order: Order, paths: Paths) -> VendorLock:
    """A vendor folder with all that this plan's build fetches. Raises as `build`, VendorError."""
    needs = _requirements(plan, order, paths)
    ground = _ready(plan, compiler, order, needs, None, paths)
    archive = None if order.tree else source.fetch_source(plan.sources, paths, order.source)
    return vendor.vendor(
        folder,
        ground.tree.folder,
        (ground.recipe.target,),
        release=plan.release,
        found=ground.bazel,
        options=ground.options,
        startup=(f"--bazelrc={ground.rc}",),
        source=archive,
        python=ground.python,
        requirements=needs,
        archives=declarations.declared(ground.tree.folder).archives,
        paths=paths,
    )


def _ready(
    plan: Plan,
    compiler: Compiler,
    order: Order,
    needs: str,
    lock: VendorLock | None,
    paths: Paths,
) -> Site:
    """The tree of an order, ready for Bazel."""
    return site.prepare(
        plan,
        compiler,
        python=environment.create_bare(
            python=plan.python, requirements=needs, paths=paths, links=_links(order)
        ),
        given_tree=order.tree,
        given_source=order.source or _source_in(order.vendored, lock),
        found=_bazel(order, lock, paths),
        paths=paths,
    )


def _checked(plan: Plan, folder: Path | None) -> VendorLock | None:
    """The lock of a vendor folder that is whole and for this plan. Raises VendorError."""
    if folder is None:
        return None
    with console.report_step(f"check every file of {folder}"):
        lock = vendored.check(folder)
    if lock.release != plan.release:
        raise VendorError(
            f"{folder} was made for TensorFlow {lock.release}, the plan is for {plan.release}",
            hint=f"Make another with: invoke vendor --release {plan.release}",
        )
    return lock


def _pin(site: Site, order: Order, lock: VendorLock) -> None:
    """Write the hashes that the lock has into rules without one. A checkout is left as it is."""
    if order.tree:
        name, sha256 = min(lock.first_use.items())
        raise VendorError(
            f"no rule of {order.tree} pins {name}, and Bazel takes nothing else without a network",
            hint=f'Write sha256 = "{sha256}" into its rule',
        )
    declarations.pin(site.tree.folder, lock.first_use)


def _call(site: Site, order: Order, lock: VendorLock | None) -> Call:
    disk = site.paths.cache / "bazel-disk-cache"
    identity = toolchain.toolchain_of(site.compiler)
    folder = order.vendored
    return Call(
        name="build",
        startup=headers.build_startup_options(order.remote.rc, site.paths.cache / "bazel-closed"),
        options=(
            *caches.build_options(order.remote, site.bazel.version, disk),
            *toolchain.build_key_options(identity, order.remote),
            *(vendored.options(folder, lock) if folder and lock else ()),
        ),
        budget=order.budget,
        disk=disk,
        shared=bool(order.remote.addresses),
        secrets=order.remote.rc.secrets,
        auto_fix=order.auto_fix,
    )


def _learned(site: Site, call: Call, order: Order, needs: str) -> Path | None:
    """The profile of a training run, as clang reads it; None for a plan without one."""
    program = order.training
    if program is None:
        return None

    def work() -> Path:
        instrumented = replace(call, name="instrumented", options=(*call.options, pgo.INSTRUMENT))
        raw = compile_wheel(site, instrumented, _first(order)).wheel
        arm = environment.create(
            raw,
            python=site.plan.python,
            requirements=needs,
            paths=site.paths,
            links=_links(order),
        )
        folder = site.folder / "profiles"
        with console.report_step(f"train with {program.name}"):
            pgo.run_training(arm.python, program, folder)
        environment.discard(hash_file(raw), site.paths)
        return pgo.merge_profiles(folder, site.compiler, site.folder / "learned.profdata")

    return _stage(site, "profile", _inputs(site, order), work)


def _compiled(site: Site, call: Call, order: Order, learned: Path | None) -> Path:
    """The wheel as TensorFlow's tools left it, with a record of how its build went beside it."""
    if learned is not None:
        call = replace(call, options=(*call.options, pgo.build_use_option(learned)))

    def work() -> Path:
        made = compile_wheel(site, call, _first(order))
        history = replace(made, wheel=Path(made.wheel.name), bazelrc=order.remote.rc.build_sha256)
        save(site.folder / HISTORY, history)
        return made.wheel

    if not (site.folder / HISTORY).is_file():
        forget(site.folder, "compile")
    return _stage(site, "compile", _inputs(site, order, learned), work)


def _stage(site: Site, name: str, inputs: object, work: Callable[[], Path]) -> Path:
    """The result of a stage, which is run once. That of a checkout runs each time: the tree may
    have changed, and only Bazel knows where."""
    if not site.source_sha256:
        forget(site.folder, name)
    return stage(site.folder, name, inputs, work)


def _first(order: Order) -> Attempt:
    return Attempt(jobs=order.budget.jobs, defines=order.defines)


def _inputs(site: Site, order: Order, *files: Path | None) -> object:
    """What decides the result of a stage."""
    toolchain_key = toolchain.toolchain_of(site.compiler).identity
    hashes = [hash_file(file) for file in files if file]
    made_with = (site.bazel.version, toolchain_key)
    given = (order.defines, order.remote.rc.build_sha256)
    return [site.plan.key, site.recipe, site.source_sha256, given, made_with, hashes]


def _admitted(site: Site, raw: Path, order: Order, learned: Path | None, needs: str) -> BuiltWheel:
    """The wheel in the pool: with its identity, audited, installed and tried."""
    plan, paths = site.plan, site.paths
    licence = site.tree.folder / "LICENSE"
    with console.report_step("finish the wheel"):
        fresh = finish.finish(
            raw,
            plan,
            paths=paths,
            bazel=site.bazel.version,
            source_sha256=site.source_sha256,
            licence=licence.read_bytes() if licence.is_file() else b"",
            profile_sha256=hash_file(learned) if learned else "",
        )
    with console.report_step("audit"):
        audited = audit.audit(fresh, paths=paths)
        audit.check_audit(audited)
    with console.report_step("install the wheel and try it"):
        found = finish.try_out(
            fresh,
            plan,
            requirements=needs,
            cpu=read_cpu(),
            paths=paths,
            links=_links(order),
        )
    history = load(site.folder / HISTORY, schema=compiling.SCHEMA)
    size = sum(library.size for library in audited.libraries)
    return pool.add_wheel(
        fresh,
        Fleet(plans=(plan,)),
        (WheelPart(target=plan.target.spec, size=size),),
        paths,
        smoke={name: found[name] for name in found if name != "file"},
        course=history,
        differences=site.differences,
    )


def _bazel(order: Order, lock: VendorLock | None, paths: Paths) -> Bazel | None:
    """The vendored Bazel; None for the one that the tree asks for."""
    return vendored.bazel_of(order.vendored, lock, paths) if order.vendored and lock else None


def _source_in(folder: Path | None, lock: VendorLock | None) -> Path | None:
    """The release's archive in a vendor folder."""
    if folder is None or lock is None:
        return None
    found = [item.path for item in lock.files if item.path.startswith("sources/")]
    return folder / found[0] if found else None


def _requirements(plan: Plan, order: Order, paths: Paths) -> str:
    if order.requirements is not None:
        return order.requirements
    if order.vendored:
        return vendored.requirements(order.vendored)
    exact = ExactRequirement(name=plan.package, version=plan.release)
    return environment.resolve_requirements(exact, python=plan.python, paths=paths)


def _links(order: Order) -> Path | None:
    """Where the wheels of the requirements are; None for pip's own index."""
    return order.vendored / vendored.DEPENDENCIES if order.vendored else None
