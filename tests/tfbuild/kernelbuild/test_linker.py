"""What the link of tuned kernels needs is looked for before anything is compiled."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.builders.plans import planned

from tfbuild.kernelbuild.build import require_linker
from tfbuild.planning.fleet import Fleet
from tfbuild.planning.plan import KernelsPlan
from tfcore.cpus.compilers import Compiler, find_compiler
from tfcore.errors import ToolError

# It links nothing.
DEAF = Compiler(family="clang", version="16.0.6", path=Path("/bin/false"), architecture="x86_64")


def fleet(flags: str) -> Fleet[KernelsPlan]:
    return Fleet(plans=(planned("haswell", kernels="mini", flags=flags),))


@pytest.mark.parametrize("flags", ["-flto=thin", "-flto"])
def test_a_linker_that_is_not_there_is_said_first(flags: str) -> None:
    with pytest.raises(ToolError) as caught:
        require_linker(fleet(flags), DEAF)
    assert "apt-get install lld-16 libclang-rt-16-dev" in caught.value.hint


@pytest.mark.parametrize("flags", ["", "-O3"])
def test_flags_that_ask_nothing_of_the_linker_are_not_tried(flags: str) -> None:
    require_linker(fleet(flags), DEAF)


@pytest.mark.toolchain
@pytest.mark.parametrize("flags", ["-flto=thin", "-flto"])
def test_what_the_set_up_installs_links_all_of_it(flags: str) -> None:
    require_linker(fleet(flags), find_compiler("clang-16"))
