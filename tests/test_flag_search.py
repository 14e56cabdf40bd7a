"""Flags are taken for a unit only where they save more than none beyond the spread of launches."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernel_call_sites import TANH, ranked, timed

from tfbench.commands import FlagsOptions
from tfbench.kernels.flag_search import _build_candidate, _read_config, describe
from tfbench.kernels.flag_table import build_table
from tfbench.kernels.flagsets import FlagSet, choose_best, choose_fastest, compute_savings
from tfbuild.commands import NEWEST, Request
from tfbuild.cpus.flags import parse_extra_flags
from tfbuild.errors import KernelError, TensorwrightError
from tfbuild.settings import Paths
from tfbuild.upstream.kernels import FOLDER
from tfbuild.upstream.releases import list_kernel_releases

PLAIN = FlagSet(flags=(), saved={"tanh": (0.010, 0.011, 0.010, 0.011)})
FASTER = FlagSet(flags=("-O3",), saved={"tanh": (0.020, 0.021, 0.020, 0.021)})


def test_a_kernel_twice_as_fast_saves_half_of_its_share() -> None:
    two = 0.6931471805599453
    rows = [
        timed(ranked("Tanh", 10, share=0.2), two, two),
        timed(ranked("Tanh", 20, share=0.1), 0, 0),
    ]
    assert compute_savings(rows, {TANH: "tanh"}) == {"tanh": pytest.approx((0.1, 0.1))}


def test_numbers_of_threads_weigh_the_same() -> None:
    two = 0.6931471805599453
    rows = [timed(ranked("Tanh", 10, share=0.2), two, two, threads=n) for n in (1, 2)]
    assert compute_savings(rows, {TANH: "tanh"}) == {"tanh": pytest.approx((0.1, 0.1))}


def test_a_loss_is_negative() -> None:
    (row,) = compute_savings([timed(ranked("Tanh", 10), -0.1, -0.2)], {TANH: "tanh"}).values()
    assert all(each < 0 for each in row)


def test_the_flags_that_save_most_are_taken() -> None:
    most = FlagSet(flags=("-mtune=skylake",), saved={"tanh": (0.030, 0.031, 0.030, 0.031)})
    assert choose_fastest([PLAIN, FASTER, most], 0.05) == {"tanh": most}
    assert choose_fastest([PLAIN, most, FASTER], 0.05) == {"tanh": most}


def test_a_wheel_has_the_compiler_that_saves_most_over_all_units() -> None:
    """Over the units of both: one of which a compiler makes nothing says nothing of the other."""
    noise = (0.0, 0.001, 0.0, 0.001)
    clang = FlagSet(
        compiler="clang", flags=(), saved={"a": noise, "b": noise, "c": (0.5, 0.5, 0.5, 0.5)}
    )
    gcc = FlagSet(compiler="gcc", flags=(), saved={"a": (0.02, 0.021, 0.02, 0.021), "b": noise})
    same = FlagSet(compiler="other", flags=(), saved=clang.saved)
    worse = FlagSet(compiler="worse", flags=(), saved={"a": (-0.02, -0.021, -0.02, -0.02)})
    assert choose_best([clang], 0.05) is clang
    assert choose_best([clang, same, worse], 0.05) is clang
    assert choose_best([clang, same, gcc, worse], 0.05) is gcc
    assert choose_best([clang, FlagSet(compiler="idle", flags=(), saved={})], 0.05) is clang


def test_the_better_compiler_gets_the_flags() -> None:
    both = Request(arch="haswell", compiler="gcc@12.2.0,clang@16.0.6")
    config = _read_config(both, FlagsOptions(flag_sets="-O3"))
    tried: list[FlagSet] = []
    seen = []
    for compiler, flags in config.plan_builds(tried):
        seen.append((compiler, flags))
        kept = (FASTER if "clang" in compiler else PLAIN).saved
        tried.append(FlagSet(compiler=compiler, flags=flags, saved=kept))
    assert seen == [("gcc@12.2.0", ()), ("clang@16.0.6", ()), ("clang@16.0.6", ("-O3",))]
    assert config.most == len(seen)


@pytest.mark.toolchain
def test_the_training_comes_last(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import tensorflow\n")
    request = Request(arch="x86_64", kernels="mini", compiler="clang-16")
    wanted = FlagsOptions(flag_sets="-flto=thin", pgo=str(program))
    first, second, third = describe(request, wanted).splitlines()
    assert "flags alone" in first
    assert "clang-16, -flto=thin" in second
    assert "training program" in third


@pytest.mark.toolchain
def test_only_clang_can_learn(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("")
    both = Request(arch="x86_64", compiler="clang-16,g++")
    with pytest.raises(TensorwrightError, match="-fprofile-generate"):
        describe(both, FlagsOptions(pgo=str(program)))


def test_what_might_be_chance_changes_nothing() -> None:
    noisy = FlagSet(flags=("-O3",), saved={"tanh": (0.00, 0.03, -0.01, 0.04)})
    assert choose_fastest([PLAIN, noisy], 0.05) == {"tanh": PLAIN}


def test_among_many_pairs_more_is_asked_of_each() -> None:
    """One of twenty that is faster at 4 % is what chance gives."""
    plain = FlagSet(flags=(), saved={f"u{n}": (0.0, 0.01, 0.0, 0.01) for n in range(20)})
    same = {f"u{n}": (0.0, 0.01, 0.0, 0.01) for n in range(1, 20)}
    lucky = FlagSet(flags=("-O3",), saved=same | {"u0": (0.012, 0.012, 0.013, 0.011)})
    alone = FlagSet(flags=(), saved={"u0": plain.saved["u0"]})
    assert choose_fastest([alone, lucky], 0.05)["u0"] is lucky
    assert choose_fastest([plain, lucky], 0.05)["u0"] is plain


def test_a_unit_that_one_set_lacks_keeps_the_others() -> None:
    assert choose_fastest([PLAIN, FlagSet(flags=("-O3",), saved={})], 0.05) == {"tanh": PLAIN}


@given(st.lists(st.floats(-0.01, 0.01), min_size=3, max_size=8))
def test_no_flags_are_faster_than_themselves(launches: list[float]) -> None:
    one = FlagSet(flags=(), saved={"tanh": tuple(launches)})
    other = FlagSet(flags=("-O3",), saved={"tanh": tuple(launches)})
    assert choose_fastest([one, other], 0.05) == {"tanh": one}


def test_a_search_says_what_it_would_build() -> None:
    said = describe(Request(arch="haswell", kernels="mini"), FlagsOptions(flag_sets="-O3;-O3;"))
    first, second = said.splitlines()
    assert "flags alone" in first
    assert "-O3" in second
    assert "4 launches" in second


def test_each_wheel_is_built_from_the_sources_that_were_given(tmp_path: Path, paths: Paths) -> None:
    """And all of one release, which is settled once where it is the newest."""
    source = tmp_path / FOLDER / "cwise_op_tanh.cc"
    source.parent.mkdir(parents=True)
    source.touch()
    compiler = "clang@16.0.6"
    request = Request(arch="haswell", release=NEWEST, kernels="mini", compiler=compiler)
    config = _read_config(request, FlagsOptions(flag_sets="-O3", source=str(tmp_path)))
    assert config.request.release == list_kernel_releases()[-1].version
    source.unlink()
    with pytest.raises(KernelError, match=f"--source {tmp_path} contains none"):
        _build_candidate(config, compiler, (), paths)


@pytest.mark.parametrize(
    ("request_", "wanted", "expected"),
    [
        (Request(), FlagsOptions(flag_sets=" ; "), "--flag-sets"),
        (Request(), FlagsOptions(flag_sets="-march=znver4"), "-march=znver4 is not allowed"),
        (Request(), FlagsOptions(flag_sets="-O3", launches="2"), "--launches 2"),
        (Request(), FlagsOptions(flag_sets="-O3", vcpus="x"), "--vcpus x"),
        (Request(), FlagsOptions(flag_sets="-O3", budget="-1"), "--budget -1"),
        (Request(compiler="clang@16.0.6,c--"), FlagsOptions(flag_sets="-O3"), "c--"),
        (Request(flags="-O3"), FlagsOptions(), "--flags"),
        (Request(), FlagsOptions(pgo="/nowhere.py"), "--pgo /nowhere.py"),
        (Request(arch="no_such"), FlagsOptions(flag_sets="-O3"), "no_such"),
        (Request(), FlagsOptions(profile="/nowhere.json"), "/nowhere.json"),
        (Request(), FlagsOptions(source="/nowhere", flag_sets="-O3"), "--source /nowhere"),
    ],
)
def test_a_search_that_makes_no_sense_is_refused(
    request_: Request, wanted: FlagsOptions, expected: str
) -> None:
    with pytest.raises(TensorwrightError, match=expected):
        describe(request_, wanted)


@pytest.mark.parametrize(
    "text", ["-O3 -fno-math-errno", "-mprefer-vector-width=512", "-DEIGEN_FAST_MATH=0", ""]
)
def test_flags_that_say_how_to_compile_are_taken(text: str) -> None:
    assert parse_extra_flags(text) == tuple(text.split())


@pytest.mark.parametrize(
    "text",
    ["-march=native", "-mavx512f", "-o/tmp/x", "-I/tmp", "-DNDEBUG=0", "-O3;rm", "@file", "-O0"],
)
def test_other_flags_are_refused(text: str) -> None:
    with pytest.raises(TensorwrightError, match="not allowed as an extra flag"):
        parse_extra_flags(text)


SLOWER = FlagSet(flags=("-O1",), saved={"tanh": (-0.010, -0.011, -0.010, -0.011)})


def test_every_set_is_shown_with_what_it_saves() -> None:
    text = build_table([PLAIN, SLOWER], {"tanh": PLAIN}, Path("x.json"), "").format_text(
        colour=False
    )
    head, _, plain, slower, _, said = text.splitlines()
    assert [each.strip() for each in re.split("[┃│]", plain)] == [
        *("the target's flags alone", "1.05%", "0.96% to 1.14%"),
    ]
    assert "-1.05%" in slower
    assert "1 kernel group" in said
    assert head.startswith("compiler and flags")


def test_a_unit_with_flags_is_named_with_what_to_do() -> None:
    chosen = {"tanh": FASTER, "mul": PLAIN}
    text = build_table([PLAIN, FASTER], chosen, Path("out/x.json"), "clang-16").format_text(
        colour=False
    )
    *_, tanh, rest, build, then = text.splitlines()
    assert tanh.split() == ["tanh", "-O3"]
    assert rest.startswith("1 of 2 kernel groups")
    assert "invoke build --compiler clang-16 --selection out/x.json" in build
    assert "invoke select" in then
