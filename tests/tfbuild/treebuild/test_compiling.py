from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.builders.full_wheel import PLAN
from tests.builders.trees import reduced_tree

from tfbuild.machine import memory
from tfbuild.tools.bazel import Bazel
from tfbuild.treebuild.compiling import BazelCall, compile_wheel
from tfbuild.treebuild.site import Site
from tfbuild.treebuild.tree import read_tree
from tfbuild.watching.attempt import Attempt
from tfcore import settings
from tfcore.cpus.compilers import Compiler
from tfcore.errors import BuildError
from tfcore.settings import Paths

# Counts its calls, and ends as Bazel 7 does over a bad entry of a cache or a fault of its own.
CRASHING = """#!/bin/sh
echo >> {calls}
echo 'FATAL: bazel crashed due to an internal error. Printing stack trace:'
exit 37
"""


@pytest.mark.parametrize(("shared", "calls"), [(True, 2), (False, 1)])
def test_a_crash_is_laid_to_a_shared_cache_once(tmp_path: Path, shared: bool, calls: int) -> None:
    bazelisk = tmp_path / "bazelisk"
    bazelisk.write_text(CRASHING.format(calls=tmp_path / "calls"))
    bazelisk.chmod(0o755)
    disk = tmp_path / "disk"
    call = BazelCall(
        name="build",
        startup=(),
        options=(),
        budget=memory.choose_budget(4_000, 1),
        disk=disk,
        shared=shared,
    )
    disk.mkdir()
    with pytest.raises(BuildError) as caught:
        compile_wheel(site(tmp_path, bazelisk), call, Attempt(jobs=1))
    assert len((tmp_path / "calls").read_text().splitlines()) == calls
    assert disk.exists() is not shared
    assert "bazel crashed" in caught.value.message
    assert "cache" not in caught.value.hint


def site(folder: Path, bazelisk: Path) -> Site:
    return Site(
        plan=PLAN,
        recipe=PLAN.full_recipe,
        compiler=Compiler(
            family="clang", version="16.0.6", path=Path("/usr/bin/clang"), architecture="x86_64"
        ),
        tree=read_tree(reduced_tree(folder / "tree", "2.14.1")),
        differences=(),
        bazel=Bazel(bazelisk=bazelisk, use="7.7.1", version="7.7.1", debian=False),
        repositories={},
        python=Path(sys.executable),
        source_sha256="0" * 64,
        folder=folder / "site",
        paths=Paths(root=settings.ROOT, cache=folder / "cache", pool=folder / "pool"),
    )
