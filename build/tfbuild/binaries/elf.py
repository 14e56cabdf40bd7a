"""What a shared library takes from others and shares with them, and where its code is."""

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

from tfbuild.errors import WheelError
from tfbuild.run import run

_RUNTIME = ("GLIBC_", "GLIBCXX_", "CXXABI_", "GCC_")
_VERSION = re.compile(r"^(GLIBC|GLIBCXX|CXXABI|GCC)_(\d+(?:\.\d+)*)$")
_MACHINES = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}
_ALLOCATED, _EXECUTABLE = 0x2, 0x4  # sh_flags
_UNDEFINED = 0  # st_shndx
_ALIASES = 8
_OBJECT, _FUNCTION, _INDIRECT = 1, 2, 10  # the type in st_info
# What linkers write: version 1, offsets of 4 bytes from here, entries from .eh_frame_hdr's address.
_UNWIND_TABLE = b"\x01\x1b\x03\x3b"
_SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym
_RELOCATION = struct.Struct("<QIIq")  # Elf64_Rela: where, which type, of which symbol, addend
_RELATIVE = frozenset({8, 1027})  # R_X86_64_RELATIVE, R_AARCH64_RELATIVE
_WORD = 8  # bytes of a pointer
_ROW = struct.Struct("<8xQ")  # of a table of numbers: a pointer that the loader writes, a number
_ENTRY = struct.Struct("<ii")  # of .eh_frame_hdr's table: where a function and its unwinding are
_LEVELS = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")  # bits of GNU_PROPERTY_X86_ISA_1


