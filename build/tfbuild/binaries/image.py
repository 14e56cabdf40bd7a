"""A shared library as the loader puts it into memory, read from its file. Nothing of it is run.

The loader goes by segments and the dynamic table, never by sections: so does this, as sections can
be made to say another thing. Formats: System V ABI, chapter 5; psABIs for x86-64 and AArch64.
"""

from __future__ import annotations

import bisect
import itertools
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile

from tfbuild.binaries import elf
from tfbuild.errors import WheelError

WORD = 8
"""Bytes of a pointer."""
_PAGE = 4096
_RELATIVE = frozenset({8, 1027})  # R_X86_64_RELATIVE, R_AARCH64_RELATIVE
_COPY = frozenset({5, 1024})  # R_X86_64_COPY, R_AARCH64_COPY
_RELOCATION = struct.Struct("<QIIq")  # Elf64_Rela: where, which type, of which symbol, addend
_SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym
_OBJECT = 1  # the type in st_info
_LISTS = (("DT_RELA", "DT_RELASZ"), ("DT_JMPREL", "DT_PLTRELSZ"))
_UNREAD = frozenset({"DT_REL", "DT_RELR", 36})  # lists of other forms
_LONGEST = 4096  # bytes of a text


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """What is loaded from the file at an address; zeros that follow it are in no file."""

    address: int
    data: bytes

    @property
    def end(self) -> int:
        return self.address + len(self.data)


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """The memory of a library for `machine` that is loaded at address 0.

    `pointers` are, by the place that the loader writes, the address within the library that it
    writes there, or None for one that it finds elsewhere; `places` are those places in order, as
    often as they are written. `objects` are address and size of exported data, by name.
    """

    name: str
    machine: str
    segments: tuple[Segment, ...]
    pointers: Mapping[int, int | None]
    places: tuple[int, ...]
    objects: Mapping[str, tuple[int, int]]

    def constant(self, address: int, size: int) -> bytes:
        """Bytes that the loader leaves as they are in the file. Raises WheelError."""
        if self._written(address, size):
            raise self._wrong(f"the loader changes what is at {address:#x}")
        segment = self._segment(address, size)
        start = address - segment.address
        return segment.data[start : start + size]

    def pointer(self, address: int) -> int:
        """The address that a pointer holds; 0 for none. Raises WheelError for one that leads out of
        the library."""
        if not self._written(address, WORD):
            if any(self.constant(address, WORD)):
                raise self._wrong(f"the pointer at {address:#x} leads out of it")
            return 0
        to = self.pointers.get(address)
        if to is None or self._written(address, WORD) != (address,):
            raise self._wrong(f"the pointer at {address:#x} leads out of it")
        return to

    def text(self, address: int) -> str:
        """The text of C that begins at an address. Raises WheelError."""
        segment = self._segment(address, 1)
        start = address - segment.address
        end = segment.data.find(b"\0", start, start + _LONGEST)
        try:
            return self.constant(address, max(0, end - start)).decode()
        except UnicodeDecodeError as error:
            raise self._wrong(f"what is at {address:#x} is no text") from error

    def begin(self, address: int, size: int) -> bytes:
        """What the file has from an address on, at most so many bytes; nothing of what is not
        loaded."""
        for segment in self.segments:
            if segment.address <= address < segment.end:
                start = address - segment.address
                return segment.data[start : start + size]
        return b""

    def _written(self, address: int, size: int) -> tuple[int, ...]:
        """The places within these bytes that the loader writes to."""
        first = bisect.bisect_right(self.places, address - WORD)
        return self.places[first : bisect.bisect_left(self.places, address + size)]

    def _segment(self, address: int, size: int) -> Segment:
        for segment in self.segments:
            if segment.address <= address and address + size <= segment.end:
                return segment
        raise self._wrong(f"nothing is loaded at {address:#x}")

    def _wrong(self, what: str) -> WheelError:
        return WheelError(f"{self.name} cannot be read: {what}")


def read_image(path: Path) -> Image:
    """Raises WheelError for a library that the loader would not take, or that cannot be read."""
    with elf.opened(path) as library:
        machine = elf.machine_of(library, path)
        segments = tuple(_loaded(library))
        (dynamic,) = (each for each in library.iter_segments() if isinstance(each, DynamicSegment))
        known = {tag["d_tag"]: tag["d_val"] for tag in dynamic.iter_tags()}
        if not _UNREAD.isdisjoint(known):
            raise ELFError("it has relocations of another form")
        bare = Image(
            name=path.name, machine=machine, segments=segments, pointers={}, places=(), objects={}
        )
        written = tuple(itertools.chain(*(_relocations(bare, known, *each) for each in _LISTS)))
        return replace(
            bare,
            pointers=dict(written),
            places=tuple(sorted(place for place, _ in written)),
            objects=dict(_objects(bare, known, dynamic.num_symbols())),
        )


def _loaded(library: ELFFile) -> Iterator[Segment]:
    """Raises ELFError for segments of which one would be loaded over another."""
    before = 0
    for each in library.iter_segments(type="PT_LOAD"):
        if each["p_vaddr"] < before:
            raise ELFError("a segment lies over another")
        size = each["p_filesz"]
        if each["p_offset"] + size > library.stream_len or size > each["p_memsz"]:
            raise ELFError("a segment goes on behind its end")
        library.stream.seek(each["p_offset"])
        yield Segment(address=each["p_vaddr"], data=library.stream.read(size))
        before = -(-(each["p_vaddr"] + each["p_memsz"]) // _PAGE) * _PAGE


def _relocations(
    image: Image, known: Mapping[str, int], at: str, size: str
) -> Iterator[tuple[int, int | None]]:
    """What the loader writes where, of one of its lists."""
    for place, kind, _, addend in _RELOCATION.iter_unpack(_table(image, known, at, size)):
        if kind in _COPY:
            raise ELFError("it takes over another library's data")
        yield place, addend if kind in _RELATIVE else None


def _objects(
    image: Image, known: Mapping[str, int], count: int
) -> Iterator[tuple[str, tuple[int, int]]]:
    """Exported data. Raises ELFError for a name that is there twice."""
    names = _table(image, known, "DT_STRTAB", "DT_STRSZ")
    symbols = image.constant(known["DT_SYMTAB"], count * _SYMBOL.size)
    seen = set()
    for begin, info, _, section, address, size in _SYMBOL.iter_unpack(symbols):
        if section and info & 0xF == _OBJECT:
            name = names[begin : names.index(b"\0", begin)].decode()
            if name in seen:
                raise ELFError(f"it has {name} twice")
            seen.add(name)
            yield name, (address, size)


def _table(image: Image, known: Mapping[str, int], at: str, size: str) -> bytes:
    return image.constant(known[at], known[size]) if at in known else b""
