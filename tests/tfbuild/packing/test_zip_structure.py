"""Archives that two programs read differently are refused, and what real tools write is not."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path
from typing import IO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders.index_wheels import stand_in, wheel_of
from tests.builders.zip_files import (
    DEFLATED,
    FILE,
    FOLDER,
    FULL,
    Ending,
    Header,
    Member,
    descriptor,
    streamed,
    write_zip,
    zip64,
)

from tfbuild.packing.wheel import list_files, open_wheel, verify_record
from tfbuild.packing.zip_structure import read_blocks
from tfcore.errors import WheelError

A = Member(name=b"a/x.py")
B = Member(name=b"a/y.py", data=b"y = 2\n" * 50, method=DEFLATED)
C = Member(name=b"b.py", data=b"z = 3\n")
PLAIN = (A, B, C)
PATH_FIELD = struct.pack("<HHBL", 0x7075, 5 + 6, 1, zlib.crc32(A.name)) + b"evil.p"
HIDDEN = write_zip([Member(name=b"evil.py")])


def local(member: Member, **fields: object) -> Member:
    return Member(**{**vars(member), "local": Header(**fields)})  # type: ignore[arg-type]


def central(member: Member, **fields: object) -> Member:
    return Member(**{**vars(member), "central": Header(**fields)})  # type: ignore[arg-type]


def altered(member: Member, **fields: object) -> Member:
    return Member(**{**vars(member), **fields})


SOUND = {
    "stored and deflated": write_zip(PLAIN),
    "nothing": write_zip([]),
    "a folder": write_zip([altered(A, name=b"a/", data=b"", attributes=FOLDER), A]),
    "a folder without attributes": write_zip([altered(A, name=b"a/", data=b"", attributes=0), A]),
    "a folder with an empty stream": write_zip(
        [altered(A, name=b"a/", data=b"", attributes=FOLDER, method=DEFLATED), A]
    ),
    "sizes behind the data": write_zip([streamed(B), C]),
    "sizes behind the data, without a magic number": write_zip([streamed(B, magic=b""), C]),
    "sizes that Zip64 fields repeat": write_zip([local(A, extra=zip64(len(A.data), len(A.data)))]),
    "Zip64 fields": write_zip(
        [
            Member(
                name=b"a",
                local=Header(size=FULL, packed=FULL, extra=zip64(6, 6)),
                central=Header(size=FULL, packed=FULL, offset=FULL, extra=zip64(6, 6, 0)),
            )
        ]
    ),
    "a Zip64 end record": write_zip(PLAIN, end=Ending(zip64=True)),
    "a Zip64 end record that is needed": write_zip(
        PLAIN, end=Ending(zip64=True, count=0xFFFF, here=0xFFFF, begin=FULL, size=FULL)
    ),
    "a name of other letters": write_zip([altered(A, name="é.py".encode(), flags=0x800)]),
    "times of a file": write_zip([local(A, extra=struct.pack("<HHBL", 0x5455, 5, 1, 0))]),
}

CONFUSING: dict[str, dict[str, bytes]] = {
    "bytes that belong to no member": {
        "before": write_zip(PLAIN, before=b"#!/bin/sh\n"),
        "an archive before": write_zip(PLAIN, before=HIDDEN),
        "before the directory": write_zip(PLAIN, gap=b"evil"),
        "an archive before the directory": write_zip(PLAIN, gap=HIDDEN),
        "between members": write_zip([altered(A, tail=b"evil"), B]),
        "behind the directory": write_zip(PLAIN, behind_directory=b"evil"),
        "behind": write_zip(PLAIN, behind=b"evil"),
        "an archive behind": write_zip(PLAIN, behind=HIDDEN),
        "a comment": write_zip(PLAIN, end=Ending(comment=b"evil")),
        "an end record in a comment": write_zip(PLAIN, end=Ending(comment=HIDDEN[-22:])),
        "a member that the directory does not name": write_zip(PLAIN, unlisted=[0]),
        "a hidden member in the middle": write_zip(PLAIN, unlisted=[1]),
        "a hidden last member": write_zip(PLAIN, unlisted=[2]),
    },
    "overlapping members": {
        "one member twice": write_zip([A, central(B, offset=0)]),
        "a member in another": write_zip(
            [altered(A, data=HIDDEN), altered(C, central=Header(offset=30 + len(A.name)))]
        ),
        "into the directory": write_zip([A, altered(C, central=Header(packed=400, size=400))]),
        "the directory elsewhere": write_zip(PLAIN, end=Ending(begin=0)),
        "a place behind the file": write_zip([central(A, offset=1 << 20)]),
    },
    "headers that contradict": {
        "another name": write_zip([local(A, name=b"evil.p")]),
        "a longer name": write_zip([local(A, name=b"a/x.pyc")]),
        "another size": write_zip([local(A, size=5)]),
        "another packed size": write_zip([local(B, packed=5)]),
        "another checksum": write_zip([local(A, crc=1)]),
        "another method": write_zip([local(B, method=0)]),
        "flags that few readers know": write_zip([altered(A, flags=0x20)]),
        "strong encryption": write_zip([altered(A, flags=0x40)]),
        "an encrypted local header": write_zip([local(A, flags=1)]),
        "sizes that follow for one header only": write_zip([local(A, flags=8)]),
        "no header": write_zip(PLAIN).replace(b"PK\x03\x04", b"PK\x03\x05", 1),
        "fewer entries than members": write_zip(PLAIN, end=Ending(count=2, here=2)),
        "more entries than members": write_zip(PLAIN, end=Ending(count=4, here=4)),
    },
    "stored data of unknown length": {
        "a data descriptor": write_zip([streamed(C), B]),
        "a data descriptor after one that is data": write_zip(
            [streamed(altered(C, data=descriptor(C) + HIDDEN))]
        ),
        "more bytes than the size": write_zip([altered(C, behind_stream=b"e")]),
        "a folder with a hidden member": write_zip(
            [altered(A, name=b"a/", data=b"", attributes=FOLDER, behind_stream=HIDDEN)]
        ),
    },
    "data descriptors": {
        "another size": write_zip([streamed(B, size=5)]),
        "none": write_zip([altered(streamed(B), tail=b"")]),
        "too long": write_zip([altered(streamed(B), tail=descriptor(B) + b"evil"), C]),
        "some sizes in the header": write_zip([altered(streamed(B), local=Header(size=7))]),
    },
    "Zip64": {
        "sizes that contradict": write_zip([central(A, extra=zip64(7, 7))]),
        "sizes that the directory repeats": write_zip([central(A, extra=zip64(6, 6))]),
        "local sizes that contradict": write_zip([local(A, extra=zip64(7, 7))]),
        "a field that is missing": write_zip([central(A, size=FULL)]),
        "a local field that is missing": write_zip([local(A, size=FULL, packed=FULL)]),
        "a field that is too short": write_zip(
            [central(A, size=FULL, packed=FULL, extra=zip64(6))]
        ),
        "a place that contradicts": write_zip([central(A, extra=zip64(6, 6, 99))]),
        "end records with other counts": write_zip(PLAIN, end=Ending(zip64=True, count64=2)),
        "end records with other places": write_zip(PLAIN, end=Ending(zip64=True, begin64=0)),
        "a locator elsewhere": write_zip(PLAIN, end=Ending(zip64=True, locator=0)),
        "no end record of Zip64": write_zip(PLAIN, end=Ending(begin=FULL)),
        "a field twice": write_zip([central(A, extra=zip64(6, 6) * 2)]),
    },
    "extra fields": {
        "a second path": write_zip([altered(A, central=Header(extra=PATH_FIELD))]),
        "a second path in the local header": write_zip([local(A, extra=PATH_FIELD)]),
        "an incomplete field": write_zip([local(A, extra=b"\1")]),
        "a field that is too long": write_zip([central(A, extra=struct.pack("<HH", 0x5455, 9))]),
    },
    "names": {
        "twice": write_zip([A, A]),
        "another case": write_zip([A, altered(A, name=b"A/X.PY")]),
        "another Unicode form": write_zip(
            [
                altered(A, name="é.py".encode(), flags=0x800),
                altered(A, name="e\u0301.py".encode(), flags=0x800),
            ]
        ),
        "letters without their encoding": write_zip([altered(A, name="é.py".encode())]),
        "no UTF-8": write_zip([altered(A, name=b"\xff.py", flags=0x800)]),
        "a zero byte": write_zip([altered(A, name=b"a.py\0b")]),
        "a backslash": write_zip([altered(A, name=b"a\\b.py")]),
        "a file with a trailing slash": write_zip([altered(A, name=b"a/")]),
        "an empty file with a trailing slash": write_zip(
            [altered(A, name=b"a/", data=b"", attributes=FILE)]
        ),
        "a folder without a slash": write_zip([altered(A, name=b"a", data=b"", attributes=FOLDER)]),
        "a folder of DOS without a slash": write_zip(
            [altered(A, name=b"a", data=b"", attributes=0x10)]
        ),
        "a file that is a folder, too": write_zip([altered(A, name=b"a"), A]),
        "a file and its folder": write_zip(
            [altered(A, name=b"a"), altered(A, name=b"a/", data=b"", attributes=FOLDER)]
        ),
        "a file in a folder of another case": write_zip([altered(A, name=b"A"), A]),
    },
    "disks": {
        "another disk": write_zip(PLAIN, end=Ending(disk=1)),
        "a member on another disk": write_zip([central(A, disk=1)]),
        "entries elsewhere": write_zip(PLAIN, end=Ending(here=2)),
    },
}
FORMS = {
    f"{kind}: {form}": data for kind, forms in CONFUSING.items() for form, data in forms.items()
}


def opened(data: bytes, folder: Path) -> list[tuple[str, bytes]]:
    """The members, if the archive is opened."""
    path = folder / "x-1.0-py3-none-any.whl"
    path.write_bytes(data)
    with open_wheel(path) as archive, path.open("rb") as source:
        return [
            (info.filename, b"".join(read_blocks(source, info))) for info in list_files(archive)
        ]


def streamed_members(source: IO[bytes]) -> list[tuple[str, bytes]]:
    """The members as a reader from the front finds them, which never sees the directory."""
    found = []
    while (magic := source.read(4)) == b"PK\x03\x04":
        _, flags, method, _, _, _, packed, _, name, extra = struct.unpack(
            "<5H3L2H", source.read(26)
        )
        title = source.read(name).decode()
        source.seek(extra, io.SEEK_CUR)
        if method == DEFLATED:
            stream, data = zlib.decompressobj(-zlib.MAX_WBITS), b""
            while not stream.eof:
                data += stream.decompress(source.read(1))
        else:
            data = source.read(packed)
        if flags & 8:
            source.seek(12 if source.read(4) == b"PK\x07\x08" else 8, io.SEEK_CUR)
        if not title.endswith("/"):
            found.append((title, data))
    assert magic in {b"PK\x01\x02", b"PK\x05\x06", b"PK\x06\x06"}
    return found


@pytest.mark.parametrize("form", SOUND)
def test_what_the_format_permits_without_doubt_is_read(form: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(io.BytesIO(SOUND[form])) as archive:
        expected = [
            (info.filename, archive.read(info)) for info in archive.infolist() if not info.is_dir()
        ]
    assert opened(SOUND[form], tmp_path) == expected


@pytest.mark.parametrize("form", FORMS)
def test_what_two_programs_read_differently_is_refused(form: str, tmp_path: Path) -> None:
    with pytest.raises(WheelError):
        opened(FORMS[form], tmp_path)


def test_zipfile_alone_takes_many_of_them() -> None:
    """Otherwise the second reading would be of no use."""
    taken = []
    for form, data in FORMS.items():
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                archive.testzip()
            taken.append(form)
        except (
            *(zipfile.BadZipFile, NotImplementedError, EOFError, zlib.error),
            *(ValueError, RuntimeError),  # (a negative place; an encrypted member)
        ):
            continue
    assert len(taken) > len(FORMS) / 3


@pytest.mark.parametrize("behind", [b"e", HIDDEN])
def test_bytes_behind_a_compressed_stream_are_no_part_of_a_member(
    behind: bytes, tmp_path: Path
) -> None:
    with pytest.raises(WheelError, match="behind its compressed data"):
        opened(write_zip([altered(B, behind_stream=behind), C]), tmp_path)


def test_bytes_behind_record_are_noticed_too(tmp_path: Path) -> None:
    wheel = stand_in(tmp_path, "1.0", name="gast", python="py3")
    with zipfile.ZipFile(wheel) as archive:
        members = [
            Member(name=info.filename.encode(), data=archive.read(info), method=DEFLATED)
            for info in archive.infolist()
        ]
    members[-1] = altered(members[-1], behind_stream=HIDDEN)
    assert members[-1].name.endswith(b"RECORD")
    wheel.write_bytes(write_zip(members))
    with pytest.raises(WheelError, match="behind its compressed data"):
        verify_record(wheel)


_NAMES = st.sampled_from([b"a", b"a/b", b"A", b"c.py", b"d/", "é".encode(), b"x-1.0.dist-info/R"])
_EXTRAS = st.sampled_from([b"", zip64(6, 6), zip64(6), PATH_FIELD, b"\0\0\0\0", b"\1"])
_HEADERS = st.builds(
    Header,
    name=st.none() | _NAMES,
    flags=st.none() | st.sampled_from([0, 1, 8, 0x800]),
    method=st.none() | st.sampled_from([0, 8]),
    crc=st.none() | st.integers(0, 3),
    packed=st.none() | st.sampled_from([0, 6, FULL]),
    size=st.none() | st.sampled_from([0, 6, FULL]),
    extra=st.just(b"") | _EXTRAS,
)
_MEMBERS = st.builds(
    Member,
    name=_NAMES,
    data=st.sampled_from([b"", b"x = 1\n", HIDDEN]),
    method=st.sampled_from([0, 8]),
    attributes=st.sampled_from([FILE, FOLDER, 0, 0x10]),
    behind_stream=st.just(b"") | st.sampled_from([b"e", HIDDEN]),
    local=st.just(Header()) | _HEADERS,
    central=st.just(Header()) | _HEADERS,
    tail=st.just(b"") | st.sampled_from([b"e", descriptor(A)]),
)


@st.composite
def _archives(draw: st.DrawFn) -> bytes:
    """Archives of members in any state, of which some bytes are then changed."""
    members = draw(st.lists(_MEMBERS | _MEMBERS.map(streamed), max_size=4))
    data = bytearray(
        write_zip(
            members,
            before=draw(st.just(b"") | st.just(HIDDEN)),
            gap=draw(st.just(b"") | st.just(HIDDEN)),
            behind=draw(st.just(b"") | st.just(HIDDEN)),
            end=draw(st.just(Ending()) | st.builds(Ending, zip64=st.booleans())),
        )
    )
    for place in draw(st.lists(st.integers(0, len(data) - 1), max_size=2)):
        data[place] = draw(st.integers(0, 255))
    return bytes(data)


@settings(max_examples=400)
@given(data=_archives())
def test_what_is_read_is_read_alike_from_the_front(
    data: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("archive")
    try:
        members = opened(data, folder)
    except (WheelError, zipfile.BadZipFile, zlib.error, EOFError):
        return
    assert streamed_members(io.BytesIO(data)) == members


@pytest.mark.parametrize(
    "names",
    [
        ["other-9.data/purelib/gast/x.py"],
        ["gast/x.py", "gast-1.0.data/purelib/gast/x.py"],
        ["gast-1.0.data/purelib/gast/x.py", "gast-1.0.data/platlib/gast/x.py"],
    ],
)
def test_data_that_installers_put_in_different_places_is_refused(
    names: list[str], tmp_path: Path
) -> None:
    """pip installs every .data folder, uv only the wheel's own; and the last member wins."""
    wheel = wheel_of(tmp_path, "gast-1.0", dict.fromkeys(names, "x = 1\n"))
    with pytest.raises(WheelError, match=r"data of another wheel|would be installed as"):
        verify_record(wheel)


