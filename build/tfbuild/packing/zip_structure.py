"""A second, strict reading of a zip file, so that no two programs find different files in it.

Python's zipfile reads the directory at the end and trusts it. Other programs read member by member
from the front, or resolve contradictions differently (CVE-2025-54368). This reader accepts only a
file that both ways read alike: every byte belongs to one member, to the directory or to its end,
and both headers of a member agree. Format: PKWARE's APPNOTE.TXT 6.3.10; section numbers below are
its own.
"""

from __future__ import annotations

import io
import stat
import struct
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from typing import IO, NamedTuple

_LOCAL = struct.Struct("<4s5H3L2H")  # 4.3.7
_CENTRAL = struct.Struct("<4s6H3L5H2L")  # 4.3.12
_END64 = struct.Struct("<4sQ2H2L4Q")  # 4.3.14
_LOCATOR = struct.Struct("<4sLQL")  # 4.3.15
_END = struct.Struct("<4s4H2LH")  # 4.3.16
_EXTRA = struct.Struct("<HH")  # 4.5.1
_LOCAL_MAGIC, _CENTRAL_MAGIC, _END_MAGIC = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
_END64_MAGIC, _LOCATOR_MAGIC, _DESCRIPTOR_MAGIC = b"PK\x06\x06", b"PK\x06\x07", b"PK\x07\x08"
_FULL16, _FULL32 = 0xFFFF, 0xFFFFFFFF
"""Values that mean: see the Zip64 record."""
_SIZES_FOLLOW, _UTF8 = 0x8, 0x800
"""Flags: the sizes follow the data (4.3.9); the name is UTF-8 (appendix D)."""
_FLAGS = _SIZES_FOLLOW | _UTF8 | 0x6
"""Also the speed of the compressor. Others change what the data means (4.4.4)."""
_NEWEST = 63
"""Version 6.3 of the format, the newest that is needed to read (4.4.3.2)."""
_ZIP64 = 0x1
_SECOND_NAMES = {0x7075: "path", 0x6375: "comment"}
"""Extra fields with a second name or comment (4.6.8, 4.6.9)."""
_DOS_FOLDER = 0x10
_BLOCK = 1 << 20
_EMPTY_STREAM = 2
"""Bytes of a compressed stream of no data, which some tools write for a folder."""


class Header(NamedTuple):
    """What a header says of a member; sizes and the offset are in bytes."""

    name: bytes
    flags: int
    method: int
    crc: int
    packed: int
    size: int
    offset: int
    attributes: int = 0


def check_structure(source: IO[bytes], infos: Sequence[zipfile.ZipInfo]) -> None:
    """Raise BadZipFile unless a strict reader finds the members that zipfile found (`infos`)."""
    length = source.seek(0, io.SEEK_END)
    begin, end, count = _read_end(source, length)
    source.seek(begin)
    headers = tuple(_parse_directory(source.read(end - begin), count))
    _compare(headers, infos)
    _check_names(headers)
    place = 0
    for header in sorted(headers, key=lambda header: header.offset):
        name = _show(header.name)
        if header.offset != place:
            if header.offset < place:
                raise zipfile.BadZipFile(f"{name} overlaps the member before it")
            raise zipfile.BadZipFile(f"there are bytes before {name} that belong to no member")
        place = _check_local(source, header)
    if place != begin:
        raise zipfile.BadZipFile("it has bytes of no member before its directory")


def seek_data(source: IO[bytes], info: zipfile.ZipInfo) -> None:
    """Seek the first byte of a member's data, as it is stored."""
    source.seek(info.header_offset)
    name_length, extra_length = _LOCAL.unpack(source.read(_LOCAL.size))[-2:]
    source.seek(name_length + extra_length, io.SEEK_CUR)


def read_blocks(source: IO[bytes], info: zipfile.ZipInfo) -> Iterator[bytes]:
    """Yield the content of a member whose header was checked.

    Raises BadZipFile if it has another size or checksum, or if bytes follow the compressed stream
    (zipfile ignores them, a reader from the front takes them for the next member); EOFError for a
    truncated file, zlib.error for damaged data.
    """
    seek_data(source, info)
    crc = size = 0
    for block in _inflate(source, info):
        crc, size = zlib.crc32(block, crc), size + len(block)
        if size > info.file_size:
            break
        yield block
    if (crc, size) != (info.CRC, info.file_size):
        raise zipfile.BadZipFile(f"{info.filename} has another size or checksum")


