from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import pytest

from tfcore import packages
from tfcore.cpus.compilers import Compiler, can_link, find_compiler, identify_compiler, read_macros
from tfcore.errors import CompilerError

HOST = platform.machine()
OTHER = "aarch64" if HOST == "x86_64" else "x86_64"

SUDO = "" if os.geteuid() == 0 else "sudo "


def folder_of(folder: Path, name: str, text: str) -> Path:
    """The folder, with a program of this text."""
    program = folder / name
    program.write_text(text, encoding="utf-8")
    program.chmod(0o755)
    return folder


def folder_with(folder: Path, **programs: str) -> dict[str, str]:
    """A PATH with these names, each a link to a real program."""
    folder.mkdir(exist_ok=True)
    for name, real in programs.items():
        path = find_compiler(real).path.resolve()
        (folder / name.replace("_", "-").replace("xx", "++")).symlink_to(path)
    return {"PATH": str(folder)}


@pytest.mark.toolchain
@pytest.mark.parametrize(("name", "family"), [("g++", "gcc"), ("clang-16", "clang")])
def test_compilers_say_what_they_are(name: str, family: str) -> None:
    compiler = find_compiler(name)
    assert compiler.family == family
    assert compiler.architecture == HOST
    assert compiler.flags == ()
    flag = "-dumpfullversion" if family == "gcc" else "-dumpversion"
    completed = subprocess.run([compiler.path, flag], check=True, capture_output=True, text=True)
    assert compiler.version == completed.stdout.strip()


@pytest.mark.toolchain
def test_the_newest_clang_comes_first(tmp_path: Path) -> None:
    env = folder_with(tmp_path / "bin", gxx="g++", clang_9="clang-16", clang_16="clang-16")
    assert find_compiler(env=env).path.name == "clang-16"


@pytest.mark.toolchain
def test_gcc_serves_where_there_is_no_clang(tmp_path: Path) -> None:
    compiler = find_compiler(env=folder_with(tmp_path / "bin", gxx="g++"))
    assert compiler.family == "gcc"


@pytest.mark.toolchain
def test_a_name_that_says_nothing_is_seen_through(tmp_path: Path) -> None:
    env = folder_with(tmp_path / "bin", cxx="clang-16")
    assert find_compiler("c++", env=env).family == "clang"


@pytest.mark.parametrize(
    ("name", "package"),
    [
        (None, "clang-16"),
        ("clang-17", "clang-17"),
        ("clang++-17", "clang-17"),
        ("g++", "g++"),
        ("g++-13", "g++-13"),
    ],
)
def test_no_compiler_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str | None, package: str
) -> None:
    """Where apt has no lists to look into, on Debian 12."""
    monkeypatch.setenv("PATH", str(folder_of(tmp_path, "apt-get", "")))
    monkeypatch.setattr(packages, "LISTS", tmp_path)
    monkeypatch.setattr(packages, "OS_RELEASE", tmp_path / "os-release")
    (tmp_path / "os-release").write_text("VERSION_CODENAME=bookworm\n", encoding="utf-8")
    with pytest.raises(CompilerError) as caught:
        find_compiler(name, env={"PATH": str(tmp_path)})
    assert caught.value.hint == f"Run: {SUDO}apt-get install {package}"


@pytest.mark.parametrize("stem", ["g++", "clang"])
def test_a_hint_names_what_apt_really_has(tmp_path: Path, stem: str) -> None:
    versions = packages.list_versions(stem)
    if not versions:
        pytest.skip("apt has no lists here")
    path = {"PATH": str(tmp_path)}
    with pytest.raises(CompilerError) as caught:
        find_compiler(f"{stem}-{versions[0]}", env=path)
    assert caught.value.hint == f"Run: {SUDO}apt-get install {stem}-{versions[0]}"
    with pytest.raises(CompilerError) as caught:
        find_compiler(f"{stem}-3", env=path)
    assert f"apt has no {stem}-3" in caught.value.hint
    assert caught.value.hint.endswith(f"apt-get install {stem}-{versions[0]}")
    assert all(f"{stem}-{version}" in caught.value.hint for version in versions)


def test_no_cross_compiler_names_the_package(tmp_path: Path) -> None:
    with pytest.raises(CompilerError) as caught:
        find_compiler(None, OTHER, env={"PATH": str(tmp_path)})
    assert caught.value.hint.startswith(f"Run: {SUDO}apt-get install g++-")
    assert "linux-gnu" in caught.value.hint


def test_an_unknown_architecture_is_refused() -> None:
    with pytest.raises(CompilerError, match="riscv64"):
        find_compiler(None, "riscv64")


@pytest.mark.toolchain
def test_a_compiler_of_this_architecture_only_is_refused() -> None:
    with pytest.raises(CompilerError, match=f"for {OTHER}"):
        find_compiler("g++", OTHER)


@pytest.mark.toolchain
def test_clang_cross_compiles_and_gcc_has_a_name_for_it() -> None:
    clang = find_compiler("clang-16", OTHER)
    assert clang.flags == (f"--target={OTHER}-linux-gnu",)
    assert f"__{OTHER}__" in read_macros(clang, ())
    assert find_compiler(None, OTHER).family == "clang"
    gcc = find_compiler(f"{OTHER.replace('_', '-')}-linux-gnu-g++", OTHER)
    assert (gcc.family, gcc.flags) == ("gcc", ())
    assert f"__{OTHER}__" in read_macros(gcc, ())


@pytest.mark.toolchain
def test_refused_flags_are_told_in_the_compilers_words() -> None:
    with pytest.raises(CompilerError, match=r"-march=nonsense: .*error:.*nonsense"):
        read_macros(find_compiler("g++"), ["-march=nonsense"])


def test_a_program_that_is_no_compiler_is_refused() -> None:
    with pytest.raises(CompilerError, match="clang nor gcc"):
        identify_compiler(Path("/bin/true"), HOST)
    with pytest.raises(CompilerError, match=r"^false "):
        identify_compiler(Path("/bin/false"), HOST)


@pytest.mark.toolchain
def test_macros_have_values() -> None:
    shown = read_macros(find_compiler("g++"), ["-DONE", "-DTWO=a b"])
    assert shown["ONE"] == "1"
    assert shown["TWO"] == "a b"


@pytest.mark.parametrize(
    ("path", "driver"),
    [
        ("/usr/bin/g++", "/usr/bin/gcc"),
        ("/usr/bin/g++-12", "/usr/bin/gcc-12"),
        ("/usr/bin/clang-16", "/usr/bin/clang-16"),
        ("/usr/bin/clang++-16", "/usr/bin/clang-16"),
    ],
)
def test_bazel_gets_the_driver_that_knows_c_from_cxx(path: str, driver: str) -> None:
    compiler = Compiler(family="gcc", version="12.2.0", path=Path(path), architecture="x86_64")
    assert compiler.driver == Path(driver)


@pytest.mark.toolchain
def test_a_linker_that_is_not_there_is_seen_in_a_moment() -> None:
    clang = find_compiler("clang-16")
    assert can_link(clang, ())
    assert not can_link(clang, ("-fuse-ld=nonesuch",))
