from __future__ import annotations

import copy
import functools
import warnings

import pytest
from archspec.cpu import TARGETS
from tests.builders.recorded_cpus import COMPLETE, HONEST, cpu_of

from tfcore.cpus.compilers import Compiler, find_compiler, read_macros
from tfcore.cpus.features import load_features
from tfcore.cpus.flags import (
    compute_link_flags,
    compute_march_flags,
    compute_required_features,
    list_covered_features,
    list_implied_features,
    parse_extra_flags,
    verify_macros,
)
from tfcore.cpus.targets import list_targets, match_cpu, parse_target
from tfcore.errors import CompilerError

COMPILERS = [
    ("g++", "x86_64"),
    ("clang-16", "x86_64"),
    ("aarch64-linux-gnu-g++", "aarch64"),
    ("clang-16", "aarch64"),
]


@functools.cache
def compiler_of(name: str, architecture: str) -> Compiler:
    return find_compiler(name, architecture)


@pytest.mark.toolchain
@pytest.mark.parametrize(("name", "architecture"), COMPILERS)
def test_compilers_switch_on_every_feature_of_every_target_that_they_know(
    name: str, architecture: str
) -> None:
    compiler = compiler_of(name, architecture)
    known = 0
    for target in list_targets(architecture):
        try:
            flags = compute_march_flags(target, compiler.family, compiler.version)
        except CompilerError as error:
            assert "too old" in error.message  # noqa: PT017
            continue
        shown = read_macros(compiler, flags)
        verify_macros(target, compiler.family, compiler.version, shown)
        assert "native" not in " ".join(flags)
        assert not any(
            load_features(architecture)[name].banned for name in list_implied_features(shown)
        )
        known += 1
    assert known >= 20


@pytest.mark.toolchain
@pytest.mark.parametrize(("name", "architecture"), COMPILERS)
def test_what_a_compiler_cannot_be_told_it_really_is_not_told(name: str, architecture: str) -> None:
    """The exceptions in the table hold: none of them is shown after all."""
    compiler = compiler_of(name, architecture)
    for target in list_targets(architecture):
        try:
            flags = compute_march_flags(target, compiler.family, compiler.version)
        except CompilerError:
            continue
        shown = list_implied_features(read_macros(compiler, flags))
        reported = {
            row.name for row in load_features(architecture).values() if row.macro and not row.banned
        }
        excused = target.features & reported - list_covered_features(
            target, compiler.family, compiler.version
        )
        assert not excused & shown, (target.name, excused & shown)


@pytest.mark.toolchain
@pytest.mark.parametrize("record", sorted(set(COMPLETE) - set(HONEST)))
@pytest.mark.parametrize("name", ["g++", "clang-16"])
def test_native_of_masked_cpus_compiles_and_asks_for_no_more_than_they_have(
    record: str, name: str
) -> None:
    cpu = cpu_of(record)
    compiler = compiler_of(name, cpu.architecture)
    native = match_cpu(cpu).native
    shown = read_macros(compiler, compute_march_flags(native, compiler.family, compiler.version))
    verify_macros(native, compiler.family, compiler.version, shown)
    assert compute_required_features(native, shown) <= cpu.features


@pytest.mark.toolchain
@pytest.mark.parametrize("record", sorted({*HONEST} - {"zen5"}))  # after clang 16's time
def test_a_cpu_may_run_what_was_compiled_for_its_own_target(record: str) -> None:
    cpu = cpu_of(record)
    compiler = compiler_of("clang-16", cpu.architecture)
    best = match_cpu(cpu).best
    shown = read_macros(compiler, compute_march_flags(best, compiler.family, compiler.version))
    assert compute_required_features(best, shown) <= cpu.features


@pytest.mark.toolchain
def test_prefetch_for_writing_is_required_where_compilers_use_it() -> None:
    compiler = compiler_of("clang-16", "x86_64")
    skylake = parse_target("skylake")
    shown = read_macros(compiler, compute_march_flags(skylake, compiler.family, compiler.version))
    assert compute_required_features(skylake, shown) - skylake.features == {"3dnowprefetch"}


def test_what_no_compiler_uses_by_itself_is_not_required() -> None:
    """A hypervisor that hides one of these must not cost the wheel."""
    target = parse_target("sapphirerapids")
    required_features = compute_required_features(target, {"__x86_64__": "1"})
    assert {"waitpkg", "amx_tile", "sha_ni"} & target.features
    assert not {"waitpkg", "amx_tile", "sha_ni"} & required_features
    assert {"avx512_bf16", "fma"} <= required_features


