"""What the tasks call for the full scope: options as they were typed in, text out."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from tfbuild import console, settings
from tfbuild.commands import BuildOptions, Request
from tfbuild.cpus import cpu
from tfbuild.cpus.compilers import Compiler
from tfbuild.errors import UsageError
from tfbuild.kernelbuild.pool import Built
from tfbuild.machine import checklist, memory, preflight
from tfbuild.machine.memory import Budget
from tfbuild.planning import jobs
from tfbuild.planning.plan import Estimate, Plan
from tfbuild.planning.request import fleet_for
from tfbuild.records import pretty
from tfbuild.remote import caches
from tfbuild.remote.caches import Remote
from tfbuild.settings import Paths
from tfbuild.tools import doctor
from tfbuild.treebuild import build as builder
from tfbuild.treebuild import site
from tfbuild.treebuild.build import Order
from tfbuild.upstream import releases
from tfbuild.vendoring import declarations

NOTHING = BuildOptions()
_CORE_SECONDS = 40 * 3600


def build(request: Request, options: BuildOptions) -> Built:
    """Make the wheel of a request from TensorFlow's whole tree. What was asked for is looked at
    first, so that a wrong request leaves no trace, and then the machine."""
    paths = settings.paths()
    plan, compiler, order = _settled(request, options)
    compiler.need_here()
    finished = builder.finished(plan, order, paths)
    if finished is not None:
        return finished
    with settings.exclusive(paths.cache, "a build"):
        if not order.vendored:
            doctor.prepare(paths, plan.bazel, clang=False)
        console.say(f"plan {plan.key[:16]}: {plan.package} {plan.version}")
        if options.preflight:
            _preflight(plan, compiler, order, paths)
        return builder.build(plan, compiler=compiler, order=order, paths=paths)


def check(request: Request, options: BuildOptions) -> None:
    """Raises for what a build would refuse before it looks at the machine."""
    _settled(request, options)


def _settled(request: Request, options: BuildOptions) -> tuple[Plan, Compiler, Order]:
    remote = remote_of(options)
    caches.check_given(remote)
    caches.need_explicit(request.arch, remote)
    fleet, compiler = fleet_for(request)
    return fleet.first, compiler, _order(fleet.first, request, options, remote)


def vendor(request: Request, options: BuildOptions, out: str, *, as_json: bool) -> str:
    """Make or complete a vendor folder for a request. Returns what is in it."""
    paths = settings.paths()
    plan, compiler, order = _settled(request, options)
    compiler.need_here()
    folder = path_of(out) or paths.reports / f"vendor-{plan.release}"
    with settings.exclusive(paths.cache, "vendoring"):
        doctor.prepare(paths, plan.bazel, clang=False)
        lock = builder.fill(plan, folder, compiler=compiler, order=order, paths=paths)
    if as_json:
        return pretty({"folder": folder, "lock": lock})
    chosen = f"--release {plan.release}" + (f" --tree {order.tree}" if order.tree else "")
    whose = "the machine's own" if lock.from_system else "in the folder"
    return (
        f"{folder}: {console.count(len(lock.files), 'file')}, {console.size(lock.size)}, for Bazel "
        f"{lock.bazel} ({whose})\n"
        f"build from it: invoke build --scope full {chosen} --vendor {folder}\n"
    )


def declared(request: Request, options: BuildOptions, *, as_json: bool) -> str:
    """The archives that a tree declares, without a network where the tree is here."""
    paths = settings.paths()
    plan = fleet_for(request)[0].first
    tree = _folder("tree", options.tree) or site.tree_of(plan, path_of(options.source), paths)[0]
    found = declarations.declared(tree)
    if as_json:
        return pretty(found)
    rows = [f"{each.sha256 or 'not pinned':<64}  {each.urls[-1]}" for each in found.archives]
    others = ", ".join(found.elsewhere) or "none"
    rows.append(
        f"{console.count(len(rows), 'archive')}; what these files add is known to Bazel alone:"
    )
    return "\n".join([*rows, f"  {others}", *(f"not read: {each}" for each in found.unread), ""])


def budget_for(plan: Plan, wanted: str) -> Budget:
    """The jobs and the memory of a full build on this machine. Raises UsageError."""
    lto = plan.full_recipe is not None and plan.full_recipe.lto
    usable = cpu.read_vcpus().usable
    return memory.choose(jobs.available_mb(), usable, family=plan.compiler, lto=lto, wanted=wanted)


def estimate(plan: Plan, budget: Budget) -> Estimate:
    """What a full build takes, with the ground that each figure stands on. With --pgo the tree is
    built twice."""
    times = 2 if plan.full_recipe is not None and plan.full_recipe.training else 1
    return Estimate(
        seconds=times * _CORE_SECONDS / budget.jobs,
        memory_mb=budget.peak_mb,
        disk_mb=preflight.OUTPUT_MB,
        basis="not measured here: EasyBuild's 2.18.1 took 3 h 58 min with 10 jobs, its 2.21.0 "
        f"48 min on 32 cores; disk as Gentoo checks for it; memory: {budget.basis}",
    )


def _order(plan: Plan, request: Request, options: BuildOptions, remote: Remote) -> Order:
    if options.tree and options.source:
        raise UsageError("--tree and --source both say which sources to build: give one")
    return Order(
        budget=budget_for(plan, options.jobs),
        tree=_folder("tree", options.tree),
        source=path_of(options.source),
        vendored=_folder("vendor", options.vendor),
        remote=remote,
        training=path_of(request.pgo),
        defines=_defines(options.define),
        auto_fix=options.auto_fix,
    )


def _preflight(plan: Plan, compiler: Compiler, order: Order, paths: Paths) -> None:
    with console.step("preflight"):
        findings = preflight.look(
            plan,
            releases.find_release(plan.release),
            paths=paths,
            compiler=compiler,
            budget=order.budget,
            offline=order.vendored is not None,
            env=os.environ,
        )
    console.say(checklist.describe(findings))
    checklist.judge(findings)


def remote_of(options: BuildOptions) -> Remote:
    """What the options say of a shared cache. Raises UsageError."""
    return caches.named(
        cache=options.remote_cache,
        executor=options.remote_executor,
        rc=path_of(options.bazelrc),
    )


def _defines(text: str) -> tuple[str, ...]:
    """NAME=VALUE,NAME=VALUE, each name once."""
    pairs: dict[str, str] = {}
    for word in filter(None, text.split(",")):
        name, equals, value = map(str.strip, word.partition("="))
        if not name or not equals:
            raise UsageError(f"--define {word!r} is not NAME=VALUE")
        pairs[name] = value
    return tuple(f"{name}={value}" for name, value in pairs.items())


def path_of(text: str) -> Path | None:
    """What a person typed as a path; None for nothing. Raises UsageError."""
    try:
        return Path(text).expanduser().resolve() if text else None
    except RuntimeError as error:  # (no such user's home, or a link to itself)
        raise UsageError(f"{text} is no path: {error}") from error


def _folder(option: str, text: str) -> Path | None:
    path = path_of(text)
    if path is not None and not path.is_dir():
        raise UsageError(f"--{option} {path}: there is no such folder")
    return path


def unused(options: BuildOptions) -> tuple[str, ...]:
    """The options that were given and mean nothing for another scope."""
    shared = {"jobs", "source", "workload", "stock_wheel", "install", "keep_going"}
    fields = (each.name for each in dataclasses.fields(BuildOptions) if each.name not in shared)
    given = (name for name in fields if getattr(options, name) != getattr(NOTHING, name))
    return tuple(f"--{name.replace('_', '-')}" for name in given)
