"""The table of the repository against the sources that it was read from."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tried import Tried

from tfbuild.upstream import kernels
from tfbuild.upstream.registrations import registrations

pytestmark = pytest.mark.toolchain


def test_the_table_is_what_the_sources_say(native: Tried, staged: Path) -> None:
    recipe = native.plan.kernel_recipe
    assert recipe is not None
    defines = tuple(word[2:] for word in recipe.copts if word.startswith("-D"))
    recorded = {row.source: row.ops for row in kernels.surveyed(native.plan.release).values()}
    assert registrations(staged, defines) == recorded
