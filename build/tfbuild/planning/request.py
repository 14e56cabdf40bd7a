"""Resolves the options of a command to plans."""

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
from tfbuild.cpus.targets import (
    Target,
    create_stock_target,
    list_proxy_targets,
    parse_target,
    resolve_target,
)
from tfbuild.errors import CompilerError, UsageError
from tfbuild.interpreters import is_here
from tfbuild.planning import plan as plans
from tfbuild.planning.defaults import DefaultsRequest, read_measurements
from tfbuild.planning.fleet import Fleet, build_fleet
from tfbuild.planning.newest_release import find_newest_release
from tfbuild.planning.plan import Plan, Scope
from tfbuild.planning.selection import (
    Selection,
    add_fused_ops,
    find_fused_ops,
    find_recorded_selection,
    read_selection,
)
from tfbuild.settings import Paths
from tfbuild.upstream import kernels, local_sources, releases
from tfbuild.upstream.download import hash_file
from tfbuild.upstream.releases import Release
from tfbuild.upstream.source import SourcePin


def resolve_release(request: Request, paths: Paths) -> Request:
    """Return the request with a version in place of `newest`, and print it.

    For kernels it is the newest release whose sources are available.
    """
    if request.release != NEWEST:
        return request
    if request.scope != Scope.KERNELS or request.source:
        release, reason = releases.find_release(request.release), ""
    else:
        release, reason = find_newest_release(paths, _parse_pythons(request))
    console.print_note(
        f"using release {release.version}{f': {reason}' if reason else ', the newest'}"
    )
    return dataclasses.replace(request, release=release.version)


def resolve_fleet(request: Request) -> tuple[Fleet, Compiler]:
    """Return the plans of all targets of --arch, and their compiler.

    Raises the errors of `resolve_plan`.
    """
    names = [name for name in request.arch.split(",") if name.strip()]
    if not names:
        raise UsageError("--arch names no target", hint="See invoke targets")
    planned = [resolve_plan(dataclasses.replace(request, arch=name)) for name in names]
    fleet = build_fleet(plan for plan, _ in planned)
    if request.without:
        _check_exclusions(request, fleet)
    return fleet, planned[0][1]


def resolve_fleets(request: Request) -> tuple[tuple[Fleet, ...], Compiler]:
    """Return the fleets of all Pythons of --python, and their compiler.

    The fleets differ in nothing else. --python is a comma-separated list, or `all` for those
    that the release has a wheel for.

    Raises the errors of `resolve_plan`.
    """
    pythons = _parse_pythons(request)
    if request.python and not pythons:
        raise UsageError(
            "--python names no version", hint="Use the form 3.11, or 3.11,3.12, or all"
        )
    if pythons == ["all"]:
        pythons = _list_pythons(request)
    if len(pythons) > 1 and request.scope == Scope.FULL:
        raise UsageError("--scope full builds for one Python only", hint="Name one with --python")
    planned = [
        resolve_fleet(dataclasses.replace(request, python=python)) for python in pythons or [""]
    ]
    distinct = {fleet.key: fleet for fleet, _ in planned}
    return tuple(distinct.values()), planned[0][1]


def _parse_pythons(request: Request) -> list[str]:
    """Return the words of --python."""
    return [word.strip() for word in request.python.split(",") if word.strip()]


def _resolve_architecture(request: Request) -> str:
    """Return the architecture of the first target."""
    arch = request.arch.strip(" ,").partition(",")[0].lower()
    return platform.machine() if arch in {"native", "stock"} else parse_target(arch).family


def _list_pythons(request: Request) -> list[str]:
    """List the Pythons for which the release has a wheel of the package and the first target."""
    release = releases.find_release(request.release)
    machine = _resolve_architecture(request)
    package = _choose_package(request, release, machine)
    tags = (
        wheel.python_tag
        for wheel in release.wheels
        if (wheel.package, wheel.platform) == (package, machine)
    )
    return list(dict.fromkeys(map(releases.parse_python_tag, tags)))


def _choose_package(request: Request, release: Release, machine: str) -> str:
    """Return the stock package; for a full build, which needs none, the first CPU package."""
    if request.scope == Scope.FULL:
        return request.package or releases.CPU_PACKAGES[0]
    return request.package or releases.choose_cpu_package(release, machine)


