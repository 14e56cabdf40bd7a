"""What hints name: what the package manager of this system has, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tfcore import packages

SUDO = "" if os.geteuid() == 0 else "sudo "
# As apt 3.0 answers on Debian 13, where other packages name clang-22 and nothing has it.
APT = """#!/bin/sh
case "$1" in
  pkgnames)
    for each in 17 format-17 18 19 22 tools; do echo "clang-$each"; done ;;
  policy)
    shift
    for each in "$@"; do
      case "$each" in
        clang-22) printf '%s:\\n  Installed: (none)\\n  Candidate: (none)\\n' "$each" ;;
        clang-1[789] | g++ | binutils)
          printf '%s:\\n  Installed: (none)\\n  Candidate: 1:1.0-1\\n  Version table:\\n' "$each" ;;
      esac
    done ;;
esac
"""


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A system with apt, whose lists are there."""
    for name in ("apt-get", "apt-cache"):
        (tmp_path / name).write_text(APT, encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "debian_dists_trixie_main_binary-amd64_Packages").touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(packages, "LISTS", tmp_path)
    return tmp_path


def no_lists(system: Path, monkeypatch: pytest.MonkeyPatch, codename: str) -> None:
    (system / "debian_dists_trixie_main_binary-amd64_Packages").unlink()
    (system / "os-release").write_text(f'NAME="X"\nVERSION_CODENAME={codename}\n', "utf-8")
    monkeypatch.setattr(packages, "OS_RELEASE", system / "os-release")


@pytest.mark.usefixtures("system")
def test_what_apt_only_knows_by_name_is_not_offered() -> None:
    assert packages.list_versions("clang") == (17, 18, 19)
    assert packages.filter_installable(["g++", "binutils", "clang-22", "nothing"]) == (
        "g++",
        "binutils",
    )


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize(
    ("expected", "package"), [(16, "clang-17"), (18, "clang-18"), (21, "clang-19")]
)
def test_the_nearest_newer_version_is_named_else_the_newest(expected: int, package: str) -> None:
    assert packages.choose_package("clang", expected) == package


@pytest.mark.usefixtures("system")
def test_advice_names_what_apt_has_and_else_the_need() -> None:
    assert (
        packages.suggest_install("a linker", "g++", "nothing") == f"Run: {SUDO}apt-get install g++"
    )
    assert packages.suggest_install("lld", "lld-22") == "Install lld; apt has no package lld-22"
    assert packages.choose_clang() == "clang-17"


@pytest.mark.parametrize(
    ("codename", "package"), [("bookworm", "clang-16"), ("trixie", "clang-17"), ("noble", "clang")]
)
def test_before_the_first_update_what_the_system_is_known_to_have_is_named(
    system: Path, monkeypatch: pytest.MonkeyPatch, codename: str, package: str
) -> None:
    no_lists(system, monkeypatch, codename)
    assert packages.choose_clang() == package
    assert packages.filter_installable(["lld-22"]) == ("lld-22",)


def test_without_apt_the_need_is_named_and_no_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert packages.suggest_install("nginx", "nginx-light") == "Install nginx"
    assert not packages.has_apt()


def test_this_systems_own_apt_is_understood() -> None:
    """dpkg is what apt itself needs."""
    if not packages.has_apt():
        pytest.skip("there is no apt here")
    assert packages.filter_installable(["dpkg"]) == ("dpkg",)
