"""Proxy targets: kernels that this CPU cannot run are tested as the same sources, compiled for the
nearest target that it can run."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Iterator

from archspec.cpu import TARGETS

from tfbuild.planning.fleet import rank_target
from tfbuild.planning.plan import KernelsPlan, Plan
from tfbuild.planning.target_compiler import read_macros
from tfcore.cpus import flags
from tfcore.cpus.compilers import Compiler
from tfcore.cpus.cpu import Cpu, compute_x86_64_level
from tfcore.cpus.features import filter_codegen
from tfcore.cpus.targets import Target, list_targets
from tfcore.errors import CompilerError, KernelError


def list_missing_features(plan: Plan, cpu: Cpu) -> tuple[str, ...]:
    """List what this CPU lacks to run the plan's code: features, or the architecture."""
    if plan.target.family != cpu.architecture:
        return (plan.target.family,)
    return tuple(sorted({*plan.required} - cpu.features))


def choose_proxy_plan(
    plan: KernelsPlan, beside: Collection[KernelsPlan], cpu: Cpu, compiler: Compiler
) -> KernelsPlan:
    """Return the plan itself if this CPU runs it, else a proxy for the nearest target that it
    runs.

    The proxy has the same sources. A target of the plans `beside` with equally wide vectors
    is preferred, since it is compiled anyway.

    Raises KernelError if there is none.
    """
    if not list_missing_features(plan, cpu):
        return plan
    best = next(_build_proxy_plans(plan, cpu, compiler), None)
    if best is None:
        raise KernelError(
            f"this {cpu.architecture} CPU cannot test kernels for {plan.target.spec}: it runs no "
            "proxy target for it",
            hint=f"Build on a CPU of the {plan.target.family} family",
        )
    level = compute_x86_64_level(best.target.features)
    compiled = [
        candidate
        for candidate in beside
        if not list_missing_features(candidate, cpu)
        and {*candidate.required} <= {*plan.required}
        and compute_x86_64_level(candidate.target.features) == level
    ]
    return _copy_sources(
        plan, max(compiled, key=lambda candidate: rank_target(candidate.target), default=best)
    )


def list_nearest_targets(target: Target, cpu: Cpu) -> tuple[Target, ...]:
    """List the named targets that are nearest to `target` and that this CPU runs.

    `target` has all of their features that a compiler uses by itself. The most capable come
    first; among equals, those that `target` descends from.
    """
    if target.family != cpu.architecture:
        return ()
    fitting = (
        candidate
        for candidate in list_targets(target.family)
        if candidate.features <= cpu.features
        and {*filter_codegen(candidate.features, candidate.family)} <= target.features
        and not _is_unlisted(candidate)
    )
    older = {uarch.name for uarch in TARGETS[target.name].ancestors}

    def rank(candidate: Target) -> tuple[int, int, bool, int, str]:
        level, used, name = rank_target(candidate)
        return level, used, candidate.name in older, len(candidate.features), name

    return tuple(sorted(fitting, key=rank, reverse=True))


def _is_unlisted(target: Target) -> bool:
    """Return whether archspec lists no features of the target, as of Arm architecture versions."""
    generic = target.family == "aarch64" and target.vendor == "generic"
    return generic and target.name != target.family


def _build_proxy_plans(plan: KernelsPlan, cpu: Cpu, compiler: Compiler) -> Iterator[KernelsPlan]:
    """Yield plans for the nearest targets that the compiler supports and this CPU runs."""
    for target in list_nearest_targets(plan.target, cpu):
        with contextlib.suppress(CompilerError):
            march = flags.compute_march_flags(target, compiler.family, compiler.version)
            needs = flags.compute_required_features(target, read_macros(target, compiler))
            proxy = dataclasses.replace(
                plan, target=target, flags=march, required=tuple(sorted(needs)), defaults=()
            )
            if not list_missing_features(proxy, cpu):
                yield proxy


def _copy_sources(plan: KernelsPlan, other_plan: KernelsPlan) -> KernelsPlan:
    """Return the other plan with this plan's sources and their compile options."""
    return dataclasses.replace(
        other_plan,
        kernels=plan.kernels,
        source_flags=plan.source_flags,
        selection=plan.selection,
        only_selected=plan.only_selected,
        measured=plan.measured,
        measured_on=plan.measured_on,
        kernel_recipe=plan.kernel_recipe,
    )
