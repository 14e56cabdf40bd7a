"""Derives the plans of a kernel wheel from its tuned.json.

tuned.json supplies only what a user chose: release, targets, kernels, flags of sources, selections,
evidence. The code of a build decides everything else again, so that a wheel with a false tuned.json
cannot confirm itself.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from dataclasses import dataclass

from tfbuild.packing.tuned import KernelLibrary, Tuned
from tfbuild.packing.wheel import WheelIdentity
from tfbuild.planning import plan as plans
from tfbuild.planning import selection as selections
from tfbuild.planning.defaults import (
    BF16,
    DefaultsRequest,
    choose_defaults,
    load_known_measurements,
)
from tfbuild.planning.fleet import Fleet, build_fleet
from tfbuild.planning.plan import KernelsPlan, Resolved, Scope
from tfbuild.planning.target_compiler import read_macros
from tfbuild.upstream import local_sources, releases
from tfbuild.upstream.download import Pin
from tfbuild.upstream.releases import Release
from tfbuild.upstream.source import SourcePin
from tfcore.comparisons.kernels import TypedOp
from tfcore.cpus import compilers, flags
from tfcore.cpus.compilers import Compiler
from tfcore.cpus.targets import Target, parse_target
from tfcore.errors import CompilerError, RebuildError, TensorwrightError

# These names become string literals in a compiled source. They must not contain code.
_OP = re.compile(r"[\w>.-]+", re.ASCII)
_TYPES = re.compile(r"[\w=|,;>.:+-]*", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """A wheel's own record (`facts`), and the plans that this version derives from it here.

    `unknown` are the targets whose plan key in tuned.json is none of this version's: another
    version made it, or tuned.json was changed.
    """

    facts: Tuned
    compiler: Compiler
    fleet: Fleet[KernelsPlan]
    unknown: tuple[str, ...]


def require_kernels(facts: Tuned | None) -> Tuned:
    """Return the record of a kernel wheel. Raises RebuildError for another wheel."""
    if facts is None:
        raise RebuildError(
            "it is not a tuned wheel: no record shows how it was built",
            hint="Run invoke audit without --rebuild",
        )
    if facts.tree is not None:
        raise RebuildError(
            "it is a full build, which takes tens of core-hours: --rebuild does not repeat it",
            hint="Build it on another machine with the same options: invoke build --scope full "
            f"--release {facts.release} --arch {facts.tree.target}, then compare the SHA-256",
        )
    return facts


def select_compiler(facts: Tuned, architecture: str) -> Compiler:
    """Return this machine's compiler nearest to the wheel's: of its version, else of its family.

    Raises RebuildError if there is none.
    """
    family, _, version = facts.compiler.partition(" ")
    stem = "g++" if family == "gcc" else "clang"
    candidates: list[Compiler] = []
    errors: list[CompilerError] = []
    for name in (f"{stem}-{version.partition('.')[0]}", stem):
        try:
            candidates.append(compilers.find_compiler(name, architecture))
        except CompilerError as error:
            errors.append(error)
    if not candidates:
        first = errors[0]
        message = f"it was compiled by {facts.compiler}: {first.message}"
        raise RebuildError(message, hint=first.hint)
    return max(
        candidates, key=lambda candidate: (candidate.family, candidate.version) == (family, version)
    )


def resolve_origin(facts: Tuned, identity: WheelIdentity, compiler: Compiler) -> Origin:
    """Resolve the plans of a kernel wheel for this compiler.

    Raises RebuildError for what this version cannot plan.
    """
    try:
        release = releases.find_release(facts.release)
        sources = _resolve_sources(facts, release)
        planned = [
            _plan_library(facts, library, identity, compiler, release, sources)
            for library in facts.libraries
        ]
        fleet = build_fleet(plan for plan, _ in planned)
    except RebuildError:
        raise
    except TensorwrightError as error:
        raise RebuildError(
            f"no plan follows from its tuned.json: {error.message}", hint=error.hint
        ) from error
    for plan in fleet.plans:
        if plan.stock is None or plan.stock.sha256 != facts.stock_sha256:
            raise RebuildError("it was built from a stock wheel that this version does not know")
    unknown = tuple(plan.target.spec for plan, known in planned if not known)
    return Origin(facts=facts, compiler=compiler, fleet=fleet, unknown=unknown)


def _resolve_sources(facts: Tuned, release: Release) -> tuple[SourcePin, ...]:
    """Return the release's own sources, or those that were given in their place."""
    nearness, release_pins = facts.nearness, plans.list_source_pins(release)
    if nearness is not None and not nearness.own:
        name = facts.source_file
        if not name or "/" in name or not name.isprintable():
            raise RebuildError(f"tuned.json has an invalid name of its sources: {name!r}")
        file = Pin(name=name, sha256=facts.source_sha256)
        return (SourcePin(kind=local_sources.KIND, origin=nearness.commit, file=file),)
    if facts.source_sha256 not in {pin.file.sha256 for pin in release_pins}:
        raise RebuildError(
            f"its sources, with sha256 {facts.source_sha256[:16]}…, are none of those that this "
            f"version knows of TensorFlow {facts.release}"
        )
    return release_pins


