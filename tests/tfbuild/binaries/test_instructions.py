from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from iced_x86 import Code, CpuidFeature

from tfbuild.binaries.instructions import (
    BASELINE,
    UNDECODED,
    count_features,
    decode,
    list_code_features,
    list_word_features,
)
from tfcore.cpus import features

X86_64 = features.load_features("x86_64")
AARCH64 = features.load_features("aarch64")
ICED = {name for name in vars(CpuidFeature) if name.isupper()}
CODES = [number for name, number in vars(Code).items() if name.isupper()]
NO_INSTRUCTION = {"tsc_adjust", "flush_l1d"}

# Bytes, and what they need.
SOME = {
    "4801d8": "x86_64",  # add rax,rbx
    "f30f1efa": "x86_64",  # endbr64
    "f30fbcc0": "x86_64",  # tzcnt, or rep bsf
    "f30fbdc0": "abm",  # lzcnt
    "9f": "lahf_lm",
    "9e": "lahf_lm",
    "0f01d0": "xsave",  # xgetbv
    "0f0d08": "3dnowprefetch",  # prefetchw
    "480fc70f": "cx16",
    "c5f458c1": "avx",  # vaddps ymm
    "c5f5fec1": "avx2",  # vpaddd ymm
    "c4e27d18c1": "avx2",  # vbroadcastss ymm,xmm
    "c4e27d1801": "avx",  # vbroadcastss ymm,dword ptr
    "c4e275b8c1": "fma",
    "62f17c4858c1": "avx512f",  # vaddps zmm
    "62f17c2858c1": "avx512f avx512vl",  # vaddps ymm, with one of 32 registers
    "62f27d4850c1": "avx512_vnni",  # vpdpbusd zmm
    "62f27d2850c1": "avx512_vnni avx512vl",
    "c4e27d50c1": "avx_vnni",
    "62f27d28dcc1": "avx512vl vaes",
    "0f01d5": "rtm",  # xend, which the table does not know
    "06": UNDECODED,  # push es, which 64-bit mode has not
}


@pytest.mark.parametrize("text", SOME)
def test_x86_64_instructions_need_what_intel_says(text: str) -> None:
    actual = list(decode("x86_64", bytes.fromhex(text)))
    assert [needs for _, _, needs in actual] == [tuple(SOME[text].split())]
    assert count_features("x86_64", [bytes.fromhex(text)]) == Counter(SOME[text].split())


def test_every_feature_of_the_table_is_one_of_iceds_or_has_no_instruction() -> None:
    silent = {row.name for row in X86_64.values() if not row.iced}
    assert silent == NO_INSTRUCTION | {"lahf_lm"}
    assert {row.iced for row in X86_64.values() if row.iced} <= ICED
    names = {name for code in CODES for name in list_code_features(code)}
    baseline = {"mmx", "sse", "sse2"}
    assert X86_64.keys() - names == NO_INSTRUCTION | baseline


def test_no_feature_of_iced_passes_silently() -> None:
    ours = {row.iced for row in X86_64.values()}
    assert BASELINE <= ICED
    assert BASELINE & ours == {"MMX", "SSE", "SSE2"}
    named = {name.lower() for name in ICED - ours - BASELINE}
    assert not named & X86_64.keys()
    assert {"rtm", "rdtscp", "cet_ss"} <= named
    for code in CODES:
        assert set(list_code_features(code)) <= X86_64.keys() | named | {"x86_64", UNDECODED}


