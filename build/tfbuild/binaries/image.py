"""Read the memory image of a shared library from its file, without running it.

Like the loader, this module uses segments and the dynamic table. It ignores sections, because they
can be forged. Formats: System V ABI, chapter 5; psABIs for x86-64 and AArch64.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile

from tfbuild.binaries import elf
from tfcore.errors import WheelError

_PAGE = 4096
_COPY = frozenset({5, 1024})  # R_X86_64_COPY, R_AARCH64_COPY
_OBJECT = 1  # the type in st_info
_LISTS = (("DT_RELA", "DT_RELASZ"), ("DT_JMPREL", "DT_PLTRELSZ"))
_UNREAD = frozenset({"DT_REL", "DT_RELR", 36})  # relocation formats that are not supported
_LONGEST = 4096  # bytes of a string


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """A part of the file loaded at an address, without the zeros that follow it in memory only."""

    address: int
    data: bytes

    @property
    def end(self) -> int:
        return self.address + len(self.data)


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """The memory of a library for `machine`, loaded at address 0.

    `pointers` maps each location that the loader writes to the address within the library
    that it writes there, or to None for an address that it looks up by symbol; `places` are
    those locations in order, repeated if written repeatedly. `objects` maps the name of
    exported data to address and size.
    """

    name: str
    machine: str
    segments: tuple[Segment, ...]
    pointers: Mapping[int, int | None]
    places: tuple[int, ...]
    objects: Mapping[str, tuple[int, int]]

    def read_constant(self, address: int, size: int) -> bytes:
        """Return bytes that the loader leaves unchanged.

        Raises WheelError if it changes them, or they are not loaded.
        """
        if self._find_written(address, size):
            raise self._build_error(f"the loader writes to {address:#x}")
        segment = self._find_segment(address, size)
        start = address - segment.address
        return segment.data[start : start + size]

    def read_pointer(self, address: int) -> int:
        """Return the address that a pointer holds; 0 for a null pointer.

        Raises WheelError if it points out of the library.
        """
        if not self._find_written(address, elf.WORD):
            if any(self.read_constant(address, elf.WORD)):
                raise self._build_error(f"the pointer at {address:#x} points outside the library")
            return 0
        target = self.pointers.get(address)
        if target is None or self._find_written(address, elf.WORD) != (address,):
            raise self._build_error(f"the pointer at {address:#x} points outside the library")
        return target

    def read_string(self, address: int) -> str:
        """Return the C string at an address.

        Raises WheelError.
        """
        segment = self._find_segment(address, 1)
        start = address - segment.address
        end = segment.data.find(b"\0", start, start + _LONGEST)
        try:
            return self.read_constant(address, max(0, end - start)).decode()
        except UnicodeDecodeError as error:
            raise self._build_error(f"the string at {address:#x} is not UTF-8") from error

    def read_prefix(self, address: int, size: int) -> bytes:
        """Return at most `size` bytes of the file at an address; empty if none are loaded."""
        for segment in self.segments:
            if segment.address <= address < segment.end:
                start = address - segment.address
                return segment.data[start : start + size]
        return b""

    def _find_written(self, address: int, size: int) -> tuple[int, ...]:
        """Return the locations within these bytes that the loader writes to."""
        first = bisect.bisect_right(self.places, address - elf.WORD)
        return self.places[first : bisect.bisect_left(self.places, address + size)]

    def _find_segment(self, address: int, size: int) -> Segment:
        for segment in self.segments:
            if segment.address <= address and address + size <= segment.end:
                return segment
        raise self._build_error(f"no data is loaded at {address:#x}")

    def _build_error(self, problem: str) -> WheelError:
        return WheelError(f"{self.name} cannot be read: {problem}")


def read_image(path: Path) -> Image:
    """Read a library as the loader does.

    Raises WheelError if the loader would reject it, or it cannot be read.
    """
    with elf.open_library(path) as library:
        machine = elf.read_machine(library, path)
        segments = tuple(_read_segments(library))
        (dynamic,) = (
            segment for segment in library.iter_segments() if isinstance(segment, DynamicSegment)
        )
        known = {tag["d_tag"]: tag["d_val"] for tag in dynamic.iter_tags()}
        if not _UNREAD.isdisjoint(known):
            raise ELFError("its relocation format is not supported")
        base = Image(
            name=path.name, machine=machine, segments=segments, pointers={}, places=(), objects={}
        )
        written = tuple(
            itertools.chain(*(_read_relocations(base, known, *tags) for tags in _LISTS))
        )
        return replace(
            base,
            pointers=dict(written),
            places=tuple(sorted(place for place, _ in written)),
            objects=dict(_read_objects(base, known, dynamic.num_symbols())),
        )


def _read_segments(library: ELFFile) -> Iterator[Segment]:
    """Yield the loaded segments.

    Raises ELFError if one would overlap another or is truncated.
    """
    end = 0
    for segment in library.iter_segments(type="PT_LOAD"):
        if segment["p_vaddr"] < end:
            raise ELFError("two segments overlap")
        size = segment["p_filesz"]
        if segment["p_offset"] + size > library.stream_len or size > segment["p_memsz"]:
            raise ELFError("a segment is larger than the file or its memory")
        library.stream.seek(segment["p_offset"])
        yield Segment(address=segment["p_vaddr"], data=library.stream.read(size))
        end = -(-(segment["p_vaddr"] + segment["p_memsz"]) // _PAGE) * _PAGE


def _read_relocations(
    image: Image, known: Mapping[str, int], at: str, size: str
) -> Iterator[tuple[int, int | None]]:
    """Yield each location that the loader writes and the address, from one relocation list."""
    for place, kind, _, addend in elf.RELOCATION.iter_unpack(_read_table(image, known, at, size)):
        if kind in _COPY:
            raise ELFError("it has a copy relocation")
        yield place, addend if kind in elf.RELATIVE else None


def _read_objects(
    image: Image, known: Mapping[str, int], count: int
) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the exported data: name, address and size.

    Raises ELFError for a repeated name.
    """
    names = _read_table(image, known, "DT_STRTAB", "DT_STRSZ")
    symbols = image.read_constant(known["DT_SYMTAB"], count * elf.SYMBOL.size)
    seen_names = set()
    for begin, info, _, section, address, size in elf.SYMBOL.iter_unpack(symbols):
        if section and info & 0xF == _OBJECT:
            name = names[begin : names.index(b"\0", begin)].decode()
            if name in seen_names:
                raise ELFError(f"it exports {name} twice")
            seen_names.add(name)
            yield name, (address, size)


def _read_table(image: Image, known: Mapping[str, int], at: str, size: str) -> bytes:
    return image.read_constant(known[at], known[size]) if at in known else b""
