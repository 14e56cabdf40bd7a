"""Check that all programs read the same members from a tuned wheel.

Installers read a zip file in different ways: pip reads the directory at its end, others read the
header before each member, and some read another name from extra fields. So the members of a tuned
wheel follow each other, each has one name, and there are no bytes before, between or after them.
Format: PKWARE's APPNOTE.TXT, 4.3.
"""

from __future__ import annotations

import csv
import io
import stat
import struct
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tfbuild.packing.repack import FILE_MODE
from tfbuild.packing.wheel import RecordLine, open_wheel, read_member, read_stem
from tfcore.errors import WheelError

_LOCAL = struct.Struct("<4s2xHH4xIIIHH")  # signature, flags, method, CRC, two sizes, two lengths
_DIRECTORY = 46  # bytes of an entry without its name, extra fields and comment
_END = struct.Struct("<4s4HIIH")  # signature, disks, members twice, size, offset, comment
_LARGE_END = struct.Struct("<4s12x2I4Q")  # the same for Zip64, before its locator
_LOCATOR = 20
_ZIP64 = 1  # the only extra field that a large member needs
_IN_EXTRA = 0xFFFFFFFF  # stands for a size in the extra field
_UTF_8, _SIZES_FOLLOW = 0x800, 0x8  # flags
_METHODS = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
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
    with open_wheel(wheel) as archive, wheel.open("rb") as file:
        yield from _find_gaps(archive, file)
        for info in archive.infolist():
            yield from (f"{info.filename} {problem}" for problem in _find_oddities(info))
            if forms is not None:
                yield from _compare_form(info, forms.get(info.filename))
            elif (info.external_attr >> 16) & _SETTING_IDS:
                yield f"{info.filename} has a setuid, setgid or sticky bit"
    yield from _find_record_problems(wheel)


def _find_gaps(archive: zipfile.ZipFile, file: IO[bytes]) -> Iterator[str]:
    """Yield a line for bytes that belong to no member, and for headers that contradict the
    directory.

    Raises WheelError.
    """
    offset = 0
    for info in archive.infolist():
        if info.header_offset != offset:
            yield f"there are bytes before {info.filename} that belong to no member"
            return
        file.seek(offset)
        length, problem = _inspect_header(file, info)
        if problem:
            yield f"{info.filename} {problem}"
            return
        offset += length + info.compress_size
    directory = sum(
        _DIRECTORY + len(_encode_name(info)) + len(info.extra) + len(info.comment)
        for info in archive.infolist()
    )
    file.seek(offset + directory)
    number = len(archive.infolist())
    if archive.start_dir != offset or not _is_valid_end(file.read(), number, directory, offset):
        yield "there are extra bytes before or after the zip directory"


def _is_valid_end(tail: bytes, number: int, size: int, at: int) -> bool:
    """Return whether the end records describe the directory exactly, with Zip64 records only for
    large numbers.
    """
    if max(size, at) <= zipfile.ZIP64_LIMIT and number <= zipfile.ZIP_FILECOUNT_LIMIT:
        return tail == _END.pack(b"PK\x05\x06", 0, 0, number, number, size, at, 0)
    if len(tail) != _LARGE_END.size + _LOCATOR + _END.size:
        return False
    fields = _LARGE_END.unpack_from(tail)
    return fields == (b"PK\x06\x06", 0, 0, number, number, size, at) and tail.endswith(b"\0\0")


def _inspect_header(file: IO[bytes], info: zipfile.ZipInfo) -> tuple[int, str]:
    """Return the size in bytes of a member's local header, and its problem; empty without one."""
    fields = _LOCAL.unpack(file.read(_LOCAL.size))
    signature, flags, method, crc, packed, size, name_length, extra_length = fields
    name, extra = file.read(name_length), file.read(extra_length)
    length = _LOCAL.size + name_length + extra_length
    if signature != b"PK\x03\x04" or name != _encode_name(info):
        return length, "has a different name in its local header"
    large = _IN_EXTRA in {packed, size}
    if _has_foreign_fields(extra, large=large):
        return length, "has extra fields in its local header"
    if large:
        size, packed = struct.unpack_from("<QQ", extra.ljust(20, b"\0"), 4)
    actual = (flags, method, crc, packed, size)
    if actual != (info.flag_bits, info.compress_type, info.CRC, info.compress_size, info.file_size):
        return length, "has different sizes, flags or CRC in its local header"
    return length, ""


def _encode_name(info: zipfile.ZipInfo) -> bytes:
    return info.orig_filename.encode("utf-8" if info.flag_bits & _UTF_8 else "cp437")


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
    if info.orig_filename != info.filename:
        yield "has a second name"
    numbers = (info.file_size, info.compress_size, info.header_offset)
    if _has_foreign_fields(info.extra, large=max(numbers) > zipfile.ZIP64_LIMIT):
        yield "has extra fields"
    if info.comment:
        yield "has a comment"
    if info.flag_bits & _SIZES_FOLLOW or info.compress_type not in _METHODS:
        yield "has a data descriptor or an unexpected compression method"


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