def test_data_of_the_wheel_itself_is_read(tmp_path: Path) -> None:
    names = ["gast/x.py", "gast-1.0.data/purelib/gast/y.py", "gast-1.0.data/scripts/x.py"]
    assert len(verify_record(wheel_of(tmp_path, "gast-1.0", dict.fromkeys(names, "x")))) > 3


@pytest.mark.toolchain
def test_pip_and_uv_unpack_what_is_read(tmp_path: Path) -> None:
    """A wheel with each harmless form: both install the files that we see."""
    wheel = stand_in(tmp_path, "1.0", name="gast", python="py3")
    with zipfile.ZipFile(wheel) as archive:
        members = [
            Member(name=info.filename.encode(), data=archive.read(info), method=DEFLATED)
            for info in archive.infolist()
        ]
    wheel.write_bytes(
        write_zip(
            [streamed(members[0]), local(members[1], extra=zip64(0, 2)), *members[2:]],
            end=Ending(zip64=True),
        )
    )
    names = {line.name for line in verify_record(wheel)}
    for tool in (
        ["-m", "pip", "install", "--no-index", "--no-deps"],
        ["-m", "uv", "pip", "install", "--offline"],
    ):
        target = tmp_path / tool[1]
        subprocess.run([sys.executable, *tool, "--target", target, wheel], check=True)
        assert all((target / name).is_file() for name in names)
