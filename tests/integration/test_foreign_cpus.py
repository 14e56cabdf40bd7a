"""Whole wheels on CPUs that this machine is not: QEMU's user mode stands in for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.tried import Tried

from tfbuild.kernelbuild import assemble

pytestmark = pytest.mark.toolchain

FLEET = "haswell,x86_64_v3,skylake_avx512"
# Each emulated import takes most of a minute, so each pair shows something of its own. The stock
# wheel itself needs AVX, so SandyBridge is as old as a model may be; Opteron_G5 has FMA too.
RUNS = (
    ("haswell", "Haswell"),
    ("haswell", "SandyBridge"),
    ("haswell", "Opteron_G5"),
    (FLEET, "EPYC"),
    (FLEET, "Skylake-Server"),
    (FLEET, "IvyBridge"),
)


@pytest.fixture(scope="module")
def found(
    wheel_for: Callable[[str], Tried], tmp_path_factory: pytest.TempPathFactory
) -> Mapping[tuple[str, str], dict[str, Any]]:
    """What each wheel does on each CPU, two at once."""
    folder = tmp_path_factory.mktemp("emulated")
    tried = {arch: wheel_for(arch) for arch, _ in RUNS}

    def emulate(run: tuple[str, str]) -> dict[str, Any]:
        arch, cpu = run
        launcher = ("qemu-x86_64", "-cpu", cpu)
        return assemble.smoke(tried[arch].arm, folder / f"{arch}-{cpu}", launcher=launcher)

    with ThreadPoolExecutor(max_workers=2) as pool:
        return dict(zip(RUNS, pool.map(emulate, RUNS), strict=True))


@pytest.mark.parametrize(
    ("arch", "cpu"),
    [
        ("haswell", "Haswell"),
        # Another maker's CPU of the same features: what counts is not the model's name,
        (FLEET, "EPYC"),
        # not even where it promises more: QEMU 7.2 has no AVX-512.
        (FLEET, "Skylake-Server"),
    ],
)
def test_tuned_kernels_run_where_their_features_are(
    arch: str, cpu: str, found: Mapping[tuple[str, str], dict[str, Any]]
) -> None:
    seen = found[arch, cpu]
    assert seen["computes"]
    assert seen["loaded"] == "haswell"
    assert all(seen["eager"].values())
    assert all(seen["function"].values())


@pytest.mark.parametrize(
    ("arch", "cpu", "reason"),
    [
        ("haswell", "SandyBridge", "haswell needs abm, avx2, bmi1, bmi2, f16c, fma, movbe, which"),
        ("haswell", "Opteron_G5", "haswell needs avx2, bmi1, bmi2, movbe, which"),
        (
            FLEET,
            "IvyBridge",
            "which this CPU lacks; haswell needs abm, avx2, bmi1, bmi2, fma, movbe, which",
        ),
    ],
)
def test_a_wheel_falls_back_where_features_are_missing_and_names_them(
    arch: str, cpu: str, reason: str, found: Mapping[tuple[str, str], dict[str, Any]]
) -> None:
    seen = found[arch, cpu]
    assert seen["computes"]
    assert seen["loaded"] is None
    assert reason in seen["reason"]
    assert "eager" not in seen
