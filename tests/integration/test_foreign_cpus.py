"""Whole wheels on CPUs that this machine is not: QEMU's user mode stands in for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Tried

from tfbuild import assemble

pytestmark = pytest.mark.toolchain


@pytest.mark.parametrize(
    ("arch", "cpu", "loads"),
    [
        ("haswell", "Haswell", True),
        ("haswell", "SandyBridge", False),
        ("skylake_avx512", "Haswell", False),
        ("skylake_avx512", "SandyBridge", False),
    ],
)
def test_a_wheel_runs_tuned_where_it_can_and_stock_elsewhere(
    arch: str, cpu: str, loads: bool, wheel_for: Callable[[str], Tried], tmp_path: Path
) -> None:
    tried = wheel_for(arch)
    found = assemble.smoke(tried.arm, tmp_path, launcher=("qemu-x86_64", "-cpu", cpu))
    assert found["computes"]
    if loads:
        assert found["loaded"] == tried.plan.target.local
        assert all(found["eager"].values())
        assert all(found["function"].values())
    else:
        assert found["loaded"] is None
        assert found["reason"]
        assert "eager" not in found
