from __future__ import annotations

import dataclasses
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.index_wheels import full_build_for, tuned_for
from tests.builders.recorded_cpus import cpu_of
from tests.builders.tuned_wheels import SOME, TAGS, wheel, with_library

from tfbuild.packing.tuned import (
    FILE,
    Tuned,
    check_runnable,
    choose_build,
    find_control,
    is_control,
    list_nearest_missing,
    read_tuned,
)
from tfbuild.upstream.kernels import _load_table, format_choice, select
from tfcore.cpus.targets import STOCK_FLAGS
from tfcore.errors import HostError, WheelError


def test_what_a_wheel_says_is_read_back(tmp_path: Path) -> None:
    assert read_tuned(wheel(tmp_path, SOME.to_bytes())) == SOME


def test_a_stock_wheel_says_nothing(tmp_path: Path) -> None:
    assert read_tuned(wheel(tmp_path, None)) is None


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b"[]",
        b"{}",
        json.dumps({"schema": 99}).encode(),
        dataclasses.replace(SOME, libraries=()).to_bytes(),
        SOME.to_bytes().replace(b'"flags"', b'"flagz"'),
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_a_torn_or_foreign_one_is_refused_in_one_line(text: bytes, tmp_path: Path) -> None:
    with pytest.raises(WheelError) as caught:
        read_tuned(wheel(tmp_path, text))
    assert len(str(caught.value).splitlines()) == 1


def test_two_records_are_refused_and_one_in_another_place_is_none(tmp_path: Path) -> None:
    path = wheel(tmp_path, None)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(f"tensorflow/inner-1.dist-info/{FILE}", SOME.to_bytes())
    assert read_tuned(path) is None
    both = wheel(tmp_path, SOME.to_bytes())
    with zipfile.ZipFile(both, "a") as archive:
        archive.writestr(f"other-1.dist-info/{FILE}", SOME.to_bytes())
    with pytest.raises(WheelError, match=r"2 .*other-1\.dist-info/tuned\.json, t"):
        read_tuned(both)


def test_a_cpu_that_lacks_a_feature_is_told_which(tmp_path: Path) -> None:
    cpu = cpu_of("haswell")
    assert list_nearest_missing(SOME, cpu) == ()
    check_runnable(tmp_path / "a.whl", SOME, cpu)
    newer = with_library(required_features=("avx", "avx512f", "avx512bw"))
    with pytest.raises(HostError, match="lacks avx512bw, avx512f") as caught:
        check_runnable(tmp_path / "a.whl", newer, cpu)
    assert "--arch native" in caught.value.hint


FLEET = tuned_for(("skylake_avx512", "haswell"))
OLD = dataclasses.replace(cpu_of("haswell"), features=cpu_of("haswell").features - {"avx2"})


def test_the_first_library_that_a_cpu_can_run_is_the_one_it_gets() -> None:
    newest, oldest = FLEET.libraries
    assert choose_build(FLEET, cpu_of("skylake_avx512")) == newest
    assert choose_build(FLEET, cpu_of("haswell")) == oldest
    assert choose_build(FLEET, OLD) is None


def test_a_cpu_that_runs_no_library_is_told_what_the_nearest_one_needs(tmp_path: Path) -> None:
    assert list_nearest_missing(FLEET, cpu_of("haswell")) == ()
    assert list_nearest_missing(FLEET, OLD) == ("avx2",)
    expected = "skylake_avx512, haswell.* avx2"
    with pytest.raises(HostError, match=expected):
        check_runnable(tmp_path / "a.whl", FLEET, OLD)


FULL_BUILD = full_build_for("haswell")


def test_what_a_full_build_says_is_read_back(tmp_path: Path) -> None:
    assert read_tuned(wheel(tmp_path, FULL_BUILD.to_bytes())) == FULL_BUILD
    assert FULL_BUILD.targets == ("haswell",)
    assert not FULL_BUILD.kernels


@pytest.mark.parametrize(
    "mixed",
    [
        dataclasses.replace(FULL_BUILD, scope=SOME.scope),
        dataclasses.replace(SOME, scope=FULL_BUILD.scope),
        dataclasses.replace(FULL_BUILD, libraries=SOME.libraries),
        dataclasses.replace(SOME, tree=FULL_BUILD.tree),
        dataclasses.replace(FULL_BUILD, tree=None),
    ],
)
def test_a_scope_without_its_libraries_is_refused(mixed: Tuned, tmp_path: Path) -> None:
    with pytest.raises(WheelError, match="its scope"):
        read_tuned(wheel(tmp_path, mixed.to_bytes()))


def test_a_record_of_the_schema_before_is_to_be_built_anew(tmp_path: Path) -> None:
    text = SOME.to_bytes().replace(b'"schema": 7', b'"schema": 6')
    with pytest.raises(WheelError, match=r"schema 6.* 7") as caught:
        read_tuned(wheel(tmp_path, text))
    assert caught.value.hint == "Build the wheel again"


