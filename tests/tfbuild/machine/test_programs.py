from __future__ import annotations

from pathlib import Path

import pytest
from tests.builders.plans import planned_full

from tfbuild.machine import programs
from tfbuild.machine.checklist import CheckVerdict, Finding
from tfbuild.machine.programs import Interpreter
from tfbuild.upstream.releases import find_release
from tfcore.cpus.compilers import Compiler


def compiled(family: str, version: str, release: str) -> Finding:
    compiler = Compiler(
        family=family, version=version, path=Path("/usr/bin") / family, architecture="x86_64"
    )
    (finding,) = programs.check_compiler(compiler, find_release(release))
    return finding


@pytest.mark.parametrize(
    ("family", "version", "release", "conflict"),
    [
        ("gcc", "13.1.0", "2.14", True),
        ("gcc", "13.1.0", "2.15", False),
        ("gcc", "12.2.0", "2.14", False),
        ("gcc", "11.4.0", "2.17", True),
        ("gcc", "11.4.0", "2.16", False),
        ("gcc", "12.2.0", "2.17", False),
        ("gcc", "9.2.0", "2.9", True),
        ("gcc", "9.3.1", "2.9", False),
        ("clang", "15.0.7", "2.18", True),
        ("clang", "15.0.7", "2.17", False),
        ("clang", "16.0.6", "2.18", False),
        ("clang", "17.0.6", "2.14", True),
        ("clang", "17.0.6", "2.16", False),
        ("clang", "16.0.6", "2.14", False),
    ],
)
def test_conflicts_are_those_that_packagers_found(
    family: str, version: str, release: str, conflict: bool
) -> None:
    assert ("Spack" in compiled(family, version, release).wanted) is conflict


def test_the_tested_compiler_is_well_and_another_is_a_warning() -> None:
    assert compiled("clang", "16.0.6", "2.14").verdict is CheckVerdict.OK
    assert compiled("gcc", "9.3.1", "2.12").verdict is CheckVerdict.OK
    assert compiled("gcc", "12.2.0", "2.16").verdict is CheckVerdict.WARNING
    assert compiled("clang", "16.0.6", "2.19").verdict is CheckVerdict.WARNING


@pytest.mark.parametrize(
    ("wheel", "floor"),
    [
        ("x-1-cp38-cp38-manylinux2010_x86_64.whl", "2.12"),
        ("x-1-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", "2.17"),
        ("x-1-cp311-cp311-manylinux_2_27_x86_64.whl", "2.27"),
        ("x-1-cp311-cp311-manylinux_2_5_x86_64.manylinux_2_17_x86_64.whl", "2.5"),
        ("x-1-cp311-cp311-linux_x86_64.whl", ""),
    ],
)
def test_a_wheels_name_says_which_glibc_it_runs_on(wheel: str, floor: str) -> None:
    assert programs.parse_glibc_floor(wheel) == floor


@pytest.mark.parametrize(
    ("libc", "verdict"),
    [
        (("glibc", "2.17"), CheckVerdict.OK),
        (("glibc", "2.9"), CheckVerdict.OK),  # a version, not a number
        (("glibc", "2.36"), CheckVerdict.WARNING),
        (("", ""), CheckVerdict.FATAL),
    ],
)
def test_a_newer_glibc_than_the_stock_wheels_is_told(
    libc: tuple[str, str], verdict: CheckVerdict
) -> None:
    assert programs.check_glibc(libc, planned_full()).verdict is verdict


def test_where_there_is_no_stock_wheel_nothing_is_claimed_about_glibc() -> None:
    plan = planned_full(release="2.11", python="3.7")
    assert plan.stock is None
    finding = programs.check_glibc(("glibc", "2.36"), plan)
    assert finding.verdict is CheckVerdict.UNKNOWN


HERE = Interpreter(path="/usr/bin/python3", headers=True)


@pytest.mark.parametrize(
    ("interpreter", "old", "new"),
    [
        (HERE, CheckVerdict.OK, CheckVerdict.OK),
        (Interpreter(path="/p", headers=False), CheckVerdict.FATAL, CheckVerdict.OK),
        (Interpreter(problem="Python 3.9 is not on PATH"), CheckVerdict.FATAL, CheckVerdict.FATAL),
    ],
)
def test_bazel_brings_python_from_2_14_on(
    interpreter: Interpreter, old: CheckVerdict, new: CheckVerdict
) -> None:
    before, after = find_release("2.13"), find_release("2.14")
    assert programs.check_python("3.9", interpreter, before).verdict is old
    assert programs.check_python("3.9", interpreter, after).verdict is new


def test_programs_are_those_that_the_releases_scripts_call() -> None:
    fields = {"realpath": "/usr/bin/realpath"}
    missing = [
        finding.name
        for finding in programs.check_programs(fields, find_release("2.14"))
        if finding.verdict is CheckVerdict.FATAL
    ]
    assert missing == ["patchelf"]
    assert [program.name for program in programs.list_programs(find_release("2.14"))] == [
        *missing,
        *fields,
    ]


def test_of_a_release_whose_scripts_nobody_read_nothing_is_claimed() -> None:
    (finding,) = programs.check_programs({}, find_release("2.20"))
    assert finding.verdict is CheckVerdict.UNKNOWN
