"""A kernel library as the dynamic linker meets it: what there is to map, relocate and run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

from tfbuild.errors import WheelError

_WRITABLE, _EXECUTABLE = 0x1, 0x4  # sh_flags of a section


@dataclass(frozen=True, kw_only=True, slots=True)
class LibrarySize:
    """`size`, `code` and `writable` are bytes: of the file, and of its sections. Relative
    relocations add a base, the others want one of `symbols` names looked up in all of TensorFlow.
    `constructors` are run when all is relocated: they register the kernels.
    """

    file: str
    size: int
    code: int
    writable: int
    relative_relocations: int
    symbol_relocations: int
    symbols: int
    constructors: int


def read_library(path: Path) -> LibrarySize:
    """Raises WheelError for what is no 64-bit shared library."""
    try:
        with path.open("rb") as file:
            return _described(ELFFile(file), path)
    except (ELFError, OSError, KeyError) as error:
        raise WheelError(f"{path.name} is not a whole ELF library ({error})") from error


def _described(elf: ELFFile, path: Path) -> LibrarySize:
    dynamic, names = elf.get_section_by_name(".dynamic"), elf.get_section_by_name(".dynsym")
    if not isinstance(dynamic, DynamicSection) or names is None:
        raise ELFError("it has no dynamic section")
    tags = {tag.entry.d_tag: tag.entry.d_val for tag in dynamic.iter_tags()}
    sections = [(each["sh_flags"], each["sh_size"]) for each in elf.iter_sections()]
    relative = tags.get("DT_RELACOUNT", 0)
    entry = tags.get("DT_RELAENT", 24)  # bytes of an Elf64_Rela
    relocations = (tags.get("DT_RELASZ", 0) + tags.get("DT_PLTRELSZ", 0)) // entry
    undefined = [each for each in names.iter_symbols() if each["st_shndx"] == "SHN_UNDEF"]
    return LibrarySize(
        file=path.name,
        size=path.stat().st_size,
        code=sum(size for flags, size in sections if flags & _EXECUTABLE),
        writable=sum(size for flags, size in sections if flags & _WRITABLE),
        relative_relocations=relative,
        symbol_relocations=relocations - relative,
        symbols=sum(bool(each.name) for each in undefined),
        constructors=tags.get("DT_INIT_ARRAYSZ", 0) // 8,  # bytes of an address
    )