def test_a_full_build_runs_whole_or_not_at_all(tmp_path: Path) -> None:
    assert choose_build(FULL_BUILD, cpu_of("haswell")) == FULL_BUILD.tree
    assert choose_build(FULL_BUILD, OLD) is None
    assert list_nearest_missing(FULL_BUILD, OLD) == ("avx2",)
    with pytest.raises(HostError, match="lacks avx2"):
        check_runnable(tmp_path / "a.whl", FULL_BUILD, OLD)


def test_a_full_build_has_no_control_of_kernels(tmp_path: Path, pool: Path) -> None:
    with pytest.raises(WheelError, match="must be a full build, too"):
        find_control(wheel(tmp_path, FULL_BUILD.to_bytes()), pool)


def test_a_full_build_is_no_control_of_kernels(own: Path, pool: Path) -> None:
    wheel(pool, full_build_for(STOCK_FLAGS).to_bytes(), stem=CONTROL_STEM)
    with pytest.raises(WheelError, match="scope is full"):
        find_control(own, pool)


CONTROL = with_library(target=STOCK_FLAGS)
CONTROL_STEM = "tensorflow_cpu-2.14.1+stock.flags"


@pytest.fixture(name="own")
def a_tuned_wheel(tmp_path: Path) -> Path:
    return wheel(tmp_path, SOME.to_bytes())


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    return tmp_path / "pool"


def test_a_control_is_known_by_its_flags() -> None:
    assert is_control(CONTROL)
    assert not is_control(SOME)


def test_the_control_in_the_pool_is_found(own: Path, pool: Path) -> None:
    wheel(pool, SOME.to_bytes())
    wheel(pool, CONTROL.to_bytes(), stem="tensorflow-2.14.1+stock.flags")
    wheel(pool, CONTROL.to_bytes(), stem="tensorflow_cpu-2.13.1+stock.flags")
    wheel(pool, CONTROL.to_bytes(), stem=CONTROL_STEM, tags=TAGS.replace("311", "310"))
    (pool / "foreign.whl").write_bytes(b"no wheel")
    with pytest.raises(WheelError, match="contains none"):
        find_control(own, pool)
    control = wheel(pool, CONTROL.to_bytes(), stem=CONTROL_STEM)
    assert find_control(own, pool) == control


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"compiler": "gcc 12.2.0"}, "gcc 12.2.0, not by clang 16.0.6"),
        ({"compiler": "clang 16.0.5"}, "clang 16.0.5, not by clang 16.0.6"),
        ({"kernels": ("bias_op", "cwise_op_tanh")}, "bias_op, cwise_op_tanh, not"),
        ({"kernels": ()}, "its kernels are"),
        ({"target": "haswell"}, "built for haswell"),
    ],
)
def test_a_control_that_does_not_fit_is_refused_and_said_why(
    changes: dict[str, Any], message: str, own: Path, pool: Path
) -> None:
    control = with_library(**{"target": STOCK_FLAGS, **changes})
    wheel(pool, control.to_bytes(), stem=CONTROL_STEM)
    with pytest.raises(WheelError, match=message):
        find_control(own, pool)


def test_a_stock_wheel_under_the_controls_name_is_no_control(own: Path, pool: Path) -> None:
    wheel(pool, None, stem=CONTROL_STEM)
    with pytest.raises(WheelError, match="not tuned"):
        find_control(own, pool)


def test_without_a_control_the_command_that_makes_it_is_said(own: Path, pool: Path) -> None:
    with pytest.raises(WheelError, match="tensorflow_cpu") as caught:
        find_control(own, pool)
    assert caught.value.hint == (
        "Build it: invoke build --arch stock --release 2.14.1 --package tensorflow-cpu "
        "--python 3.11 --kernels cwise_op_tanh --compiler clang-16"
    )
    assert len(str(caught.value).splitlines()) == 1


def test_the_command_names_a_set_and_g_plus_plus(tmp_path: Path, pool: Path) -> None:
    hot = tuple(unit.name for unit in select("hot"))
    facts = with_library(kernels=hot, compiler="gcc 12.2.0")
    tags = "cp39-cp39-manylinux_2_17_x86_64.manylinux2014_x86_64"
    own_path = wheel(tmp_path, facts.to_bytes(), stem="tensorflow-2.14.1+zen4", tags=tags)
    with pytest.raises(WheelError) as caught:
        find_control(own_path, pool)
    assert caught.value.hint.endswith(
        "--package tensorflow --python 3.9 --kernels hot --compiler g++-12"
    )


def test_a_wheel_without_tuned_kernels_has_no_control(tmp_path: Path, pool: Path) -> None:
    with pytest.raises(WheelError, match="not a tuned wheel"):
        find_control(wheel(tmp_path, None), pool)


UNITS = [*sorted(_load_table()["unit"]), "cwise_op_tanh", "cwise_op_sigmoid", "bias_op"]


@given(st.lists(st.sampled_from(UNITS), min_size=1, unique=True))
def test_the_kernels_of_the_command_are_those_of_the_wheel(names: list[str]) -> None:
    assert {unit.name for unit in select(format_choice(names))} == set(names)
