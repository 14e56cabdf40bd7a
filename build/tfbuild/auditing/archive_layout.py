"""Check that a tuned wheel is packed as `repack` packs it.

`open_wheel` has checked that all programs find the same members. Here, each member also has the
mode that it has in the stock wheel, and no extra fields or data descriptor. Format:
PKWARE's APPNOTE.TXT, 4.3.
"""

from __future__ import annotations

import csv
import io
import stat
import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfbuild.packing.repack import FILE_MODE
from tfbuild.packing.wheel import RecordLine, open_wheel, read_member, read_stem
from tfcore.errors import WheelError

_HEADER = 30  # bytes of a member's own header without its name and extra fields
_ZIP64 = 1  # the only extra field that a large member needs
_UTF_8, _SIZES_FOLLOW = 0x800, 0x8  # flags
_SETTING_IDS = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX


@dataclass(frozen=True, kw_only=True, slots=True)
class MemberForm:
    """The form of a member in the stock wheel: its mode as in zip, and whether it is a folder."""

    mode: int
    folder: bool


def read_forms(stock: Path) -> dict[str, MemberForm]:
    """Return the form of each member by name.

    Raises WheelError.
    """
    with open_wheel(stock) as archive:
        return {
            info.filename: MemberForm(mode=info.external_attr, folder=info.is_dir())
            for info in archive.infolist()
        }


def find_problems(wheel: Path, forms: Mapping[str, MemberForm] | None) -> Iterator[str]:
    """Yield a line for each way in which a wheel is packed differently from `repack`.

    `forms` are the stock wheel's, by the names that its members have in this one; None if
    there is none to compare with.

    Raises WheelError.
    """
    with open_wheel(wheel) as archive:
        yield from _find_order_problems(archive.infolist(), archive.start_dir)
        for info in archive.infolist():
            yield from (f"{info.filename} {problem}" for problem in _find_oddities(info))
            if forms is not None:
                yield from _compare_form(info, forms.get(info.filename))
            elif (info.external_attr >> 16) & _SETTING_IDS:
                yield f"{info.filename} has a setuid, setgid or sticky bit"
    yield from _find_record_problems(wheel)


def _find_order_problems(infos: Sequence[zipfile.ZipInfo], end: int) -> Iterator[str]:
    """Yield a line for the first member in another order than in the directory, which begins at
    `end`, or with extra fields in its own header.

    `open_wheel` has checked that the members follow each other without gaps.
    """
    places = [*(info.header_offset for info in infos[1:]), end]
    for info, following in zip(infos, places, strict=True):
        name = info.orig_filename.encode("utf-8" if info.flag_bits & _UTF_8 else "ascii")
        if following - info.header_offset != _HEADER + len(name) + info.compress_size:
            yield (
                f"{info.filename} has extra fields in its own header, or the members have another "
                "order than the directory"
            )
            return


def _has_foreign_fields(extra: bytes, *, large: bool) -> bool:
    """Return whether there is a field other than Zip64's, or Zip64's without a `large` number."""
    if extra and not large:
        return True
    while extra:
        kind, size = struct.unpack_from("<HH", extra.ljust(4, b"\0"))
        if kind != _ZIP64:
            return True
        extra = extra[4 + size :]
    return False


def _find_oddities(info: zipfile.ZipInfo) -> Iterator[str]:
    numbers = (info.file_size, info.compress_size, info.header_offset)
    if _has_foreign_fields(info.extra, large=max(numbers) > zipfile.ZIP64_LIMIT):
        yield "has extra fields"
    if info.flag_bits & _SIZES_FOLLOW:
        yield "has a data descriptor"


def _compare_form(info: zipfile.ZipInfo, form: MemberForm | None) -> Iterator[str]:
    if info.is_dir() and not (form and form.folder):
        yield f"{info.filename} is a folder that is not in stock"
    elif info.external_attr != (form.mode if form else FILE_MODE):
        yield f"{info.filename} has the unexpected mode {info.external_attr >> 16:o}"


def _find_record_problems(wheel: Path) -> Iterator[str]:
    """Yield a line if RECORD has other lines, or another order, than the members."""
    name = f"{read_stem(wheel)}.dist-info/RECORD"
    text = read_member(wheel, name)
    try:
        rows = [RecordLine(*row) for row in csv.reader(io.StringIO(text.decode(), newline=""))]
    except (csv.Error, TypeError, UnicodeDecodeError) as error:
        raise WheelError(f"cannot read RECORD of {wheel.name} ({error})") from error
    with open_wheel(wheel) as archive:
        members = [info.filename for info in archive.infolist() if not info.is_dir()]
    if members[-1:] != [name] or [row.name for row in rows] != members:
        yield f"{name} does not list each member once and in order, with itself last"
    if rows[-1:] != [RecordLine(name, "", "")]:
        yield f"{name} has a hash of itself"
