"""Plans that need no compiler here: the compiler is declared."""

from __future__ import annotations

from typing import Any

from tfbuild.commands import Request
from tfbuild.planning.plan import Plan
from tfbuild.planning.request import resolve_plan
from tfbuild.upstream.releases import find_release


def planned(arch: str = "skylake", **options: Any) -> Plan:
    plan, _ = resolve_plan(requested(arch, **options))
    return plan


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
