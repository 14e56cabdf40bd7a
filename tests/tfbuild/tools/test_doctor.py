from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tfbuild.tools.doctor import Dependency, list_dependencies, list_install_commands, prepare
from tfcore import packages, settings
from tfcore.errors import ToolError
from tfcore.settings import ROOT, Paths

SUDO = "" if os.geteuid() == 0 else "sudo "


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(root=ROOT, cache=tmp_path / "cache", pool=tmp_path / "pool")


def programs(folder: Path, *names: str) -> str:
    """A PATH on which only these are found."""
    folder.mkdir()
    for name in names:
        (folder / name).symlink_to(shutil.which(name) or "/bin/true")
    return str(folder)


def need(name: str, *packages: str) -> Dependency:
    return Dependency(name=name, purpose="p", packages=packages, present="")


@pytest.fixture(autouse=True)
def debian_12(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where apt has no lists yet."""
    monkeypatch.setattr(packages, "LISTS", tmp_path)
    monkeypatch.setattr(packages, "OS_RELEASE", tmp_path / "os-release")
    (tmp_path / "os-release").write_text("VERSION_CODENAME=bookworm\n", encoding="utf-8")


def test_the_commands_are_what_a_person_would_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", programs(tmp_path / "bin", "apt-get"))
    assert list_install_commands([need("a", "clang-16"), need("b", "g++", "binutils")]) == (
        f"{SUDO}apt-get update",
        f"{SUDO}apt-get install -y --no-install-recommends clang-16 g++ binutils",
    )
    assert list_install_commands([]) == ()


def test_tests_need_more_than_builds(paths: Paths) -> None:
    own_names = {dependency.name for dependency in list_dependencies(paths)}
    tests = {dependency.name for dependency in list_dependencies(paths, tests=True)}
    assert own_names < tests
    assert tests - own_names == {
        *("QEMU user mode", "mmdebstrap", "aarch64 cross compiler", "debootstrap", "nginx"),
        *("bubblewrap", "OpenSSH server and rsync", "Slurm"),
        "LLVM 16's linker, profile tools and runtime",
    }


def test_an_empty_machine_lacks_everything(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", programs(tmp_path / "bin"))
    dependencies = list_dependencies(paths, tests=True)
    assert [dependency.present for dependency in dependencies] == [""] * len(dependencies)
    assert all(dependency.packages and dependency.purpose for dependency in dependencies)


def test_a_need_of_several_programs_is_met_by_all_of_them(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", programs(tmp_path / "bin", "g++", "nm", "c++filt"))
    (libraries,) = [
        dependency for dependency in list_dependencies(paths) if "linker" in dependency.name
    ]
    assert libraries.present == ""
    (tmp_path / "bin" / "ld").symlink_to("/bin/true")
    (libraries,) = [
        dependency for dependency in list_dependencies(paths) if "linker" in dependency.name
    ]
    assert libraries.present.count(str(tmp_path / "bin")) == 4


def test_nothing_is_installed_unasked(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", programs(tmp_path / "bin", "apt-get"))
    with pytest.raises(ToolError) as caught:
        prepare(paths, "6.1.0")
    lines = caught.value.message.splitlines()
    assert lines[0].startswith("this machine lacks: clang, ")
    assert lines[1] == f"  {SUDO}apt-get update"
    assert lines[2].startswith(f"  {SUDO}apt-get install -y --no-install-recommends clang-16 ")
    assert not paths.cache.exists()


def test_a_machine_without_apt_is_told_what_to_install(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", programs(tmp_path / "bin"))
    with pytest.raises(ToolError, match="lacks") as caught:
        prepare(paths, "6.1.0", install=True)
    assert "apt-get" not in str(caught.value)


def test_no_package_is_installed_where_none_may_be(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As root, where an apt-get that is called would tell."""
    folder = programs(tmp_path / "bin")
    apt = Path(folder) / "apt-get"
    apt.write_text(f"#!/bin/sh\necho called >{tmp_path}/called\n")
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", folder)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv(settings.INSTALL, "0")
    with pytest.raises(ToolError, match="this machine lacks") as caught:
        prepare(paths, "6.1.0", install=True)
    assert "apt-get install -y" in caught.value.message
    assert not (tmp_path / "called").exists()


@pytest.mark.toolchain
def test_bazelisk_is_not_fetched_unasked(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("clang-16", "g++", "ld", "nm", "c++filt", "npm")
    monkeypatch.setenv(settings.INSTALL, "0")
    monkeypatch.setenv("PATH", programs(tmp_path / "bin", *names))
    with pytest.raises(ToolError, match="npm install --global @bazel/bazelisk"):
        prepare(paths, "6.1.0")
    assert not paths.tools.exists()
