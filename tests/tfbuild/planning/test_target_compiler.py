from __future__ import annotations

from pathlib import Path

import pytest

from tfbuild.planning.target_compiler import find_buildable_target, parse_compiler
from tfcore.cpus.compilers import Compiler
from tfcore.cpus.flags import compute_march_flags
from tfcore.cpus.targets import parse_target
from tfcore.errors import CompilerError


@pytest.mark.parametrize(
    ("arch", "family", "version", "name"),
    [
        ("zen5", "clang", "16.0.6", "zen4"),
        ("zen4", "clang", "16.0.6", "zen4"),
        ("sapphirerapids", "gcc", "10.2.0", "icelake"),
    ],
)
def test_a_compiler_older_than_the_cpu_builds_for_the_nearest_target_it_knows(
    arch: str, family: str, version: str, name: str
) -> None:
    compiler = Compiler(family=family, version=version, path=Path(family), architecture="x86_64")
    expected = parse_target(arch)
    target = find_buildable_target(expected, compiler)
    assert target.name == name
    assert target.features <= expected.features
    assert compute_march_flags(target, family, version)


@pytest.mark.parametrize(
    "text", ["clang", "clang@", "@16", "clang@16.", "clang@.6", "gcc@new", "icc@2021", "gcc@1٦"]
)
def test_a_compiler_is_declared_by_family_and_version(text: str) -> None:
    with pytest.raises(CompilerError):
        parse_compiler(text, "x86_64")
