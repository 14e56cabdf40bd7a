"""The handlers of --scope full: they take options as typed and return text."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from tfbuild.commands import BuildOptions, Request
from tfbuild.kernelbuild.pool import BuiltWheel
from tfbuild.machine import checklist, memory, preflight
from tfbuild.machine.memory import Budget
from tfbuild.planning import jobs
from tfbuild.planning.plan import Estimate, FullPlan, make_full_plan
from tfbuild.planning.request import resolve_fleet
from tfbuild.remote import caches
from tfbuild.remote.caches import Remote
from tfbuild.tools import doctor
from tfbuild.treebuild import build as builder
from tfbuild.treebuild import site
from tfbuild.treebuild.build import Order
from tfbuild.vendoring import declarations
from tfcore import console, settings
from tfcore.cpus import cpu
from tfcore.cpus.compilers import Compiler
from tfcore.errors import UsageError
from tfcore.records import format_json
from tfcore.settings import Paths

NOTHING = BuildOptions()
_CORE_SECONDS = 40 * 3600


def build(request: Request, options: BuildOptions) -> BuiltWheel:
    """Build the wheel of a request from TensorFlow's whole tree.

    Checks the request before the machine, so that a wrong request leaves no trace.
    """
    paths = settings.paths()
    plan, compiler, order = _resolve_request(request, options)
    compiler.require_installed()
    finished = builder.find_finished(plan, order, paths)
    if finished is not None:
        return finished
    with settings.lock_folder(paths.cache, "a build"):
        if not order.vendored:
            doctor.prepare(paths, plan.bazel, clang=False)
        console.print_message(f"plan {plan.key[:16]}: {plan.package} {plan.version}")
        if options.preflight:
            _run_preflight(plan, compiler, order, paths)
        return builder.build_wheel(plan, compiler=compiler, order=order, paths=paths)


def check_request(request: Request, options: BuildOptions) -> None:
    """Raise for everything that a build would refuse before it checks the machine."""
    _resolve_request(request, options)


def _resolve_request(request: Request, options: BuildOptions) -> tuple[FullPlan, Compiler, Order]:
    remote = parse_remote(options)
    caches.check_settings(remote)
    caches.require_explicit_target(request.arch, remote)
    fleet, compiler = resolve_fleet(request, make_full_plan)
    return fleet.first, compiler, _create_order(fleet.first, request, options, remote)


def vendor(request: Request, options: BuildOptions, out: str, *, as_json: bool) -> str:
    """Create or complete a vendor folder for a request. Return a description of its contents."""
    paths = settings.paths()
    plan, compiler, order = _resolve_request(request, options)
    compiler.require_installed()
    folder = parse_path(out) or paths.reports / f"vendor-{plan.release}"
    with settings.lock_folder(paths.cache, "vendoring"):
        doctor.prepare(paths, plan.bazel, clang=False)
        lock = builder.fill_vendor_folder(plan, folder, compiler=compiler, order=order, paths=paths)
    if as_json:
        return format_json({"folder": folder, "lock": lock})
    chosen = f"--release {plan.release}" + (f" --tree {order.tree}" if order.tree else "")
    bazel_origin = "installed on this machine" if lock.from_system else "in the folder"
    return (
        f"{folder}: {console.format_count(len(lock.files), 'file')}, "
        f"{console.format_size(lock.size)}, for Bazel {lock.bazel} ({bazel_origin})\n"
        f"To build from it, run: invoke build --scope full {chosen} --vendor {folder}\n"
    )


def list_archives(request: Request, options: BuildOptions, *, as_json: bool) -> str:
    """Return the archives that a tree declares as text.

    Needs no network if the tree is here.
    """
    paths = settings.paths()
    plan = resolve_fleet(request, make_full_plan)[0].first
    tree = (
        _parse_folder("tree", options.tree)
        or site.fetch_tree(plan, parse_path(options.source), paths)[0]
    )
    listing = declarations.read_declarations(tree)
    if as_json:
        return format_json(listing)
    rows = [
        f"{archive.sha256 or 'not pinned':<64}  {archive.urls[-1]}" for archive in listing.archives
    ]
    elsewhere = ", ".join(listing.elsewhere) or "none"
    rows.append(
        f"{console.format_count(len(rows), 'archive')}; only Bazel can list what these files add:"
    )
    return "\n".join(
        [*rows, f"  {elsewhere}", *(f"not read: {file}" for file in listing.unread), ""]
    )


def choose_budget(plan: FullPlan, jobs_option: str) -> Budget:
    """Return the jobs and the memory of a full build on this machine.

    Raises UsageError.
    """
    usable, lto = cpu.read_vcpus().usable, plan.full_recipe.lto
    return memory.choose_budget(
        jobs.read_available_mb(), usable, family=plan.compiler, lto=lto, jobs_option=jobs_option
    )


def estimate(plan: FullPlan, budget: Budget) -> Estimate:
    """Estimate time, memory and disk of a full build, with the source of each figure.

    With --pgo the tree is built twice.
    """
    times = 2 if plan.full_recipe.training else 1
    return Estimate(
        seconds=times * _CORE_SECONDS / budget.jobs,
        memory_mb=budget.peak_mb,
        disk_mb=preflight.OUTPUT_MB,
        basis="no full build was measured here: EasyBuild built 2.18.1 in 3 h 58 min with 10 jobs "
        f"and 2.21.0 in 48 min on 32 cores; disk: what Gentoo requires; memory: {budget.basis}",
    )


def _create_order(plan: FullPlan, request: Request, options: BuildOptions, remote: Remote) -> Order:
    if options.tree and options.source:
        raise UsageError("--tree and --source exclude each other", hint="Give one of them")
    return Order(
        budget=choose_budget(plan, options.jobs),
        tree=_parse_folder("tree", options.tree),
        source=parse_path(options.source),
        vendored=_parse_folder("vendor", options.vendor),
        remote=remote,
        training=parse_path(request.pgo),
        defines=_parse_defines(options.define),
        auto_fix=options.auto_fix,
    )


def _run_preflight(plan: FullPlan, compiler: Compiler, order: Order, paths: Paths) -> None:
    with console.report_step("preflight"):
        findings = preflight.run_checks(
            plan,
            plan.release_record,
            paths=paths,
            compiler=compiler,
            budget=order.budget,
            offline=order.vendored is not None,
            env=os.environ,
        )
    console.print_message(checklist.render_table(findings))
    checklist.require_no_fatal(findings)


def parse_remote(options: BuildOptions) -> Remote:
    """Return the shared cache and the cluster that the options name.

    Raises UsageError.
    """
    return caches.resolve_remote(
        cache=options.remote_cache,
        executor=options.remote_executor,
        rc=parse_path(options.bazelrc),
    )


def _parse_defines(text: str) -> tuple[str, ...]:
    """Parse NAME=VALUE,NAME=VALUE.

    If a name is given twice, the last value counts. Raises UsageError.
    """
    pairs: dict[str, str] = {}
    for word in filter(None, text.split(",")):
        name, equals, value = map(str.strip, word.partition("="))
        if not name or not equals:
            raise UsageError(f"--define {word!r} is not NAME=VALUE")
        pairs[name] = value
    return tuple(f"{name}={value}" for name, value in pairs.items())


def parse_path(text: str) -> Path | None:
    """Return the absolute path that a person typed; None for an empty text.

    Raises UsageError.
    """
    try:
        return Path(text).expanduser().resolve() if text else None
    except RuntimeError as error:  # (~user does not exist, or the link points to itself)
        raise UsageError(f"{text} is not a path: {error}") from error


def _parse_folder(option: str, text: str) -> Path | None:
    path = parse_path(text)
    if path is not None and not path.is_dir():
        raise UsageError(f"--{option} {path} is not a folder")
    return path


def list_full_only_options(options: BuildOptions) -> tuple[str, ...]:
    """Return the given options that apply to the full scope only."""
    shared = {"jobs", "source", "workload", "stock_wheel", "install", "keep_going"}
    fields = (
        option.name for option in dataclasses.fields(BuildOptions) if option.name not in shared
    )
    names = (name for name in fields if getattr(options, name) != getattr(NOTHING, name))
    return tuple(f"--{name.replace('_', '-')}" for name in names)
