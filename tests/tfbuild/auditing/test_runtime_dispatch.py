"""Whose instructions those beyond the stock wheel's flags are."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from tests.builders.compiled_code import KERNEL, QUICK, VNNI, library

from tfbuild.auditing import runtime_dispatch
from tfbuild.auditing.runtime_dispatch import (
    attribute_instructions,
    find_row,
    get_record_path,
    load_attribution,
)
from tfbuild.binaries.census import count_instructions
from tfcore.records import save

# Functions of tensorflow_cpu 2.14.1's libraries with instructions beyond -mavx, by row.
SEEN = {
    "xnn_f32_vtanh_ukernel__avx512skx_expm1minus_rr1_lut4_p4h3ts_perm_div_x64": "XNNPACK",
    "xnn_x16_transposec_ukernel__16x16_reuse_switch_avx2": "XNNPACK",
    "xnn_f32_f16_vcvt_ukernel__f16c_x16": "XNNPACK",
    "xnn_qs8_gemm_minmax_fp32_ukernel_2x4c8__xop_ld128": "XNNPACK",
    "_ZN3ruy25Pack8bitRowMajorForAvx512EPKhiiPaiiiiiiiPi": "ruy",
    "_ZN3ruy12_GLOBAL__N_118HalfPack8bitAvx512EPKaaS2_iiiPaPiS3_": "ruy",
    "poly_Rq_mul": "BoringSSL",
    "chacha20_poly1305_seal_avx2": "BoringSSL",
    "aes256gcmsiv_kdf": "BoringSSL",
    "_aesni_ctr32_6x": "BoringSSL",
    "__ecp_nistz256_sqr_montx": "BoringSSL",
    "jsimd_h2v2_upsample_avx2": "libjpeg-turbo",
    "_ZNSt12_GLOBAL__N_112__x86_rdrandEv": "libstdc++",
    "_ZN3tsl4port12_GLOBAL__N_19CPUIDInfo10InitializeEv": "those who ask",
    "cpuinfo_x86_detect_isa": "those who ask",
}


@pytest.mark.parametrize(("symbol", "row"), SEEN.items())
def test_what_asks_the_cpu_is_known_by_its_name(symbol: str, row: str) -> None:
    assert find_row(symbol) == row


@pytest.mark.parametrize(
    "symbol",
    [
        "",
        "xnn_f32_gemm_minmax_ukernel_4x4__scalar",
        "xnn_create_convolution2d_nhwc_f32",
        "_ZN3ruy3Ctx19SetRuntimeEnabledPathsENS_4PathE",
        "_ZN10tensorflow8TanhOp7ComputeEPNS_15OpKernelContextE",
        "my_poly_Rq_mul",
        "sha256_block_data_ordering_of_mine".replace("_ordering", "-"),
    ],
)
def test_other_code_is_of_no_row(symbol: str) -> None:
    assert find_row(symbol) == ""


def test_every_row_says_why_and_where_that_stands_and_has_been_seen() -> None:
    path = Path(runtime_dispatch.__file__).with_name("dispatched.toml")
    rows = tomllib.loads(path.read_text(encoding="utf-8"))
    assert {*rows} == {*SEEN.values()}
    assert all({*row} == {"symbols", "why", "source"} for row in rows.values())


@pytest.mark.toolchain
def test_every_instruction_beyond_the_stock_flags_is_somebodys(tmp_path: Path) -> None:
    source = VNNI.replace("smuggled", "xnn_qs8_gemm_ukernel_4x16__avx512vnni")
    text = KERNEL + source + VNNI
    path = library(tmp_path, "mixed", text, *QUICK, "-march=haswell")
    attribution, counted = attribute_instructions(path), count_instructions(path)
    assert attribution.dispatched == {"XNNPACK": {"avx512_vnni": 1}}
    assert attribution.own["avx512_vnni"] == 1
    assert attribution.first["avx512_vnni"] == ("smuggled",)
    assert attribution.own["fma"] == counted["fma"] > 0
    assert not attribution.nameless
    assert not {"avx", "sse2", "x86_64"} & {*attribution.own}


@pytest.mark.toolchain
def test_a_stripped_library_has_functions_without_names(tmp_path: Path) -> None:
    text = (
        "static __attribute__((noinline)) "
        + VNNI.strip()
        + "\nint seen(void) { return smuggled(); }"
    )
    path = library(tmp_path, "stripped", text, *QUICK, "-s")
    attribution = attribute_instructions(path)
    assert attribution.nameless == {"avx512_vnni": 1}
    assert not attribution.own


@pytest.mark.toolchain
def test_what_was_found_is_kept_and_a_torn_record_is_none(tmp_path: Path) -> None:
    attribution = attribute_instructions(library(tmp_path, "small", VNNI, *QUICK))
    record = get_record_path("0" * 64, tmp_path)
    assert load_attribution(record) is None
    save(record, attribution)
    assert load_attribution(record) == attribution
    record.write_text(record.read_text()[:40])
    assert load_attribution(record) is None
    assert get_record_path("1" * 64, tmp_path) != record
