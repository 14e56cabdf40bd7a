from __future__ import annotations

import itertools
import os
import signal
import struct
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.compiled_code import KERNEL, QUICK, VNNI, library
from tests.builders.later import later

from tfbuild.auditing.libraries import inspect_library
from tfbuild.binaries import elf
from tfbuild.binaries.census import (
    count_by_function,
    count_instructions,
    count_piece,
    find_uses,
    split_code,
)
from tfcore.cpus.features import load_features
from tfcore.cpus.targets import parse_target
from tfcore.errors import CommandError, WheelError
from tfcore.settings import ROOT

pytestmark = pytest.mark.toolchain

COMPILERS = ("clang-16", "gcc")
# -march, the target that it stands for, and what KERNEL must show of it.
MARCHES: tuple[tuple[str, str, set[str]], ...] = (
    ("x86-64", "x86_64", set()),
    ("x86-64-v2", "x86_64_v2", {"popcnt"}),
    ("sandybridge", "sandybridge", {"popcnt", "avx"}),
    ("haswell", "haswell", {"popcnt", "avx", "fma", "abm"}),
    ("skylake-avx512", "skylake_avx512", {"popcnt", "avx", "avx512f", "abm"}),
    ("znver4", "zen4", {"popcnt", "avx", "avx512f", "abm"}),
)


@pytest.mark.parametrize(
    ("compiler", "march", "target", "expected"),
    [
        (compiler, *row)
        for compiler in COMPILERS
        for row in MARCHES
        if (compiler, row[0]) != ("gcc", "znver4")  # (after gcc 12.2)
    ],
)
def test_a_library_shows_the_features_of_its_flags(
    compiler: str, march: str, target: str, expected: set[str], tmp_path: Path
) -> None:
    flags = (*QUICK, f"-march={march}", "-mprefer-vector-width=512")
    count = count_instructions(library(tmp_path, "x", KERNEL, *flags, compiler=compiler))
    assert next(iter(count)) == "x86_64"
    assert expected <= count.keys() <= parse_target(target).features | {"x86_64"}
    assert all(number > 0 for number in count.values())


@pytest.mark.parametrize("compiler", COMPILERS)
def test_baseline_code_that_finds_bits_shows_no_bmi1(compiler: str, tmp_path: Path) -> None:
    """Both write `rep bsf`, which is what tzcnt looks like."""
    text = "int f(unsigned x) { return __builtin_ctz(x); }"
    path = library(tmp_path, "x", text, *QUICK, compiler=compiler)
    assert [*count_instructions(path)] == ["x86_64"]
    text = "int f(unsigned x, unsigned y) { return ~x & y; }"
    path = library(tmp_path, "y", text, *QUICK, "-mbmi", compiler=compiler)
    assert "bmi1" in count_instructions(path)


@pytest.mark.parametrize("stripped", [False, True])
def test_one_hidden_instruction_is_found_and_named(stripped: bool, tmp_path: Path) -> None:
    hidden = ("-s", "-fvisibility=hidden") if stripped else ()
    path = library(tmp_path, "x", KERNEL + VNNI, *QUICK, "-march=haswell", *hidden)
    assert count_instructions(path)["avx512_vnni"] == 1
    (use,) = find_uses(path, {"avx512_vnni", "amx_tile"}, 3)
    assert use.feature == "avx512_vnni"
    assert use.instruction == "vpdpbusd zmm0,zmm1,zmm2"
    assert use.place.startswith(".text+0x")
    assert use.function == ("" if stripped else "smuggled")
    assert ("smuggled" in str(use)) is not stripped


def test_a_place_is_where_objdump_shows_it(tmp_path: Path) -> None:
    path = library(tmp_path, "x", KERNEL + VNNI, *QUICK)
    shown = subprocess.run(["objdump", "-d", path], check=True, capture_output=True, text=True)
    line = next(text_line for text_line in shown.stdout.splitlines() if "vpdpbusd" in text_line)
    (text,) = (section for section in elf.read_code(path).sections if section.name == ".text")
    (use,) = find_uses(path, {"avx512_vnni"}, 1)
    assert use.place == f".text+{int(line.split(':')[0], 16) - text.address:#x}"


def test_only_the_first_few_functions_are_named(tmp_path: Path) -> None:
    text = "".join(VNNI.replace("smuggled", f"smuggled{i}") for i in range(5))
    path = library(tmp_path, "x", text, *QUICK)
    assert [use.function for use in find_uses(path, {"avx512_vnni"}, 3)] == [
        f"smuggled{i}" for i in range(3)
    ]
    assert find_uses(path, {"amx_tile"}, 3) == ()