def _inflate(source: IO[bytes], info: zipfile.ZipInfo) -> Iterator[bytes]:
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    left = info.compress_size
    while left:
        data = source.read(min(left, _BLOCK))
        if not data:
            raise EOFError(f"{info.filename} is truncated")
        left -= len(data)
        if info.compress_type == zipfile.ZIP_STORED:
            yield data
            continue
        while data and not stream.eof:
            yield stream.decompress(data, _BLOCK)
            data = stream.unconsumed_tail
        if stream.eof and (left or stream.unused_data):
            raise zipfile.BadZipFile(f"{info.filename} has bytes behind its compressed data")
    if info.compress_type == zipfile.ZIP_DEFLATED:
        yield stream.flush()
        if not stream.eof:
            raise EOFError(f"{info.filename} is truncated")


# ---- end of the file ----


def _read_end(source: IO[bytes], length: int) -> tuple[int, int, int]:
    """Return where the directory begins and ends, and its number of entries."""
    record = _read_at(
        source, length - _END.size, _END, _END_MAGIC, "an end record as its last bytes"
    )
    disk, first_disk, here, count, size, begin, comment = record
    end = length - _END.size
    if comment:
        raise zipfile.BadZipFile("it has a comment")
    if _FULL16 in {here, count} or _FULL32 in {size, begin} or _has_locator(source, end):
        end, (disk, first_disk, *wide) = _read_end64(source, end)
        full = (_FULL16, _FULL16, _FULL32, _FULL32)
        pairs = zip((here, count, size, begin), full, wide, strict=True)
        if any(narrow not in {unknown, value} for narrow, unknown, value in pairs):
            raise zipfile.BadZipFile("its two end records contradict each other")
        here, count, size, begin = wide
    if disk or first_disk or here != count:
        raise zipfile.BadZipFile("it is part of a split archive")
    if begin + size != end:
        raise zipfile.BadZipFile("its directory does not end where its end record begins")
    return begin, end, count


def _has_locator(source: IO[bytes], end: int) -> bool:
    if end < _LOCATOR.size:
        return False
    source.seek(end - _LOCATOR.size)
    return source.read(len(_LOCATOR_MAGIC)) == _LOCATOR_MAGIC


def _read_end64(source: IO[bytes], end: int) -> tuple[int, tuple[int, ...]]:
    """Return where the Zip64 end record begins, and its fields from the number of the disk on."""
    place = end - _LOCATOR.size
    what = "a Zip64 locator before its end record"
    disk, begin, disks = _read_at(source, place, _LOCATOR, _LOCATOR_MAGIC, what)
    what = "a Zip64 end record before its locator"
    size, _, _, *fields = _read_at(source, place - _END64.size, _END64, _END64_MAGIC, what)
    if disk or disks != 1 or begin != place - _END64.size or size != _END64.size - 12:
        raise zipfile.BadZipFile("its Zip64 locator and its end record contradict each other")
    return begin, tuple(fields)


def _read_at(
    source: IO[bytes], place: int, form: struct.Struct, magic: bytes, what: str
) -> tuple[int, ...]:
    """Return the fields of the record at a place, without its magic number."""
    if place >= 0:
        source.seek(place)
        data = source.read(form.size)
        if len(data) == form.size and data.startswith(magic):
            fields: tuple[int, ...] = form.unpack(data)[1:]
            return fields
    raise zipfile.BadZipFile(f"it does not have {what}")


# ---- directory ----


def _parse_directory(data: bytes, count: int) -> Iterator[Header]:
    place = 0
    for _ in range(count):
        if data[place : place + 4] != _CENTRAL_MAGIC or len(data) < place + _CENTRAL.size:
            raise zipfile.BadZipFile("its directory has fewer entries than its end record says")
        header, length = _parse_central(data, place)
        yield header
        place += length
    if place != len(data):
        raise zipfile.BadZipFile("its directory has bytes of no entry")


