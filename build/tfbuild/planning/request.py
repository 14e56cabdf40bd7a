"""From what a person typed to a plan."""

from __future__ import annotations

import contextlib
import dataclasses
import platform
import sys
from collections.abc import Iterable
from pathlib import Path

from tfbuild import console, packages
from tfbuild.commands import HOT, NEWEST, Request
from tfbuild.console import suggest_spelling
from tfbuild.cpus import compilers, flags
from tfbuild.cpus.compilers import Compiler
from tfbuild.cpus.cpu import read_cpu
from tfbuild.cpus.targets import Target, list_proxy_targets, parse_target, resolve_target
from tfbuild.errors import CompilerError, UsageError
from tfbuild.interpreters import is_here
from tfbuild.planning import plan as plans
from tfbuild.planning.defaults import DefaultsRequest, read_measurements
from tfbuild.planning.fleet import Fleet, fleet_of
from tfbuild.planning.newest import newest
from tfbuild.planning.plan import Plan, Scope
from tfbuild.planning.selection import Selection, own_for, read_selection, recorded, with_own
from tfbuild.settings import Paths
from tfbuild.upstream import given, kernels, releases
from tfbuild.upstream.download import hash_file
from tfbuild.upstream.releases import Release
from tfbuild.upstream.source import SourcePin


def settled(request: Request, paths: Paths) -> Request:
    """The request with a version for `newest`: of kernels the newest release whose sources can be
    had. Says which was taken, where nobody named one."""
    if request.release != NEWEST:
        return request
    if request.scope != Scope.KERNELS or request.source:
        release, why = releases.find_release(request.release), ""
    else:
        release, why = newest(paths, _pythons(request))
    console.print_note(f"release {release.version}{f': {why}' if why else ', the newest'}")
    return dataclasses.replace(request, release=release.version)


def fleet_for(request: Request) -> tuple[Fleet, Compiler]:
    """The plans of every target of --arch, and the compiler of them all. Raises as `plan_for`."""
    names = [name for name in request.arch.split(",") if name.strip()]
    if not names:
        raise UsageError("--arch names no target", hint="invoke targets lists them")
    made = [plan_for(dataclasses.replace(request, arch=name)) for name in names]
    fleet = fleet_of(plan for plan, _ in made)
    if request.without:
        _need_known(request, fleet)
    return fleet, made[0][1]


def fleets_for(request: Request) -> tuple[tuple[Fleet, ...], Compiler]:
    """The fleets of every Python of --python, which differ in nothing else: a list with commas
    between, or `all` that the release has a wheel for. Raises as `plan_for`."""
    wanted = _pythons(request)
    if request.python and not wanted:
        raise UsageError("--python names no version", hint="Write it as 3.11, or 3.11,3.12, or all")
    if wanted == ["all"]:
        wanted = _every_python(request)
    if len(wanted) > 1 and request.scope == Scope.FULL:
        raise UsageError("--scope full builds for one --python", hint="Give one of them")
    made = [fleet_for(dataclasses.replace(request, python=each)) for each in wanted or [""]]
    distinct = {fleet.key: fleet for fleet, _ in made}
    return tuple(distinct.values()), made[0][1]


def _pythons(request: Request) -> list[str]:
    """The words of --python."""
    return [word.strip() for word in request.python.split(",") if word.strip()]


def _architecture(request: Request) -> str:
    """Of the first target."""
    arch = request.arch.strip(" ,").partition(",")[0].lower()
    return platform.machine() if arch in {"native", "stock"} else parse_target(arch).family


def _every_python(request: Request) -> list[str]:
    """The Pythons that the release has a wheel for, of the package and the first target's
    machine."""
    release = releases.find_release(request.release)
    machine = _architecture(request)
    package = _package(request, release, machine)
    tags = (
        each.python_tag
        for each in release.wheels
        if (each.package, each.platform) == (package, machine)
    )
    return list(dict.fromkeys(map(releases.parse_python_tag, tags)))


