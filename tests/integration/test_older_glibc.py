"""The dispatcher on an older system than the one that compiles it: Debian 11, with glibc 2.31, the
libstdc++ of GCC 10 and Python 3.9."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.builders.dispatchers import (
    ABSENT,
    KERNELS,
    PRESENT,
    Wheel,
    compile_c,
    install,
    on_x86_64,
    target,
)
from tests.builders.guards import STAND_IN

from tfbuild.planning.dispatcher import LIBRARY
from tfbuild.planning.guard import INIT, amend_init, build_guard_files
from tfbuild.upstream import source
from tfcore.run import Completed, run
from tfcore.settings import Paths

pytestmark = [on_x86_64, pytest.mark.toolchain, pytest.mark.slow]

SUITE = "bullseye"
PACKAGES = "python3-minimal,libpython3-stdlib,libstdc++6"
# A mount of its own namespace is gone with the process, however that ends.
MOUNTED = 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"'
ASK = """
import ctypes, json, os, sys
dispatcher = ctypes.CDLL(sys.argv[1])
dispatcher.tensorwright_loaded.restype = ctypes.c_char_p
dispatcher.tensorwright_reason.restype = ctypes.c_char_p
loaded, reason = dispatcher.tensorwright_loaded(), dispatcher.tensorwright_reason()
libc = os.confstr("CS_GNU_LIBC_VERSION")
print(json.dumps({"loaded": loaded and loaded.decode(), "reason": reason.decode(), "libc": libc}))
"""
# Symbols that came later: glibc 2.36 has the first, the libstdc++ of GCC 12 the second. Code that
# must not run stands in the constructor.
TRAP = "__attribute__((constructor)) static void start(void) { __builtin_trap(); }\n"
NEWER_GLIBC = f"{TRAP}unsigned arc4random(void);\nunsigned use(void) {{ return arc4random(); }}\n"
NEWER_LIBSTDCXX = f"""{TRAP}
void _ZSt21__glibcxx_assert_failPKciS0_S0_(const char *, int, const char *, const char *);
void use(void) {{ _ZSt21__glibcxx_assert_failPKciS0_S0_("", 0, "", ""); }}
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Root:
    """A folder with an older system, and a folder in it that is the test's own."""

    folder: Path
    own: Path

    def run(self, *words: str | Path, **env: str) -> Completed:
        """Run a program of that system. Paths below `own` are given as they are here."""
        inside = [self._inside(word) if isinstance(word, Path) else word for word in words]
        pairs = [f"{name}={value}" for name, value in env.items()]
        argv = ("unshare", "--mount", "sh", "-c", MOUNTED, str(self.folder))
        return run([*argv, "env", *pairs, *inside], timeout_s=300, check=False)

    def _inside(self, path: Path) -> str:
        return f"/{path.relative_to(self.folder)}"

    def ask(self, wheel: Wheel) -> dict[str, Any]:
        """What the wheel's dispatcher decides there, and all that was printed (`said`)."""
        done = self.run("python3", "-c", ASK, wheel.kernels / LIBRARY)
        assert done.returncode == 0, done.output
        *lines, answer = done.output.splitlines()
        return {**json.loads(answer), "said": lines}

    def python(self, code: str, *, path: Path, **env: str) -> Completed:
        return self.run("python3", "-c", code, PYTHONPATH=self._inside(path), **env)


@pytest.fixture(scope="module")
def older(paths: Paths) -> Path:
    """The older system, made once and kept in the project's cache."""
    folder = paths.cache / "roots" / SUITE
    if os.geteuid() != 0:
        pytest.skip("only root can make and enter the folder of another system")
    if not folder.is_dir() and shutil.which("debootstrap") is None:
        pytest.skip("debootstrap is not installed: apt-get install debootstrap")

    def install(fresh: Path) -> None:
        words = ("debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE)
        mirror = source._find_debian_mirror()
        run(["unshare", "--mount", *words, fresh, mirror], timeout_s=1200)

    return source.create_folder(folder, 0, "an older Debian", install)


@pytest.fixture
def root(older: Path) -> Iterator[Root]:
    own_path = Path(tempfile.mkdtemp(prefix="tensorwright-", dir=older / "tmp"))
    try:
        yield Root(folder=older, own=own_path)
    finally:
        shutil.rmtree(own_path)


def too_new(library: Path, text: str, *flags: str) -> None:
    library.unlink()
    compile_c("gcc", text, library, "-shared", "-fPIC", *flags)


def test_kernels_for_an_older_glibc_run_there(root: Root) -> None:
    answer = root.ask(install(root.own / "site", target("zen4", *PRESENT)))
    assert answer["libc"] == "glibc 2.31"
    assert (answer["loaded"], answer["reason"]) == ("zen4", "")
    assert answer["said"][0].startswith("tensorwright: 34 kernels built for zen4 replace")


@pytest.mark.parametrize(
    ("text", "flags", "version"),
    [
        (NEWER_GLIBC, (), "GLIBC_2.36"),
        (NEWER_LIBSTDCXX, ("-lstdc++",), "GLIBCXX_3.4.30"),
    ],
)
def test_kernels_for_a_newer_system_fall_back_and_say_so(
    root: Root, text: str, flags: tuple[str, ...], version: str
) -> None:
    wheel = install(root.own / "site", target("zen4", *PRESENT))
    too_new(wheel.library("zen4"), text, *flags)
    answer = root.ask(wheel)
    assert answer["loaded"] is None
    assert answer["reason"].startswith("libzen4.so ")
    assert f"version `{version}' not found" in answer["reason"]
    (message,) = answer["said"]
    assert message.startswith("tensorwright: ")
    assert message.endswith(f": {answer['reason']}")


def test_an_older_target_stands_in_for_kernels_that_are_too_new(root: Root) -> None:
    wheel = install(root.own / "site", target("zen4", *PRESENT), target("haswell"))
    too_new(wheel.library("zen4"), NEWER_GLIBC)
    answer = root.ask(wheel)
    assert answer["loaded"] == "haswell"
    assert "GLIBC_2.36" in answer["said"][1]


def test_the_requirement_holds_in_its_python_too(root: Root) -> None:
    site = root.own / "site"
    install(site, target("zen4", ABSENT[0]))
    for name, content in {INIT: amend_init(STAND_IN), **build_guard_files("x86_64")}.items():
        (site / name).write_bytes(content)
    code = "import sys, tensorflow; print(sys.version_info[:2])"
    assert root.python(code, path=site).output.splitlines()[-1] == "(3, 9)"
    done = root.python(code, path=site, TENSORWRIGHT_REQUIRE="1")
    assert done.returncode == 1
    last = done.output.splitlines()[-1]
    assert last.startswith("ImportError: TENSORWRIGHT_REQUIRE is set")
    assert "zen4 needs reserved_bit" in last


def test_the_kernels_that_are_too_new_are_fine_here(tmp_path: Path) -> None:
    """So it is the older system that refuses them: without their trap they load."""
    wheel = install(tmp_path / "site", target("zen4", *PRESENT))
    too_new(wheel.library("zen4"), NEWER_GLIBC.replace(TRAP, KERNELS))
    assert wheel.ask().loaded == "zen4"
