"""Checks that kernels and the stock wheel have the same layout of the structures that they share.

native/structures.cc is compiled twice: like a kernel source, and with the stock wheel's headers
alone. The tables of sizes and offsets are read from the library without running it, so this works
for every target.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tfbuild.binaries import elf
from tfcore.errors import KernelError
from tfcore.records import save

KERNELS = "tensorwright_structures_of_kernels"
"""Symbol of the table of the layouts that kernels are compiled with."""
WHEEL = "tensorwright_structures_of_wheel"
NOTES = "structures.json"
"""File beside the workspace to which a build writes both tables."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LayoutDifference:
    """A size or offset that differs between the tables of kernels and wheel.

    `what` is its name in native/structures.cc. None is a table's value without this entry.
    """

    what: str
    kernels: int | None
    wheel: int | None

    @property
    def words(self) -> str:
        return (
            f"{self.what} is {_format_number(self.kernels)} for kernels, "
            f"{_format_number(self.wheel)} in the wheel"
        )


def _format_number(number: int | None) -> str:
    return "missing" if number is None else str(number)


def find_differences(
    kernels: Mapping[str, int], wheel: Mapping[str, int]
) -> Iterator[LayoutDifference]:
    """Yield the entries in which two tables differ, in order: parts come before wholes."""
    for name in {**wheel, **kernels}:
        if kernels.get(name) != wheel.get(name):
            yield LayoutDifference(what=name, kernels=kernels.get(name), wheel=wheel.get(name))


def require_same(library: Path, notes: Path) -> None:
    """Compare the library's two tables, and write them to `notes`.

    Raises KernelError for the first structure in which they differ, WheelError for a library
    without them.
    """
    kernels, wheel = (elf.read_number_table(library, table) for table in (KERNELS, WHEEL))
    save(notes, {"kernels": kernels, "wheel": wheel})
    for difference in find_differences(kernels, wheel):
        raise KernelError(
            f"a structure differs between kernels and stock wheel: {difference.words}",
            hint="A header of the sources replaced one of the wheel, or a flag changed the layout. "
            f"Both tables are in {notes}",
        )
