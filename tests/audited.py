"""A small tuned wheel with real libraries, which an audit finds to be what it says."""

from __future__ import annotations

from pathlib import Path

from tests.compiled import KERNEL, QUICK, library
from tests.test_audit import CORE, XGETBV, stock_wheel, tuned_wheel


def sound_wheel(folder: Path) -> Path:
    """tensorflow_cpu-2.14.1+tried, with kernels for haswell."""
    core = library(folder, "core", KERNEL, *QUICK, "-mavx")
    kernels = library(folder, "haswell", KERNEL, *QUICK, "-march=haswell", "-s")
    stock = stock_wheel(folder / "stock", {CORE: core})
    dispatcher = library(folder, "dispatcher", XGETBV, *QUICK)
    return tuned_wheel(stock, {"haswell": kernels}, dispatcher, more={})