def _plan_library(
    facts: Tuned,
    library: KernelLibrary,
    identity: WheelIdentity,
    compiler: Compiler,
    release: Release,
    sources: tuple[SourcePin, ...],
) -> tuple[KernelsPlan, bool]:
    """Return a library's plan, and whether tuned.json names the same one."""
    target = parse_target(library.target)
    _require_plain_names(library)
    resolved = Resolved(
        scope=Scope.KERNELS,
        release=release,
        package=identity.name,
        python=identity.python,
        target=target,
        compiler=compiler,
        macros=read_macros(target, compiler),
        kernel_choice=",".join(sorted({*library.kernels, *library.stay_stock})),
        defaults_request=_derive_defaults_request(library, target, facts.release),
        sources=sources,
    )
    plan = plans.make_kernels_plan(resolved)
    units = plans.filter_sources(plan.kernels, library.sources)
    plan = dataclasses.replace(
        plan,
        kernels=units,
        source_flags=library.source_flags,
        only_selected=bool(library.sources),
        measured=library.measured,
        measured_on=library.measured_on,
        kernel_recipe=plans.build_kernel_recipe(release, compiler, units, library.source_flags),
    )
    # Take these values from tuned.json, even if this version would choose others. A different key
    # then comes from Tensorwright's own code, which tuned.json does not record.
    recorded_plan = dataclasses.replace(
        plan,
        compiler_version=facts.compiler.partition(" ")[2],
        flags=library.flags,
        required=library.required_features,
        defaults=library.defaults,
    )
    choices = tuple(_list_selections(library, plan))
    matches = (
        choice
        for choice in choices
        if dataclasses.replace(recorded_plan, selection=choice).key == library.plan_key
    )
    match = next(matches, _UNFOUND)
    if match is _UNFOUND:
        return dataclasses.replace(plan, selection=choices[-1]), False
    return dataclasses.replace(plan, selection=match), True


_UNFOUND: tuple[TypedOp, ...] = (TypedOp(op="", types=""),)


def _list_selections(
    library: KernelLibrary, plan: KernelsPlan
) -> Iterator[tuple[TypedOp, ...] | None]:
    """Yield the kernel selections that the library may have been built with.

    tuned.json does not record what was selected and did not pass, but the plan's key shows
    which selection it was.
    """
    kept_kernels = {row.choice for row in library.measured if row.kept}
    yield None
    yield tuple(sorted({*kept_kernels, *selections.list_fused_kernels(plan.kernels)}))
    recorded = selections.find_recorded_selection(plan.release, plan.target)
    if recorded is not None:
        complete = selections.add_fused_ops(recorded, plan.kernels)
        yield plans.reduce_selection(complete, plan.kernels, plan.release).kept
    yield library.registrations


def _derive_defaults_request(
    library: KernelLibrary, target: Target, release: str
) -> DefaultsRequest:
    """Return the run-time defaults that were requested."""
    known = load_known_measurements()
    measurements = tuple(
        entry for default in library.defaults for entry in default.evidence if entry not in known
    )
    bf16 = any(entry.lever.name == BF16 for entry in library.defaults)
    plain, trusting = (
        DefaultsRequest(bf16=bf16, trust_emulated=trust, evidence=measurements)
        for trust in (False, True)
    )
    trusted = choose_defaults(target, release, trusting) == library.defaults
    return (
        trusting
        if trusted and choose_defaults(target, release, plain) != library.defaults
        else plain
    )


def _require_plain_names(library: KernelLibrary) -> None:
    """Raise RebuildError for names that could be more than names where they are compiled."""
    for kernel in library.registrations:
        if not (_OP.fullmatch(kernel.op) and _TYPES.fullmatch(kernel.types)):
            raise RebuildError(
                f"tuned.json has an invalid registration: {kernel.op!r} {kernel.types!r}"
            )
    for word in (word for words in library.source_flags.values() for word in words):
        if flags.parse_extra_flags(word) != (word,):
            raise RebuildError(f"tuned.json has an invalid compiler flag: {word!r}")
