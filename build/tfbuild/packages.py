"""What this system's package manager has for what is missing. Hints name nothing that it has not.

apt is asked; where there is none, the need is named and no command.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from tfbuild.errors import CommandError
from tfbuild.run import run

CLANG = 16
"""TensorFlow 2.13 to 2.15 are tested with it (upstream/releases.toml)."""
LISTS = Path("/var/lib/apt/lists")
_ASK_S = 30.0
_CLANGS = {"bookworm": 16, "trixie": 17}
"""What `clang` chooses there, before the first `apt-get update`: apt knows no package then."""
OS_RELEASE = Path("/etc/os-release")
_CODENAME = re.compile(r"^VERSION_CODENAME=(\w+)$", re.MULTILINE)
_CANDIDATE = re.compile(r"^(\S+):\n  Installed: .*\n  Candidate: (?!\(none\))", re.MULTILINE)


def has_apt() -> bool:
    return shutil.which("apt-get") is not None


def advice(need: str, *packages: str) -> str:
    """The command that brings a need with those of the packages that apt has; else the need."""
    if not has_apt():
        return f"Install {need}"
    found = known(packages)
    if not found:
        return f"Install {need}, which apt does not have here as {' or '.join(packages)}"
    return "Run: " + as_root(f"apt-get install {' '.join(found)}")


def as_root(command: str) -> str:
    """The command as whoever calls this has to type it."""
    return command if os.geteuid() == 0 else f"sudo {command}"


def known(packages: Iterable[str]) -> tuple[str, ...]:
    """Those that apt can install; all of them where it has no lists yet."""
    wanted = tuple(packages)
    if not _has_lists():
        return wanted
    found = _CANDIDATE.findall(_asked("policy", *wanted))
    return tuple(each for each in wanted if each in found)


def clang() -> str:
    """The package of the clang that is nearest to CLANG."""
    if found := nearest("clang", CLANG):
        return found
    version = _CLANGS.get(_codename())
    return f"clang-{version}" if version else "clang"


def nearest(stem: str, wanted: int) -> str:
    """The package `stem-N` of the wanted version, else of the next newer one that apt has, else of
    the newest; empty where it has none or no lists."""
    found = versions(stem)
    best = next((each for each in found if each >= wanted), found[-1] if found else None)
    return "" if best is None else f"{stem}-{best}"


def versions(stem: str) -> tuple[int, ...]:
    """Those of a package `stem-N` that apt can install; none where it has no lists."""
    if not _has_lists():
        return ()
    listed = _asked("pkgnames", f"{stem}-").split()
    names = [each for each in listed if re.fullmatch(rf"{re.escape(stem)}-\d+", each)]
    return tuple(sorted(int(each.removeprefix(f"{stem}-")) for each in known(names)))


def _has_lists() -> bool:
    return shutil.which("apt-cache") is not None and any(LISTS.glob("*_Packages*"))


def _codename() -> str:
    text = OS_RELEASE.read_text(encoding="utf-8") if OS_RELEASE.is_file() else ""
    found = _CODENAME.search(text)
    return found[1] if found else ""


def _asked(*words: str) -> str:
    """What apt-cache says, in English."""
    try:
        return run(["apt-cache", *words], env=os.environ | {"LC_ALL": "C"}, timeout_s=_ASK_S).output
    except CommandError:
        return ""