def _check_exclusions(request: Request, fleet: Fleet) -> None:
    """Print the exclusions from a selection.

    Raises UsageError for a word of --without that matches no chosen kernel group of any target.
    """
    release = releases.find_release(request.release)
    for word in _parse_exclusions(request):
        names: set[str] = set()
        matched = False
        for plan in fleet.plans:
            selection = _load_selection(request, release, plan.target)
            choice = _build_kernel_choice(request, plan.target)
            units = plans.select_units(choice, selection, release.version)
            names |= {unit.name for unit in units}
            matches = kernels.find_units(word, units, release.version)
            matched = matched or bool(matches)
            if matches and selection:
                console.print_note(f"excluding {word} from the selection for {plan.target.spec}")
        if not matched:
            raise UsageError(
                f"--without {word}: not one of the chosen kernels",
                hint=suggest_spelling(word, names) or f"Choose from {', '.join(sorted(names))}",
            )


def _parse_exclusions(request: Request) -> tuple[str, ...]:
    return tuple(word for word in _split_words(request.without) if word)


def _split_words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(","))


def resolve_plan(request: Request) -> tuple[Plan, Compiler]:
    """Return the plan of one target, and the compiler that it was resolved with.

    Raises TargetError, ReleaseError, CompilerError, UsageError.
    """
    release = releases.find_release(request.release)
    target, compiler = _resolve_target(request)
    macros = read_macros(target, compiler)
    plan = plans.make_plan(
        scope=request.scope,
        release=release,
        package=_choose_package(request, release, target.family),
        python=request.python or choose_python(release.pythons),
        target=target,
        compiler=compiler,
        macros=macros,
        kernel_choice=_build_kernel_choice(request, target),
        without=_parse_exclusions(request),
        selection=_load_selection(request, release, target),
        extra_flags=flags.parse_extra_flags(request.flags),
        lto=request.lto,
        training=_hash_training(request.pgo),
        defaults_request=_read_defaults_request(request),
        sources=_resolve_sources(request, release, target),
    )
    return plan, compiler


def _resolve_sources(request: Request, release: Release, target: Target) -> tuple[SourcePin, ...]:
    """Return the sources of --source; empty without it."""
    if not request.source or request.scope != Scope.KERNELS:
        return ()
    staging = plans.build_staging(releases.find_kernel_facts(release, target.family))
    return local_sources.create_pins(Path(request.source), plans.list_source_pins(release), staging)


def _read_defaults_request(request: Request) -> DefaultsRequest:
    """Return the requested run-time defaults.

    Raises RecordError, UsageError.
    """
    paths = [Path(path.strip()) for path in request.evidence.split(",") if path.strip()]
    return DefaultsRequest(
        bf16=request.bf16,
        trust_emulated=request.trust_emulated,
        evidence=tuple(measurement for path in paths for measurement in read_measurements(path)),
    )


def _load_selection(request: Request, release: Release, target: Target) -> Selection | None:
    """Return the selection measured for this target; None without one.

    It is the user's with the fused ops that it lists, or the recorded one for the hot kernels
    with those that are the default. Fused ops that are named are added to both.

    Raises RecordError, UsageError.
    """
    paths = [path.strip() for path in request.selection.split(",") if path.strip()]
    words = {*_split_words(request.kernels)}
    named = {word for word in words if kernels.find_fused_registrations(word)}
    hot = words - named == {HOT} and request.scope == Scope.KERNELS
    selection: Selection | None = None
    fused = named
    if paths:
        selection = _load_user_selection(paths, release, target)
        fused = named.union(selection.own)
    elif hot:
        selection = find_recorded_selection(release.version, target)
        fused = named.union(find_fused_ops(target))
    if selection is None:
        return None
    return add_fused_ops(selection, kernels.select(",".join(fused))) if fused else selection


def _build_kernel_choice(request: Request, target: Target) -> str:
    """Return the words of --kernels, and with hot kernels the fused ops.

    A selection, if there is one, takes precedence.
    """
    fused = find_fused_ops(target) if HOT in _split_words(request.kernels) else ()
    return ",".join((request.kernels, *fused))