def _package(request: Request, release: Release, machine: str) -> str:
    """The stock package. A full build, which needs none, makes the plainest."""
    if request.scope == Scope.FULL:
        return request.package or releases.CPU_PACKAGES[0]
    return request.package or releases.choose_cpu_package(release, machine)


def _need_known(request: Request, fleet: Fleet) -> None:
    """Tells what is left out of a selection. Raises UsageError for a word of --without that means
    none of the units that are chosen for any target."""
    release = releases.find_release(request.release)
    for word in _left_out(request):
        names: set[str] = set()
        known = False
        for plan in fleet.plans:
            selection = _selection(request, release, plan.target)
            choice = _choice(request, release, plan.target)
            units = plans.offered(choice, selection, release.version)
            names |= {unit.name for unit in units}
            meant = kernels.find_units(word, units, release.version)
            known = known or bool(meant)
            if meant and selection:
                console.print_note(f"{word} is left out of the selection for {plan.target.spec}")
        if not known:
            raise UsageError(
                f"--without {word}: that is none of the chosen kernels",
                hint=suggest_spelling(word, names) or f"They are {', '.join(sorted(names))}",
            )


def _left_out(request: Request) -> tuple[str, ...]:
    return tuple(word for word in _words(request.without) if word)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(","))


def plan_for(request: Request) -> tuple[Plan, Compiler]:
    """The plan of one target, and the compiler that it was resolved with.

    Raises TargetError, ReleaseError, CompilerError, UsageError.
    """
    release = releases.find_release(request.release)
    target, compiler = _target(request, release)
    macros = macros_of(target, compiler)
    plan = plans.make_plan(
        scope=request.scope,
        release=release,
        package=_package(request, release, target.family),
        python=request.python or default_python(release.pythons),
        target=target,
        compiler=compiler,
        macros=macros,
        kernel_choice=_choice(request, release, target),
        without=_left_out(request),
        selection=_selection(request, release, target),
        extra_flags=flags.parse_extra_flags(request.flags),
        lto=request.lto,
        training=_training(request.pgo),
        wishes=_wishes(request),
        sources=_sources(request, release, target),
    )
    return plan, compiler


def _sources(request: Request, release: Release, target: Target) -> tuple[SourcePin, ...]:
    """What is built from in place of the release's own sources, if anything is given."""
    if not request.source or request.scope != Scope.KERNELS:
        return ()
    staging = plans.staging_of(releases.find_kernel_facts(release, target.family))
    return given.create_pins(Path(request.source), plans.source_pins(release), staging)


def _wishes(request: Request) -> DefaultsRequest:
    """The run-time defaults that were asked for. Raises RecordError, UsageError."""
    paths = [Path(path.strip()) for path in request.evidence.split(",") if path.strip()]
    return DefaultsRequest(
        bf16=request.bf16,
        trust_emulated=request.trust_emulated,
        evidence=tuple(each for path in paths for each in read_measurements(path)),
    )


def _selection(request: Request, release: Release, target: Target) -> Selection | None:
    """The selection that was measured for this target, the user's or of the hot kernels ours, and
    the units of our own that it says or that are named. Raises RecordError, UsageError."""
    paths = [path.strip() for path in request.selection.split(",") if path.strip()]
    words = {*_words(request.kernels)}
    named = {word for word in words if kernels.find_fused_registrations(word)}
    hot = words - named == {HOT} and request.scope == Scope.KERNELS
    found: Selection | None = None
    if paths:
        found = _users(paths, release, target)
    elif hot:
        found = recorded(release.version, target)
    if found is None:
        return None
    ours = named | {*found.own}
    return with_own(found, kernels.select(",".join(ours))) if ours else found


def _choice(request: Request, release: Release, target: Target) -> str:
    """The words of --kernels, and beside hot ones the units of our own. A selection, where there is
    one, goes before them."""
    ours = own_for(release.version, target) if HOT in _words(request.kernels) else ()
    return ",".join((request.kernels, *ours))


