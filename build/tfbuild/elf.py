"""What a shared library takes from others and shares with them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from tfbuild.errors import WheelError
from tfbuild.run import run

_RUNTIME = ("GLIBC_", "GLIBCXX_", "CXXABI_", "GCC_")
_VERSION = re.compile(r"^(GLIBC|GLIBCXX|CXXABI|GCC)_(\d+(?:\.\d+)*)$")


@dataclass(frozen=True, kw_only=True, slots=True)
class Symbol:
    """A symbol as nm shows it: `kind` is nm's letter, `name` is demangled."""

    kind: str
    name: str


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[ELFFile]:
    try:
        with path.open("rb") as file:
            yield ELFFile(file)
    except (ELFError, OSError) as error:
        raise WheelError(f"{path.name} is not a whole ELF library ({error})") from error


def floors(path: Path) -> dict[str, str]:
    """The newest version of each runtime family that the library asks for, such as
    {"GLIBC": "2.14", "GLIBCXX": "3.4.19"}: the oldest machine that can load it.
    """
    newest: dict[str, tuple[int, ...]] = {}
    with _opened(path) as elf:
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
    with _opened(path) as elf:
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


def demangled(names: list[str]) -> tuple[str, ...]:
    if not names:
        return ()
    return tuple(run(["c++filt", *names]).output.splitlines())


def _nm(path: Path, *options: str) -> Iterator[Symbol]:
    for line in run(["nm", *options, path]).output.splitlines():
        found = re.match(r"^(?:[0-9a-f]+)? *(\w) (.*)$", line)
        if found:
            yield Symbol(kind=found[1], name=found[2])