def _parse_central(data: bytes, place: int) -> tuple[Header, int]:
    """Return an entry of the directory and its length in bytes."""
    fields = _CENTRAL.unpack_from(data, place)
    flags, method, crc, packed, size = fields[3], fields[4], *fields[7:10]
    name_length, extra_length, comment_length, disk = fields[10:14]
    attributes, offset = fields[15:17]
    begin = place + _CENTRAL.size
    name = data[begin : begin + name_length]
    extra = data[begin + name_length : begin + name_length + extra_length]
    length = _CENTRAL.size + name_length + extra_length + comment_length
    if comment_length:
        raise zipfile.BadZipFile(f"{_show(name)} has a comment")
    _check_head(name, fields[2], flags)
    if place + length > len(data):
        raise zipfile.BadZipFile(f"the entry of {_show(name)} is longer than the directory")
    size, packed, offset, disk = _widen(name, extra, (size, packed, offset), disk)
    if disk:
        raise zipfile.BadZipFile(f"{_show(name)} is on another disk")
    return Header(name, flags, method, crc, packed, size, offset, attributes), length


def _check_head(name: bytes, version: int, flags: int) -> None:
    """Raise BadZipFile for a header that not every reader understands."""
    if flags & 0x1:
        raise zipfile.BadZipFile(f"{_show(name)} is encrypted")
    if flags & ~_FLAGS or version & 0xFF > _NEWEST:
        raise zipfile.BadZipFile(f"{_show(name)} has flags {flags:#x}, version {version & 0xFF}")


def _widen(
    name: bytes, extra: bytes, sizes: tuple[int, ...], disk: int | None = None
) -> tuple[int, ...]:
    """Return the values, with those of the Zip64 extra field where a value refers to it (4.5.3).

    `sizes` are the size, the packed size and, in the directory, the offset; the number of the disk
    is the last value there. Before a member, Bazel writes a field that nothing refers to and that
    repeats both sizes. Raises BadZipFile if the field is missing, or has other values.
    """
    stored = _parse_extra(name, extra).get(_ZIP64, b"")
    if disk is None and stored == struct.pack("<QQ", *sizes):
        return sizes
    values = [(value, value == _FULL32, "Q") for value in sizes]
    values += [] if disk is None else [(disk, disk == _FULL16, "L")]
    form = "<" + "".join(letter for _, is_wide, letter in values if is_wide)
    if len(stored) != struct.calcsize(form):
        raise zipfile.BadZipFile(f"{_show(name)} has sizes that contradict its Zip64 field")
    numbers = iter(struct.unpack(form, stored))
    return tuple(next(numbers) if is_wide else value for value, is_wide, _ in values)


def _parse_extra(name: bytes, extra: bytes) -> dict[int, bytes]:
    """Return the extra fields of a header by number."""
    fields: dict[int, bytes] = {}
    place = 0
    while place < len(extra):
        if len(extra) < place + _EXTRA.size:
            raise zipfile.BadZipFile(f"{_show(name)} has an incomplete extra field")
        number, length = _EXTRA.unpack_from(extra, place)
        place += _EXTRA.size
        if len(extra) < place + length or number in fields:
            raise zipfile.BadZipFile(f"{_show(name)} has an incomplete or repeated extra field")
        if number in _SECOND_NAMES:
            raise zipfile.BadZipFile(f"{_show(name)} has a second {_SECOND_NAMES[number]}")
        fields[number] = extra[place : place + length]
        place += length
    return fields


def _compare(headers: Sequence[Header], infos: Sequence[zipfile.ZipInfo]) -> None:
    """Raise BadZipFile unless zipfile found the same members."""
    ours = [(header[1:-1], _decode(header)) for header in headers]
    theirs = [
        (
            (
                info.flag_bits,
                info.compress_type,
                info.CRC,
                info.compress_size,
                info.file_size,
                info.header_offset,
            ),
            info.filename,
        )
        for info in infos
    ]
    if ours != theirs:
        raise zipfile.BadZipFile("two readings of its directory differ")


# ---- members ----


