from __future__ import annotations

import dataclasses
import platform
from pathlib import Path

import pytest

from tfbuild.remote import toolchain
from tfbuild.remote.bazelrc import Bazelrc
from tfbuild.remote.caches import Remote
from tfbuild.remote.toolchain import Toolchain
from tfcore.cpus import compilers

MADE = Toolchain(compiler="clang-16.0.6", glibc="2.36", architecture="x86_64", digest="ab" * 32)
IDENTITY = "TENSORWRIGHT_TOOLCHAIN=clang-16.0.6-glibc-2.36-abababababababab"


def test_every_key_holds_the_toolchain_for_the_target_and_for_tools() -> None:
    options = toolchain.build_key_options(MADE, Remote())
    assert options == (
        f"--action_env={IDENTITY}",
        f"--host_action_env={IDENTITY}",
        "--remote_default_exec_properties=arch=x86_64",
        "--remote_default_exec_properties=compiler=clang-16.0.6",
        "--remote_default_exec_properties=glibc=2.36",
        f"--remote_default_exec_properties=toolchain={'ab' * 32}",
    )


def test_the_cache_on_disk_has_one_key_with_a_shared_cache_and_without() -> None:
    alone, shared = Remote(), Remote(cache="http://h")
    assert toolchain.build_key_options(MADE, alone) == toolchain.build_key_options(MADE, shared)


def test_a_cluster_is_asked_for_no_worker_that_it_lacks() -> None:
    cluster = Remote(cache="grpc://h:1", executor="grpc://h:1")
    assert (
        toolchain.build_key_options(MADE, cluster)
        == toolchain.build_key_options(MADE, Remote())[:2]
    )


@pytest.mark.parametrize("name", ["exec", "platform"])
def test_properties_of_the_users_are_the_only_ones(name: str) -> None:
    option = ("build", f"remote_default_{name}_properties", "arch=mine")
    remote = Remote(cache="http://h", rc=Bazelrc(options=(option,)))
    assert (
        toolchain.build_key_options(MADE, remote) == toolchain.build_key_options(MADE, Remote())[:2]
    )


@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("name", "takes_part"),
    [("clang-16", {"clang", "libLLVM-16.so.1"}), ("g++", {"cc1plus"})],
)
def test_the_files_that_compile_are_found(name: str, takes_part: set[str]) -> None:
    compiler = compilers.find_compiler(name)
    names = {path.name for path in toolchain._find_files(compiler)}
    assert takes_part <= names
    assert {"libc.so.6", "libgcc.a"} <= names
    assert any(file.startswith("libstdc++.so") for file in names)
    assert any("-ld" in file or file == "ld" for file in names)


@pytest.mark.toolchain
def test_another_compiler_is_another_toolchain() -> None:
    clang, gcc = (
        toolchain.identify_toolchain(compilers.find_compiler(name)) for name in ("clang-16", "g++")
    )
    assert clang.compiler.startswith("clang-16.")
    assert clang.glibc == platform.libc_ver()[1]
    assert clang.digest != gcc.digest


@pytest.mark.toolchain
def test_a_compiler_of_the_same_name_and_version_with_other_bytes_is_another(
    tmp_path: Path,
) -> None:
    real = compilers.find_compiler("g++")
    patched = tmp_path / "g++"
    patched.write_bytes(real.path.resolve().read_bytes() + b"\0")
    patched.chmod(0o755)
    other_compiler = dataclasses.replace(real, path=patched)
    before, after = toolchain.identify_toolchain(real), toolchain.identify_toolchain(other_compiler)
    assert (before.compiler, before.glibc) == (after.compiler, after.glibc)
    assert before.identity != after.identity