@pytest.mark.parametrize(
    ("spec", "family", "version", "flags"),
    [
        ("skylake", "gcc", "12.2.0", "-march=skylake -mtune=skylake"),
        ("haswell", "clang", "16.0.6", "-march=haswell -mtune=haswell -maes"),
        ("zen4", "clang", "16.0.6", "-march=znver4 -mtune=znver4"),
        ("zen3", "gcc", "12", "-march=znver3 -mtune=znver3"),
        # The range ends with 12.2, and the first compiler that knows a feature knows it.
        (
            "zen4",
            "gcc",
            "12.2.0",
            (
                "-march=znver3 -mtune=znver3 -mavx512f -mavx512dq -mavx512ifma -mavx512cd"
                " -mavx512bw -mavx512vl -mavx512vbmi -mavx512vbmi2 -mavx512vnni -mavx512bitalg"
                " -mavx512bf16 -mavx512vpopcntdq -mgfni"
            ),
        ),
        ("m3", "clang", "16.0.6", "-mcpu=apple-m2"),
        ("skylake+avx_ifma", "gcc", "13", "-march=skylake -mtune=skylake -mavxifma"),
        ("neoverse_v1", "clang", "16.0.6", "-mcpu=neoverse-v1"),
        ("neoverse_v1", "gcc", "12.2.0", "-mcpu=neoverse-v1+aes+sha2+sha3"),
        ("x86_64_v3/zen3", "gcc", "12.2.0", "-march=x86-64-v3 -mtune=znver3"),
        (
            "x86_64_v4+avx512_bf16+gfni/zen4",
            "clang",
            "16.0.6",
            "-march=x86-64-v4 -mtune=znver4 -mavx512bf16 -mgfni",
        ),
        # A compiler that does not know what to tune for keeps the target's own tuning.
        ("x86_64_v4/zen5", "clang", "16.0.6", "-march=x86-64-v4 -mtune=generic"),
        ("armv8.4a+sve/neoverse_v1", "gcc", "12.2.0", "-march=armv8.4-a+sve -mtune=neoverse-v1"),
        (
            "sapphirerapids",
            "clang",
            "16.0.6",
            "-march=sapphirerapids -mtune=sapphirerapids -mno-avx512fp16",
        ),
        # clang 13 does not know -mno-avx512fp16, and does not turn it on either.
        ("sapphirerapids", "clang", "13.0.1", "-march=sapphirerapids -mtune=sapphirerapids"),
    ],
)
def test_flags(spec: str, family: str, version: str, flags: str) -> None:
    assert compute_march_flags(parse_target(spec), family, version) == tuple(flags.split())


@pytest.mark.parametrize(
    ("spec", "family", "version", "message"),
    [
        ("skylake", "msvc", "19", "Use gcc 6.0 or clang 3.9"),
        ("zen5", "gcc", "12.2.0", "too old for zen5. Use gcc 14.1 or clang 19.1"),
        ("skylake+avx_ifma", "gcc", "12.2.0", "avx_ifma. Use gcc 13 or later"),
        ("skylake", "gcc", "trunk", "'trunk'"),
    ],
)
def test_a_compiler_that_cannot_serve_names_the_one_needed(
    spec: str, family: str, version: str, message: str
) -> None:
    with pytest.raises(CompilerError) as caught:
        compute_march_flags(parse_target(spec), family, version)
    assert message in str(caught.value)


@pytest.mark.parametrize("family", ["gcc", "clang"])
@pytest.mark.parametrize("version", ["11.4", "12.2", "13.1", "14.2", "16.0", "19.1"])
def test_archspec_agrees_on_x86(family: str, version: str) -> None:
    """The same entry as archspec's own choice, before corrections, wherever it makes one."""
    compared = 0
    for target in list_targets("x86_64"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                theirs = TARGETS[target.name].optimization_flags(family, version).split()
            except ValueError:
                with pytest.raises(CompilerError):
                    compute_march_flags(target, family, version)
                continue
        assert compute_march_flags(target, family, version)[: len(theirs)] == tuple(theirs)
        compared += 1
    assert compared > 20


def test_archspec_is_read_and_not_changed() -> None:
    before = copy.deepcopy(TARGETS["icelake"].compilers)
    compute_march_flags(parse_target("icelake"), "clang", "16.0.6")
    assert TARGETS["icelake"].compilers == before


def test_a_compiler_that_did_not_obey_is_caught() -> None:
    target = parse_target("haswell")
    shown = {load_features("x86_64")[name].macro: "1" for name in target.features}
    verify_macros(target, "gcc", "12.2.0", shown)
    del shown["__AVX2__"]
    with pytest.raises(CompilerError, match="avx2"):
        verify_macros(target, "gcc", "12.2.0", shown)
    with pytest.raises(CompilerError, match="avx512_fp16"):
        verify_macros(target, "gcc", "12.2.0", {**shown, "__AVX2__": "1", "__AVX512FP16__": "1"})


@pytest.mark.parametrize(
    ("family", "words", "link_flags"),
    [
        ("clang", ("-O3", "-mno-avx512f"), ()),
        ("clang", ("-flto=thin", "-O3"), ("-fuse-ld=lld",)),
        ("clang", ("-flto",), ("-fuse-ld=lld",)),
        ("gcc", ("-flto",), ("-flto=auto",)),
        ("gcc", ("-flto-partition=none",), ()),
    ],
)
def test_the_link_gets_what_the_objects_ask_for(
    family: str, words: tuple[str, ...], link_flags: tuple[str, ...]
) -> None:
    assert compute_link_flags(family, words) == link_flags


@pytest.mark.parametrize(
    "word", ["-fprofile-generate", "-fprofile-use=0a", "-march=znver4", "-Ofast"]
)
def test_what_is_no_extra_flag_is_refused(word: str) -> None:
    with pytest.raises(CompilerError, match=word) as caught:
        parse_extra_flags(f"-O3 {word}")
    assert "-mprefer-vector-width=256" in caught.value.hint
