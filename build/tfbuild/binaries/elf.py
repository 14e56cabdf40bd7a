"""Read the imports, exports, requirements and code sections of a shared library."""

from __future__ import annotations

import bisect
import contextlib
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.construct.core import ConstructError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from elftools.elf.sections import NoteSection

from tfcore.errors import WheelError
from tfcore.run import run

_RUNTIME = ("GLIBC_", "GLIBCXX_", "CXXABI_", "GCC_")
_VERSION = re.compile(r"^(GLIBC|GLIBCXX|CXXABI|GCC)_(\d+(?:\.\d+)*)$")
_MACHINES = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}
_ALLOCATED, _EXECUTABLE = 0x2, 0x4  # sh_flags
_UNDEFINED = 0  # st_shndx
_ALIASES = 8
_OBJECT, _FUNCTION, _INDIRECT = 1, 2, 10  # the type in st_info
# Written by linkers: version 1, PC-relative 4-byte pointers, a table relative to .eh_frame_hdr.
_UNWIND_TABLE = b"\x01\x1b\x03\x3b"
SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym
RELOCATION = struct.Struct("<QIIq")  # Elf64_Rela: offset, type, symbol, addend
RELATIVE = frozenset({8, 1027})  # R_X86_64_RELATIVE, R_AARCH64_RELATIVE
WORD = 8  # bytes of a pointer
_ROW = struct.Struct("<8xQ")  # row of a number table: a relocated pointer, a number
_ENTRY = struct.Struct("<ii")  # row of .eh_frame_hdr's table: offsets of function, unwind data
_LEVELS = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")  # bits of GNU_PROPERTY_X86_ISA_1


