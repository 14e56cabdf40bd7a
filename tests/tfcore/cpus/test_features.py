from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from archspec.cpu import TARGETS
from archspec.cpu.schema import CPUID_JSON
from hypothesis import given
from hypothesis import strategies as st

from tfcore.cpus.compilers import find_compiler, read_macros
from tfcore.cpus.cpu import read_cpu
from tfcore.cpus.features import (
    ARCHITECTURES,
    Feature,
    filter_codegen,
    list_unused,
    load_corrections,
    load_features,
    normalize_features,
)
from tfcore.errors import CompilerError, TargetError
from tfcore.run import run

ROWS = [row for architecture in ARCHITECTURES for row in load_features(architecture).values()]
X86_64 = list(load_features("x86_64").values())


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_feature_of_every_target_is_in_the_table(architecture: str) -> None:
    named = {
        feature
        for target in TARGETS.values()
        if str(target.family) == architecture
        for feature in target.features
    }
    assert len(named) > 60
    assert named <= set(load_features(architecture))


def test_an_unknown_architecture_is_refused() -> None:
    with pytest.raises(TargetError, match="riscv64"):
        load_features("riscv64")


def test_cpuid_bits_are_those_that_archspec_knows() -> None:
    theirs = {
        bit["name"]: (call["input"]["eax"], call["input"]["ecx"], bit["register"], bit["bit"])
        for call in (*CPUID_JSON["flags"], *CPUID_JSON["extension-flags"])
        for bit in call["bits"]
    }
    compared = 0
    for row in X86_64:
        names = [name for name in (row.name, *row.aliases) if name in theirs]
        # AMD repeats MMX in its extended leaf; the basic one is Intel's too.
        if names and row.name != "mmx":
            assert row.cpuid is not None
            place = (row.cpuid.leaf, row.cpuid.subleaf, row.cpuid.register, row.cpuid.bit)
            assert place == theirs[names[0]], row.name
            compared += 1
    assert compared > 60


def test_linux_tells_of_every_aarch64_feature_that_compilers_use() -> None:
    """Else the dispatcher would load code that the CPU cannot run."""
    rows = load_features("aarch64").values()
    assert [row.name for row in rows if row.codegen and row.hwcap is None] == []
    bits = [(row.hwcap.word, row.hwcap.bit) for row in rows if row.hwcap]
    assert len(bits) == len(set(bits))


@pytest.mark.toolchain
def test_hwcap_bits_are_those_of_linuxs_header() -> None:
    words = ["aarch64-linux-gnu-gcc", "-dM", "-E", "-include", "asm/hwcap.h", "-x", "c"]
    shown = run([*words, "/dev/null"]).output
    known = re.findall(r"#define HWCAP(2?)_(\w+) \(1(?:UL)? << (\d+)\)", shown)
    header = {name.lower(): (2 if second else 1, int(bit)) for second, name, bit in known}
    ours = {
        row.name: (row.hwcap.word, row.hwcap.bit)
        for row in load_features("aarch64").values()
        if row.hwcap and row.name in header
    }
    assert len(ours) > 40
    assert ours == {name: header[name] for name in ours}


def test_every_x86_feature_has_a_cpuid_bit_of_its_own() -> None:
    bits = [row.cpuid for row in X86_64]
    assert None not in bits
    assert len(set(bits)) == len(bits)


@pytest.mark.parametrize("row", X86_64, ids=lambda row: row.name)
def test_vector_features_name_the_state_that_they_need(row: Feature) -> None:
    expected = {"avx512": 0xE6, "amx": 0x60000, "avx": 0x6}
    prefix = next((prefix for prefix in expected if row.name.startswith(prefix)), "")
    if prefix:
        assert row.xcr0 == expected[prefix]


def test_tensorflow_names_come_in_the_order_of_its_source() -> None:
    everything = frozenset(row.name for row in X86_64)
    assert list_unused(everything, frozenset()) == (
        *("SSE", "SSE2", "SSE3", "SSE4.1", "SSE4.2", "AVX", "AVX2", "AVX512F", "AVX512_VNNI"),
        *("AVX512_BF16", "AVX_VNNI", "AMX_TILE", "AMX_INT8", "AMX_BF16", "FMA"),
    )