def _users(paths: Iterable[str], release: Release, target: Target) -> Selection:
    """The one selection of the files that is of this release and target."""
    read = [read_selection(Path(path)) for path in paths]
    fitting = [
        each for each in read if (each.release, each.target) == (release.version, target.spec)
    ]
    if len(fitting) != 1:
        others = ", ".join(f"{each.release} for {each.target}" for each in read)
        raise UsageError(
            f"--selection has {len(fitting)} selections of {release.version} for {target.spec}: "
            f"it is of {others}",
            hint="invoke select makes one",
        )
    return fitting[0]


def _training(path: str) -> str:
    """The hash of the training program. Another program is another wheel."""
    if not path:
        return ""
    if not Path(path).is_file():
        raise UsageError(f"--pgo {path}: there is no such file", hint="Give a Python program")
    return hash_file(Path(path))


def _target(request: Request, release: Release) -> tuple[Target, Compiler]:
    """`native` and `stock` are resolved to a name and explicit features here, and nowhere later."""
    arch = request.arch.strip().lower()
    if arch == "native":
        return _native(request)
    stock = arch == "stock"
    target = (
        releases.create_stock_target(release, platform.machine()) if stock else parse_target(arch)
    )
    return target, _compiler(request.compiler, target.family)


def _native(request: Request) -> tuple[Target, Compiler]:
    target = resolve_target("native", read_cpu())
    compiler = _compiler(request.compiler, target.family)
    fitting = buildable(target, compiler)
    if fitting != target:
        short = f"{compiler.family} {compiler.version} does not know all of {target.spec}"
        console.print_note(f"{short}; native is {fitting.spec} with it")
    return fitting, compiler


def buildable(target: Target, compiler: Compiler) -> Target:
    """The target, or where the compiler is older than it the nearest one that the compiler knows,
    with the extras that it knows. Raises CompilerError when there is none."""
    for candidate in (target, *list_proxy_targets(target)):
        extras = flags.filter_known_extras(candidate, compiler.family, compiler.version)
        tuned = "" if candidate.tune == candidate.name else f"/{candidate.tune}"
        fitting = parse_target("+".join((candidate.name, *extras)) + tuned)
        with contextlib.suppress(CompilerError):
            flags.compute_march_flags(fitting, compiler.family, compiler.version)
            return fitting
    flags.compute_march_flags(target, compiler.family, compiler.version)
    return target


def plannable(request: Request) -> Request:
    """For a plan alone, where nothing is compiled: with the compiler that would be asked for, where
    none is here. Says so."""
    if request.compiler:
        return request
    try:
        compilers.find_compiler(None, _architecture(request))
    except CompilerError as error:
        version = packages.choose_clang().partition("-")[2] or str(packages.CLANG)
        console.print_note(f"{error.message}; planned with clang {version}. {error.hint}")
        return dataclasses.replace(request, compiler=f"clang@{version}")
    return request


def _compiler(wanted: str, architecture: str) -> Compiler:
    if "@" in wanted:
        return plans.declared_compiler(wanted, architecture)
    return compilers.find_compiler(wanted or None, architecture)


def macros_of(target: Target, compiler: Compiler) -> dict[str, str]:
    """What the compiler defines for the target; a declared one (clang@16.0.6) cannot be asked."""
    march = flags.compute_march_flags(target, compiler.family, compiler.version)
    if not compiler.path.is_absolute():
        return {}
    macros = compilers.read_macros(compiler, march)
    flags.verify_macros(target, compiler.family, compiler.version, macros)
    return macros


def default_python(supported: tuple[str, ...]) -> str:
    """This interpreter's version if the release supports it, else the newest that it does, of those
    that are here if any is."""
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    if own in supported:
        return own
    return next((each for each in reversed(supported) if is_here(each)), supported[-1])