@pytest.mark.parametrize("zeros", [1, 2, 3, 15, 16])
def test_the_zeros_that_linkers_fill_with_are_no_riddle(zeros: int) -> None:
    data = bytes.fromhex("c3") + bytes(zeros)
    assert count_features("x86_64", [data]) == {"x86_64": 1 + zeros // 2}
    assert len(list(decode("x86_64", data))) == 1 + zeros // 2


def test_an_instruction_that_breaks_off_is_no_padding() -> None:
    assert count_features("x86_64", [bytes.fromhex("c3e9")]) == {"x86_64": 1, UNDECODED: 1}


@given(st.sampled_from(["x86_64", "aarch64"]), st.lists(st.binary(max_size=64), max_size=4))
def test_any_bytes_are_counted_as_they_are_read(machine: str, functions: list[bytes]) -> None:
    one_by_one = Counter(
        name for data in functions for _, _, needs in decode(machine, data) for name in needs
    )
    assert count_features(machine, functions) == one_by_one


# Arm's assembler, and what it needs. SVE2 is not told from SVE.
ARM = {
    "add x0, x1, x2": "aarch64",
    "fadd s0, s1, s2": "aarch64",
    "fadd v0.4s, v1.4s, v2.4s": "aarch64",
    "fcvt s0, h1": "aarch64",
    "fcvtn v0.4h, v1.4s": "aarch64",
    "ldr h0, [x1]": "aarch64",
    "cnt v0.8b, v1.8b": "aarch64",
    "bfi w0, w1, #3, #4": "aarch64",
    "paciasp": "aarch64",
    "fadd h0, h1, h2": "fphp",
    "fcvtzs w0, h1": "fphp",
    "fadd v0.8h, v1.8h, v2.8h": "asimdhp",
    "scvtf v0.4h, v1.4h": "asimdhp",
    "sqrdmlah v0.4s, v1.4s, v2.4s": "asimdrdm",
    "sdot v0.4s, v1.16b, v2.16b": "asimddp",
    "fcmla v0.4s, v1.4s, v2.4s, #90": "fcma",
    "fjcvtzs w0, d1": "jscvt",
    "frint32x v0.4s, v1.4s": "frint",
    "fmlal v0.4s, v1.4h, v2.4h": "asimdfhm",
    "bfdot v0.4s, v1.8h, v2.8h": "bf16",
    "bfcvt h0, s1": "bf16",
    "smmla v0.4s, v1.16b, v2.16b": "i8mm",
    "usdot v0.4s, v1.16b, v2.16b": "i8mm",
    "ldadd x0, x1, [x2]": "atomics",
    "casalb w0, w1, [x2]": "atomics",
    "swpl x0, x1, [x2]": "atomics",
    "ldapr x0, [x1]": "lrcpc",
    "ldapur x0, [x1, #8]": "ilrcpc",
    "crc32x w0, w1, x2": "crc32",
    "aese v0.16b, v1.16b": "aes",
    "pmull v0.1q, v1.1d, v2.1d": "pmull",
    "pmull v0.8h, v1.8b, v2.8b": "aarch64",
    "sha1c q0, s1, v2.4s": "sha1",
    "sha256h q0, q1, v2.4s": "sha2",
    "sha512h q0, q1, v2.2d": "sha512",
    "eor3 v0.16b, v1.16b, v2.16b, v3.16b": "sha3",
    "sm3ss1 v0.4s, v1.4s, v2.4s, v3.4s": "sm3",
    "sm4e v0.4s, v1.4s": "sm4",
    "fadd z0.s, z1.s, z2.s": "sve",
    "whilelo p0.s, x0, x1": "sve",
    "incw x0": "sve",
    "bfdot z0.s, z1.h, z2.h": "sve svebf16",
    "smmla z0.s, z1.b, z2.b": "sve svei8mm",
    "aese z0.b, z0.b, z1.b": "sve sveaes",
    "bext z0.s, z1.s, z2.s": "sve svebitperm",
    "mrs x0, rndr": "rng",
    "sb": "sb",
    ".inst 0xffffffff": UNDECODED,
}
ARM_FLAGS = "-march=armv9-a+sve2-aes+sve2-bitperm+fp16fml+crypto+sha3+sm4+rng+bf16+i8mm"


@pytest.mark.toolchain
def test_aarch64_instructions_are_told_by_their_text(tmp_path: Path) -> None:
    source, path, code = tmp_path / "a.s", tmp_path / "a.o", tmp_path / "a.bin"
    source.write_text("\n".join([*ARM, ""]))
    clang = ["clang-16", "--target=aarch64-linux-gnu", ARM_FLAGS, "-c"]
    subprocess.run([*clang, str(source), "-o", str(path)], check=True)
    copy = ["aarch64-linux-gnu-objcopy", "-O", "binary", "-j", ".text", str(path), str(code)]
    subprocess.run(copy, check=True)
    words = memoryview(code.read_bytes()).cast("I")
    assert {
        text: " ".join(list_word_features(word)) for text, word in zip(ARM, words, strict=True)
    } == ARM


def test_patterns_are_those_of_aarch64_only() -> None:
    assert not [row for row in X86_64.values() if row.capstone]
    known = {row.name for row in AARCH64.values() if row.capstone}
    used = {row.name for row in AARCH64.values() if row.codegen}
    # Part of every aarch64 CPU; SVE2, and FP8's kin: not told from others; uscat is a promise.
    assert used - known == {"fp", "asimd", "sve2", "uscat", "faminmax"}
