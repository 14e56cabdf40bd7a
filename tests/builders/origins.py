"""Wheels and requests from which the origin of a wheel is read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from markupsafe import _speedups
from tests.builders.plans import fleet_for

from tfbuild.commands import Request
from tfbuild.kernelbuild import assemble
from tfbuild.kernelbuild.admission import UnitVerdict, select_registrations
from tfbuild.kernelbuild.assemble import LinkedLibrary
from tfbuild.packing.tuned import Tuned
from tfbuild.planning.fleet import Fleet
from tfbuild.planning.plan import KernelsPlan
from tfbuild.upstream import kernels
from tfbuild.upstream.source_matching import SourceMatch
from tfcore.comparisons.kernels import TypedOp

CLANG = "clang@16.0.6"

LIBRARY = Path(_speedups.__file__)
"""Any library: what is in it decides nothing here."""


def request(**options: object) -> Request:
    usual: dict[str, object] = {"arch": "skylake", "release": "2.14.1", "python": "3.11"}
    return Request(**(usual | {"compiler": CLANG} | options))  # type: ignore[arg-type]


def made_of(fleet: Fleet[KernelsPlan], unadmitted: int = 0) -> Tuned:
    """What a build of the fleet says of its wheel, where admission lets all but the first
    `unadmitted` units in."""
    return assemble.build_record(
        fleet,
        [_made(plan, unadmitted) for plan in fleet.plans],
        bazel="4.2.3",
        source_sha256=fleet.first.sources[-1].file.sha256,
        nearness=SourceMatch(own=fleet.first.sources[0].kind != "given", compared=1),
    )


def _made(plan: KernelsPlan, unadmitted: int) -> LinkedLibrary:
    verdicts = tuple(
        UnitVerdict(unit=unit.name, reason="it differs")
        if number < unadmitted
        else UnitVerdict(unit=unit.name, registrations=tuple(_registrations(plan, unit.name)))
        for number, unit in enumerate(plan.kernels)
    )
    return LinkedLibrary(
        plan=plan,
        ran_as=plan.target.spec,
        library=LIBRARY,
        verdicts=verdicts,
        registrations=select_registrations(verdicts, plan.selection),
    )


def _registrations(plan: KernelsPlan, unit: str) -> Iterator[TypedOp]:
    rows = kernels.load_known_sources(plan.release).values()
    ops = {op for row in rows if row.unit == unit for op in row.ops}
    yield from (typed_op for typed_op in plan.selection or () if typed_op.op in ops)
    yield from (TypedOp(op=op, types="T=2") for op in ops)


FLEET, _ = fleet_for(request(kernels="mini"))
