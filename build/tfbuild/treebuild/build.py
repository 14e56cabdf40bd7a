"""Builds a wheel from all of TensorFlow's sources: the stages of --scope full."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from tfbuild.auditing import audit
from tfbuild.kernelbuild import pool
from tfbuild.kernelbuild.pool import BuiltWheel, WheelPart
from tfbuild.machine.memory import Budget
from tfbuild.packing import tuned
from tfbuild.planning.fleet import Fleet
from tfbuild.planning.plan import FullPlan
from tfbuild.remote import caches, headers, toolchain
from tfbuild.remote.caches import Remote
from tfbuild.tools import environment, pgo
from tfbuild.tools.bazel import Bazel
from tfbuild.tools.requirement import ExactRequirement
from tfbuild.treebuild import compiling, finish, site
from tfbuild.treebuild.compiling import BazelCall, compile_wheel
from tfbuild.treebuild.site import Site
from tfbuild.treebuild.stages import forget_stage, run_stage
from tfbuild.upstream import source
from tfbuild.upstream.download import hash_file
from tfbuild.vendoring import declarations, vendor, vendor_folder
from tfbuild.vendoring.vendor_folder import VendorLock
from tfbuild.watching.attempt import Attempt
from tfcore import console, packages
from tfcore.cpus.compilers import Compiler, can_link
from tfcore.cpus.cpu import read_cpu
from tfcore.errors import ToolError, VendorError
from tfcore.records import load, save
from tfcore.settings import Paths

HISTORY = "course.json"
"""File of the build's attempts and their outcomes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """The user's choices beside the plan.

    `tree` is a checkout, `source` an archive, `vendored` a folder made by `invoke vendor`.
    `training` is the program of the plan's `training`. `requirements` is the text of the
    wheel's locked dependencies; None for those of the release.
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


def find_finished(plan: FullPlan, order: Order, paths: Paths) -> BuiltWheel | None:
    """Return the wheel in the pool that this order would build again, or None.

    A wheel of a checkout is always built: the plan's key does not cover the checkout's
    contents, and Bazel knows what is unchanged.
    """
    built = pool.find_wheel(Fleet(plans=(plan,)), paths)
    if built is None or order.tree:
        return None
    facts = tuned.read_tuned(built.wheel)
    history = load(built.manifest, schema=pool.SCHEMA)["course"]
    recorded = tuple(history["attempts"][0]["defines"]), history.get("bazelrc", "")
    differs = recorded != (order.defines, order.remote.rc.build_sha256)
    if facts is None or not facts.source_sha256 or differs:
        return None
    console.print_note(f"{built.wheel.name} is already built")
    return built


def build_wheel(plan: FullPlan, *, compiler: Compiler, order: Order, paths: Paths) -> BuiltWheel:
    """Build the wheel. Stages that an earlier run finished are not run again, and Bazel
    continues where it stopped.

    Raises whatever a stage raises; the pool gets a whole wheel or nothing.
    """
    _require_tools(plan, compiler)
    lock = _check_vendor_folder(plan, order.vendored)
    requirements = _read_requirements(plan, order, paths)
    prepared = _prepare_site(plan, compiler, order, requirements, lock, paths)
    caches.check_remote(order.remote, prepared.bazel)
    if lock and lock.first_use:
        _pin_hashes(prepared, order, lock)
    call = _create_call(prepared, order, lock)
    profile = _create_profile(prepared, call, order, requirements)
    raw = _compile_wheel(prepared, call, order, profile)
    return _finish_wheel(prepared, raw, order, profile, requirements)


def _require_tools(plan: FullPlan, compiler: Compiler) -> None:
    """Check the tools that the link and the training run need.

    Raises ToolError or HostError within seconds, instead of after hours.
    """
    recipe = plan.full_recipe
    if recipe.lto and not can_link(compiler, recipe.linkopts):
        major = compiler.version.partition(".")[0]
        raise ToolError(
            f"{compiler.path.name} does not find lld, which --lto needs",
            hint=packages.suggest_install(f"lld of LLVM {major}", f"lld-{major}"),
        )
    if recipe.training:
        pgo.require_support(compiler, plan.required, read_cpu())


