from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tfbuild.binaries.elf import (
    demangle,
    find_function,
    find_shared_objects,
    list_exported,
    list_needed,
    list_undefined,
    read_code,
    read_isa_level,
    read_version_floors,
)
from tfcore.errors import WheelError

pytestmark = pytest.mark.toolchain

STOCK = """
#include <string>
namespace tensorflow {
template <typename T> struct Holder { static T state; static const T table[2]; };
template <typename T> T Holder<T>::state = 7;
template <typename T> const T Holder<T>::table[2] = {1, 2};
inline int& Counter() { static int count = std::string("x").size(); return count; }
int Lend(int x) { return x + Holder<int>::state + Holder<int>::table[0] + Counter(); }
int exported_only = 3;
}
"""
TUNED = """
#include <cmath>
#include <string>
namespace tensorflow {
template <typename T> struct Holder { static T state; static const T table[2]; };
template <typename T> T Holder<T>::state = 7;
template <typename T> const T Holder<T>::table[2] = {1, 2};
inline int& Counter() { static int count = std::string("x").size(); return count; }
int Lend(int x);
static int own_state = 1;
}
extern "C" __attribute__((visibility("default"))) double kernel(double x) {
  tensorflow::own_state++;
  return std::exp(x) + tensorflow::Holder<int>::state + tensorflow::Holder<int>::table[1] +
         tensorflow::Counter() + tensorflow::Lend(tensorflow::own_state);
}
"""
COMPILERS = {"g++": ("g++", "-fno-gnu-unique"), "clang-16": ("clang++-16",)}


def library(folder: Path, name: str, text: str, *options: str, compiler: str = "g++") -> Path:
    source, path = folder / f"{name}.cc", folder / f"lib{name}.so"
    source.write_text(text)
    words = [*COMPILERS[compiler], "-shared", "-fPIC", "-O1", str(source), "-o", str(path)]
    subprocess.run([*words, *options], check=True)
    return path


