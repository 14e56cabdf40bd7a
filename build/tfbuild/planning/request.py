"""Resolves the options of a command to plans."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence

from tfbuild.commands import HOT, NEWEST, Request
from tfbuild.interpreters import is_here
from tfbuild.planning import plan as plans
from tfbuild.planning.defaults import DefaultsRequest, read_measurements
from tfbuild.planning.fleet import Fleet, build_fleet
from tfbuild.planning.newest_release import find_newest_release
from tfbuild.planning.plan import AnyPlan, Resolved, Scope
from tfbuild.planning.selection import (
    Selection,
    add_fused_ops,
    find_fused_ops,
    find_recorded_selection,
    read_fitting_selection,
)
from tfbuild.planning.target_compiler import find_architecture, read_macros, resolve_target
from tfbuild.upstream import kernels, local_sources, releases
from tfbuild.upstream.download import hash_file
from tfbuild.upstream.releases import Release
from tfbuild.upstream.source import SourcePin
from tfcore import console, packages
from tfcore.console import suggest_spelling
from tfcore.cpus import compilers, flags
from tfcore.cpus.compilers import Compiler
from tfcore.cpus.targets import Target
from tfcore.errors import CompilerError, UsageError
from tfcore.settings import Paths, expand_home, expand_paths


def require_release(request: Request) -> Release:
    """Return the release of a request. Raises ReleaseError for one that is not in the table."""
    return releases.find_release(request.release)


def resolve_release(request: Request, paths: Paths) -> Request:
    """Return the request with a version in place of `newest`, and print it.

    For kernels it is the newest release whose sources are available. Raises TargetError and
    UsageError for a wrong --arch before it asks the network for them.
    """
    if request.release != NEWEST:
        return request
    if request.scope != Scope.KERNELS or request.source:
        release, reason = require_release(request), ""
    else:
        for word in _list_targets(request):
            find_architecture(word)
        release, reason = find_newest_release(paths, _split_list(request.python))
    console.print_note(
        f"using release {release.version}{f': {reason}' if reason else ', the newest'}"
    )
    return dataclasses.replace(request, release=release.version)


def fill_compiler(request: Request) -> Request:
    """Return the request with the default compiler if none is installed, and print a note.

    This is for plans that are only printed.
    """
    try:
        if not request.compiler:
            compilers.find_compiler(None, find_architecture(request.arch))
    except CompilerError as error:
        version = packages.choose_clang().partition("-")[2] or str(packages.CLANG)
        console.print_note(f"{error.message}; planned with clang {version}. {error.hint}")
        request = dataclasses.replace(request, compiler=f"clang@{version}")
    return request


def resolve_fleets(
    request: Request, make: Callable[[Resolved], AnyPlan]
) -> tuple[tuple[Fleet[AnyPlan], ...], Compiler]:
    """Return the fleets of all Pythons of --python, and their compiler. `make` makes the plans.

    The fleets differ in nothing else. --python is a comma-separated list, or `all` for those
    that the release has a wheel for.

    Raises the errors of `resolve` and `make`.
    """
    planned = [
        resolve_fleet(dataclasses.replace(request, python=python), make)
        for python in _choose_pythons(request)
    ]
    distinct = {fleet.key: fleet for fleet, _ in planned}
    return tuple(distinct.values()), planned[0][1]


def resolve_fleet(
    request: Request, make: Callable[[Resolved], AnyPlan]
) -> tuple[Fleet[AnyPlan], Compiler]:
    """Return the plans of all targets of --arch, made by `make`, and their compiler.

    Raises the errors of `resolve` and `make`.
    """
    # A target is resolved after the plan of the one before it, so that errors keep that order.
    wheels = (resolve(dataclasses.replace(request, arch=name)) for name in _list_targets(request))
    planned = [(resolved, make(resolved)) for resolved in wheels]
    fleet = build_fleet(plan for _, plan in planned)
    if request.without:
        by_target = {resolved.target: resolved for resolved, _ in planned}
        _check_exclusions([by_target[plan.target] for plan in fleet.plans])
    return fleet, planned[0][0].compiler


def resolve(request: Request) -> Resolved:
    """Resolve all options of a request for one target and one Python.

    Raises ReleaseError, TargetError, CompilerError, RecordError, UsageError, and DownloadError
    or KernelError for sources that are none.
    """
    release = require_release(request)
    target, compiler = resolve_target(request.arch, request.compiler)
    macros = read_macros(target, compiler)
    kernel_choice, selection = _choose_kernels(request, release, target)
    return Resolved(
        release=release,
        target=target,
        compiler=compiler,
        macros=macros,
        package=_choose_package(request, release, target.family),
        python=request.python or choose_python(release.pythons),
        kernel_choice=kernel_choice,
        without=tuple(_split_list(request.without)),
        selection=selection,
        extra_flags=flags.parse_extra_flags(request.flags),
        lto=request.lto,
        training=_hash_training(request.pgo),
        defaults_request=_read_defaults_request(request),
        sources=_resolve_sources(request, release, target),
        scope=_parse_scope(request.scope),
    )


def _list_targets(request: Request) -> list[str]:
    """Return the words of --arch. Raises UsageError if there are none."""
    names = _split_list(request.arch)
    if not names:
        raise UsageError("--arch names no target", hint="See invoke targets")
    return names


def _split_list(text: str) -> list[str]:
    """Return the words of a comma-separated list."""
    return [word.strip() for word in text.split(",") if word.strip()]


def _choose_pythons(request: Request) -> list[str]:
    """Return the Pythons of --python; without it one empty text, which `resolve` replaces.

    Raises UsageError.
    """
    pythons = _split_list(request.python)
    if request.python and not pythons:
        raise UsageError(
            "--python names no version", hint="Use the form 3.11, or 3.11,3.12, or all"
        )
    if pythons == ["all"]:
        pythons = _list_pythons(request)
    if len(pythons) > 1 and request.scope == Scope.FULL:
        raise UsageError("--scope full builds for one Python only", hint="Name one with --python")
    return pythons or [""]


def _list_pythons(request: Request) -> list[str]:
    """List the Pythons for which the release has a wheel of the package and the first target."""
    release = require_release(request)
    machine = find_architecture(request.arch)
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


def _check_exclusions(wheels: Sequence[Resolved]) -> None:
    """Print the exclusions from the selections.

    Raises UsageError for a word of --without that matches no chosen kernel group of any target.
    """
    chosen = [(resolved, plans.select_units(resolved)) for resolved in wheels]
    for word in wheels[0].without:
        matching = [
            resolved
            for resolved, units in chosen
            if kernels.find_units(word, units, resolved.release.version)
        ]
        for resolved in matching:
            if resolved.selection:
                spec = resolved.target.spec
                console.print_note(f"excluding {word} from the selection for {spec}")
        if not matching:
            names = {unit.name for _, units in chosen for unit in units}
            raise UsageError(
                f"--without {word}: not one of the chosen kernels",
                hint=suggest_spelling(word, names) or f"Choose from {', '.join(sorted(names))}",
            )


def _parse_scope(text: str) -> Scope:
    try:
        return Scope(text)
    except ValueError:
        known = " or ".join(scope.value for scope in Scope)
        raise UsageError(f"--scope {text} is unknown", hint=f"Use {known}") from None


def _resolve_sources(request: Request, release: Release, target: Target) -> tuple[SourcePin, ...]:
    """Return the sources of --source; empty without it."""
    if not request.source or request.scope != Scope.KERNELS:
        return ()
    staging = plans.build_staging(releases.find_kernel_facts(release, target.family))
    source = expand_home(request.source, "--source")
    return local_sources.create_pins(source, plans.list_source_pins(release), staging)


def _read_defaults_request(request: Request) -> DefaultsRequest:
    """Return the requested run-time defaults.

    Raises RecordError, UsageError.
    """
    paths = expand_paths(request.evidence, "--evidence")
    return DefaultsRequest(
        bf16=request.bf16,
        trust_emulated=request.trust_emulated,
        evidence=tuple(measurement for path in paths for measurement in read_measurements(path)),
    )


def _choose_kernels(
    request: Request, release: Release, target: Target
) -> tuple[str, Selection | None]:
    """Return the words of --kernels, and the selection that takes precedence; None without one.

    It is the user's with the fused ops that it lists, or the recorded one for the hot kernels
    with those that are the default. Fused ops that are named are added to both. Without a
    selection, the default ones are added to the hot kernels.

    Raises RecordError, UsageError.
    """
    words = {word.strip() for word in request.kernels.split(",")}
    named = {word for word in words if kernels.find_fused_registrations(word)}
    default = find_fused_ops(target) if HOT in words else ()
    paths = expand_paths(request.selection, "--selection")
    selection: Selection | None = None
    fused = named.union(default)
    if paths:
        selection = read_fitting_selection(paths, release.version, target)
        fused = named.union(selection.own)
    elif words - named == {HOT} and request.scope == Scope.KERNELS:
        selection = find_recorded_selection(release.version, target)
    if selection and fused:
        selection = add_fused_ops(selection, kernels.select(",".join(fused)))
    return ",".join((request.kernels, *default)), selection


def _hash_training(text: str) -> str:
    """Return the hash of the training program: the wheel depends on it."""
    if not text:
        return ""
    path = expand_home(text, "--pgo")
    if not path.is_file():
        raise UsageError(f"--pgo {path}: no such file", hint="Pass workloads or a Python program")
    return hash_file(path)


def choose_python(supported: tuple[str, ...]) -> str:
    """Return this interpreter's version if the release supports it, else the newest installed
    one that it supports, else the newest that it supports.
    """
    current = f"{sys.version_info.major}.{sys.version_info.minor}"
    if current in supported:
        return current
    return next((python for python in reversed(supported) if is_here(python)), supported[-1])