def test_the_stock_wheel_uses_what_mavx_implies() -> None:
    assert list_unused(TARGETS["sandybridge"].features) == ()
    assert list_unused(TARGETS["haswell"].features) == ("AVX2", "FMA")


def test_kernel_names_become_archspec_names() -> None:
    assert normalize_features(["pni", "lzcnt", "sha", "vme"], "x86_64") == {"sse3", "abm", "sha_ni"}
    assert normalize_features(["ssse3"], "x86_64") == {"ssse3", "sse3"}


@given(st.frozensets(st.sampled_from(sorted(load_features("x86_64")))))
def test_canonical_names_stay(names: frozenset[str]) -> None:
    assert names <= normalize_features(names, "x86_64") <= names | {"sse3"}


def test_what_compilers_never_use_by_themselves() -> None:
    hidden = {"pku", "flush_l1d", "waitpkg", "cldemote", "clzero", "serialize", "fsgsbase"}
    assert filter_codegen(hidden | {"avx2", "fma", "abm"}, "x86_64") == {"avx2", "fma", "abm"}


def test_only_what_changes_types_is_banned() -> None:
    assert {row.name for row in ROWS if row.banned} == {"avx512_fp16"}


def test_corrections_name_targets_and_features_that_exist() -> None:
    for correction in load_corrections():
        assert correction.reason
        assert correction.versions
        families = {str(TARGETS[name].family) for name in correction.targets}
        assert len(families) == 1
        assert correction.uncovered <= set(load_features(families.pop()))
        assert bool(correction.uncovered) != bool(correction.instead or correction.add)


@pytest.mark.toolchain
@pytest.mark.parametrize("name", ["g++", "clang-16"])
@pytest.mark.parametrize("row", [row for row in X86_64 if row.flag], ids=lambda row: row.name)
def test_compilers_know_the_flag_and_define_the_macro(row: Feature, name: str) -> None:
    compiler = find_compiler(name, "x86_64")
    first = row.since.get(compiler.family, "0")
    if numbers(compiler.version) < numbers(first):
        with pytest.raises(CompilerError, match=re.escape(row.flag)):
            read_macros(compiler, [row.flag])
    else:
        assert row.macro in read_macros(compiler, ["-march=x86-64", row.flag])


@pytest.mark.toolchain
@pytest.mark.parametrize("name", ["aarch64-linux-gnu-g++", "clang-16"])
@pytest.mark.parametrize(
    "row", [row for row in load_features("aarch64").values() if row.flag], ids=lambda row: row.name
)
def test_cross_compilers_know_the_modifier(row: Feature, name: str) -> None:
    compiler = find_compiler(name, "aarch64")
    shown = read_macros(compiler, [f"-march=armv8.2-a{row.flag}"])
    silent = row.silent.get(compiler.family, "0")
    assert row.macro in shown or numbers(compiler.version)[:1] <= numbers(silent)


@pytest.mark.toolchain
def test_cpuid_of_this_machine_shows_what_its_kernel_shows(tmp_path: Path) -> None:
    compiler = find_compiler("g++")
    cpu = read_cpu()
    if cpu.architecture != "x86_64":
        pytest.skip("CPUID is an instruction of x86-64")
    shown = _ask_cpuid(compiler.path, tmp_path)
    assert len(cpu.features) > 10
    assert cpu.features <= shown


def _ask_cpuid(compiler: Path, folder: Path) -> set[str]:
    calls = [
        f"  __cpuid_count({hex(bit.leaf)}, {bit.subleaf}, eax, ebx, ecx, edx); "
        f'if ({bit.register} >> {bit.bit} & 1) puts("{row.name}");'
        for row in X86_64
        if (bit := row.cpuid) is not None
    ]
    source = folder / "ask.cc"
    head = "#include <cpuid.h>\n#include <cstdio>\nint main() { unsigned eax, ebx, ecx, edx;\n"
    source.write_text(head + "\n".join(calls) + "\n}\n", encoding="utf-8")
    program = folder / "ask"
    subprocess.run([compiler, source, "-o", program], check=True)
    return set(subprocess.run([program], check=True, capture_output=True, text=True).stdout.split())
