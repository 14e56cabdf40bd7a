"""The dispatcher, compiled and loaded for real: its decision, its fallbacks and what it says."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.dispatchers import (
    ABSENT,
    PRESENT,
    Answer,
    Wheel,
    compile_c,
    feature,
    install,
    on_x86_64,
    target,
)
from tests.builders.later import later

from tfbuild.planning.dispatcher import (
    LIBRARY,
    TABLE,
    render_header,
)
from tfcore.cpus.features import list_feature_names
from tfcore.errors import TargetError
from tfcore.run import run
from tfcore.settings import TEMPLATES

COMPILERS = ("gcc", "clang-16")


# Names as /proc/cpuinfo has them. Bits: Intel SDM vol. 2A, CPUID; AMD APM vol. 3, appendix E.
AVX, AVX512, AMX = 0x6, 0xE6, 0x60000
REAL = (
    feature("sse4_2", 1, 0, "ecx", 20),
    feature("movbe", 1, 0, "ecx", 22),
    feature("popcnt", 1, 0, "ecx", 23),
    feature("aes", 1, 0, "ecx", 25),
    feature("avx", 1, 0, "ecx", 28, AVX),
    feature("f16c", 1, 0, "ecx", 29, AVX),
    feature("fma", 1, 0, "ecx", 12, AVX),
    feature("bmi1", 7, 0, "ebx", 3),
    feature("avx2", 7, 0, "ebx", 5, AVX),
    feature("bmi2", 7, 0, "ebx", 8),
    feature("avx512f", 7, 0, "ebx", 16, AVX512),
    feature("avx512bw", 7, 0, "ebx", 30, AVX512),
    feature("avx512vl", 7, 0, "ebx", 31, AVX512),
    feature("avx512_vnni", 7, 0, "ecx", 11, AVX512),
    feature("amx_tile", 7, 0, "edx", 24, AMX),
    feature("avx_vnni", 7, 1, "eax", 4, AVX),
    feature("avx512_bf16", 7, 1, "eax", 5, AVX512),
    feature("abm", 0x80000001, 0, "ecx", 5),
    feature("sse4a", 0x80000001, 0, "ecx", 6),
)
BY_NAME = {row.name: row for row in REAL}


@pytest.fixture(scope="module", params=["clang-16", *later("gcc")])
def wheel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    """A wheel for one target that every x86-64 CPU runs."""
    site = tmp_path_factory.mktemp("site")
    return install(site, target("zen4", *PRESENT), compiler=request.param)


@pytest.fixture
def own_wheel(wheel: Wheel, tmp_path: Path) -> Wheel:
    """A copy that the test may damage."""
    shutil.copytree(wheel.site, tmp_path / "site")
    return replace(wheel, site=tmp_path / "site")


LOADED = (
    "tensorwright: 34 kernels built for zen4 replace the stock ones; TensorFlow's own line about"
    " rebuilding speaks of the rest\n"
)


def stock(reason: str) -> Answer:
    """The answer of a dispatcher that fell back."""
    text = f"tensorwright: TensorFlow runs with its stock kernels: {reason}\n"
    return Answer(loaded="", reason=reason, said=text)


# ---- the table ----


def test_the_header_holds_the_targets_in_their_order() -> None:
    rows = (target("zen4", BY_NAME["avx512f"]), target("haswell", BY_NAME["abm"], PRESENT[0]))
    names = sorted({*list_feature_names(), PRESENT[0].name})
    listed = "".join(f'    "{name}",\n' for name in names)
    assert render_header(rows, TEMPLATES) == (
        "/* Rendered from dispatcher_targets.h.j2: the kernel libraries of this wheel, in"
        " order of preference. */\n"
        '#define TW_FOLDER "tensorwright"\n'
        "\n"
        "/* The features that TENSORWRIGHT_MASK accepts. */\n"
        f"static const char *const tw_feature_names[] = {{\n{listed}}};\n"
        "\n"
        "static const struct tw_feature tw_features_0[] = {\n"
        '    {"avx512f", 0x7, 0, TW_EBX, 16, 0xe6},\n'
        "    {.name = NULL},\n"
        "};\n"
        "\n"
        "static const struct tw_feature tw_features_1[] = {\n"
        '    {"abm", 0x80000001, 0, TW_ECX, 5, 0x0},\n'
        '    {"fpu", 0x1, 0, TW_EDX, 0, 0x0},\n'
        "    {.name = NULL},\n"
        "};\n"
        "\n"
        "static const struct tw_target tw_targets[] = {\n"
        '    {"zen4", "libzen4.so", tw_features_0},\n'
        '    {"haswell", "libhaswell.so", tw_features_1},\n'
        "};\n"
    )


@pytest.mark.parametrize("name", ["", "a/b", '"', "a\nb", "../x", "-x", "ä"])
def test_a_name_that_is_more_than_a_name_is_refused(name: str) -> None:
    with pytest.raises(TargetError):
        target(name)
    with pytest.raises(TargetError):
        feature(name, 1, 0, "eax", 0)


def test_a_target_called_off_is_refused() -> None:
    with pytest.raises(TargetError, match="TENSORWRIGHT_TARGET=off"):
        target("off")


@pytest.mark.parametrize("bit", [-1, 32])
def test_a_bit_outside_the_register_is_refused(bit: int) -> None:
    with pytest.raises(TargetError, match=r"CPUID"):
        feature("avx2", 7, 0, "ebx", bit)


def test_no_target_and_the_same_target_twice_are_refused() -> None:
    with pytest.raises(TargetError, match="at least one target"):
        render_header((), TEMPLATES)
    with pytest.raises(TargetError, match="zen4, zen4"):
        render_header((target("zen4"), target("zen4")), TEMPLATES)


# ---- the library itself ----


@on_x86_64
@pytest.mark.toolchain
def test_nothing_newer_than_glibc_2_17_is_asked_for(wheel: Wheel) -> None:
    with (wheel.kernels / LIBRARY).open("rb") as stream:
        needs = ELFFile(stream).get_section_by_name(".gnu.version_r")
        assert isinstance(needs, GNUVerNeedSection)
        version_names = {
            version.name for _, versions in needs.iter_versions() for version in versions
        }
    assert "GLIBC_2.2.5" in version_names
    numbers = [re.fullmatch(r"GLIBC_(\d+)\.(\d+)(?:\.\d+)?", name) for name in version_names]
    assert all(number and (int(number[1]), int(number[2])) <= (2, 17) for number in numbers), (
        version_names
    )


@on_x86_64
@pytest.mark.toolchain
def test_libdl_is_linked_where_an_older_glibc_has_dlopen(wheel: Wheel) -> None:
    with (wheel.kernels / LIBRARY).open("rb") as stream:
        dynamic = ELFFile(stream).get_section_by_name(".dynamic")
        needed = {tag.needed for tag in dynamic.iter_tags() if tag.entry.d_tag == "DT_NEEDED"}
    assert needed == {"libdl.so.2", "libc.so.6"}


@on_x86_64
@pytest.mark.toolchain
def test_only_the_questions_and_the_table_are_exported(wheel: Wheel) -> None:
    with (wheel.kernels / LIBRARY).open("rb") as stream:
        symbols = ELFFile(stream).get_section_by_name(".dynsym").iter_symbols()
        defined = {symbol.name for symbol in symbols if symbol["st_shndx"] != "SHN_UNDEF"}
    assert defined == {"tensorwright_loaded", "tensorwright_reason", TABLE}


# ---- loading ----


@on_x86_64
@pytest.mark.toolchain
def test_a_cpu_with_all_features_gets_the_kernels(wheel: Wheel) -> None:
    assert wheel.ask() == Answer(loaded="zen4", reason="", said=LOADED)


@on_x86_64
@pytest.mark.toolchain
def test_nothing_is_written_to_stdout(wheel: Wheel) -> None:
    quiet = ("sh", "-c", '"$@" 2>/dev/null', "sh")
    assert wheel.ask(under=quiet).said == ""
    masked = {"TENSORWRIGHT_MASK": "sse2"}
    assert wheel.ask(under=quiet, env=masked).said == ""


@on_x86_64
@pytest.mark.toolchain
def test_a_closed_stderr_changes_nothing(wheel: Wheel) -> None:
    assert wheel.ask(under=("sh", "-c", '"$@" 2>&-', "sh")).loaded == "zen4"


@on_x86_64
@pytest.mark.toolchain
def test_python_can_ask_the_loaded_dispatcher(wheel: Wheel) -> None:
    code = (
        "import ctypes, sys\n"
        "dispatcher = ctypes.CDLL(sys.argv[1])\n"
        "dispatcher.tensorwright_loaded.restype = ctypes.c_char_p\n"
        "print(dispatcher.tensorwright_loaded().decode())\n"
    )
    done = run([sys.executable, "-c", code, wheel.kernels / LIBRARY])
    assert done.output == f"{LOADED}zen4\n"


@on_x86_64
@pytest.mark.toolchain
def test_kernels_that_cannot_be_counted_are_not_counted(own_wheel: Wheel) -> None:
    library = own_wheel.library("zen4")
    library.unlink()
    compile_c("gcc", "int unrelated;\n", library, "-shared", "-fPIC")
    assert own_wheel.ask().said == LOADED.replace("34 kernels", "kernels")


@on_x86_64
@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("level", "loaded_line", "fallback_line"),
    [("", True, True), ("0", True, True), ("1", False, True), ("2", False, False),
     ("3", False, False), ("nonsense", True, True)],
)  # fmt: skip
def test_tensorflows_log_level_mutes(
    wheel: Wheel, level: str, loaded_line: bool, fallback_line: bool
) -> None:
    env = {"TF_CPP_MIN_LOG_LEVEL": level}
    assert bool(wheel.ask(env=env).said) is loaded_line
    assert bool(wheel.ask(env={**env, "TENSORWRIGHT_MASK": "sse2"}).said) is fallback_line


# ---- falling back ----


@on_x86_64
@pytest.mark.toolchain
def test_a_masked_feature_falls_back_and_is_named(wheel: Wheel) -> None:
    answer = wheel.ask(env={"TENSORWRIGHT_MASK": "avx2,sse2,,cx8"})
    assert answer == stock("zen4 needs cx8, sse2, which this CPU lacks (TENSORWRIGHT_MASK is set)")


@on_x86_64
@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("mask", "name"),
    [("SSE2", "SSE2"), ("avx2, sse2", " sse2"), ("sse", ""), ("avx2,avx521f,x", "avx521f")],
)
def test_a_mask_with_a_name_that_is_none_falls_back(wheel: Wheel, mask: str, name: str) -> None:
    reason = f'TENSORWRIGHT_MASK names "{name}", which is no CPU feature that is known'
    masked = "zen4 needs sse, which this CPU lacks (TENSORWRIGHT_MASK is set)"
    assert wheel.ask(env={"TENSORWRIGHT_MASK": mask}) == stock(reason if name else masked)


@on_x86_64
@pytest.mark.toolchain
def test_a_long_name_in_a_mask_is_cut(wheel: Wheel) -> None:
    reason = wheel.ask(env={"TENSORWRIGHT_MASK": "x\n" * 2000}).reason
    assert f'"{"x?" * 32}"' in reason


@on_x86_64
@pytest.mark.toolchain
def test_off_keeps_the_stock_kernels_silently(wheel: Wheel) -> None:
    answer = wheel.ask(env={"TENSORWRIGHT_TARGET": "off"})
    assert answer == Answer(loaded="", reason="TENSORWRIGHT_TARGET=off", said="")


@on_x86_64
@pytest.mark.toolchain
def test_an_unknown_target_falls_back(wheel: Wheel) -> None:
    answer = wheel.ask(env={"TENSORWRIGHT_TARGET": "zen"})
    assert answer == stock("this wheel has no kernels for TENSORWRIGHT_TARGET=zen, only for zen4")


@on_x86_64
@pytest.mark.toolchain
def test_a_name_from_the_environment_cannot_break_the_line(wheel: Wheel) -> None:
    answer = wheel.ask(env={"TENSORWRIGHT_TARGET": "a\n\x1b[2Jtensorwright: " + "b" * 100})
    shown = "a??[2Jtensorwright: " + "b" * 44
    assert answer == stock(
        f"this wheel has no kernels for TENSORWRIGHT_TARGET={shown}, only for zen4"
    )


@on_x86_64
@pytest.mark.toolchain
@pytest.mark.parametrize("expected_text", ["skylake_avx512", "skylake.avx512", "skylake-avx512"])
def test_a_target_is_found_as_archspec_and_as_the_version_spell_it(
    tmp_path: Path, expected_text: str
) -> None:
    wheel = install(tmp_path, target("haswell"), target("skylake.avx512"), target("x"))
    assert wheel.ask(env={"TENSORWRIGHT_TARGET": expected_text}).loaded == "skylake.avx512"
    for second in ("skylake_", "skylake_avx5122", "skylake_avx51", "_", "skylakeavx512"):
        assert wheel.ask(env={"TENSORWRIGHT_TARGET": second}).loaded == ""


@on_x86_64
@pytest.mark.toolchain
def test_a_missing_library_falls_back(own_wheel: Wheel) -> None:
    own_wheel.library("zen4").unlink()
    assert own_wheel.ask() == stock("libzen4.so cannot be loaded: No such file or directory")


def boundaries(library: Path) -> list[int]:
    """Where its headers, segments and sections begin and end, short of the whole file."""
    with library.open("rb") as file:
        elf = ELFFile(file)
        ends = {0, 3, 16, 63, 64, library.stat().st_size - 1, elf["e_shoff"]}
        for section in elf.iter_sections():
            ends |= {section["sh_offset"], section["sh_offset"] + section["sh_size"]}
        for segment in elf.iter_segments():
            ends |= {segment["p_offset"], segment["p_offset"] + segment["p_filesz"]}
    return sorted(end for end in ends if end < library.stat().st_size)


@on_x86_64
@pytest.mark.toolchain
def test_a_library_truncated_anywhere_falls_back(own_wheel: Wheel) -> None:
    library = own_wheel.library("zen4")
    whole = library.read_bytes()
    sizes = boundaries(library)
    assert len(sizes) > 25
    for size in sizes:
        library.write_bytes(whole[:size])
        kind = "truncated" if size >= 64 else "not a library"
        assert own_wheel.ask() == stock(f"libzen4.so cannot be loaded: it is {kind}"), size


@on_x86_64
@pytest.mark.toolchain
def test_a_library_whose_end_never_reached_the_disk_falls_back(own_wheel: Wheel) -> None:
    """It has its size, but zeros from somewhere on: so a file system may leave it after a crash."""
    library = own_wheel.library("zen4")
    whole = library.read_bytes()
    for size in boundaries(library):
        remainder = whole[:size].ljust(len(whole), b"\0")
        library.write_bytes(remainder)
        assert (own_wheel.ask().loaded == "") is (remainder != whole), size


# Offsets in the ELF header: class, byte order, type, machine, size of a program header.
@on_x86_64
@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("offset", "value", "fault"),
    [
        (4, b"\x01", "it is built for another architecture"),
        (5, b"\x02", "it is built for another architecture"),
        (18, b"\xb7\x00", "it is built for another architecture"),  # aarch64
        (18, b"\x03\x00", "it is built for another architecture"),  # i386
        (16, b"\x02\x00", "it is not a library"),  # a program
        (54, b"\x20\x00", "it is not a library"),
        (56, b"\xff\xff", "it is truncated"),  # 65,535 program headers
    ],
)
def test_a_library_of_another_kind_falls_back(
    own_wheel: Wheel, offset: int, value: bytes, fault: str
) -> None:
    library = own_wheel.library("zen4")
    data = bytearray(library.read_bytes())
    data[offset : offset + len(value)] = value
    library.write_bytes(data)
    assert own_wheel.ask() == stock(f"libzen4.so cannot be loaded: {fault}")


@on_x86_64
@pytest.mark.toolchain
@given(at=st.integers(0, 63), value=st.integers(0, 255))
def test_no_byte_of_the_elf_header_harms_the_host(many: Wheel, at: int, value: int) -> None:
    library = many.library("first")
    whole = library.read_bytes()
    try:
        library.write_bytes(whole[:at] + bytes([value]) + whole[at + 1 :])
        assert many.ask().loaded in {"first", "second"}
    finally:
        library.write_bytes(whole)


def put_text(library: Path) -> None:
    library.write_text("oops\n" * 1000, encoding="utf-8")


def put_loop(library: Path) -> None:
    library.symlink_to(library.name)


def put_dangling_link(library: Path) -> None:
    library.symlink_to("nowhere")


@on_x86_64
@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("put", "fault"),
    [
        (put_text, "it is not a library"),
        (Path.mkdir, "it is not a library"),
        (os.mkfifo, "it is not a library"),  # opening it would wait for a writer
        (put_loop, "Too many levels of symbolic links"),
        (put_dangling_link, "No such file or directory"),
    ],
)
def test_something_else_in_place_of_the_library_falls_back(
    own_wheel: Wheel, put: Callable[[Path], None], fault: str
) -> None:
    library = own_wheel.library("zen4")
    library.unlink()
    put(library)
    assert own_wheel.ask() == stock(f"libzen4.so cannot be loaded: {fault}")


@on_x86_64
@pytest.mark.toolchain
def test_an_unreadable_library_falls_back(own_wheel: Wheel) -> None:
    own_wheel.library("zen4").chmod(0)
    # Root reads it all the same, unless it gives that right away.
    plain = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
    answer = own_wheel.ask(under=plain if os.geteuid() == 0 else ())
    assert answer == stock("libzen4.so cannot be loaded: Permission denied")


@on_x86_64
@pytest.mark.toolchain
def test_a_library_that_does_not_fit_into_memory_falls_back(own_wheel: Wheel) -> None:
    library = own_wheel.library("zen4")
    library.unlink()
    compile_c("gcc", "char much[1ul << 40];\n", library, "-shared", "-fPIC", "-mcmodel=large")
    answer = own_wheel.ask(under=("sh", "-c", 'ulimit -v 1000000; exec "$@"', "sh"))
    assert answer.loaded == ""
    assert answer.reason.startswith("libzen4.so cannot be loaded: ")


@on_x86_64
@pytest.mark.toolchain
def test_a_library_for_a_newer_system_falls_back_before_its_code_runs(own_wheel: Wheel) -> None:
    library = own_wheel.library("zen4")
    library.unlink()
    text = (
        "extern int from_the_future(void);\n"
        "__attribute__((constructor)) static void start(void) { __builtin_trap(); }\n"
        "int tensorwright_kernel_count(void) { return from_the_future(); }\n"
    )
    compile_c("gcc", text, library, "-shared", "-fPIC")
    answer = own_wheel.ask()
    assert answer.loaded == ""
    assert answer.reason.startswith("libzen4.so cannot be loaded: ")
    assert answer.reason.endswith("undefined symbol: from_the_future")


def fake_tensorflow(folder: Path, text: str) -> Path:
    library = folder / "libtensorflow_framework.so.2"
    return compile_c("gcc", text, library, "-shared", "-fPIC", f"-Wl,-soname,{library.name}")


CUDA, ROCM = "_ZN10tensorflow19IsGoogleCudaEnabledEv", "_ZN10tensorflow15IsBuiltWithROCmEv"


@on_x86_64
@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("cuda", "rocm", "reason"),
    [
        ("0", "0", ""),
        ("1", "0", "this TensorFlow is a GPU build"),
        ("0", "1", "this TensorFlow is a GPU build"),
        ("0", None, "this TensorFlow does not say whether it is a GPU build"),
    ],
)
def test_a_gpu_build_keeps_its_stock_kernels(
    own_wheel: Wheel, cuda: str, rocm: str | None, reason: str
) -> None:
    text = f"_Bool {CUDA}(void) {{ return {cuda}; }}\n"
    if rocm is not None:
        text += f"_Bool {ROCM}(void) {{ return {rocm}; }}\n"
    answer = own_wheel.ask(fake_tensorflow(own_wheel.site, text))
    assert answer == (stock(reason) if reason else Answer(loaded="zen4", reason="", said=LOADED))


@on_x86_64
@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ("libmetal.so", "a device plugin is installed in tensorflow-plugins"),
        ("libpjrt.some.so.1", "a device plugin is installed in tensorflow-plugins"),
        ("__init__.py", ""),
    ],
)
def test_a_device_plugin_keeps_the_stock_kernels(own_wheel: Wheel, file: str, reason: str) -> None:
    plugins = own_wheel.site / "tensorflow-plugins"
    plugins.mkdir()
    (plugins / file).touch()
    assert own_wheel.ask().reason == reason


@on_x86_64
@pytest.mark.toolchain
def test_a_device_library_in_the_environment_keeps_the_stock_kernels(wheel: Wheel) -> None:
    answer = wheel.ask(env={"TF_PLUGGABLE_DEVICE_LIBRARY_PATH": "/opt/device.so"})
    assert answer == stock("TF_PLUGGABLE_DEVICE_LIBRARY_PATH adds a device")


# ---- the choice among targets ----


MANY = (
    target("first", *PRESENT[:4]),
    target("second", PRESENT[0], PRESENT[4]),
    target("never_bit", PRESENT[1], ABSENT[0]),
    target("never_leaf", ABSENT[1]),
    target("never_extended", ABSENT[2]),
    target("never_state", ABSENT[3]),
    target("third", PRESENT[5]),
    target("anything"),
)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    return install(tmp_path_factory.mktemp("many"), *MANY)


def expected(masked: frozenset[str], expected_text: str) -> str:
    """The model: the first row, or the wanted one, whose features are all present."""
    absent = {dispatch_feature.name for dispatch_feature in ABSENT} | masked
    rows = [row for row in MANY if expected_text in {"", row.name}]
    return next((r.name for r in rows if not absent & {f.name for f in r.features}), "")


@on_x86_64
@pytest.mark.toolchain
@given(
    masked=st.frozensets(st.sampled_from([dispatch_feature.name for dispatch_feature in PRESENT])),
    expected_text=st.sampled_from(["", "nobody", *(row.name for row in MANY)]),
)
def test_the_decision_is_the_models(
    many: Wheel, masked: frozenset[str], expected_text: str
) -> None:
    env = {"TENSORWRIGHT_MASK": ",".join(sorted(masked)), "TENSORWRIGHT_TARGET": expected_text}
    answer = many.ask(env=env)
    assert answer.loaded == expected(masked, expected_text)
    assert (answer.reason == "") is (answer.loaded != "")
    assert answer.said.count("\n") == 1


@on_x86_64
@pytest.mark.toolchain
@pytest.mark.parametrize("damage", [Path.unlink, put_text])
def test_the_next_target_stands_in_for_a_damaged_library_and_says_so(
    many: Wheel, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    shutil.copytree(many.site, tmp_path / "site")
    own_site = replace(many, site=tmp_path / "site")
    damage(own_site.library("first"))
    answer = own_site.ask()
    assert answer.loaded == "second"
    assert answer.reason.startswith("libfirst.so cannot be loaded: ")
    lines = answer.said.splitlines()
    assert lines[0].startswith("tensorwright: 34 kernels built for second replace the stock ones")
    assert lines[1:] == [f"tensorwright: better ones are in the wheel, but {answer.reason}"]
    warned = own_site.ask(env={"TF_CPP_MIN_LOG_LEVEL": "1"})
    assert warned.said.splitlines() == lines[1:]


@on_x86_64
@pytest.mark.toolchain
def test_a_lesser_cpu_is_nothing_to_report(many: Wheel) -> None:
    answer = many.ask(env={"TENSORWRIGHT_MASK": PRESENT[0].name})
    assert (answer.loaded, answer.reason) == ("third", "")
    assert answer.said.count("\n") == 1


@on_x86_64
@pytest.mark.toolchain
def test_a_very_long_reason_is_cut_and_stays_one_line(tmp_path: Path) -> None:
    rows = [target(f"row{i}", feature("x" * 120, 1, 0, "ecx", 16)) for i in range(40)]
    answer = install(tmp_path, *rows).ask()
    assert len(answer.reason) == 2047
    assert answer.said.endswith("\n")


# ---- real features on real and emulated CPUs ----


@pytest.fixture(scope="module")
def probes(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    """One target per feature, so that forcing it asks for that feature alone."""
    return install(tmp_path_factory.mktemp("probes"), *(target(f.name, f) for f in REAL))


def features_seen(wheel: Wheel, *under: str) -> set[str]:
    return {
        row.name
        for row in REAL
        if wheel.ask(under=under, env={"TENSORWRIGHT_TARGET": row.name}).loaded
    }


@on_x86_64
@pytest.mark.toolchain
def test_the_features_seen_are_those_the_kernel_reports(probes: Wheel) -> None:
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    flags = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    assert flags is not None
    assert features_seen(probes) == {row.name for row in REAL} & set(flags[1].split())


SANDY_BRIDGE = {"sse4_2", "popcnt", "aes", "avx"}
HASWELL = SANDY_BRIDGE | {"movbe", "f16c", "fma", "bmi1", "avx2", "bmi2", "abm"}


@on_x86_64
@pytest.mark.toolchain
@pytest.mark.parametrize(("cpu", "features"), [("SandyBridge", SANDY_BRIDGE), ("Haswell", HASWELL)])
def test_the_features_seen_under_qemu_are_the_models(
    probes: Wheel, cpu: str, features: set[str]
) -> None:
    assert features_seen(probes, "qemu-x86_64", "-cpu", cpu) == features


@on_x86_64
@pytest.mark.toolchain
def test_a_wheel_for_two_targets_under_qemu(tmp_path: Path) -> None:
    skylake_avx512 = target("skylake_avx512", BY_NAME["avx2"], BY_NAME["avx512f"])
    haswell = target("haswell", BY_NAME["avx2"], BY_NAME["fma"])
    two = install(tmp_path, skylake_avx512, haswell)
    assert two.ask(under=("qemu-x86_64", "-cpu", "Haswell")).loaded == "haswell"
    older = two.ask(under=("qemu-x86_64", "-cpu", "SandyBridge"))
    assert older.loaded == ""
    assert older.reason == (
        "skylake_avx512 needs avx2, avx512f, which this CPU lacks;"
        " haswell needs avx2, fma, which this CPU lacks"
    )
