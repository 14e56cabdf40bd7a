"""Whether kernels see the structures that they share with TensorFlow as the stock wheel has them.

native/structures.cc is compiled as kernel sources are, and with the stock wheel's headers alone.
What both say of sizes and places is read from the library: that shows for every target, whatever
this CPU can run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tfbuild.binaries import elf
from tfbuild.errors import KernelError
from tfbuild.records import save

KERNELS = "tensorwright_structures_of_kernels"
"""What the library calls the table of what kernels are compiled with."""
WHEEL = "tensorwright_structures_of_wheel"
NOTES = "structures.json"
"""Where a build leaves both tables, beside its workspace."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LayoutDifference:
    """A size or a place, as native/structures.cc names it, that is another one for kernels than in
    the stock wheel; None where it is not told."""

    what: str
    kernels: int | None
    wheel: int | None

    @property
    def words(self) -> str:
        return f"{self.what} is {_text(self.kernels)} for kernels, {_text(self.wheel)} in the wheel"


def _text(number: int | None) -> str:
    return "not told" if number is None else str(number)


def differences(kernels: Mapping[str, int], wheel: Mapping[str, int]) -> Iterator[LayoutDifference]:
    """Where two tables differ, in their order: what others are made of comes first."""
    for what in {**wheel, **kernels}:
        if kernels.get(what) != wheel.get(what):
            yield LayoutDifference(what=what, kernels=kernels.get(what), wheel=wheel.get(what))


def need_same(library: Path, notes: Path) -> None:
    """Hold the library's tables against each other; `notes` is where they are written down.

    Raises KernelError for the first structure in which they differ, WheelError for a library
    without them.
    """
    kernels, wheel = (elf.read_number_table(library, table) for table in (KERNELS, WHEEL))
    save(notes, {"kernels": kernels, "wheel": wheel})
    for found in differences(kernels, wheel):
        raise KernelError(
            f"kernels would see another structure than the stock wheel has: {found.words}",
            hint="A header of the sources was read in place of the wheel's, or a flag changed it. "
            f"Both tables are in {notes}",
        )
