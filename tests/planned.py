"""Plans that need no compiler here: the compiler is declared."""

from __future__ import annotations

from typing import Any

from tfbuild.planning.plan import Plan
from tfbuild.planning.request import Request, plan_for


def planned(
    arch: str = "skylake",
    *,
    scope: str = "kernels",
    release: str = "2.14.1",
    kernels: str = "hot",
    package: str = "tensorflow-cpu",
    python: str = "3.11",
    compiler: str = "clang@16.0.6",
    **options: Any,  # noqa: ANN401
) -> Plan:
    request = Request(
        arch=arch,
        release=release,
        scope=scope,
        kernels=kernels,
        package=package,
        python=python,
        compiler=compiler,
        **options,
    )
    plan, _ = plan_for(request)
    return plan
