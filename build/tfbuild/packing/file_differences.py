"""Find the files in which two wheels differ, and the first byte that differs."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import IO

from tfbuild.packing.wheel import BLOCK, find_record_name, open_wheel, read_record


@dataclass(frozen=True, kw_only=True, slots=True)
class FileDifference:
    """A file that differs between two wheels: its sizes in bytes, None where it is missing, and
    the offset of the first byte that differs.
    """

    file: str
    size: int | None
    other: int | None
    at: int | None

    @property
    def both(self) -> bool:
        """Whether both wheels have the file."""
        return self.size is not None and self.other is not None


def compare_files(wheel: Path, other_wheel: Path) -> tuple[FileDifference, ...]:
    """Return the files that differ, RECORD last. Both wheels must match their RECORD.

    Raises WheelError.
    """
    lines, other_lines = (
        {line.name: line for line in read_record(path)} for path in (wheel, other_wheel)
    )
    with open_wheel(wheel) as archive, open_wheel(other_wheel) as other_archive:
        names = [
            name
            for name in sorted({*lines, *other_lines})
            if lines.get(name) != other_lines.get(name)
        ]
        records = dict.fromkeys([find_record_name(archive), find_record_name(other_archive)])
        return tuple(
            FileDifference(
                file=name,
                size=_get_size(archive, name),
                other=_get_size(other_archive, name),
                at=at,
            )
            for name in (*names, *records)
            if (at := _find_difference(archive, other_archive, name)) is not None or name in names
        )


def _get_size(archive: zipfile.ZipFile, name: str) -> int | None:
    info = archive.NameToInfo.get(name)
    return info.file_size if info else None


def _find_difference(
    archive: zipfile.ZipFile, other_archive: zipfile.ZipFile, name: str
) -> int | None:
    """Return the offset of the first byte that differs; None if none does, or only one wheel has
    the file.
    """
    if name not in archive.NameToInfo or name not in other_archive.NameToInfo:
        return None
    with archive.open(name) as first, other_archive.open(name) as second:
        return next(_find_differing_bytes(first, second), None)


def _find_differing_bytes(first: IO[bytes], second: IO[bytes]) -> Iterator[int]:
    for number in count():
        blocks = first.read(BLOCK), second.read(BLOCK)
        if blocks[0] != blocks[1]:
            pairs = enumerate(zip(*blocks, strict=False))
            short = min(map(len, blocks))
            yield number * BLOCK + next((offset for offset, (a, b) in pairs if a != b), short)
        if not all(blocks):
            return
