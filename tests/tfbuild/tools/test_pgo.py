from __future__ import annotations

from pathlib import Path

import pytest

from tfbuild.tools import pgo
from tfcore.cpus import compilers
from tfcore.cpus.cpu import read_cpu
from tfcore.errors import HostError, ToolError

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
    other_compiler = compilers.Compiler(
        family="clang", version="99.0.0", path=tmp_path / "clang", architecture="x86_64"
    )
    with pytest.raises(ToolError, match=r"llvm-profdata .* 99"):
        pgo.find_llvm_profdata(other_compiler)
