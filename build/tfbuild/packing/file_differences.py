"""The files in which two wheels differ, and where."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import IO

from tfbuild.packing.wheel import BLOCK, opened, read_record, record_name


@dataclass(frozen=True, kw_only=True, slots=True)
class FileDifference:
    """A file of a wheel and of another one: their sizes in bytes, None where there is none, and the
    place of the first byte that differs."""

    file: str
    size: int | None
    other: int | None
    at: int | None

    @property
    def both(self) -> bool:
        """Whether either wheel has it."""
        return self.size is not None and self.other is not None


def file_differences(wheel: Path, other: Path) -> tuple[FileDifference, ...]:
    """The files that are not the same, RECORD last. Both wheels are what their RECORD says.

    Raises WheelError.
    """
    mine, theirs = ({each.name: each for each in read_record(path)} for path in (wheel, other))
    with opened(wheel) as one, opened(other) as two:
        names = [name for name in sorted({*mine, *theirs}) if mine.get(name) != theirs.get(name)]
        records = dict.fromkeys([record_name(one), record_name(two)])
        return tuple(
            FileDifference(file=name, size=_size(one, name), other=_size(two, name), at=at)
            for name in (*names, *records)
            if (at := _place(one, two, name)) is not None or name in names
        )


def _size(archive: zipfile.ZipFile, name: str) -> int | None:
    info = archive.NameToInfo.get(name)
    return info.file_size if info else None


def _place(one: zipfile.ZipFile, two: zipfile.ZipFile, name: str) -> int | None:
    """The first byte that differs; None where there is none, or but one file."""
    if name not in one.NameToInfo or name not in two.NameToInfo:
        return None
    with one.open(name) as first, two.open(name) as second:
        return next(_differing(first, second), None)


def _differing(first: IO[bytes], second: IO[bytes]) -> Iterator[int]:
    for number in count():
        blocks = first.read(BLOCK), second.read(BLOCK)
        if blocks[0] != blocks[1]:
            pairs = enumerate(zip(*blocks, strict=False))
            short = min(map(len, blocks))
            yield number * BLOCK + next((at for at, (a, b) in pairs if a != b), short)
        if not all(blocks):
            return
