"""A clang that is newer than this Debian's default: of its packages, in a folder of their own.

On PATH it would be the compiler of every build here (compilers.find_compiler takes the newest).
"""

from __future__ import annotations

import platform
import shutil

import pytest

from tfbuild.tools import emulation
from tfcore.settings import Paths

MAJOR = 19


def clang(paths: Paths) -> str:
    """clang++-19 on PATH, or the path of one that is unpacked in the cache, once (450 MB).
    Skips without mmdebstrap."""
    name = f"clang++-{MAJOR}"
    if shutil.which(name) is not None:
        return name
    if shutil.which("mmdebstrap") is None:
        pytest.skip("mmdebstrap is not installed: apt-get install mmdebstrap")
    root = emulation._fetch_packages("bookworm", platform.machine(), f"clang-{MAJOR}", paths)
    folder = root / "usr/lib" / f"llvm-{MAJOR}"
    # Elsewhere than in /usr its RUNPATH leads to one of its two libraries only.
    library = folder / "lib" / f"libLLVM.so.{MAJOR}.1"
    if not library.exists():
        library.symlink_to(next((root / "usr/lib").glob(f"*-linux-gnu/{library.name}")))
    return str(folder / "bin/clang++")