def _load_user_selection(paths: Iterable[str], release: Release, target: Target) -> Selection:
    """Return the one selection of the files that is for this release and target.

    Raises UsageError if not exactly one fits.
    """
    selections = [read_selection(Path(path)) for path in paths]
    fitting = [
        selection
        for selection in selections
        if (selection.release, selection.target) == (release.version, target.spec)
    ]
    if len(fitting) != 1:
        available = ", ".join(
            f"{selection.release} for {selection.target}" for selection in selections
        )
        raise UsageError(
            f"--selection has {len(fitting)} selections of {release.version} for {target.spec} "
            f"instead of one; the files contain {available}",
            hint="Run invoke select to make one",
        )
    return fitting[0]


def _hash_training(path: str) -> str:
    """Return the hash of the training program: the wheel depends on it."""
    if not path:
        return ""
    if not Path(path).is_file():
        raise UsageError(f"--pgo {path}: no such file", hint="Pass workloads or a Python program")
    return hash_file(Path(path))


def _resolve_target(request: Request) -> tuple[Target, Compiler]:
    """Resolve `native` and `stock` to a name and explicit features."""
    arch = request.arch.strip().lower()
    if arch == "native":
        return _resolve_native(request)
    target = create_stock_target(platform.machine()) if arch == "stock" else parse_target(arch)
    return target, _resolve_compiler(request.compiler, target.family)


def _resolve_native(request: Request) -> tuple[Target, Compiler]:
    target = resolve_target("native", read_cpu())
    compiler = _resolve_compiler(request.compiler, target.family)
    fitting = find_buildable_target(target, compiler)
    if fitting != target:
        reason = f"{compiler.family} {compiler.version} does not support all of {target.spec}"
        console.print_note(f"{reason}; native is {fitting.spec}")
    return fitting, compiler


def find_buildable_target(target: Target, compiler: Compiler) -> Target:
    """Return the target, or the nearest one that an older compiler supports.

    The result has the extra features that the compiler supports.

    Raises CompilerError if there is none.
    """
    for candidate in (target, *list_proxy_targets(target)):
        extras = flags.filter_known_extras(candidate, compiler.family, compiler.version)
        tuned = "" if candidate.tune == candidate.name else f"/{candidate.tune}"
        fitting = parse_target("+".join((candidate.name, *extras)) + tuned)
        with contextlib.suppress(CompilerError):
            flags.compute_march_flags(fitting, compiler.family, compiler.version)
            return fitting
    flags.compute_march_flags(target, compiler.family, compiler.version)
    return target


def fill_compiler(request: Request) -> Request:
    """Return the request with the default compiler if none is installed, and print a note.

    This is for plans that are only printed.
    """
    if request.compiler:
        return request
    try:
        compilers.find_compiler(None, _resolve_architecture(request))
    except CompilerError as error:
        version = packages.choose_clang().partition("-")[2] or str(packages.CLANG)
        console.print_note(f"{error.message}; planned with clang {version}. {error.hint}")
        return dataclasses.replace(request, compiler=f"clang@{version}")
    return request


def _resolve_compiler(compiler: str, architecture: str) -> Compiler:
    if "@" in compiler:
        return plans.parse_compiler(compiler, architecture)
    return compilers.find_compiler(compiler or None, architecture)


def read_macros(target: Target, compiler: Compiler) -> dict[str, str]:
    """Return the macros that the compiler defines for the target; empty for a declared one
    (clang@16.0.6), which cannot be run.
    """
    march = flags.compute_march_flags(target, compiler.family, compiler.version)
    if not compiler.path.is_absolute():
        return {}
    macros = compilers.read_macros(compiler, march)
    flags.verify_macros(target, compiler.family, compiler.version, macros)
    return macros


def choose_python(supported: tuple[str, ...]) -> str:
    """Return this interpreter's version if the release supports it, else the newest installed
    one that it supports, else the newest that it supports.
    """
    current = f"{sys.version_info.major}.{sys.version_info.minor}"
    if current in supported:
        return current
    return next((python for python in reversed(supported) if is_here(python)), supported[-1])
