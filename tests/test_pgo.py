from __future__ import annotations

from pathlib import Path

import pytest

from tfbuild.cpus import compilers
from tfbuild.cpus.cpu import read_cpu
from tfbuild.errors import BuildError, ChecksumError, HostError, ToolError
from tfbuild.settings import Paths
from tfbuild.tools import pgo

CLANG = compilers.find_compiler("clang-16")


@pytest.mark.toolchain
def test_a_machine_that_has_all_may_train() -> None:
    pgo.require_support(CLANG, {"sse2"}, read_cpu())


def test_a_cpu_that_cannot_run_the_instrumented_wheel_is_told_before_it_is_built() -> None:
    with pytest.raises(HostError, match="nothing_has_this") as caught:
        pgo.require_support(CLANG, {"sse2", "nothing_has_this"}, read_cpu())
    assert "on a CPU that has them" in caught.value.hint


def test_the_profiles_of_another_llvm_are_of_no_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    other = compilers.Compiler(
        family="clang", version="99.0.0", path=tmp_path / "clang", architecture="x86_64"
    )
    with pytest.raises(ToolError, match=r"llvm-profdata .* 99"):
        pgo.find_llvm_profdata(other)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(root=tmp_path, cache=tmp_path / "cache", pool=tmp_path / "wheels")


def learned(folder: Path, text: str = "counts") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "learned.profdata"
    path.write_text(text)
    return path


def test_a_profile_is_kept_under_the_hash_that_its_flag_names(tmp_path: Path, paths: Paths) -> None:
    word = pgo.store_profile(learned(tmp_path / "out"), paths)
    name = word.removeprefix("-fprofile-use=")
    assert pgo.locate_profile(name, paths).read_text() == "counts"
    assert pgo.store_profile(learned(tmp_path / "out", "others"), paths) != word


def test_a_profile_travels_beside_its_selection(tmp_path: Path, paths: Paths) -> None:
    name = pgo.store_profile(learned(tmp_path / "out"), paths).removeprefix("-fprofile-use=")
    beside = tmp_path / "selection"
    pgo.copy_profiles([name], beside, paths)
    there = Paths(root=tmp_path, cache=tmp_path / "other", pool=tmp_path / "wheels")
    with pytest.raises(BuildError, match=f"{name}.profdata") as caught:
        pgo.collect_profiles([name], [tmp_path], there)
    assert "folder of the selection" in caught.value.hint
    pgo.collect_profiles([name], [tmp_path, beside], there)
    assert pgo.locate_profile(name, there).read_text() == "counts"
    (beside / f"{name}.profdata").unlink()
    pgo.collect_profiles([name], [beside], there)  # the cache has it by now


def test_a_profile_that_was_changed_on_its_way_is_refused(tmp_path: Path, paths: Paths) -> None:
    name = pgo.store_profile(learned(tmp_path / "out"), paths).removeprefix("-fprofile-use=")
    beside = tmp_path / "selection"
    beside.mkdir()
    (beside / f"{name}.profdata").write_text("something else")
    there = Paths(root=tmp_path, cache=tmp_path / "other", pool=tmp_path / "wheels")
    with pytest.raises(ChecksumError):
        pgo.collect_profiles([name], [beside], there)
    assert not pgo.locate_profile(name, there).exists()
