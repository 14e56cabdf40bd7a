"""Whole wheels on CPUs that this machine is not: QEMU's user mode stands in for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.tried import Tried

from tfbuild import assemble

pytestmark = pytest.mark.toolchain

ARCHES = ("haswell", "skylake_avx512")
CPUS = ("Haswell", "SandyBridge")


@pytest.fixture(scope="module")
def found(
    wheel_for: Callable[[str], Tried], tmp_path_factory: pytest.TempPathFactory
) -> Mapping[tuple[str, str], dict[str, Any]]:
    """What each wheel does on each CPU, two at once: an emulated import takes most of a minute."""
    folder = tmp_path_factory.mktemp("emulated")
    tried = {arch: wheel_for(arch) for arch in ARCHES}

    def emulate(pair: tuple[str, str]) -> dict[str, Any]:
        arch, cpu = pair
        launcher = ("qemu-x86_64", "-cpu", cpu)
        return assemble.smoke(tried[arch].arm, folder / f"{arch}-{cpu}", launcher=launcher)

    pairs = [(arch, cpu) for arch in ARCHES for cpu in CPUS]
    with ThreadPoolExecutor(max_workers=2) as pool:
        return dict(zip(pairs, pool.map(emulate, pairs), strict=True))


def test_a_haswell_wheel_runs_tuned_on_a_haswell(
    found: Mapping[tuple[str, str], dict[str, Any]],
) -> None:
    seen = found["haswell", "Haswell"]
    assert seen["computes"]
    assert seen["loaded"] == "haswell"
    assert all(seen["eager"].values())
    assert all(seen["function"].values())


@pytest.mark.parametrize(
    ("arch", "cpu", "lacking"),
    [
        ("haswell", "SandyBridge", "avx2"),
        ("skylake_avx512", "Haswell", "avx512f"),
        ("skylake_avx512", "SandyBridge", "avx512f"),
    ],
)
def test_a_wheel_falls_back_where_a_feature_is_missing(
    arch: str, cpu: str, lacking: str, found: Mapping[tuple[str, str], dict[str, Any]]
) -> None:
    seen = found[arch, cpu]
    assert seen["computes"]
    assert seen["loaded"] is None
    assert lacking in seen["reason"]
    assert "eager" not in seen
