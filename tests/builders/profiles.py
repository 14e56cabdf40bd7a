"""Profiles of models."""

from __future__ import annotations

from tfbench.inside.call_sites import CallSite
from tfbench.kernels.profiles import (
    Profile,
    ProfiledCallSite,
    ProfiledProgram,
)


def program(name: str, *rows: tuple[CallSite, float, float]) -> ProfiledProgram:
    return ProfiledProgram(
        name=name,
        steps=1,
        step_s=1.0,
        parameters=1,
        op_s={},
        places=tuple(ProfiledCallSite(place=p, calls=calls, seconds=s) for p, calls, s in rows),
    )


def profile(*programs: ProfiledProgram) -> Profile:
    return Profile(made="2026-01-01", cpu="a CPU", release="2.14.1", vcpus=1, programs=programs)
