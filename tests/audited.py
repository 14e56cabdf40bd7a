"""A small tuned wheel with real libraries, which an audit finds to be what it says."""

from __future__ import annotations

from pathlib import Path

from tests.compiled import KERNEL, QUICK, library
from tests.test_audit import CORE, XGETBV, saying, stock_wheel, tuned_wheel

from tfbuild.upstream.releases import find_stock_wheel


def sound_wheel(folder: Path, published: Path | None = None) -> Path:
    """tensorflow_cpu-2.14.1+tried, with kernels for haswell, made of the published wheel.

    Without that wheel it is made of a small one, and only says so: where the published one is not
    in the cache, nothing shows that it was not.
    """
    kernels = library(folder, "haswell", KERNEL, *QUICK, "-march=haswell", "-s")
    dispatcher = library(folder, "dispatcher", XGETBV, *QUICK)
    if published is not None:
        (folder / "stock").mkdir()
        stock = folder / "stock" / published.name
        stock.symlink_to(published)
        return tuned_wheel(stock, {"haswell": kernels}, dispatcher, more={})
    core = library(folder, "core", KERNEL, *QUICK, "-mavx")
    stock = stock_wheel(folder / "stock", {CORE: core})
    wheel = tuned_wheel(stock, {"haswell": kernels}, dispatcher, more={})
    pinned = find_stock_wheel("tensorflow-cpu", "2.14.1", "cp311", "x86_64")
    assert pinned is not None
    return saying(wheel, stock_sha256=pinned.sha256)
