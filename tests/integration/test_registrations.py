"""What a build reads: the sources against the recorded table, and whose headers they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.builders.installed_wheel import Tried

from tfbuild.planning.plan import require_stock
from tfbuild.upstream import kernels
from tfbuild.upstream.registrations import find_registrations
from tfcore.settings import Paths

pytestmark = pytest.mark.toolchain


def test_the_table_is_what_the_sources_say(native: Tried, staged: Path) -> None:
    copts = native.plan.kernel_recipe.copts
    defines = tuple(word[2:] for word in copts if word.startswith("-D"))
    recorded = {row.source: row.ops for row in kernels.load_survey(native.plan.release).values()}
    assert find_registrations(staged, defines) == recorded


def test_headers_that_the_stock_wheel_has_are_read_from_it(native: Tried, paths: Paths) -> None:
    pin, recipe = require_stock(native.plan), native.plan.kernel_recipe
    shipped = paths.stock / pin.sha256[:16] / recipe.include_roots[0]
    objects = paths.work / native.plan.key[:16] / "workspace/bazel-bin/_objs"
    listed = [*objects.glob("source_*/*.d")]  # (make's rules, which the compiler writes)
    assert len(listed) == len({source for unit in native.plan.kernels for source in unit.sources})
    for path in listed:
        read = path.read_text(encoding="utf-8").replace("\\\n", " ").split()
        ours = {word.partition("/tree/")[2] for word in read if "/tf_source/" in word}
        assert any(name.endswith(".cc") for name in ours)
        assert not [name for name in ours if (shipped / name).is_file()]
        assert any(word.endswith("core/framework/op_kernel.h") for word in read)