def test_names_of_functions_are_demangled(tmp_path: Path) -> None:
    text = f"namespace kernels {{ {VNNI} }}"
    path = library(tmp_path, "x", text, *QUICK, compiler="g++", kind="cc")
    (use,) = find_uses(path, {"avx512_vnni"}, 1)
    assert use.function == "kernels::smuggled()"


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_a_stripped_library_has_the_same_census(machine: str, tmp_path: Path) -> None:
    cross = {"x86_64": "gcc", "aarch64": "aarch64-linux-gnu-gcc"}[machine]
    whole = library(tmp_path, "x", KERNEL, *QUICK, compiler=cross)
    bare = library(tmp_path, "y", KERNEL, *QUICK, "-s", compiler=cross)
    assert count_instructions(whole) == count_instructions(bare)
    assert {machine} <= count_instructions(bare).keys()


def test_data_among_the_code_spoils_no_function_behind_it(tmp_path: Path) -> None:
    """The bytes are a prefix that would swallow the beginning of `f`."""
    function = ".globl f\n.type f, @function\nf: vpdpbusd %zmm2, %zmm1, %zmm0\nret\n.size f, .-f\n"
    alone = library(tmp_path, "x", f".text\n{function}", "-nostdlib", kind="s")
    behind = library(tmp_path, "y", f".text\n.byte 0x62, 0xf1\n{function}", "-nostdlib", kind="s")
    assert dict(count_instructions(alone)) == {"x86_64": 1, "avx512_vnni": 1}
    assert dict(count_instructions(behind)) == {"x86_64": 1, "avx512_vnni": 1, "undecoded": 1}


@pytest.mark.parametrize("compiler", ["aarch64-linux-gnu-gcc", "clang-16"])
@pytest.mark.parametrize(
    ("march", "expected"),
    [
        ("armv8-a", set()),
        ("armv8.2-a+fp16", {"atomics", "asimdhp"}),
        ("armv8.2-a+sve", {"atomics", "sve"}),
    ],
)
def test_an_aarch64_library_shows_the_features_of_its_flags(
    compiler: str, march: str, expected: set[str], tmp_path: Path
) -> None:
    text = (
        f"{KERNEL}\n#ifdef __ARM_FEATURE_FP16_VECTOR_ARITHMETIC\n"
        "void half(__fp16* restrict a, const __fp16* b) {\n"
        "  for (int i = 0; i < 4096; i++) a[i] += b[i];\n}\n#endif\n"
        "int add(int* x) { return __atomic_fetch_add(x, 1, __ATOMIC_RELAXED); }"
    )
    cross = ("--target=aarch64-linux-gnu", "-fuse-ld=bfd") if compiler == "clang-16" else ()
    flags = (*QUICK, f"-march={march}", "-mno-outline-atomics", *cross)
    count = count_instructions(library(tmp_path, "x", text, *flags, compiler=compiler))
    assert next(iter(count)) == "aarch64"
    assert expected <= count.keys() <= expected | {"aarch64", "fphp"}


def test_names_come_in_the_tables_order(tmp_path: Path) -> None:
    text = 'void f(void) { __asm__ volatile("xend\\n rdtscp\\n .byte 6\\n tzcnt %eax, %eax"); }'
    actual = [*count_instructions(library(tmp_path, "x", text + KERNEL, *QUICK, "-march=haswell"))]
    ours = [name for name in load_features("x86_64") if name in actual]
    assert actual == ["x86_64", *ours, "rdtscp", "rtm", "undecoded"]


@pytest.fixture(scope="module", params=["x86_64", "aarch64"], name="many")
def many_functions(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    cross = {"x86_64": "gcc", "aarch64": "aarch64-linux-gnu-gcc"}[request.param]
    march = {"x86_64": "skylake-avx512", "aarch64": "armv8.2-a+sve"}[request.param]
    text = "".join(
        KERNEL.replace("(", f"{i}(", 1)
        .replace(" kernel", f" kernel{i}")
        .replace(" bits", f" bits{i}")
        .replace("hidden(a", f"hidden{i}(a")
        for i in range(40)
    )
    folder = tmp_path_factory.mktemp("many")
    return library(folder, "x", text, "-O3", f"-march={march}", compiler=cross)


@given(size=st.integers(1, 1 << 13))
def test_pieces_have_together_the_census_of_the_whole(size: int, many: Path) -> None:
    code = elf.read_code(many)
    parts = split_code(many, code, size)
    assert sum(map(count_piece, parts), Counter()) == Counter(count_instructions(many))
    covered = [(part.offset, part.offset + part.size) for part in parts]
    assert sum(end - begin for begin, end in covered) == sum(s.size for s in code.sections)
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(covered))


def test_empty_code_has_an_empty_census(tmp_path: Path) -> None:
    path = library(tmp_path, "x", "int only_data = 3;", "-nostdlib")
    assert count_instructions(path) == {}
    assert find_uses(path, {"avx"}, 3) == ()


