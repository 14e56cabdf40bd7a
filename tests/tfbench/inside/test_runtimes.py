"""What a process says of its runtime; the runtimes are in integration/test_runtimes.py."""

from __future__ import annotations

import numpy as np
import pytest

from tfbench.inside.runtimes import RUNTIME, describe_runtime


def test_a_runtime_is_described_by_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RUNTIME, raising=False)
    assert describe_runtime() == ""
    monkeypatch.setenv(RUNTIME, "numpy")
    assert describe_runtime() == f"numpy {np.__version__}"
