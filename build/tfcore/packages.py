"""Installation hints: the packages that apt has for a missing program.

A hint never names a package that apt does not have. Without apt it names only the program.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from tfcore.errors import CommandError
from tfcore.run import run

CLANG = 16
"""The clang version that TensorFlow 2.13 to 2.15 are tested with (upstream/releases.toml)."""
LISTS = Path("/var/lib/apt/lists")
_ASK_S = 30.0
_CLANGS = {"bookworm": 16, "trixie": 17}
"""The clang version in each Debian release, for `choose_clang` before the first `apt-get update`,
when apt lists no packages."""
OS_RELEASE = Path("/etc/os-release")
_CODENAME = re.compile(r"^VERSION_CODENAME=(\w+)$", re.MULTILINE)
_CANDIDATE = re.compile(r"^(\S+):\n  Installed: .*\n  Candidate: (?!\(none\))", re.MULTILINE)


def has_apt() -> bool:
    return shutil.which("apt-get") is not None


def suggest_install(need: str, *packages: str) -> str:
    """Return the command that installs those of the packages that apt has; else name the need."""
    if not has_apt():
        return f"Install {need}"
    installable = filter_installable(packages)
    if not installable:
        return f"Install {need}; apt has no package {' or '.join(packages)}"
    return "Run: " + format_root_command(f"apt-get install {' '.join(installable)}")


def format_root_command(command: str) -> str:
    """Return the command for the current user: with sudo if not root."""
    return command if os.geteuid() == 0 else f"sudo {command}"


def filter_installable(packages: Iterable[str]) -> tuple[str, ...]:
    """Return those of the packages that apt can install; all of them if it has no lists yet."""
    requested = tuple(packages)
    if not _has_lists():
        return requested
    candidates = _CANDIDATE.findall(_query_apt("policy", *requested))
    return tuple(name for name in requested if name in candidates)


def choose_clang() -> str:
    """Return the name of the clang package whose version is nearest to CLANG."""
    if package := choose_package("clang", CLANG):
        return package
    version = _CLANGS.get(_read_codename())
    return f"clang-{version}" if version else "clang"


def choose_package(stem: str, wanted_version: int) -> str:
    """Return the package `stem-N` whose version fits `wanted_version` best.

    That is the same version, else the next newer one that apt has, else the newest. Empty if
    apt has none, or has no lists.
    """
    available = list_versions(stem)
    best = next(
        (version for version in available if version >= wanted_version),
        available[-1] if available else None,
    )
    return "" if best is None else f"{stem}-{best}"


def list_versions(stem: str) -> tuple[int, ...]:
    """Return the versions N of the packages `stem-N` that apt can install, in order.

    Empty if apt has no lists.
    """
    if not _has_lists():
        return ()
    listed = _query_apt("pkgnames", f"{stem}-").split()
    names = [name for name in listed if re.fullmatch(rf"{re.escape(stem)}-\d+", name)]
    return tuple(sorted(int(name.removeprefix(f"{stem}-")) for name in filter_installable(names)))


def _has_lists() -> bool:
    return shutil.which("apt-cache") is not None and any(LISTS.glob("*_Packages*"))


def _read_codename() -> str:
    text = OS_RELEASE.read_text(encoding="utf-8") if OS_RELEASE.is_file() else ""
    match = _CODENAME.search(text)
    return match[1] if match else ""


def _query_apt(*words: str) -> str:
    """Return the output of apt-cache, in English; empty if it fails."""
    try:
        return run(["apt-cache", *words], env=os.environ | {"LC_ALL": "C"}, timeout_s=_ASK_S).output
    except CommandError:
        return ""
