"""The emulator of another architecture, and an environment of its Python."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.builders.locked_wheels import locked, wheel

from tfbuild.tools import emulation, foreign_environments
from tfbuild.tools.emulation import Emulator, find_emulator
from tfcore import packages
from tfcore.cpus.targets import find_missing_features, parse_target
from tfcore.errors import ToolError
from tfcore.run import run
from tfcore.settings import Paths


@pytest.fixture(scope="module")
def emulator(paths: Paths) -> Emulator:
    return find_emulator("aarch64", paths)


@pytest.mark.toolchain
def test_the_emulated_cpu_runs_every_core_that_wheels_are_built_for(emulator: Emulator) -> None:
    assert emulator.cpu.architecture == "aarch64"
    for name in ("neoverse_n1", "neoverse_v1", "neoverse_v2"):
        assert find_missing_features(parse_target(name), emulator.cpu) == ()


@pytest.mark.toolchain
def test_an_environment_of_another_architecture_runs_under_the_emulator(
    emulator: Emulator, tmp_path: Path, paths: Paths
) -> None:
    own_path = wheel(tmp_path, "tiny", tag="py3-none-manylinux_2_17_aarch64")
    needs = locked(wheel(tmp_path, "dependency"))
    lines = needs.replace(
        "dependency==1.0", (tmp_path / "dependency-1.0-py3-none-any.whl").as_uri()
    )
    environment = foreign_environments.create(own_path, emulator, requirements=lines, paths=paths)
    assert environment.launcher == emulator.launcher
    words = "import dependency, tiny, sys, platform; print(platform.machine(), sys.prefix)"
    assert run([*environment.command, "-c", words]).output.split() == [
        "aarch64",
        str(environment.folder),
    ]
    assert (
        foreign_environments.create(own_path, emulator, requirements=lines, paths=paths)
        == environment
    )


def test_what_is_missing_is_named_with_the_command_that_brings_it(
    tmp_path: Path, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A QEMU that does not say how old it is counts as too old."""
    for name in ("qemu-aarch64", "apt-get"):
        (tmp_path / name).symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(packages, "LISTS", tmp_path)
    monkeypatch.setenv(emulation.SYSROOT, str(tmp_path))
    assert not emulation.can_emulate("aarch64")
    with pytest.raises(ToolError, match="mmdebstrap, which fetches QEMU, is missing") as caught:
        find_emulator("aarch64", paths)
    assert "apt-get install mmdebstrap" in caught.value.hint


def test_x86_64_is_not_emulated(paths: Paths) -> None:
    assert not emulation.can_emulate("x86_64")
    with pytest.raises(ToolError, match="cannot test kernels for x86_64") as caught:
        find_emulator("x86_64", paths)
    assert "a machine with x86_64" in caught.value.hint


@pytest.mark.toolchain
def test_a_system_without_python_is_refused_by_its_name(
    tmp_path: Path, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(emulation.SYSROOT, str(tmp_path))
    with pytest.raises(ToolError, match=r"has no python3\.11") as caught:
        find_emulator("aarch64", paths)
    assert emulation.SYSROOT in caught.value.hint
