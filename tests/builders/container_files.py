"""Container files of plans that need no compiler here, and which of them are golden."""

from __future__ import annotations

from tfbuild.checks import TESTED_RELEASE
from tfbuild.commands import Request
from tfbuild.planning.containers import render_containers
from tfbuild.planning.fleet import Fleet
from tfbuild.planning.plan import Plan, make_plan
from tfbuild.planning.request import resolve_fleet
from tfcore.settings import TEMPLATES

# Folder in tests/golden → what is asked for, and the vCPUs of its lines.
CASES: dict[str, tuple[Request, int | None]] = {
    "containers-kernels": (
        Request(arch="haswell,zen4", release=TESTED_RELEASE, compiler="clang@16.0.6"),
        None,
    ),
    "containers-full": (
        Request(
            arch="skylake",
            scope="full",
            release=TESTED_RELEASE,
            compiler="clang@16.0.6",
            lto=True,
        ),
        8,
    ),
    "containers-aarch64": (
        Request(
            arch="neoverse_v1",
            scope="full",
            release="2.20.0",
            package="tensorflow",
            compiler="gcc@12.2.0",
        ),
        1,
    ),
}


def fleet(request: Request) -> Fleet[Plan]:
    wheel_fleet, _ = resolve_fleet(request, make_plan)
    return wheel_fleet


def contained(request: Request, vcpus: int | None = None) -> dict[str, str]:
    return render_containers(
        fleet(request), kernels=request.kernels, vcpus=vcpus, templates=TEMPLATES
    )