# What pyelftools raises for bytes that are no ELF file, or not all of one.
_TRUNCATED = (
    *(ELFError, ConstructError, struct.error, OSError, ValueError, AttributeError, KeyError),
    *(ArithmeticError, IndexError, TypeError, AssertionError),
    MemoryError,  # a size that leads far beyond them
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Symbol:
    """A symbol as nm shows it: `kind` is nm's letter, `name` is demangled."""

    kind: str
    name: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CodeSection:
    """Executable bytes of a library: `offset` is in the file, `address` where they are loaded."""

    name: str
    offset: int
    size: int
    address: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Code:
    """The executable sections of a library for `machine`, and where functions begin in them.

    `starts` are sorted offsets in the file, each inside a section.
    """

    machine: str
    sections: tuple[CodeSection, ...]
    starts: tuple[int, ...]

    def section_at(self, offset: int) -> CodeSection:
        """The section that holds a byte of the code."""
        return next(each for each in self.sections if 0 <= offset - each.offset < each.size)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[ELFFile]:
    """A library to read from. Bytes that are none, or not all of one, become a WheelError."""
    try:
        with path.open("rb") as file:
            yield ELFFile(file)
    except _TRUNCATED as error:
        why = str(error) or type(error).__name__
        raise WheelError(f"{path.name} is not a whole ELF library ({why})") from error


def version_floors(path: Path) -> dict[str, str]:
    """The newest version of each runtime family that the library asks for, such as
    {"GLIBC": "2.14", "GLIBCXX": "3.4.19"}: the oldest machine that can load it.
    """
    newest: dict[str, tuple[int, ...]] = {}
    with opened(path) as elf:
        for section in elf.iter_sections():
            if not isinstance(section, GNUVerNeedSection):
                continue
            for _, versions in section.iter_versions():
                for version in versions:
                    found = _VERSION.match(version.name)
                    if found:
                        parts = tuple(int(part) for part in found[2].split("."))
                        newest[found[1]] = max(newest.get(found[1], ()), parts)
    return {family: ".".join(map(str, parts)) for family, parts in sorted(newest.items())}


def undefined(path: Path) -> tuple[str, ...]:
    """Demangled names that the library takes from others, without those of the C and C++ runtime
    (known by their versions)."""
    symbols = _nm(path, "--dynamic", "--undefined-only", "--demangle")
    names = (symbol.name.partition("@") for symbol in symbols)
    return tuple(name for name, _, version in names if not version.startswith(_RUNTIME))


def shared_objects(path: Path, exports: frozenset[str]) -> tuple[str, ...]:
    """Writable objects of the library, demangled, of which the stock libraries have one too."""
    with opened(path) as elf:
        table = elf.get_section_by_name(".symtab")
        if table is None:
            raise WheelError(f"{path.name} has no symbol table to look for shared state in")
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
    return demangled(sorted(names & exports))


def exported(path: Path) -> frozenset[str]:
    """Mangled names that a library exports as data."""
    found = _nm(path, "--dynamic", "--defined-only")
    return frozenset(s.name.partition("@")[0] for s in found if s.kind in "BDVu")


def needed(path: Path) -> tuple[str, ...]:
    """The libraries that must be there to load this one (DT_NEEDED)."""
    with opened(path) as elf:
        return tuple(
            tag.needed
            for section in elf.iter_sections()
            if isinstance(section, DynamicSection)
            for tag in section.iter_tags("DT_NEEDED")
        )


def isa_needed(path: Path) -> str:
    """The x86-64 level that the library is marked to need, such as x86-64-v3; empty without a mark.

    It is GNU_PROPERTY_X86_ISA_1_NEEDED (psABI supplement for x86-64), which compilers write only
    when asked: no mark says nothing.
    """
    with opened(path) as elf:
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


def code(path: Path) -> Code:
    """Where a library has its code. Raises WheelError for one that cannot be looked through.

    Functions begin where the unwind table (.eh_frame_hdr) says, which a stripped library has too,
    and where a symbol of a function is.
    """
    with opened(path) as elf:
        machine = machine_of(elf, path)
        if not elf.num_sections():
            raise WheelError(f"{path.name} has no section headers to find its code by")
        sections = tuple(sorted(_executable(elf), key=lambda section: section.offset))
        addresses = {*_unwound(elf), *(address for address, _, _ in _functions(elf))}
    return Code(machine=machine, sections=sections, starts=_starts(sections, addresses))


def machine_of(elf: ELFFile, path: Path) -> str:
    """Raises WheelError for a library of another machine than x86_64 and aarch64."""
    machine = _MACHINES.get(elf["e_machine"])
    if machine is None or not elf.little_endian or elf.elfclass != 64:  # noqa: PLR2004  (bits)
        raise WheelError(f"{path.name} is for {elf['e_machine']}, not x86_64 or aarch64")
    return machine


def function_at(path: Path, address: int) -> str:
    """The demangled name of the function that holds an address; empty where no symbol tells."""
    with opened(path) as elf:
        for start, size, name in _functions(elf):
            if start <= address < start + size:
                strings = elf.get_section(_symbols(elf)["sh_link"])
                return demangled([strings.get_string(name)])[0]
    return ""


def symbols_at(path: Path, addresses: Iterable[int]) -> dict[int, str]:
    """The mangled name of the function that holds each address; empty where no symbol tells."""
    with opened(path) as elf:
        functions = sorted(_functions(elf))
        strings = _strings(elf)
    begins = [begin for begin, _, _ in functions]
    found = dict.fromkeys(addresses, "")
    for address in found:
        # Aliases begin at the same place, one of them perhaps without a size: a few are looked at.
        last = bisect.bisect_right(begins, address)
        for begin, size, name in reversed(functions[max(0, last - _ALIASES) : last]):
            if address < begin + size or address == begin:
                found[address] = _text(strings, name)
                break
    return found


def texts_of(path: Path, name: re.Pattern[str], count: int) -> tuple[tuple[str, ...], ...]:
    """The texts that the first `count` pointers of each object with such a (mangled) name lead to,
    sorted. Nothing of the library is run.

    Raises WheelError for a library without symbols, or whose pointers lead elsewhere.
    """
    with opened(path) as elf:
        table = elf.get_section_by_name(".symtab")
        if table is None:
            raise WheelError(f"{path.name} has no symbol table to look for {name.pattern} in")
        names = _strings(elf)
        objects = [
            address
            for begin, info, _, section, address, _ in _SYMBOL.iter_unpack(_data(elf, table))
            if info & 0xF == _OBJECT and section != _UNDEFINED and name.search(_text(names, begin))
        ]
        lead = dict(_pointers(elf))
        places = [[lead[at + _WORD * word] for word in range(count)] for at in objects]
        return tuple(sorted(tuple(_text_at(elf, to) for to in each) for each in places))


def pairs_of(path: Path) -> frozenset[tuple[str, str]]:
    """The texts that any two pointers lead to of which the second stands behind the first, as in a
    table of pairs. No symbol is needed, and nothing of the library is run."""
    with opened(path) as elf:
        lead = dict(_pointers(elf))
        return frozenset(
            (_text_at(elf, first), _text_at(elf, lead[place + _WORD]))
            for place, first in lead.items()
            if place + _WORD in lead and _is_text(elf, first) and _is_text(elf, lead[place + _WORD])
        )


def constants_of(path: Path) -> tuple[bytes, tuple[tuple[int, int | str], ...]]:
    """The bytes of the constants with pointers among them (.data.rel.ro), and where these are and
    lead to: a place in the same constants, or a text."""
    with opened(path) as elf:
        section = elf.get_section_by_name(".data.rel.ro")
        data = bytearray(_data(elf, section))
        begin = section["sh_addr"] if section else 0
        held = range(begin, begin + len(data))
        rows: list[tuple[int, int | str]] = []
        for place, lead in sorted(_pointers(elf)):
            if place in held:
                at = place - begin
                data[at : at + _WORD] = bytes(_WORD)
                rows.append((at, lead - begin if lead in held else _text_at(elf, lead)))
        return bytes(data), tuple(rows)


def made_by(path: Path) -> tuple[str, ...]:
    """What the programs that made a library say of themselves in it (.comment): the version and
    package of the compiler of each object, those of the C library's own among them."""
    with opened(path) as elf:
        texts = _data(elf, elf.get_section_by_name(".comment")).split(b"\0")
    return tuple(sorted({text.decode(errors="replace") for text in texts if text}))


def section_at(path: Path, offset: int) -> str:
    """The name of the section that holds a byte of the file; empty where none does."""
    with opened(path) as elf:
        for section in elf.iter_sections():
            begin = section["sh_offset"]
            if section["sh_type"] != "SHT_NOBITS" and begin <= offset < begin + section["sh_size"]:
                return str(section.name)
    return ""


def numbers_of(path: Path, name: str) -> dict[str, int]:
    """The rows of the table with this name, each a pointer to a text and a number of 8 bytes.
    Nothing of the library is run. Raises WheelError for a library without such a table."""
    with opened(path) as elf:
        names, symbols = _strings(elf), _data(elf, _symbols(elf))
        for begin, info, _, _, address, size in _SYMBOL.iter_unpack(symbols):
            if info & 0xF == _OBJECT and _text(names, begin) == name:
                lead = dict(_pointers(elf))
                data, first = _held(elf, address)
                return {
                    _text_at(elf, lead[address + at]): _ROW.unpack_from(data, first + at)[0]
                    for at in range(0, size, _ROW.size)
                }
    raise WheelError(f"{path.name} has no table {name}")


def _pointers(elf: ELFFile) -> Iterator[tuple[int, int]]:
    """Where the loader puts an address of the library itself, and which."""
    data = _data(elf, elf.get_section_by_name(".rela.dyn"))
    for place, kind, _, addend in _RELOCATION.iter_unpack(data):
        if kind in _RELATIVE:
            yield place, addend


def _text_at(elf: ELFFile, address: int) -> str:
    """The text of C that begins at an address."""
    return _text(*_held(elf, address))


def _is_text(elf: ELFFile, address: int) -> bool:
    """Whether an address is among constants without pointers, where texts are."""
    section = elf.get_section_by_name(".rodata")
    return section is not None and 0 <= address - section["sh_addr"] < section["sh_size"]


def _held(elf: ELFFile, address: int) -> tuple[bytes, int]:
    """The bytes of the section that holds an address, and where in them it is."""
    for section in elf.iter_sections():
        begin = section["sh_addr"]
        if section["sh_flags"] & _ALLOCATED and begin <= address < begin + section["sh_size"]:
            return _data(elf, section), address - begin
    raise ELFError(f"no section holds the address {address:#x}")


def _text(data: bytes, begin: int) -> str:
    return data[begin : data.index(b"\0", begin)].decode()


def _strings(elf: ELFFile) -> bytes:
    """The names of _functions; none where there are no symbols."""
    symbols = _symbols(elf)
    return b"" if symbols is None else _data(elf, elf.get_section(symbols["sh_link"]))


def _executable(elf: ELFFile) -> Iterator[CodeSection]:
    for section in elf.iter_sections():
        flags = section["sh_flags"]
        if (
            section["sh_type"] != "SHT_PROGBITS"
            or not flags & _EXECUTABLE
            or not flags & _ALLOCATED
        ):
            continue
        _need_complete(elf, section)
        yield CodeSection(
            name=section.name,
            offset=section["sh_offset"],
            size=section["sh_size"],
            address=section["sh_addr"],
        )


def _unwound(elf: ELFFile) -> Iterator[int]:
    """Addresses of functions in the table that the unwinder searches (LSB Core, .eh_frame_hdr)."""
    header = elf.get_section_by_name(".eh_frame_hdr")
    data = _data(elf, header)
    if not data.startswith(_UNWIND_TABLE):
        return
    (count,) = struct.unpack_from("<I", data, 8)
    for start, _ in _ENTRY.iter_unpack(data[12 : 12 + count * _ENTRY.size]):
        yield header["sh_addr"] + start


def _functions(elf: ELFFile) -> Iterator[tuple[int, int, int]]:
    """Each function's address, size, and name as an offset in the string table.

    A large library has a million symbols: too many for pyelftools' own objects.
    """
    for name, info, _, section, address, size in _SYMBOL.iter_unpack(_data(elf, _symbols(elf))):
        if info & 0xF in (_FUNCTION, _INDIRECT) and section != _UNDEFINED:
            yield address, size, name


def _symbols(elf: ELFFile) -> Any:  # noqa: ANN401  (pyelftools has no types)
    """The whole symbol table, the dynamic one of a stripped library, or None."""
    return elf.get_section_by_name(".symtab") or elf.get_section_by_name(".dynsym")


def _data(elf: ELFFile, section: Any) -> bytes:  # noqa: ANN401
    """The bytes of a section; none for a section that is not there."""
    if section is None:
        return b""
    _need_complete(elf, section)
    elf.stream.seek(section["sh_offset"])
    data: bytes = elf.stream.read(section["sh_size"])
    return data


def _need_complete(elf: ELFFile, section: Any) -> None:  # noqa: ANN401
    if section["sh_offset"] + section["sh_size"] > elf.stream_len:
        raise ELFError(f"{section.name} goes on behind its end")


def _starts(sections: tuple[CodeSection, ...], addresses: set[int]) -> tuple[int, ...]:
    """The addresses that are in a section, as offsets in the file."""
    ordered = sorted(addresses)
    found: list[int] = []
    for section in sections:
        first = bisect.bisect_left(ordered, section.address)
        last = bisect.bisect_left(ordered, section.address + section.size)
        found += [each - section.address + section.offset for each in ordered[first:last]]
    return tuple(sorted(found))


def demangled(names: list[str]) -> tuple[str, ...]:
    if not names:
        return ()
    return tuple(run(["c++filt", *names]).output.splitlines())


def _nm(path: Path, *options: str) -> Iterator[Symbol]:
    for line in run(["nm", *options, path]).output.splitlines():
        found = re.match(r"^(?:[0-9a-f]+)? *(\w) (.*)$", line)
        if found:
            yield Symbol(kind=found[1], name=found[2])