@pytest.fixture(params=COMPILERS, name="pair", scope="module")
def pair_of_libraries(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """A stock library with versioned symbols, and one of kernels that is linked against it."""
    folder = tmp_path_factory.mktemp("pair")
    (folder / "map").write_text("tensorflow { global: *; };\n")
    version = f"-Wl,--version-script={folder / 'map'}"
    stock = library(folder, "stock", STOCK, version, compiler=request.param)
    tuned = library(
        folder,
        "tuned",
        TUNED,
        *("-fvisibility=hidden", "-Wl,-Bsymbolic", "-Wl,--no-undefined", str(stock)),
        compiler=request.param,
    )
    return stock, tuned


def test_what_is_taken_is_named_without_the_runtimes(pair: tuple[Path, Path]) -> None:
    taken = list_undefined(pair[1])
    assert "tensorflow::Lend(int)" in taken
    assert not [name for name in taken if "exp" in name or "std::" in name or "@" in name]


def test_state_that_both_libraries_hold_is_found(pair: tuple[Path, Path]) -> None:
    stock, tuned = pair
    shared = set(find_shared_objects(tuned, list_exported(stock)))
    assert shared == {
        "tensorflow::Holder<int>::state",
        "tensorflow::Counter()::count",
        "guard variable for tensorflow::Counter()::count",
    }


def test_only_data_counts_as_exported(pair: tuple[Path, Path]) -> None:
    names = demangle(sorted(list_exported(pair[0])))
    assert "tensorflow::exported_only" in names
    assert "tensorflow::Lend(int)" not in names


def test_a_library_without_a_symbol_table_is_refused(tmp_path: Path) -> None:
    stripped = library(tmp_path, "x", STOCK, "-s")
    with pytest.raises(WheelError, match=r"libx\.so: .*symbol table"):
        find_shared_objects(stripped, frozenset())


def test_constants_that_need_relocation_are_no_state(tmp_path: Path) -> None:
    text = 'extern "C" { extern const char* const names[]; const char* const names[] = {"a", "b"};}'
    path = library(tmp_path, "x", text)
    assert find_shared_objects(path, frozenset({"names"})) == ()
    variable = library(tmp_path, "y", 'extern "C" { const char* names[] = {"a", "b"}; }')
    assert find_shared_objects(variable, frozenset({"names"})) == ("names",)


def test_state_per_thread_is_state(tmp_path: Path) -> None:
    path = library(tmp_path, "x", 'extern "C" { thread_local int mine = 3; }')
    assert find_shared_objects(path, frozenset({"mine"})) == ("mine",)


def test_floors_are_the_newest_version_of_each_family(tmp_path: Path) -> None:
    text = """
    #include <cstring>
    extern "C" void* memcpy_new(void*, const void*, size_t);
    __asm__(".symver memcpy_new,memcpy@GLIBC_2.14");
    extern "C" void* copy(void* a, const void* b) { return memcpy_new(a, b, 99); }
    """
    version_floors = read_version_floors(library(tmp_path, "x", text, "-nostartfiles"))
    assert version_floors == {"GLIBC": "2.14"}
    text = "#include <string>\nstd::string f(int n) { return std::to_string(n) + 'x'; }"
    version_floors = read_version_floors(library(tmp_path, "y", text))
    assert {"GLIBC", "GLIBCXX", "CXXABI"} <= set(version_floors)


def test_versions_are_compared_as_numbers(tmp_path: Path) -> None:
    text = """
    extern "C" int old_one(); extern "C" int new_one();
    extern "C" int f() { return old_one() + new_one(); }
    """
    (tmp_path / "map").write_text("GLIBC_2.9 { old_one; };\nGLIBC_2.14 { new_one; };\n")
    source = 'extern "C" { int old_one() { return 1; } int new_one() { return 2; } }'
    lender = library(tmp_path, "lender", source, f"-Wl,--version-script={tmp_path / 'map'}")
    taker = library(tmp_path, "taker", text, "-nostdlib", str(lender))
    assert read_version_floors(taker) == {"GLIBC": "2.14"}


def test_a_library_that_needs_nothing_has_no_floor(tmp_path: Path) -> None:
    text = 'extern "C" int f() { return 1; }'
    path = library(tmp_path, "x", text, "-nostdlib")
    assert read_version_floors(path) == {}
    assert list_undefined(path) == ()


@pytest.mark.parametrize("content", [b"", b"no ELF", b"\x7fELF\x02\x01\x01" + bytes(9)])
def test_what_is_no_library_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(content)
    with pytest.raises(WheelError, match=r"x\.so"):
        read_version_floors(path)
    with pytest.raises(WheelError, match=r"x\.so"):
        find_shared_objects(path, frozenset())


def test_a_library_cut_in_half_is_refused(tmp_path: Path) -> None:
    path = library(tmp_path, "x", STOCK)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(WheelError, match=r"libx\.so"):
        read_version_floors(path)
    with pytest.raises(WheelError, match=r"absent\.so"):
        read_version_floors(tmp_path / "absent.so")


def test_names_are_demangled_in_their_order() -> None:
    assert demangle(["_ZN10tensorflow4LendEi", "plain"]) == ("tensorflow::Lend(int)", "plain")
    assert demangle([]) == ()


def test_needed_libraries_are_named_in_their_order(tmp_path: Path) -> None:
    text = 'extern "C" int f() { return 1; }'
    assert list_needed(library(tmp_path, "x", text, "-nostdlib")) == ()
    beside = ("-Wl,--no-as-needed", f"-L{tmp_path}", "-l:libx.so")
    assert list_needed(library(tmp_path, "y", text, "-nostdlib", *beside)) == ("libx.so",)
    both = ("-nostdlib", *beside, "-lc")
    assert list_needed(library(tmp_path, "z", text, *both)) == ("libx.so", "libc.so.6")


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_the_level_that_a_library_is_marked_for_is_read(level: str, tmp_path: Path) -> None:
    path = library(tmp_path, "x", 'extern "C" int f() { return 1; }', f"-Wl,-z,{level}")
    assert read_isa_level(path) == level


def test_flags_alone_mark_nothing(tmp_path: Path) -> None:
    path = library(tmp_path, "x", 'extern "C" int f() { return 1; }', "-march=x86-64-v4")
    assert read_isa_level(path) == ""


def test_functions_begin_where_symbols_and_unwinding_say(tmp_path: Path) -> None:
    text = 'extern "C" { int f() { return 1; } static int g() { return 2; } int (*p)() = g; }'
    whole = read_code(library(tmp_path, "x", text, "-nostdlib"))
    assert whole.machine == "x86_64"
    assert [section.name for section in whole.sections] == [".text"]
    assert len(whole.starts) == 2
    flags = ("-nostdlib", "-s", "-fvisibility=hidden")
    assert read_code(library(tmp_path, "y", text, *flags)).starts == whole.starts
    silent = (*flags, "-fno-exceptions", "-fno-asynchronous-unwind-tables")
    bare = read_code(library(tmp_path, "z", text, *silent))
    assert bare.starts == ()


def test_an_address_between_functions_is_in_none(tmp_path: Path) -> None:
    text = 'extern "C" { int f() { return 1; } }\nint g(int x) { return x; }'
    path = library(tmp_path, "x", text, "-nostdlib", "-falign-functions=64")
    (section,) = read_code(path).sections
    assert find_function(path, section.address) == "f"
    assert find_function(path, section.address + 60) == ""
    assert find_function(path, section.address + 64) == "g(int)"