def test_a_library_cut_anywhere_is_refused(tmp_path: Path) -> None:
    whole = library(tmp_path, "x", KERNEL, *QUICK).read_bytes()
    path = tmp_path / "cut.so"
    for size in (0, 3, 16, 63, 64, 65, *range(100, len(whole), 97), len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(WheelError, match=r"cut\.so"):
            count_instructions(path)


@given(changes=st.lists(st.tuples(st.integers(-2500, 600), st.integers(0, 255)), min_size=1))
def test_a_library_with_damaged_headers_is_refused_or_counted(
    changes: list[tuple[int, int]], many: Path
) -> None:
    damaged = bytearray(many.read_bytes())
    for place, byte in changes:
        damaged[place] = byte
    path = many.with_name("damaged.so")
    path.write_bytes(damaged)
    try:
        inspect_library(path)
    except WheelError as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017  (either is right)


def test_code_that_no_section_names_is_refused(tmp_path: Path) -> None:
    path = library(tmp_path, "x", KERNEL, *QUICK)
    bare = bytearray(path.read_bytes())
    bare[0x28:0x30] = bytes(8)  # e_shoff
    bare[0x3A:0x40] = bytes(6)  # e_shentsize, e_shnum, e_shstrndx
    path.write_bytes(bare)
    with pytest.raises(WheelError, match="no section headers"):
        count_instructions(path)


def test_another_machines_library_is_refused(tmp_path: Path) -> None:
    path = library(tmp_path, "x", KERNEL, *QUICK)
    foreign = bytearray(path.read_bytes())
    foreign[0x12:0x14] = struct.pack("<H", 243)
    path.write_bytes(foreign)
    with pytest.raises(WheelError, match="EM_RISCV"):
        count_instructions(path)


# ---- several processes ----

NOPS = 600_000  # of 8 bytes, in each function
LARGE = ".text\n" + "".join(
    f".type f{i}, @function\nf{i}: .fill {NOPS}, 8, 0x841f0f\nret\n.size f{i}, .-f{i}\n"
    for i in range(6)
)
CHILD = """
import sys
from pathlib import Path
from tfbuild.binaries.census import count_instructions
if __name__ == "__main__":
    try:
        print(dict(count_instructions(Path(sys.argv[1]))))
    except KeyboardInterrupt:
        print("stopped")
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return library(tmp_path_factory.mktemp("large"), "x", LARGE, "-nostdlib", kind="s")


def test_processes_count_what_one_does(large: Path) -> None:
    parts = split_code(large, elf.read_code(large))
    assert len(parts) == 6
    assert (
        count_instructions(large)
        == sum(map(count_piece, parts), Counter())
        == {"x86_64": 6 * NOPS + 6}
    )


@pytest.fixture
def child(large: Path, tmp_path: Path) -> subprocess.Popen[str]:
    """A census in a process group of its own that has just started its processes."""
    (tmp_path / "main.py").write_text(CHILD)
    running = subprocess.Popen(
        [sys.executable, tmp_path / "main.py", large],
        env=os.environ | {"PYTHONPATH": str(ROOT / "build")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    while len(children(running.pid)) < 2 and running.poll() is None:
        time.sleep(0.001)
    return running


def children(process: int) -> list[int]:
    listed = Path(f"/proc/{process}/task/{process}/children")
    return [int(word) for word in listed.read_text().split()] if listed.exists() else []


@pytest.mark.parametrize("delay", [0.2, *later(0.0, 0.05, 0.4)])
def test_ctrl_c_leaves_no_traceback_and_no_process(
    child: subprocess.Popen[str], delay: float
) -> None:
    time.sleep(delay)
    os.killpg(child.pid, signal.SIGINT)
    output, _ = child.communicate()
    assert output == "stopped\n"


def test_processes_end_with_the_one_that_started_them(child: subprocess.Popen[str]) -> None:
    """They hold its standard output: it ends only when they have."""
    child.kill()
    child.communicate()


def test_a_process_that_is_killed_is_an_error(large: Path, child: subprocess.Popen[str]) -> None:
    os.kill(children(child.pid)[-1], signal.SIGKILL)
    output, _ = child.communicate()
    assert output.splitlines()[-1].startswith(
        f"tfcore.errors.{CommandError.__name__}: a process that counts the instructions of x.so "
    )


@pytest.mark.toolchain
def test_strangers_are_all_that_the_census_has_beyond_what_is_allowed(tmp_path: Path) -> None:
    path = library(tmp_path, "mixed", KERNEL + VNNI, *QUICK, "-march=haswell")
    allowed = ("avx", "sse", "sse2")
    count = count_by_function(path, allowed)
    total: Counter[str] = Counter()
    for counts in count.values():
        total.update(counts)
    assert total == {
        n: k for n, k in count_instructions(path).items() if n not in {*allowed, "x86_64"}
    }
    assert count["smuggled"] == {"avx512_vnni": 1}
    assert "kernel" in count
