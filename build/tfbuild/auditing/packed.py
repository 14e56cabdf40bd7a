"""How a tuned wheel is packed: so that no two programs can read two things in it.

Installers differ in what they go by: pip by the directory at the end of a zip, others by the
headers before each member, and some know extra fields with another name. A wheel of ours has its
members one behind the other, each with one name, and nothing before, between or behind them.
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

from tfbuild.errors import WheelError
from tfbuild.packing.repack import FILE_MODE
from tfbuild.packing.wheel import RecordLine, opened, read_member, stem_of

_LOCAL = struct.Struct("<4s2xHH4xIIIHH")  # signature, flags, method, CRC, two sizes, two lengths
_DIRECTORY = 46  # bytes of an entry without its name, extra fields and comment
_END = struct.Struct("<4s4HIIH")  # signature, disks, members twice, size, place, comment
_LARGE_END = struct.Struct("<4s12x2I4Q")  # the same of Zip64, which has a locator behind it
_LOCATOR = 20
_ZIP64 = 1  # the one extra field that a large member needs
_IN_EXTRA = 0xFFFFFFFF  # a size that stands there
_UTF_8, _SIZES_FOLLOW = 0x800, 0x8  # flags
_METHODS = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
_SETTING_IDS = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX


@dataclass(frozen=True, kw_only=True, slots=True)
class MemberForm:
    """How a member of the stock wheel lies in it: its mode as zip has it, and whether it is a
    folder."""

    mode: int
    folder: bool


def forms_of(stock: Path) -> dict[str, MemberForm]:
    """By the names of all members. Raises WheelError."""
    with opened(stock) as archive:
        return {
            info.filename: MemberForm(mode=info.external_attr, folder=info.is_dir())
            for info in archive.infolist()
        }


def problems(wheel: Path, forms: Mapping[str, MemberForm] | None) -> Iterator[str]:
    """Where a wheel is packed otherwise than `repack` does, a line each. `forms` are the stock
    wheel's, by the names that its members have in this one; None where there is none to compare
    with. Raises WheelError.
    """
    with opened(wheel) as archive, wheel.open("rb") as file:
        yield from _gaps(archive, file)
        for info in archive.infolist():
            yield from (f"{info.filename} {what}" for what in _odd(info))
            if forms is not None:
                yield from _unlike(info, forms.get(info.filename))
            elif (info.external_attr >> 16) & _SETTING_IDS:
                yield f"{info.filename} would be installed with another's rights"
    yield from _disorder(wheel)


def _gaps(archive: zipfile.ZipFile, file: IO[bytes]) -> Iterator[str]:
    """Bytes of the file that belong to no member, and headers that say another thing than the
    directory. Raises WheelError."""
    at = 0
    for info in archive.infolist():
        if info.header_offset != at:
            yield f"there are bytes before {info.filename} that are no member"
            return
        file.seek(at)
        length, what = _header(file, info)
        if what:
            yield f"{info.filename} {what}"
            return
        at += length + info.compress_size
    directory = sum(
        _DIRECTORY + len(_encoded(info)) + len(info.extra) + len(info.comment)
        for info in archive.infolist()
    )
    file.seek(at + directory)
    number = len(archive.infolist())
    if archive.start_dir != at or not _ends(file.read(), number, directory, at):
        yield "there are bytes before or behind its directory that are no part of it"


def _ends(tail: bytes, number: int, size: int, at: int) -> bool:
    """Whether what is behind the directory says just what it is, with Zip64's numbers only where
    others are too small."""
    if max(size, at) <= zipfile.ZIP64_LIMIT and number <= zipfile.ZIP_FILECOUNT_LIMIT:
        return tail == _END.pack(b"PK\x05\x06", 0, 0, number, number, size, at, 0)
    if len(tail) != _LARGE_END.size + _LOCATOR + _END.size:
        return False
    said = _LARGE_END.unpack_from(tail)
    return said == (b"PK\x06\x06", 0, 0, number, number, size, at) and tail.endswith(b"\0\0")


def _header(file: IO[bytes], info: zipfile.ZipInfo) -> tuple[int, str]:
    """The bytes of a member's own header, and what is wrong with it."""
    fields = _LOCAL.unpack(file.read(_LOCAL.size))
    signature, flags, method, crc, packed, size, name_length, extra_length = fields
    name, extra = file.read(name_length), file.read(extra_length)
    length = _LOCAL.size + name_length + extra_length
    if signature != b"PK\x03\x04" or name != _encoded(info):
        return length, "has another name in its own header"
    large = _IN_EXTRA in {packed, size}
    if _foreign_fields(extra, large=large):
        return length, "has extra fields in its own header"
    if large:
        size, packed = struct.unpack_from("<QQ", extra.ljust(20, b"\0"), 4)
    actual = (flags, method, crc, packed, size)
    if actual != (info.flag_bits, info.compress_type, info.CRC, info.compress_size, info.file_size):
        return length, "has other sizes in its own header"
    return length, ""


def _encoded(info: zipfile.ZipInfo) -> bytes:
    return info.orig_filename.encode("utf-8" if info.flag_bits & _UTF_8 else "cp437")


def _foreign_fields(extra: bytes, *, large: bool) -> bool:
    """Whether there is another field than Zip64's, or that where no number is `large`."""
    if extra and not large:
        return True
    while extra:
        kind, size = struct.unpack_from("<HH", extra.ljust(4, b"\0"))
        if kind != _ZIP64:
            return True
        extra = extra[4 + size :]
    return False


def _odd(info: zipfile.ZipInfo) -> Iterator[str]:
    if info.orig_filename != info.filename:
        yield "has a second name"
    numbers = (info.file_size, info.compress_size, info.header_offset)
    if _foreign_fields(info.extra, large=max(numbers) > zipfile.ZIP64_LIMIT):
        yield "has extra fields"
    if info.comment:
        yield "has a comment"
    if info.flag_bits & _SIZES_FOLLOW or info.compress_type not in _METHODS:
        yield "is packed in another way than Tensorwright packs"


def _unlike(info: zipfile.ZipInfo, form: MemberForm | None) -> Iterator[str]:
    if info.is_dir() and not (form and form.folder):
        yield f"{info.filename} is a folder that is not in stock"
    elif info.external_attr != (form.mode if form else FILE_MODE):
        yield f"{info.filename} has the mode {info.external_attr >> 16:o}"


def _disorder(wheel: Path) -> Iterator[str]:
    """Where RECORD has other lines, or in another order, than the members have."""
    name = f"{stem_of(wheel)}.dist-info/RECORD"
    text = read_member(wheel, name)
    try:
        rows = [RecordLine(*row) for row in csv.reader(io.StringIO(text.decode(), newline=""))]
    except (csv.Error, TypeError, UnicodeDecodeError) as error:
        raise WheelError(f"{wheel.name} has a RECORD that cannot be read ({error})") from error
    with opened(wheel) as archive:
        members = [info.filename for info in archive.infolist() if not info.is_dir()]
    if members[-1:] != [name] or [row.name for row in rows] != members:
        yield f"{name} does not name each member once, in their order, itself at the end"
    if rows[-1:] != [RecordLine(name, "", "")]:
        yield f"{name} has a hash of itself"