def fill_vendor_folder(
    plan: FullPlan, folder: Path, *, compiler: Compiler, order: Order, paths: Paths
) -> VendorLock:
    """Fill a vendor folder with everything that this plan's build fetches. Raises what
    `build_wheel` raises, and VendorError.
    """
    requirements = _read_requirements(plan, order, paths)
    prepared = _prepare_site(plan, compiler, order, requirements, None, paths)
    archive = None if order.tree else source.fetch_source(plan.sources, paths, order.source)
    return vendor.vendor_targets(
        folder,
        prepared.tree.folder,
        (prepared.recipe.target,),
        release=plan.release,
        bazel_tool=prepared.bazel,
        options=prepared.options,
        startup=(f"--bazelrc={prepared.rc}",),
        source=archive,
        python=prepared.python,
        requirements=requirements,
        archives=declarations.read_declarations(prepared.tree.folder).archives,
        paths=paths,
    )


def _prepare_site(
    plan: FullPlan,
    compiler: Compiler,
    order: Order,
    needs: str,
    lock: VendorLock | None,
    paths: Paths,
) -> Site:
    """Prepare the tree of an order for Bazel."""
    return site.prepare_site(
        plan,
        compiler,
        python=environment.create_bare(
            python=plan.python, requirements=needs, paths=paths, links=_get_wheel_folder(order)
        ),
        given_tree=order.tree,
        given_source=order.source or _find_source(order.vendored, lock),
        bazel_tool=_resolve_bazel(order, lock, paths),
        paths=paths,
    )


def _check_vendor_folder(plan: FullPlan, folder: Path | None) -> VendorLock | None:
    """Return the lock of a vendor folder that is complete and made for this plan's release.
    Raises VendorError.
    """
    if folder is None:
        return None
    with console.report_step(f"check every file of {folder}"):
        lock = vendor_folder.check_folder(folder)
    if lock.release != plan.release:
        raise VendorError(
            f"{folder} is for TensorFlow {lock.release}, but the plan is for {plan.release}",
            hint=f"Fill another folder: invoke vendor --release {plan.release}",
        )
    return lock


def _pin_hashes(site: Site, order: Order, lock: VendorLock) -> None:
    """Write the hashes of the lock into the rules that have none. Raises VendorError for a
    checkout, which stays unchanged.
    """
    if order.tree:
        name, sha256 = min(lock.first_use.items())
        raise VendorError(
            f"no rule in {order.tree} pins {name}, and without a network Bazel needs its hash",
            hint=f'Add sha256 = "{sha256}" to its rule',
        )
    declarations.pin_hashes(site.tree.folder, lock.first_use)


def _create_call(site: Site, order: Order, lock: VendorLock | None) -> BazelCall:
    disk = site.paths.cache / "bazel-disk-cache"
    identity = toolchain.identify_toolchain(site.compiler)
    folder = order.vendored
    return BazelCall(
        name="build",
        startup=headers.build_startup_options(order.remote.rc, site.paths.cache / "bazel-closed"),
        options=(
            *caches.build_options(order.remote, site.bazel.version, disk),
            *toolchain.build_key_options(identity, order.remote),
            *(vendor_folder.list_bazel_options(folder, lock) if folder and lock else ()),
        ),
        budget=order.budget,
        disk=disk,
        shared=bool(order.remote.addresses),
        secrets=order.remote.rc.secrets,
        auto_fix=order.auto_fix,
    )


def _create_profile(site: Site, call: BazelCall, order: Order, needs: str) -> Path | None:
    """Return the profile of a training run, as clang reads it, or None for a plan without
    training.
    """
    program = order.training
    if program is None:
        return None

    def train_and_merge() -> Path:
        instrumented = replace(call, name="instrumented", options=(*call.options, pgo.INSTRUMENT))
        raw = compile_wheel(site, instrumented, _create_attempt(order)).wheel
        instrumented_env = environment.create(
            raw,
            python=site.plan.python,
            requirements=needs,
            paths=site.paths,
            links=_get_wheel_folder(order),
        )
        folder = site.folder / "profiles"
        with console.report_step(f"train with {program.name}"):
            pgo.run_training(instrumented_env.python, program, folder)
        environment.discard(hash_file(raw), site.paths)
        return pgo.merge_profiles(folder, site.compiler, site.folder / "learned.profdata")

    return _run_stage(site, "profile", _list_inputs(site, order), train_and_merge)


