"""Plans that need no compiler here: the compiler is declared."""

from __future__ import annotations

from typing import Any

from tfbuild.commands import Request
from tfbuild.planning.fleet import Fleet
from tfbuild.planning.plan import FullPlan, KernelsPlan, make_full_plan, make_kernels_plan
from tfbuild.planning.request import resolve, resolve_fleet
from tfbuild.upstream.releases import find_release
from tfcore.cpus.compilers import Compiler


def planned(arch: str = "skylake", **options: Any) -> KernelsPlan:
    return make_kernels_plan(resolve(requested(arch, **options)))


def planned_full(arch: str = "skylake", **options: Any) -> FullPlan:
    return make_full_plan(resolve(requested(arch, scope="full", **options)))


def plan_for(request: Request) -> tuple[KernelsPlan, Compiler]:
    resolved = resolve(request)
    return make_kernels_plan(resolved), resolved.compiler


def fleet_for(request: Request) -> tuple[Fleet[KernelsPlan], Compiler]:
    return resolve_fleet(request, make_kernels_plan)


def requested(
    arch: str = "skylake",
    *,
    scope: str = "kernels",
    release: str = "2.14.1",
    kernels: str = "hot",
    package: str = "",
    python: str = "",
    compiler: str = "clang@16.0.6",
    **options: Any,
) -> Request:
    return Request(
        arch=arch,
        release=release,
        scope=scope,
        kernels=kernels,
        package=package,
        python=python or _python(release),
        compiler=compiler,
        **options,
    )


def _python(release: str) -> str:
    """3.11, or the newest that the release can be built for: whatever runs the tests."""
    known = find_release(release).pythons
    return "3.11" if "3.11" in known else known[-1]
