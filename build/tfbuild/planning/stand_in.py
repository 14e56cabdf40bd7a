"""What runs in the place of kernels that this CPU cannot run: the same sources, compiled for the
nearest target that it can."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Iterator

from archspec.cpu import TARGETS

from tfbuild.cpus import flags
from tfbuild.cpus.compilers import Compiler
from tfbuild.cpus.cpu import Cpu, compute_x86_64_level
from tfbuild.cpus.features import filter_codegen
from tfbuild.cpus.targets import Target, list_targets
from tfbuild.errors import CompilerError, KernelError
from tfbuild.planning.fleet import ability
from tfbuild.planning.plan import Plan
from tfbuild.planning.request import macros_of


def absent(plan: Plan, cpu: Cpu) -> tuple[str, ...]:
    """What this CPU lacks to run what the plan makes; the architecture where it is another."""
    if plan.target.family != cpu.architecture:
        return (plan.target.family,)
    return tuple(sorted({*plan.required} - cpu.features))


def stand_in(plan: Plan, beside: Collection[Plan], cpu: Cpu, compiler: Compiler) -> Plan:
    """The plan itself where this CPU runs it, else the same sources for the nearest target that it
    runs: of the plans `beside` it where one has as wide vectors, for then it is compiled anyway.

    Raises KernelError where there is none.
    """
    if not absent(plan, cpu):
        return plan
    best = next(_plans(plan, cpu, compiler), None)
    if best is None:
        raise KernelError(
            f"no kernel for {plan.target.spec} can be admitted: admission runs kernels, and of "
            f"its targets this {cpu.architecture} CPU runs none",
            hint=f"Build it on a CPU of {plan.target.family}",
        )
    level = compute_x86_64_level(best.target.features)
    fitting = [
        each
        for each in beside
        if not absent(each, cpu)
        and {*each.required} <= {*plan.required}
        and compute_x86_64_level(each.target.features) == level
    ]
    return _of_sources(plan, max(fitting, key=lambda each: ability(each.target), default=best))


def nearest(target: Target, cpu: Cpu) -> tuple[Target, ...]:
    """The named targets that this CPU is, of which `target` has all that a compiler uses by itself:
    the most able first, of equals those that `target` descends from."""
    if target.family != cpu.architecture:
        return ()
    fitting = (
        each
        for each in list_targets(target.family)
        if each.features <= cpu.features
        and {*filter_codegen(each.features, each.family)} <= target.features
        and not _unlisted(each)
    )
    older = {uarch.name for uarch in TARGETS[target.name].ancestors}

    def rank(each: Target) -> tuple[int, int, bool, int, str]:
        level, used, name = ability(each)
        return level, used, each.name in older, len(each.features), name

    return tuple(sorted(fitting, key=rank, reverse=True))


def _unlisted(target: Target) -> bool:
    """Targets without a list of features in archspec: the versions of the Arm architecture."""
    generic = target.family == "aarch64" and target.vendor == "generic"
    return generic and target.name != target.family


def _plans(plan: Plan, cpu: Cpu, compiler: Compiler) -> Iterator[Plan]:
    """For the nearest targets that the compiler knows, and of which it asks nothing else."""
    for target in nearest(plan.target, cpu):
        with contextlib.suppress(CompilerError):
            march = flags.compute_march_flags(target, compiler.family, compiler.version)
            needs = flags.compute_required_features(target, macros_of(target, compiler))
            made = dataclasses.replace(
                plan, target=target, flags=march, required=tuple(sorted(needs)), defaults=()
            )
            if not absent(made, cpu):
                yield made


def _of_sources(plan: Plan, other: Plan) -> Plan:
    """The plan's sources, and how they are compiled, for the other's target."""
    return dataclasses.replace(
        other,
        kernels=plan.kernels,
        source_flags=plan.source_flags,
        selection=plan.selection,
        only_selected=plan.only_selected,
        measured=plan.measured,
        measured_on=plan.measured_on,
        kernel_recipe=plan.kernel_recipe,
    )