def _compile_wheel(site: Site, call: BazelCall, order: Order, learned: Path | None) -> Path:
    """Return the wheel that TensorFlow's tools built, and write a record of the build's attempts
    beside it.
    """
    if learned is not None:
        call = replace(call, options=(*call.options, pgo.build_use_option(learned)))

    def compile_and_record() -> Path:
        compiled = compile_wheel(site, call, _create_attempt(order))
        history = replace(
            compiled, wheel=Path(compiled.wheel.name), bazelrc=order.remote.rc.build_sha256
        )
        save(site.folder / HISTORY, history)
        return compiled.wheel

    if not (site.folder / HISTORY).is_file():
        forget_stage(site.folder, "compile")
    return _run_stage(site, "compile", _list_inputs(site, order, learned), compile_and_record)


def _run_stage(site: Site, name: str, inputs: object, work: Callable[[], Path]) -> Path:
    """Run a stage once, and return its result. A stage of a checkout runs each time: the tree
    may have changed, and only Bazel knows where.
    """
    if not site.source_sha256:
        forget_stage(site.folder, name)
    return run_stage(site.folder, name, inputs, work)


def _create_attempt(order: Order) -> Attempt:
    return Attempt(jobs=order.budget.jobs, defines=order.defines)


def _list_inputs(site: Site, order: Order, *files: Path | None) -> object:
    """List everything that decides the result of a stage."""
    toolchain_key = toolchain.identify_toolchain(site.compiler).identity
    hashes = [hash_file(file) for file in files if file]
    tools = (site.bazel.version, toolchain_key)
    choices = (order.defines, order.remote.rc.build_sha256)
    return [site.plan.key, site.recipe, site.source_sha256, choices, tools, hashes]


def _finish_wheel(
    site: Site, raw: Path, order: Order, learned: Path | None, needs: str
) -> BuiltWheel:
    """Stamp, audit, install and try the wheel, and return it from the pool."""
    plan, paths = site.plan, site.paths
    licence = site.tree.folder / "LICENSE"
    with console.report_step("finish the wheel"):
        wheel = finish.finish_wheel(
            raw,
            plan,
            paths=paths,
            bazel=site.bazel.version,
            source_sha256=site.source_sha256,
            licence=licence.read_bytes() if licence.is_file() else b"",
            profile_sha256=hash_file(learned) if learned else "",
        )
    with console.report_step("audit"):
        audited = audit.audit(wheel, paths=paths)
        audit.check_audit(audited)
    with console.report_step("install the wheel and test it"):
        answers = finish.try_wheel(
            wheel,
            plan,
            requirements=needs,
            cpu=read_cpu(),
            paths=paths,
            links=_get_wheel_folder(order),
        )
    history = load(site.folder / HISTORY, schema=compiling.SCHEMA)
    size = sum(library.size for library in audited.libraries)
    return pool.add_wheel(
        wheel,
        Fleet(plans=(plan,)),
        (WheelPart(target=plan.target.spec, size=size),),
        paths,
        smoke={name: answers[name] for name in answers if name != "file"},
        course=history,
        differences=site.differences,
    )


def _resolve_bazel(order: Order, lock: VendorLock | None, paths: Paths) -> Bazel | None:
    """Return the vendored Bazel, or None for the one that the tree asks for."""
    return (
        vendor_folder.resolve_bazel(order.vendored, lock, paths)
        if order.vendored and lock
        else None
    )


def _find_source(folder: Path | None, lock: VendorLock | None) -> Path | None:
    """Return the release's archive in a vendor folder, or None."""
    if folder is None or lock is None:
        return None
    archives = [item.path for item in lock.files if item.path.startswith("sources/")]
    return folder / archives[0] if archives else None


def _read_requirements(plan: FullPlan, order: Order, paths: Paths) -> str:
    if order.requirements is not None:
        return order.requirements
    if order.vendored:
        return vendor_folder.read_requirements(order.vendored)
    exact = ExactRequirement(name=plan.package, version=plan.release)
    return environment.resolve_requirements(exact, python=plan.python, paths=paths)


def _get_wheel_folder(order: Order) -> Path | None:
    """Return the folder with the wheels of the requirements, or None for pip's own index."""
    return order.vendored / vendor_folder.DEPENDENCIES if order.vendored else None