# Exceptions of pyelftools for a file that is not ELF or is truncated.
_TRUNCATED = (
    *(ELFError, ConstructError, struct.error, OSError, ValueError, AttributeError, KeyError),
    *(ArithmeticError, IndexError, TypeError, AssertionError),
    MemoryError,  # a size far beyond the end of the file
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Symbol:
    """A symbol as shown by nm: `kind` is nm's letter, `name` is demangled."""

    kind: str
    name: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CodeSection:
    """An executable section of a library: `offset` is in the file, `address` where it is loaded."""

    name: str
    offset: int
    size: int
    address: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Code:
    """The executable sections of a library for `machine`, and the starts of its functions.

    `starts` are sorted offsets in the file, each inside a section.
    """

    machine: str
    sections: tuple[CodeSection, ...]
    starts: tuple[int, ...]

    def find_section(self, offset: int) -> CodeSection:
        """Return the section that holds a byte of the code."""
        return next(
            section for section in self.sections if 0 <= offset - section.offset < section.size
        )


@contextlib.contextmanager
def open_library(path: Path) -> Iterator[ELFFile]:
    """Open a library for reading.

    Raises WheelError if the file is not a complete ELF library.
    """
    try:
        with path.open("rb") as file:
            yield ELFFile(file)
    except _TRUNCATED as error:
        reason = str(error) or type(error).__name__
        raise WheelError(f"{path.name} is not a complete ELF library ({reason})") from error


def read_version_floors(path: Path) -> dict[str, str]:
    """Return the newest version of each runtime family that the library requires, such as
    {"GLIBC": "2.14", "GLIBCXX": "3.4.19"}: the oldest machine that can load it.
    """
    newest: dict[str, tuple[int, ...]] = {}
    with open_library(path) as elf:
        for section in elf.iter_sections():
            if not isinstance(section, GNUVerNeedSection):
                continue
            for _, versions in section.iter_versions():
                for version in versions:
                    matched = _VERSION.match(version.name)
                    if matched:
                        parts = tuple(int(part) for part in matched[2].split("."))
                        newest[matched[1]] = max(newest.get(matched[1], ()), parts)
    return {family: ".".join(map(str, parts)) for family, parts in sorted(newest.items())}


def list_undefined(path: Path) -> tuple[str, ...]:
    """List the demangled names that the library imports, without those of the C and C++ runtime
    (recognised by their versions).
    """
    symbols = _run_nm(path, "--dynamic", "--undefined-only", "--demangle")
    names = (symbol.name.partition("@") for symbol in symbols)
    return tuple(name for name, _, version in names if not version.startswith(_RUNTIME))


def find_shared_objects(path: Path, exports: frozenset[str]) -> tuple[str, ...]:
    """Return the library's writable objects, demangled, that the stock libraries export too.

    Raises WheelError if there is no symbol table.
    """
    with open_library(path) as elf:
        table = elf.get_section_by_name(".symtab")
        if table is None:
            raise WheelError(f"cannot find shared state in {path.name}: it has no symbol table")
        writable = {
            index
            for index, section in enumerate(elf.iter_sections())
            if section["sh_flags"] & 0x1 and not section.name.startswith(".data.rel.ro")
        }
        names = {
            symbol.name
            for symbol in table.iter_symbols()
            if symbol["st_info"]["type"] in {"STT_OBJECT", "STT_TLS"}
            and symbol["st_shndx"] in writable
        }
    return demangle(sorted(names & exports))


def list_exported(path: Path) -> frozenset[str]:
    """List the mangled names that a library exports as data."""
    symbols = _run_nm(path, "--dynamic", "--defined-only")
    return frozenset(s.name.partition("@")[0] for s in symbols if s.kind in "BDVu")


def list_needed(path: Path) -> tuple[str, ...]:
    """List the libraries that loading this one requires (DT_NEEDED)."""
    with open_library(path) as elf:
        return tuple(
            tag.needed
            for section in elf.iter_sections()
            if isinstance(section, DynamicSection)
            for tag in section.iter_tags("DT_NEEDED")
        )


def read_isa_level(path: Path) -> str:
    """Return the x86-64 level that the library is marked to need; empty without a mark.

    An example is x86-64-v3. The mark is GNU_PROPERTY_X86_ISA_1_NEEDED (psABI supplement for
    x86-64), which compilers write only on request: its absence proves nothing.
    """
    with open_library(path) as elf:
        bits = [
            prop.pr_data
            for section in elf.iter_sections()
            if isinstance(section, NoteSection)
            for note in section.iter_notes()
            if note["n_type"] == "NT_GNU_PROPERTY_TYPE_0"
            for prop in note["n_desc"]
            if prop.pr_type == "GNU_PROPERTY_X86_ISA_1_NEEDED"
        ]
    highest = max((bit.bit_length() for bit in bits if isinstance(bit, int)), default=0)
    return (*_LEVELS, "an unknown level")[min(highest - 1, len(_LEVELS))] if highest else ""


def read_code(path: Path) -> Code:
    """Return the executable sections and function starts of a library.

    Function starts come from the unwind table (.eh_frame_hdr), which a stripped library has,
    too, and from function symbols.

    Raises WheelError if the library cannot be analysed.
    """
    with open_library(path) as elf:
        machine = read_machine(elf, path)
        if not elf.num_sections():
            raise WheelError(f"cannot find the code of {path.name}: it has no section headers")
        sections = tuple(sorted(_find_code_sections(elf), key=lambda section: section.offset))
        addresses = {*_read_unwind_table(elf), *(address for address, _, _ in _read_functions(elf))}
    return Code(machine=machine, sections=sections, starts=_convert_to_offsets(sections, addresses))


def read_machine(elf: ELFFile, path: Path) -> str:
    """Return the library's machine.

    Raises WheelError if it is not x86_64 or aarch64.
    """
    machine = _MACHINES.get(elf["e_machine"])
    if machine is None or not elf.little_endian or elf.elfclass != 64:  # noqa: PLR2004  (bits)
        raise WheelError(f"{path.name} is for {elf['e_machine']}, not x86_64 or aarch64")
    return machine


def find_function(path: Path, address: int) -> str:
    """Return the demangled name of the function that holds an address; empty without a symbol."""
    with open_library(path) as elf:
        for start, size, name in _read_functions(elf):
            if start <= address < start + size:
                strings = elf.get_section(_find_symbol_table(elf)["sh_link"])
                return demangle([strings.get_string(name)])[0]
    return ""


def find_symbols(path: Path, addresses: Iterable[int]) -> dict[int, str]:
    """Return the mangled name of the function that holds each address; empty without a symbol."""
    with open_library(path) as elf:
        functions = sorted(_read_functions(elf))
        strings = _read_symbol_names(elf)
    begins = [begin for begin, _, _ in functions]
    names = dict.fromkeys(addresses, "")
    for address in names:
        # Aliases share an address, and one may have no size: try several.
        last = bisect.bisect_right(begins, address)
        for begin, size, name in reversed(functions[max(0, last - _ALIASES) : last]):
            if address < begin + size or address == begin:
                names[address] = _decode_text(strings, name)
                break
    return names


def read_texts(path: Path, name: re.Pattern[str], count: int) -> tuple[tuple[str, ...], ...]:
    """Return the C strings that objects point to, sorted; `name` matches their mangled names.

    The first `count` pointers of each object are read. The library is not run.

    Raises WheelError for a library without symbols, or whose pointers point elsewhere.
    """
    with open_library(path) as elf:
        table = elf.get_section_by_name(".symtab")
        if table is None:
            raise WheelError(f"cannot find {name.pattern} in {path.name}: it has no symbol table")
        names = _read_symbol_names(elf)
        objects = [
            address
            for begin, info, _, section, address, _ in SYMBOL.iter_unpack(_read_section(elf, table))
            if info & 0xF == _OBJECT
            and section != _UNDEFINED
            and name.search(_decode_text(names, begin))
        ]
        pointers = dict(_read_pointers(elf))
        targets = [[pointers[at + WORD * word] for word in range(count)] for at in objects]
        return tuple(sorted(tuple(_read_text(elf, target) for target in row) for row in targets))


def find_text_pairs(path: Path) -> frozenset[tuple[str, str]]:
    """Return the C strings of all pairs of adjacent pointers, as in a table of pairs.

    No symbol is needed, and the library is not run.
    """
    with open_library(path) as elf:
        pointers = dict(_read_pointers(elf))
        return frozenset(
            (_read_text(elf, first), _read_text(elf, pointers[place + WORD]))
            for place, first in pointers.items()
            if place + WORD in pointers
            and _is_text_address(elf, first)
            and _is_text_address(elf, pointers[place + WORD])
        )


def read_constants(path: Path) -> tuple[bytes, tuple[tuple[int, int | str], ...]]:
    """Return the bytes of the constants with pointers (.data.rel.ro), and for each pointer its
    offset and its target: an offset in the same constants, or a C string.
    """
    with open_library(path) as elf:
        section = elf.get_section_by_name(".data.rel.ro")
        data = bytearray(_read_section(elf, section))
        begin = section["sh_addr"] if section else 0
        addresses = range(begin, begin + len(data))
        rows: list[tuple[int, int | str]] = []
        for place, target in sorted(_read_pointers(elf)):
            if place in addresses:
                at = place - begin
                data[at : at + WORD] = bytes(WORD)
                rows.append(
                    (at, target - begin if target in addresses else _read_text(elf, target))
                )
        return bytes(data), tuple(rows)


def read_producers(path: Path) -> tuple[str, ...]:
    """Return the compilers that .comment records: version and package of the compiler of each
    object, including the objects of the C library.
    """
    with open_library(path) as elf:
        texts = _read_section(elf, elf.get_section_by_name(".comment")).split(b"\0")
    return tuple(sorted({text.decode(errors="replace") for text in texts if text}))


def find_section(path: Path, offset: int) -> str:
    """Return the name of the section that holds a byte of the file; empty if none does."""
    with open_library(path) as elf:
        for section in elf.iter_sections():
            begin = section["sh_offset"]
            if section["sh_type"] != "SHT_NOBITS" and begin <= offset < begin + section["sh_size"]:
                return str(section.name)
    return ""


def read_number_table(path: Path, name: str) -> dict[str, int]:
    """Return the rows of a table by name, each a pointer to a C string and an 8-byte number.

    The library is not run.

    Raises WheelError if there is no such table.
    """
    with open_library(path) as elf:
        names, symbols = _read_symbol_names(elf), _read_section(elf, _find_symbol_table(elf))
        for begin, info, _, _, address, size in SYMBOL.iter_unpack(symbols):
            if info & 0xF == _OBJECT and _decode_text(names, begin) == name:
                pointers = dict(_read_pointers(elf))
                data, first = _read_section_at(elf, address)
                return {
                    _read_text(elf, pointers[address + offset]): _ROW.unpack_from(
                        data, first + offset
                    )[0]
                    for offset in range(0, size, _ROW.size)
                }
    raise WheelError(f"{path.name} has no table {name}")


def _read_pointers(elf: ELFFile) -> Iterator[tuple[int, int]]:
    """Yield each location where the loader writes an address of the library, and that address."""
    data = _read_section(elf, elf.get_section_by_name(".rela.dyn"))
    for place, kind, _, addend in RELOCATION.iter_unpack(data):
        if kind in RELATIVE:
            yield place, addend


def _read_text(elf: ELFFile, address: int) -> str:
    """Return the C string at an address."""
    return _decode_text(*_read_section_at(elf, address))


def _is_text_address(elf: ELFFile, address: int) -> bool:
    """Return whether an address is in .rodata: constants without pointers, such as C strings."""
    section = elf.get_section_by_name(".rodata")
    return section is not None and 0 <= address - section["sh_addr"] < section["sh_size"]


def _read_section_at(elf: ELFFile, address: int) -> tuple[bytes, int]:
    """Return the bytes of the section that holds an address, and the address's offset in them.

    Raises ELFError if no section does.
    """
    for section in elf.iter_sections():
        begin = section["sh_addr"]
        if section["sh_flags"] & _ALLOCATED and begin <= address < begin + section["sh_size"]:
            return _read_section(elf, section), address - begin
    raise ELFError(f"no section holds the address {address:#x}")


def _decode_text(data: bytes, begin: int) -> str:
    return data[begin : data.index(b"\0", begin)].decode()


def _read_symbol_names(elf: ELFFile) -> bytes:
    """Return the string table of _read_functions; empty if there are no symbols."""
    symbols = _find_symbol_table(elf)
    return b"" if symbols is None else _read_section(elf, elf.get_section(symbols["sh_link"]))


def _find_code_sections(elf: ELFFile) -> Iterator[CodeSection]:
    for section in elf.iter_sections():
        flags = section["sh_flags"]
        if (
            section["sh_type"] != "SHT_PROGBITS"
            or not flags & _EXECUTABLE
            or not flags & _ALLOCATED
        ):
            continue
        _check_complete(elf, section)
        yield CodeSection(
            name=section.name,
            offset=section["sh_offset"],
            size=section["sh_size"],
            address=section["sh_addr"],
        )


def _read_unwind_table(elf: ELFFile) -> Iterator[int]:
    """Yield the addresses of functions in the unwinder's search table (LSB Core, .eh_frame_hdr)."""
    header = elf.get_section_by_name(".eh_frame_hdr")
    data = _read_section(elf, header)
    if not data.startswith(_UNWIND_TABLE):
        return
    (count,) = struct.unpack_from("<I", data, 8)
    for start, _ in _ENTRY.iter_unpack(data[12 : 12 + count * _ENTRY.size]):
        yield header["sh_addr"] + start


def _read_functions(elf: ELFFile) -> Iterator[tuple[int, int, int]]:
    """Yield each function's address, size, and name as an offset in the string table.

    A large library has a million symbols: too many for pyelftools' own objects.
    """
    for name, info, _, section, address, size in SYMBOL.iter_unpack(
        _read_section(elf, _find_symbol_table(elf))
    ):
        if info & 0xF in (_FUNCTION, _INDIRECT) and section != _UNDEFINED:
            yield address, size, name


def _find_symbol_table(elf: ELFFile) -> Any:  # noqa: ANN401  (pyelftools has no types)
    """Return the full symbol table, the dynamic one of a stripped library, or None."""
    return elf.get_section_by_name(".symtab") or elf.get_section_by_name(".dynsym")


def _read_section(elf: ELFFile, section: Any) -> bytes:  # noqa: ANN401
    """Return the bytes of a section; empty if there is no section."""
    if section is None:
        return b""
    _check_complete(elf, section)
    elf.stream.seek(section["sh_offset"])
    data: bytes = elf.stream.read(section["sh_size"])
    return data


def _check_complete(elf: ELFFile, section: Any) -> None:  # noqa: ANN401
    if section["sh_offset"] + section["sh_size"] > elf.stream_len:
        raise ELFError(f"{section.name} extends beyond the end of the file")


def _convert_to_offsets(sections: tuple[CodeSection, ...], addresses: set[int]) -> tuple[int, ...]:
    """Return the addresses that are in a section, as sorted offsets in the file."""
    ordered = sorted(addresses)
    offsets: list[int] = []
    for section in sections:
        first = bisect.bisect_left(ordered, section.address)
        last = bisect.bisect_left(ordered, section.address + section.size)
        offsets += [address - section.address + section.offset for address in ordered[first:last]]
    return tuple(sorted(offsets))


def demangle(names: list[str]) -> tuple[str, ...]:
    if not names:
        return ()
    return tuple(run(["c++filt", *names]).output.splitlines())


def _run_nm(path: Path, *options: str) -> Iterator[Symbol]:
    for line in run(["nm", *options, path]).output.splitlines():
        matched = re.match(r"^(?:[0-9a-f]+)? *(\w) (.*)$", line)
        if matched:
            yield Symbol(kind=matched[1], name=matched[2])
