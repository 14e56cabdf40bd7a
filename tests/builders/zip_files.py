"""Zip files written byte by byte, also such that two programs read differently."""

from __future__ import annotations

import dataclasses
import stat
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

STORED, DEFLATED = 0, 8
FILE, FOLDER = (stat.S_IFREG | 0o644) << 16, (stat.S_IFDIR | 0o755) << 16
FULL = 0xFFFFFFFF
LOCAL, CENTRAL, END = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"


@dataclass(frozen=True, kw_only=True)
class Header:
    """One header of a member; None means the value that the data has."""

    name: bytes | None = None
    flags: int | None = None
    method: int | None = None
    crc: int | None = None
    packed: int | None = None
    size: int | None = None
    offset: int | None = None
    extra: bytes = b""
    disk: int = 0


@dataclass(frozen=True, kw_only=True)
class Member:
    """A member; `tail` is what follows its data, as a descriptor does."""

    name: bytes
    data: bytes = b"x = 1\n"
    method: int = STORED
    flags: int = 0
    attributes: int = FILE
    behind_stream: bytes = b""
    local: Header = field(default_factory=Header)
    central: Header = field(default_factory=Header)
    tail: bytes = b""

    @property
    def packed(self) -> bytes:
        if self.method == STORED:
            return self.data + self.behind_stream
        stream = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
        return stream.compress(self.data) + stream.flush() + self.behind_stream


@dataclass(frozen=True, kw_only=True)
class Ending:
    """The end record; None means the true value. `zip64` is put before it."""

    count: int | None = None
    here: int | None = None
    disk: int = 0
    size: int | None = None
    begin: int | None = None
    comment: bytes = b""
    zip64: bool = False
    count64: int | None = None
    begin64: int | None = None
    locator: int | None = None


def _value(given: int | None, true: int) -> int:
    return true if given is None else given


def _values(member: Member, header: Header) -> tuple[int, ...]:
    return (
        _value(header.flags, member.flags),
        _value(header.method, member.method),
        _value(header.crc, zlib.crc32(member.data)),
        _value(header.packed, len(member.packed)),
        _value(header.size, len(member.data)),
    )


def write_local(member: Member) -> bytes:
    header = member.local
    flags, method, *sizes = _values(member, header)
    name = member.name if header.name is None else header.name
    head = struct.pack(
        "<4s5H3L2H", LOCAL, 20, flags, method, 0, 33, *sizes, len(name), len(header.extra)
    )
    return head + name + header.extra + member.packed + member.tail


def write_central(member: Member, offset: int) -> bytes:
    header = member.central
    flags, method, *sizes = _values(member, header)
    name = member.name if header.name is None else header.name
    head = struct.pack(
        "<4s6H3L5H2L",
        *(CENTRAL, 0x0314, 20, flags, method, 0, 33, *sizes),
        *(len(name), len(header.extra), 0, header.disk, 0),
        *(member.attributes, _value(header.offset, offset)),
    )
    return head + name + header.extra


def write_zip(
    members: Sequence[Member],
    *,
    before: bytes = b"",
    gap: bytes = b"",
    behind_directory: bytes = b"",
    behind: bytes = b"",
    unlisted: Sequence[int] = (),
    end: Ending | None = None,
) -> bytes:
    """Write an archive; `gap` is put before the directory, `unlisted` members are not in it."""
    end = end or Ending()
    body, central = before, b""
    for place, member in enumerate(members):
        if place not in unlisted:
            central += write_central(member, len(body))
        body += write_local(member)
    body += gap
    count, begin, size = len(members) - len(unlisted), len(body), len(central)
    body += central + behind_directory
    if end.zip64:
        place = len(body)
        count64, begin64 = _value(end.count64, count), _value(end.begin64, begin)
        body += struct.pack(
            "<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count64, count64, size, begin64
        )
        body += struct.pack("<4sLQL", b"PK\x06\x07", 0, _value(end.locator, place), 1)
    body += struct.pack(
        "<4s4H2LH",
        *(END, end.disk, end.disk, _value(end.here, count), _value(end.count, count)),
        *(_value(end.size, size), _value(end.begin, begin), len(end.comment)),
    )
    return body + end.comment + behind


def zip64(*values: int) -> bytes:
    """A Zip64 extra field."""
    return struct.pack(f"<HH{len(values)}Q", 1, 8 * len(values), *values)


def descriptor(member: Member, *, magic: bytes = b"PK\x07\x08", size: int | None = None) -> bytes:
    return magic + struct.pack(
        "<LLL", zlib.crc32(member.data), len(member.packed), _value(size, len(member.data))
    )


def streamed(member: Member, *, magic: bytes = b"PK\x07\x08", size: int | None = None) -> Member:
    """The member with its sizes behind it, and none in its own header."""
    flagged = dataclasses.replace(member, flags=member.flags | 8)
    return dataclasses.replace(
        flagged,
        local=dataclasses.replace(member.local, crc=0, packed=0, size=0),
        tail=descriptor(flagged, magic=magic, size=size),
    )
