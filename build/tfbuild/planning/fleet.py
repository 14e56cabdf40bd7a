"""One wheel for several targets: a plan and a kernel library for each, and one dispatcher."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from tfbuild.planning.defaults import BF16
from tfbuild.planning.plan import AnyPlan, Plan, Scope
from tfcore.cpus.cpu import compute_x86_64_level
from tfcore.cpus.features import filter_codegen
from tfcore.cpus.targets import STOCK_SPECS, Target
from tfcore.errors import UsageError
from tfcore.records import hash_record

Plan_co = TypeVar("Plan_co", bound=Plan, covariant=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Fleet(Generic[Plan_co]):
    """The plans of one wheel, in the order in which the dispatcher tries their libraries.

    They differ in target, flags and required features only. A wheel for one target is a fleet of
    one, with its plan's key and version.
    """

    plans: tuple[Plan_co, ...]

    @property
    def first(self) -> Plan_co:
        """The first plan, which represents what all plans have in common."""
        return self.plans[0]

    @property
    def key(self) -> str:
        return (
            self.first.key
            if len(self.plans) == 1
            else hash_record([plan.key for plan in self.plans])
        )

    @property
    def local(self) -> str:
        """The local version (PEP 440): the target's, or for several targets a hash of their set."""
        if len(self.plans) == 1:
            return self.first.local
        specs = ",".join(plan.target.spec for plan in self.plans)
        # The prefix keeps the segment from being all digits: PEP 440 treats those as a number.
        local = f"fleet.of{hashlib.sha256(specs.encode()).hexdigest()[:6]}"
        return f"{local}.{BF16}" if self.first.bf16 else local

    @property
    def version(self) -> str:
        return f"{self.first.release}+{self.local}"

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(plan.target.spec for plan in self.plans)


def build_fleet(plans: Iterable[AnyPlan]) -> Fleet[AnyPlan]:
    """Return the fleet of these plans, the most capable target first.

    Raises UsageError for a repeated target, and for targets that cannot be in one wheel.
    """
    ordered = tuple(sorted(plans, key=lambda plan: rank_target(plan.target), reverse=True))
    if len(ordered) > 1:
        _check_fleet(ordered)
    return Fleet(plans=ordered)


def rank_target(target: Target) -> tuple[int, int, str]:
    """Return a sort key that puts a target above those whose features it includes.

    The x86-64 level counts first: wider vectors are worth more than many small features.
    """
    used = filter_codegen(target.features, target.family)
    return compute_x86_64_level(target.features), len(used), target.spec


def _check_fleet(plans: tuple[Plan, ...]) -> None:
    specs = [plan.target.spec for plan in plans]
    repeated = next((spec for spec in specs if specs.count(spec) > 1), None)
    if repeated:
        raise UsageError(f"--arch names {repeated} twice", hint="Name each target once")
    if not {*STOCK_SPECS}.isdisjoint(specs):
        raise UsageError(
            "stock cannot be part of a fleet: every wheel contains the stock kernels",
            hint="Build the control wheel alone: --arch stock",
        )
    if any(plan.scope is Scope.FULL for plan in plans):
        raise UsageError(
            "--scope full builds for one target only",
            hint="Name one target with --arch, or use --scope kernels",
        )
    families = sorted({plan.target.family for plan in plans})
    if len(families) > 1:
        raise UsageError(
            f"one wheel cannot be for {' and '.join(families)}",
            hint="Build a wheel for each architecture",
        )
