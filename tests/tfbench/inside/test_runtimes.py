"""What a process says of its runtime; the runtimes are in integration/test_runtimes.py."""

from __future__ import annotations

import numpy as np
import pytest

from tfbench.inside.runtimes import BACKEND, RUNTIME, describe_runtime, find_runtime


def test_a_runtime_is_described_by_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RUNTIME, raising=False)
    monkeypatch.delenv(BACKEND, raising=False)
    assert describe_runtime() == ""
    monkeypatch.setenv(RUNTIME, "numpy")
    assert describe_runtime() == f"numpy {np.__version__}"


@pytest.mark.parametrize(("backend", "runtime"), [("jax", "jax"), ("tensorflow", "")])
def test_a_backend_of_keras_is_a_runtime_unless_it_is_tensorflow(
    backend: str, runtime: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(RUNTIME, raising=False)
    monkeypatch.setenv(BACKEND, backend)
    assert find_runtime() == runtime
