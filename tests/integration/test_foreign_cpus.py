"""Whole wheels on CPUs that this machine is not: QEMU's user mode stands in for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.builders.dispatchers import on_x86_64
from tests.builders.installed_wheel import Tried
from tests.builders.later import later
from tests.builders.own_cpu import own_cpu

from tfbuild.kernelbuild import assemble

pytestmark = [pytest.mark.toolchain, on_x86_64]

TWO, THREE = own_cpu().two_targets, "haswell,x86_64_v3,skylake_avx512"
Emulated = Callable[[str, str], dict[str, Any]]


@pytest.fixture
def emulated(wheel_for: Callable[[str], Tried], tmp_path: Path) -> Emulated:
    """What a wheel for these targets does on a model of QEMU's: most of a minute for each."""

    def emulate(arches: str, cpu: str) -> dict[str, Any]:
        launcher = ("qemu-x86_64", "-cpu", cpu)
        arm = dataclasses.replace(wheel_for(arches).arm, launcher=launcher)
        return assemble.run_smoke_test(arm, tmp_path)

    return emulate


@pytest.mark.parametrize(
    ("arches", "cpu"),
    [
        *later(
            # Its first target has more than QEMU's Haswell.
            (TWO, "Haswell"),
            ("haswell", "Haswell"),
            # Another maker's CPU of the same features: what counts is not the model's name,
            (THREE, "EPYC"),
            # not even where it promises more: QEMU 7.2 has no AVX-512.
            (THREE, "Skylake-Server"),
        ),
    ],
)
def test_tuned_kernels_run_where_their_features_are(
    arches: str, cpu: str, emulated: Emulated
) -> None:
    answers = emulated(arches, cpu)
    assert answers["computes"]
    assert answers["loaded"] in {"haswell", TWO.rpartition(",")[2].replace("_", ".")}
    assert all(answers["eager"].values())
    assert all(answers["function"].values())


# The stock wheel itself needs AVX, so SandyBridge is as old as a model may be; Opteron_G5 has FMA.
@pytest.mark.parametrize(
    ("arches", "cpu", "reason"),
    [
        (TWO, "SandyBridge", "avx2, "),
        *later(
            (
                "haswell",
                "SandyBridge",
                "haswell needs abm, avx2, bmi1, bmi2, f16c, fma, movbe",
            ),
            ("haswell", "Opteron_G5", "haswell needs avx2, bmi1, bmi2, movbe"),
            (
                THREE,
                "IvyBridge",
                "haswell needs abm, avx2, bmi1, bmi2, fma, movbe",
            ),
        ),
    ],
)
def test_a_wheel_falls_back_where_features_are_missing_and_names_them(
    arches: str, cpu: str, reason: str, emulated: Emulated
) -> None:
    answers = emulated(arches, cpu)
    assert answers["computes"]
    assert answers["loaded"] is None
    assert reason in answers["reason"]
    assert "eager" not in answers
