"""The dispatcher on aarch64, cross-compiled, under QEMU: code for a later core would kill it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.builders.dispatchers import HOST, compile_c
from tests.builders.later import later
from tests.builders.plans import planned

from tfbuild.binaries import elf
from tfbuild.planning.dispatcher import (
    HEADER,
    LIBRARY,
    LIBRARY_FOLDER,
    LINK_FLAGS,
    SOURCE,
    list_compile_flags,
    render_header,
)
from tfbuild.planning.fleet import build_fleet
from tfbuild.planning.render import build_dispatch_target
from tfbuild.tools.emulation import find_emulator
from tfcore.errors import CommandError
from tfcore.run import run
from tfcore.settings import TEMPLATES, Paths

pytestmark = pytest.mark.toolchain

COMPILER = "aarch64-linux-gnu-gcc"
LIBRARIES = "/usr/aarch64-linux-gnu"
"""Where Debian's cross compiler has the C library that its programs find under QEMU."""
FLEET = build_fleet(planned(name, release="2.20.0") for name in ("neoverse_n1", "neoverse_v1"))
# An atomic addition, which is LSE's where the target has that, and an instruction of SVE.
KERNELS = """
#ifdef __ARM_FEATURE_SVE
#include <arm_sve.h>
#else
#define svcntb() 16
#endif
static long count;
__attribute__((constructor)) static void compute(void) {
  __atomic_fetch_add(&count, svcntb(), __ATOMIC_RELAXED);
}
int tensorwright_kernel_count(void) { return count != 0; }
"""
OPENS = """
#include <dlfcn.h>
int main(int count, char **words) { return count != 2 || !dlopen(words[1], RTLD_NOW); }
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dispatcher and its libraries as they lie in a wheel, and programs that load them."""
    folder = tmp_path_factory.mktemp("aarch64")
    (folder / LIBRARY_FOLDER).mkdir()
    for plan in FLEET.plans:
        name = folder / LIBRARY_FOLDER / plan.library
        compile_c(COMPILER, KERNELS, name, "-O3", "-shared", "-fPIC", *plan.flags)
    rows = [build_dispatch_target(plan) for plan in FLEET.plans]
    (folder / HEADER).write_text(render_header(rows, TEMPLATES), encoding="utf-8")
    flags = (*list_compile_flags("aarch64"), "-Werror", "-pedantic", f"-I{folder}")
    run([COMPILER, *flags, SOURCE, "-o", folder / LIBRARY, *LINK_FLAGS])
    compile_c(COMPILER, HOST, folder / "host", "-ldl")
    compile_c(COMPILER, OPENS, folder / "opens", "-ldl")
    return folder


@dataclass(frozen=True, kw_only=True, slots=True)
class Core:
    """A model of QEMU's, and the folder whose programs it runs."""

    program: Path
    model: str
    site: Path

    def run(self, *words: str | Path, **env: str) -> None:
        emulator = (self.program, "-L", LIBRARIES, "-cpu", self.model)
        run([*emulator, *words], cwd=self.site, env={"PATH": os.environ["PATH"], **env})

    def asked(self, **env: str) -> tuple[str, str]:
        """What the dispatcher loads, and why nothing better."""
        self.run(self.site / "host", self.site / LIBRARY, **env)
        loaded, _, reason = (self.site / "answer").read_text(encoding="utf-8").partition("\n")
        return loaded, reason


@pytest.fixture(scope="module")
def core(site: Path, paths: Paths) -> Callable[[str], Core]:
    program = find_emulator("aarch64", paths).program
    return lambda model: Core(program=program, model=model, site=site)


@pytest.mark.parametrize(
    ("model", "loaded", "lacks"),
    [
        ("cortex-a57", "", "asimddp"),
        ("neoverse-n1", "neoverse.n1", ""),
        ("neoverse-v1", "neoverse.v1", ""),
        *later(
            ("cortex-a72", "", "asimddp"),
            ("a64fx", "", "asimddp"),
            ("max", "neoverse.v1", ""),
        ),
    ],
)
def test_a_core_gets_the_library_that_it_can_run(
    core: Callable[[str], Core], model: str, loaded: str, lacks: str
) -> None:
    actual, reason = core(model).asked()
    assert actual == loaded
    assert lacks in reason
    assert bool(reason) == bool(lacks)


def test_a_mask_hides_features_of_an_arm_core_too(core: Callable[[str], Core]) -> None:
    assert core("neoverse-v1").asked(TENSORWRIGHT_MASK="sve")[0] == "neoverse.n1"
    assert core("neoverse-v1").asked(TENSORWRIGHT_MASK="avx2")[0] == "neoverse.v1"
    assert core("neoverse-v1").asked(TENSORWRIGHT_MASK="SVE")[0] == ""
    assert core("neoverse-v1").asked(TENSORWRIGHT_TARGET="neoverse_n1")[0] == "neoverse.n1"


@pytest.mark.parametrize(("model", "number"), [("cortex-a57", 0), ("neoverse-n1", 1)])
def test_without_the_dispatcher_an_older_core_would_have_died(
    site: Path, core: Callable[[str], Core], model: str, number: int
) -> None:
    """The libraries are loaded best last: the first that the model lacks ends it by SIGILL."""
    best_last = [site / LIBRARY_FOLDER / plan.library for plan in reversed(FLEET.plans)]
    for library in best_last[:number]:
        core(model).run(site / "opens", library)
    with pytest.raises(CommandError):
        core(model).run(site / "opens", best_last[number])


def test_the_dispatcher_needs_no_later_c_library(site: Path) -> None:
    assert elf.read_version_floors(site / LIBRARY) == {"GLIBC": "2.17"}