def _check_local(source: IO[bytes], header: Header) -> int:
    """Check the header and the descriptor of a member; return where the member ends."""
    name = _show(header.name)
    fields = _read_at(source, header.offset, _LOCAL, _LOCAL_MAGIC, f"the header of {name}")
    flags, method, crc, packed, size = fields[1], fields[2], *fields[5:8]
    _check_head(header.name, fields[0], flags)
    name_length, extra_length = fields[8:10]
    local_name, extra = source.read(name_length), source.read(extra_length)
    if local_name != header.name:
        raise zipfile.BadZipFile(f"{name} has another name in its own header")
    size, packed = _widen(header.name, extra, (size, packed))
    if method == zipfile.ZIP_STORED and (flags & _SIZES_FOLLOW or header.packed != header.size):
        raise zipfile.BadZipFile(f"{name} is not compressed, but its sizes differ or follow it")
    if (flags, method) != (header.flags, header.method):
        raise zipfile.BadZipFile(f"{name} has another method or flags in its own header")
    actual, expected = (crc, packed, size), (header.crc, header.packed, header.size)
    if actual != expected and not (flags & _SIZES_FOLLOW and actual == (0, 0, 0)):
        raise zipfile.BadZipFile(f"{name} has another size or checksum in its own header")
    end = header.offset + _LOCAL.size + name_length + extra_length + header.packed
    return end + _measure_descriptor(source, header, end) if flags & _SIZES_FOLLOW else end


def _measure_descriptor(source: IO[bytes], header: Header, place: int) -> int:
    """Return the length of the data descriptor that follows the data (4.3.9)."""
    source.seek(place)
    data = source.read(24)
    for magic in (_DESCRIPTOR_MAGIC, b""):
        for form in ("<LLL", "<LQQ"):
            try:
                expected = magic + struct.pack(form, header.crc, header.packed, header.size)
            except struct.error:  # (a size of more than 32 bits)
                continue
            if data.startswith(expected):
                return len(expected)
    raise zipfile.BadZipFile(f"{_show(header.name)} has other sizes behind its data")


# ---- names ----


def _check_names(headers: Sequence[Header]) -> None:
    """Raise BadZipFile for names that one file system keeps apart and another does not."""
    seen: dict[str, str] = {}
    for header in headers:
        name = _decode(header)
        _check_kind(header, name)
        folded = unicodedata.normalize("NFC", name.removesuffix("/")).casefold()
        if seen.get(folded) == name:
            raise zipfile.BadZipFile(f"{name} occurs twice")
        if folded in seen:
            raise zipfile.BadZipFile(f"{name!r} and {seen[folded]!r} are one file on some systems")
        seen[folded] = name
    files = {folded for folded, name in seen.items() if not name.endswith("/")}
    for folded, name in seen.items():
        if blocked := next((parent for parent in _list_parents(folded) if parent in files), ""):
            raise zipfile.BadZipFile(f"{name!r} is in {seen[blocked]!r}, which is a file")


def _list_parents(name: str) -> Iterator[str]:
    while "/" in name:
        name = name.rpartition("/")[0]
        yield name


def _check_kind(header: Header, name: str) -> None:
    """Raise BadZipFile for a member that is a file by its name and a folder by its attributes."""
    is_folder = name.endswith("/")
    kind = stat.S_IFMT(header.attributes >> 16)
    contradicts = (
        kind == stat.S_IFREG or header.size or header.packed > _EMPTY_STREAM
        if is_folder
        else kind == stat.S_IFDIR or header.attributes & _DOS_FOLDER
    )
    if contradicts:
        raise zipfile.BadZipFile(f"{name!r} is a file for some programs and a folder for others")


def _decode(header: Header) -> str:
    """Return the name. Raises BadZipFile for one that programs decode differently."""
    try:
        return header.name.decode("utf-8" if header.flags & _UTF8 else "ascii")
    except UnicodeDecodeError:
        raise zipfile.BadZipFile(
            f"{_show(header.name)} is a name that programs decode differently"
        ) from None


def _show(name: bytes) -> str:
    """Return a name for a message."""
    return ascii(name.decode("utf-8", "replace"))
