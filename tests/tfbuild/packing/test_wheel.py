"""Wheels that are read, verified and repacked, with the installers that must accept them."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unicodedata
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.builders.examples import at_most
from tests.builders.file_limits import mounted_disk
from tests.builders.mutations import flip_bit

from tfbuild.packing.repack import repack, replace_platform
from tfbuild.packing.wheel import (
    WheelIdentity,
    extract,
    read_identity,
    read_member,
    read_record,
    verify_record,
)
from tfcore.errors import BusyError, DiskError, WheelError
from tfcore.run import run
from tfcore.settings import ROOT

STOCK_NAME = "demo_pkg-1.0-py3-none-any.whl"
INFO = "demo_pkg-1.0.dist-info"
METADATA = (
    b"Metadata-Version: 2.1\nName: demo-pkg\nVersion: 1.0\n\nVersion: 1.0 is described here\n"
)


def noise(size: int) -> bytes:
    """The same bytes each time, and incompressible."""
    return hashlib.shake_256(b"tensorwright").digest(size)


MEMBERS: Mapping[str, bytes] = {
    "demo_pkg/__init__.py": b"answer = 42\n",
    "demo_pkg/include/a.h": b"#define A 1\n" * 200,
    "demo_pkg/include/deep/b.h": b"",
    "demo_pkg/libdemo.so.2": noise(20_000),
    "demo_pkg-1.0.data/data/share/demo.txt": b"from the data folder\n",
    f"{INFO}/METADATA": METADATA,
    f"{INFO}/WHEEL": b"Wheel-Version: 1.0\nGenerator: demo (1)\nRoot-Is-Purelib: true\n"
    b"Tag: py3-none-any\n\n",
}
Lines = list[tuple[str, str, str]]


def line_of(name: str, content: bytes) -> tuple[str, str, str]:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    return name, f"sha256={digest}", str(len(content))


def record_of(members: Mapping[str, bytes]) -> Lines:
    return [*(line_of(*member) for member in members.items()), (f"{INFO}/RECORD", "", "")]


def record_text(lines: Lines) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(lines)
    return text.getvalue().encode()


def make_wheel(
    folder: Path,
    members: Mapping[str, bytes] = MEMBERS,
    *,
    lines: Lines | None = None,
    name: str = STOCK_NAME,
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    whole = {**members, f"{INFO}/RECORD": record_text(lines or record_of(members))}
    with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.mkdir("demo_pkg")
        for member, content in whole.items():
            wheel.writestr(zipfile.ZipInfo(member, (2023, 11, 14, 1, 2, 4)), content)
    return folder / name


def contents(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as wheel:
        return {info.filename: wheel.read(info) for info in wheel.infolist() if not info.is_dir()}


@pytest.fixture
def stock(tmp_path: Path) -> Path:
    return make_wheel(tmp_path / "stock")


def tuned(stock: Path, out_dir: Path, **add: bytes) -> Path:
    """A repacked wheel with one module more."""
    added: dict[str, Path | bytes] = {"demo_pkg/fast.py": b"speed = 1\n"}
    added |= {f"demo_pkg/{name}.py": content for name, content in add.items()}
    files = {"tuned.json": b"{}\n", "sboms/demo.cdx.json": b"{}\n"}
    return repack(stock, local="skylake", add=added, out_dir=out_dir, dist_info_files=files)


# ---- what a name says ----


def test_a_name_says_name_version_and_tags() -> None:
    path = Path(
        "tensorflow_cpu-2.14.1+zen4.abc-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
    )
    assert read_identity(path) == WheelIdentity(
        name="tensorflow-cpu",
        version="2.14.1+zen4.abc",
        tags=("cp311-cp311-manylinux2014_x86_64", "cp311-cp311-manylinux_2_17_x86_64"),
    )


@pytest.mark.parametrize("name", ["demo.whl", "demo-1.0.tar.gz", "demo-x-py3-none-any.whl", ""])
def test_another_name_is_refused(name: str) -> None:
    with pytest.raises(WheelError):
        read_identity(Path(name))


# ---- what RECORD says ----


def test_a_whole_wheel_is_verified(stock: Path) -> None:
    assert [tuple(line) for line in verify_record(stock)] == record_of(MEMBERS)[:-1]


def test_a_wheel_whose_own_hash_was_checked_is_only_read(stock: Path, tmp_path: Path) -> None:
    assert read_record(stock) == verify_record(stock)
    lines = [("demo_pkg/__init__.py", "sha256=wrong", "1"), *record_of(MEMBERS)[1:]]
    path = make_wheel(tmp_path / "wrong", lines=lines)
    assert {line.name for line in read_record(path)} == {line.name for line in read_record(stock)}
    with pytest.raises(WheelError, match=INIT):
        verify_record(path)


def test_a_signature_needs_no_line(tmp_path: Path) -> None:
    signed = {**MEMBERS, f"{INFO}/RECORD.jws": b"signature"}
    assert verify_record(make_wheel(tmp_path, signed, lines=record_of(MEMBERS)))


def changed(lines: Lines, name: str, *remainder: str) -> Lines:
    return [(name, *remainder) if line[0] == name else line for line in lines]  # type: ignore[misc]


INIT = "demo_pkg/__init__.py"
DIGEST, SIZE = line_of(INIT, MEMBERS[INIT])[1:]


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (record_of(MEMBERS)[1:], INIT),
        ([*record_of(MEMBERS), line_of("gone.py", b"")], "gone.py"),
        (changed(record_of(MEMBERS), *line_of(INIT, b"answer = 41\n")), INIT),
        (changed(record_of(MEMBERS), INIT, DIGEST, "11"), INIT),
        (changed(record_of(MEMBERS), INIT, "", SIZE), INIT),
        (changed(record_of(MEMBERS), INIT, "md5=abc", SIZE), INIT),
        (changed(record_of(MEMBERS), INIT, DIGEST), "three fields"),
    ],
)
def test_a_record_that_is_not_true_is_refused(tmp_path: Path, lines: Lines, reason: str) -> None:
    with pytest.raises(WheelError, match=r"demo_pkg-1\.0-py3-none-any\.whl") as e:
        verify_record(make_wheel(tmp_path, lines=lines))
    assert reason in e.value.message


def test_a_record_with_stronger_hashes_is_verified(tmp_path: Path) -> None:
    digest = base64.urlsafe_b64encode(hashlib.sha512(MEMBERS[INIT]).digest()).decode().rstrip("=")
    lines = changed(record_of(MEMBERS), INIT, f"sha512={digest}", SIZE)
    assert verify_record(make_wheel(tmp_path, lines=lines))[0].digest == f"sha512={digest}"


@pytest.mark.parametrize("count", [0, 2])
def test_a_wheel_has_one_record(tmp_path: Path, count: int) -> None:
    path = tmp_path / STOCK_NAME
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(INIT, b"")
        for i in range(count):
            wheel.writestr(f"demo{i}.dist-info/RECORD", b"")
    with pytest.raises(WheelError, match=f"{count} RECORD files"):
        verify_record(path)


# ---- damage ----


def small_wheel(folder: Path) -> Path:
    members = {INIT: b"answer = 42\n" * 9, f"{INFO}/METADATA": METADATA}
    return make_wheel(folder, members)


def test_a_wheel_cut_anywhere_is_refused(tmp_path: Path) -> None:
    path = small_wheel(tmp_path)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(WheelError):
            verify_record(path)


@pytest.mark.parametrize("flip", [0x01, 0x20, 0xFF])
def test_a_flipped_byte_is_refused_or_changes_no_content(tmp_path: Path, flip: int) -> None:
    path = small_wheel(tmp_path)
    whole, before = path.read_bytes(), contents(path)
    refused = 0
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= flip
        path.write_bytes(damaged)
        try:
            verify_record(path)
        except WheelError:
            refused += 1
        else:
            assert contents(path) == before, position
    assert refused > len(whole) // 2


def damage_library(wheel: Path) -> None:
    content = MEMBERS["demo_pkg/libdemo.so.2"][9000:9040]
    flip_bit(wheel, wheel.read_bytes().index(content))


def test_a_damaged_member_is_named(stock: Path) -> None:
    damage_library(stock)
    with pytest.raises(WheelError, match=r"demo_pkg/libdemo\.so\.2 .*another size or checksum"):
        verify_record(stock)
    with pytest.raises(WheelError, match="another size or checksum"):
        read_member(stock, "demo_pkg/libdemo.so.2")


def test_a_wheel_that_is_not_there_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(WheelError, match=r": No such file or directory$"):
        verify_record(tmp_path / STOCK_NAME)


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR])
def test_a_link_or_device_is_refused(tmp_path: Path, kind: int) -> None:
    """pip writes what a link would point to as a file's bytes, unzip follows it."""
    path = make_wheel(tmp_path)
    info = zipfile.ZipInfo("demo_pkg/link.py")
    info.create_system, info.external_attr = 3, (kind | 0o777) << 16
    with zipfile.ZipFile(path, "a") as wheel:
        wheel.writestr(info, "/etc/passwd")
    with pytest.raises(WheelError, match=r"link\.py is a link"):
        verify_record(path)


@pytest.mark.parametrize("name", [f"{INFO}/RECORD", f"{INFO}/METADATA"])
def test_a_member_that_would_fill_the_memory_is_not_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / STOCK_NAME
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        if name != f"{INFO}/RECORD":
            wheel.writestr(f"{INFO}/RECORD", b"")
        wheel.writestr(name, bytes((64 << 20) + 1))
    assert path.stat().st_size < 1 << 20
    with pytest.raises(WheelError, match=f"{name} is too large"):
        read_member(path, name)


def test_an_encrypted_member_is_refused(stock: Path) -> None:
    raw = bytearray(stock.read_bytes())
    raw[raw.rindex(b"PK\1\2") + 8] |= 1
    stock.write_bytes(raw)
    with pytest.raises(WheelError, match="encrypted"):
        verify_record(stock)


def test_a_member_that_is_there_twice_is_refused(stock: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(stock, "a") as wheel:
        wheel.writestr(INIT, b"answer = 43\n")
    with pytest.raises(WheelError, match=f"{INIT} occurs twice"):
        verify_record(stock)


ESCAPES = (
    "a\r",
    "a\nb",
    "../evil",
    "/evil",
    "a/../../evil",
    "a//b",
    "./evil",
    "a\\..\\evil",
    "C:/evil",
    "c:evil",
)


@pytest.mark.parametrize("name", ESCAPES)
def test_a_member_that_would_leave_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    path = make_wheel(tmp_path, {**MEMBERS, name: b"evil"})
    for act in (verify_record, lambda p: extract(p, (name,), tmp_path / "x" / "y")):
        with pytest.raises(WheelError, match="valid file name"):
            act(path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [STOCK_NAME]


# ---- taking members out ----


def test_a_member_is_read(stock: Path) -> None:
    assert read_member(stock, INIT) == b"answer = 42\n"
    with pytest.raises(WheelError, match=r"demo_pkg/gone\.py"):
        read_member(stock, "demo_pkg/gone.py")


def test_only_what_is_under_a_prefix_is_unpacked(stock: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "stock"
    extract(stock, ("demo_pkg/include/", "demo_pkg/libdemo.so.2"), folder)
    files = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    assert files == {name: MEMBERS[name] for name in list(MEMBERS)[1:4]}
    assert [p.name for p in folder.parent.iterdir()] == ["stock"]


def test_of_a_folder_that_is_left_out_what_has_a_longer_prefix_is_unpacked(tmp_path: Path) -> None:
    names = ("own.h", "others/one/a.h", "others/two/b.h", "others/two/src/c.h", "others.h")
    path = make_wheel(tmp_path, dict.fromkeys((f"include/{name}" for name in names), b"x"))
    expected = ("include/", "include/others/two/src/")
    extract(path, expected, tmp_path / "out", without=("include/others/",))
    actual = {str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*.h")}
    assert actual == {"include/own.h", "include/others/two/src/c.h", "include/others.h"}


def test_a_folder_that_is_there_is_left_as_it_is(stock: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    extract(stock, ("demo_pkg/",), tmp_path / "there")
    assert not list((tmp_path / "there").iterdir())


@pytest.mark.parametrize("prefix", ["demo_pkg/gone/", "demo_pkg/libdemo.so", "demo_pkg/include"])
def test_a_prefix_without_members_is_refused(stock: Path, tmp_path: Path, prefix: str) -> None:
    with pytest.raises(WheelError, match=prefix):
        extract(stock, ("demo_pkg/include/", prefix), tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_a_damaged_wheel_unpacks_nothing(stock: Path, tmp_path: Path) -> None:
    damage_library(stock)
    folder = tmp_path / "cache" / "stock"
    with pytest.raises(WheelError, match="Bad CRC-32"):
        extract(stock, ("demo_pkg/",), folder)
    assert not list(folder.parent.iterdir())


def test_a_place_that_cannot_be_written_is_a_disk_error(stock: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DiskError, match=r"Not a directory|File exists"):
        extract(stock, ("demo_pkg/",), tmp_path / "file" / "x")
    with pytest.raises(DiskError, match=r"Not a directory|File exists"):
        tuned(stock, tmp_path / "file")


# ---- the tuned wheel ----


def test_the_local_version_stands_everywhere(stock: Path, tmp_path: Path) -> None:
    wheel = tuned(stock, tmp_path / "pool")
    assert wheel == tmp_path / "pool" / "demo_pkg-1.0+skylake-py3-none-any.whl"
    assert [p.name for p in wheel.parent.iterdir()] == [wheel.name]
    info = "demo_pkg-1.0+skylake.dist-info"
    expected = {
        name.replace("demo_pkg-1.0.", "demo_pkg-1.0+skylake."): content
        for name, content in MEMBERS.items()
    }
    expected |= {
        f"{info}/METADATA": METADATA.replace(b"Version: 1.0\n", b"Version: 1.0+skylake\n", 1),
        "demo_pkg/fast.py": b"speed = 1\n",
        f"{info}/tuned.json": b"{}\n",
        f"{info}/sboms/demo.cdx.json": b"{}\n",
    }
    files = contents(wheel)
    record = files.pop(f"{info}/RECORD").decode()
    assert files == expected
    assert [tuple(row) for row in csv.reader(record.splitlines())] == [
        *(line_of(name, files[name]) for name in files),
        (f"{info}/RECORD", "", ""),
    ]
    assert {line.name for line in verify_record(wheel)} == expected.keys()


@pytest.mark.parametrize(
    ("local", "version"),
    [("x86-64_v4", "1.0+x86.64.v4"), ("Zen4.03AB", "1.0+zen4.03ab"), ("7", "1.0+7")],
)
def test_the_local_version_is_normalized(
    stock: Path, tmp_path: Path, local: str, version: str
) -> None:
    wheel = repack(stock, local=local, add={}, out_dir=tmp_path, dist_info_files={})
    assert read_identity(wheel).version == version
    assert wheel.name.split("-")[1] == version
    metadata = read_member(wheel, f"demo_pkg-{version}.dist-info/METADATA")
    assert f"\nVersion: {version}\n".encode() in metadata


def raw_members(path: Path) -> dict[str, tuple[object, ...]]:
    """Compressed bytes, method, permissions and time of every member, found without our code."""
    actual: dict[str, tuple[object, ...]] = {}
    with zipfile.ZipFile(path) as wheel, path.open("rb") as source:
        for info in wheel.infolist():
            source.seek(info.header_offset + 26)
            lengths = source.read(4)
            source.seek(sum(int.from_bytes(lengths[i : i + 2], "little") for i in (0, 2)), 1)
            raw = source.read(info.compress_size)
            actual[info.filename] = (raw, info.compress_type, info.external_attr, info.date_time)
    return actual


def test_unchanged_members_are_copied_not_compressed_again(tmp_path: Path) -> None:
    # Stored where zipfile would deflate: whoever compresses again gives other bytes.
    stock = tmp_path / STOCK_NAME
    with zipfile.ZipFile(stock, "w", zipfile.ZIP_STORED) as wheel:
        for name, content in {**MEMBERS, f"{INFO}/RECORD": record_text(record_of(MEMBERS))}.items():
            info = zipfile.ZipInfo(name, (2023, 11, 14, 1, 2, 4))
            info.external_attr = 0o100755 << 16
            wheel.writestr(info, content)
    before, after = raw_members(stock), raw_members(tuned(stock, tmp_path / "pool"))
    for name in list(MEMBERS)[:4]:
        assert after[name] == before[name]
    assert after["demo_pkg/fast.py"][1:] == (
        zipfile.ZIP_DEFLATED,
        0o100644 << 16,
        (1980, 1, 1, 0, 0, 0),
    )


class Unseekable(io.RawIOBase):
    """A pipe: zipfile cannot go back to fill in sizes, so they follow the bytes."""

    def __init__(self) -> None:
        self.written = b""

    def writable(self) -> bool:
        return True

    def write(self, block: bytes) -> int:  # type: ignore[override]
        self.written += bytes(block)
        return len(block)


def with_sizes_behind(path: Path, members: Mapping[str, bytes]) -> None:
    pipe = Unseekable()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in members.items():
            wheel.writestr(name, content)
    path.write_bytes(pipe.written)
    with zipfile.ZipFile(path) as wheel:
        assert all(info.flag_bits & 0x8 for info in wheel.infolist())


def with_zip64_headers(path: Path, members: Mapping[str, bytes]) -> None:
    """Local headers get an extra field that the directory does not have."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in members.items():
            with wheel.open(name, "w", force_zip64=True) as sink:
                sink.write(content)
    assert path.read_bytes()[28] == 20


def with_extra_fields(path: Path, members: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as wheel:
        for name, content in members.items():
            info = zipfile.ZipInfo(name)
            info.extra = b"\x55\x54\x05\x00\x03\x00\x00\x00\x00"  # a Unix time
            wheel.writestr(info, content)


@pytest.mark.parametrize("write", [with_sizes_behind, with_zip64_headers, with_extra_fields])
def test_every_kind_of_zip_is_copied_right(
    tmp_path: Path, write: Callable[[Path, Mapping[str, bytes]], None]
) -> None:
    stock = tmp_path / STOCK_NAME
    write(stock, {**MEMBERS, f"{INFO}/RECORD": record_text(record_of(MEMBERS))})
    wheel = tuned(stock, tmp_path / "pool")
    verify_record(wheel)
    assert contents(wheel)[INIT] == MEMBERS[INIT]
    # Another reader than Python's goes by the local headers.
    run([sys.executable, "-c", READ_BY_LOCAL_HEADERS, wheel])


READ_BY_LOCAL_HEADERS = """
import struct, sys, zlib
data, place = open(sys.argv[1], "rb").read(), 0
while data[place:place + 4] == b"PK\\3\\4":
    header = struct.unpack_from("<6xHHIIIIHH", data, place)
    flags, method, _, crc, packed, size, name, extra = header
    raw = data[place + 30 + name + extra:][:packed]
    place += 30 + name + extra + packed
    assert not flags & 8, "sizes follow"
    if method == 8:
        raw = zlib.decompress(raw, -15)
    if method != 12:
        assert (len(raw), zlib.crc32(raw)) == (size, crc)
assert data[place:place + 4] == b"PK\\1\\2"
"""


def test_twice_the_same_bytes(stock: Path, tmp_path: Path) -> None:
    built = tmp_path / "kernels.so"
    built.write_bytes(noise(3 << 20))
    wheels = []
    for place, modified in (("one", 1), ("two", 10**9)):
        os.utime(built, (modified, modified))
        add: dict[str, Path | bytes] = {"demo_pkg/b.so": built, "demo_pkg/a.so": b"a"}
        if place == "two":
            add = dict(reversed(add.items()))
        wheels.append(
            repack(stock, local="zen4", add=add, out_dir=tmp_path / place, dist_info_files={})
        )
    single_data, two = (wheel.read_bytes() for wheel in wheels)
    assert single_data == two
    assert contents(wheels[0])["demo_pkg/b.so"] == built.read_bytes()


SEGMENT = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="/\\\0:"),
    min_size=1,
    max_size=12,
).filter(lambda text: text not in {".", ".."})
NAME = st.lists(SEGMENT, min_size=1, max_size=3).map(lambda parts: "pkg/" + "/".join(parts))


def are_apart(names: Iterable[str]) -> bool:
    """Whether every file system keeps these files apart, and none is in another."""
    folded = [unicodedata.normalize("NFC", name).casefold() for name in names]
    inside = any(one.startswith(f"{other}/") for one in folded for other in folded)
    return len(set(folded)) == len(folded) and not inside


@at_most(60)
@given(
    members=st.dictionaries(NAME, st.binary(max_size=300), max_size=6).filter(are_apart),
    added=st.dictionaries(NAME.map(lambda name: f"new/{name}"), st.binary(max_size=300)).filter(
        are_apart
    ),
)
@example(members={'pkg/a,"b"\u2028.py': b"x"}, added={"new/ä ö.so": b"\0" * 300})
def test_any_names_and_contents_survive(members: dict[str, bytes], added: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        stock = make_wheel(Path(folder), {**MEMBERS, **members})
        wheel = repack(
            stock, local="a", add=added, out_dir=Path(folder), dist_info_files={"x": b"y"}
        )
        verify_record(wheel)
        assert contents(wheel).items() >= {**members, **added}.items()


def test_crlf_metadata_keeps_its_line_ends(tmp_path: Path) -> None:
    text = METADATA.replace(b"\n", b"\r\n")
    stock = make_wheel(tmp_path, {**MEMBERS, f"{INFO}/METADATA": text})
    metadata = read_member(tuned(stock, tmp_path), "demo_pkg-1.0+skylake.dist-info/METADATA")
    assert metadata == text.replace(b"Version: 1.0\r\n", b"Version: 1.0+skylake\r\n", 1)


@pytest.mark.parametrize(
    "metadata", [b"Metadata-Version: 2.1\nName: demo-pkg\n\nVersion: 1.0\n", METADATA[22:38] * 2]
)
def test_metadata_without_one_version_is_refused(tmp_path: Path, metadata: bytes) -> None:
    stock = make_wheel(tmp_path / "stock", {**MEMBERS, f"{INFO}/METADATA": metadata})
    with pytest.raises(WheelError, match="0 Version lines"):
        tuned(stock, tmp_path / "pool")
    assert not list((tmp_path / "pool").iterdir())


def test_signatures_of_the_stock_wheel_are_not_passed_on(tmp_path: Path) -> None:
    signed = {**MEMBERS, f"{INFO}/RECORD.jws": b"signature"}
    wheel = tuned(make_wheel(tmp_path, signed, lines=record_of(MEMBERS)), tmp_path)
    assert not [name for name in contents(wheel) if name.endswith(".jws")]
    verify_record(wheel)


@pytest.mark.parametrize("local", ["", "a+b", "a b", "ä", "a..b", "../x", "a/b"])
def test_a_local_version_that_is_none_is_refused(stock: Path, tmp_path: Path, local: str) -> None:
    with pytest.raises(WheelError, match=r"local version"):
        repack(stock, local=local, add={}, out_dir=tmp_path / "pool", dist_info_files={})


def test_a_tuned_wheel_is_not_tuned_again(stock: Path, tmp_path: Path) -> None:
    with pytest.raises(WheelError, match=r"fast\.py .* demo_pkg-1\.0\+skylake"):
        tuned(tuned(stock, tmp_path), tmp_path)


def test_a_wheel_under_a_wrong_name_is_refused(stock: Path, tmp_path: Path) -> None:
    other_path = stock.rename(stock.with_name(STOCK_NAME.replace("1.0", "2.0")))
    with pytest.raises(WheelError, match=r"demo_pkg-1\.0\.dist-info"):
        tuned(other_path, tmp_path)


@pytest.mark.parametrize("name", [INIT, f"{INFO.replace('1.0', '1.0+a')}/RECORD", *ESCAPES])
def test_a_member_that_cannot_be_added_is_refused(stock: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(WheelError, match="cannot add"):
        repack(stock, local="a", add={name: b""}, out_dir=tmp_path / "pool", dist_info_files={})
    with pytest.raises(WheelError, match="cannot add"):
        repack(stock, local="a", add={}, out_dir=tmp_path / "pool", dist_info_files={"WHEEL": b""})
    assert not (tmp_path / "pool").exists()


def test_a_kernel_library_that_is_not_there_leaves_nothing(stock: Path, tmp_path: Path) -> None:
    add = {"demo_pkg/x.so": tmp_path / "gone.so"}
    with pytest.raises(WheelError, match=r"gone\.so: No such file or directory"):
        repack(stock, local="a", add=add, out_dir=tmp_path / "pool", dist_info_files={})
    assert not list((tmp_path / "pool").iterdir())


def test_a_damaged_stock_wheel_gives_no_tuned_one(stock: Path, tmp_path: Path) -> None:
    damage_library(stock)
    with pytest.raises(WheelError, match=r"libdemo\.so\.2"):
        tuned(stock, tmp_path / "pool")
    assert not (tmp_path / "pool").exists()


# ---- what can go wrong on the way ----

CHILD = """
import resource, sys
from pathlib import Path
from tfcore.errors import TensorwrightError
from tfbuild.packing.repack import repack
stock, out, added, limit = sys.argv[1:]
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
try:
    repack(Path(stock), local="a", add={"demo_pkg/x.so": Path(added)}, out_dir=Path(out),
           dist_info_files={})
except TensorwrightError as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


def child(stock: Path, out: Path, added: Path, limit: str = "") -> subprocess.Popen[str]:
    root = ROOT / "build"
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, stock, out, added, limit],
        env={**os.environ, "PYTHONPATH": str(root)},
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def blocked(stock: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that stands in the middle of writing a wheel into pool/."""
    os.mkfifo(tmp_path / "fifo")
    pool = tmp_path / "pool"
    with child(stock, pool, tmp_path / "fifo") as process:
        try:
            deadline = time.monotonic() + 30
            while not any(part.stat().st_size for part in pool.glob(".*.part")):
                assert time.monotonic() < deadline, "it never began to write"
                assert process.poll() is None
                time.sleep(0.01)
            yield process
        finally:
            process.kill()


def test_a_killed_run_leaves_no_wheel_and_the_next_one_continues(
    stock: Path, tmp_path: Path, blocked: subprocess.Popen[str]
) -> None:
    blocked.send_signal(signal.SIGKILL)
    assert blocked.wait() == -signal.SIGKILL
    pool = tmp_path / "pool"
    assert not list(pool.glob("*.whl"))
    wheel = repack(stock, local="a", add={}, out_dir=pool, dist_info_files={})
    verify_record(wheel)
    assert [p.name for p in pool.iterdir()] == [wheel.name]


def test_ctrl_c_leaves_nothing(tmp_path: Path, blocked: subprocess.Popen[str]) -> None:
    blocked.send_signal(signal.SIGINT)
    assert blocked.wait(30) != 0
    assert not list((tmp_path / "pool").iterdir())


def test_two_at_once_do_not_write_the_same_wheel(
    stock: Path, tmp_path: Path, blocked: subprocess.Popen[str]
) -> None:
    pool = tmp_path / "pool"
    with pytest.raises(BusyError, match=r"demo_pkg-1\.0\+a-py3-none"):
        repack(stock, local="a", add={}, out_dir=pool, dist_info_files={})
    other_path = repack(stock, local="b", add={}, out_dir=pool, dist_info_files={})
    assert [p.name for p in pool.glob("*.whl")] == [other_path.name]
    assert blocked.poll() is None


@pytest.mark.parametrize("limit", [0, 5_000, 60_000])
def test_a_file_that_may_not_grow_leaves_nothing(stock: Path, tmp_path: Path, limit: int) -> None:
    added, pool = tmp_path / "x.so", tmp_path / "pool"
    added.write_bytes(noise(200_000))
    with child(stock, pool, added, str(limit)) as process:
        _, text = process.communicate(timeout=30)
    assert process.returncode == 1
    assert text.splitlines()[-1].startswith("DiskError: cannot write ")
    assert text.splitlines()[-1].endswith("File too large")
    assert not list(pool.iterdir())


def test_a_disk_that_runs_full_leaves_nothing(stock: Path, tmp_path: Path) -> None:
    content = noise(200_000)
    with mounted_disk(tmp_path / "disk", "100k") as disk:
        with pytest.raises(DiskError, match=r"\.whl: No space left on device"):
            tuned(stock, disk, big=content)
        assert not list(disk.iterdir())
        with pytest.raises(DiskError, match="No space left on device"):
            extract(make_wheel(tmp_path, {**MEMBERS, "b": content}), ("b",), disk / "x")
        assert not list(disk.iterdir())
        verify_record(tuned(stock, disk))


# ---- the installers ----


@pytest.mark.toolchain
def test_wheel_unpack_accepts_it(stock: Path, tmp_path: Path) -> None:
    wheel = tuned(stock, tmp_path)
    run([sys.executable, "-m", "wheel", "unpack", wheel, "--dest", tmp_path / "out"])
    unpacked = tmp_path / "out" / "demo_pkg-1.0+skylake"
    assert (unpacked / "demo_pkg" / "fast.py").read_bytes() == b"speed = 1\n"


@pytest.mark.toolchain
def test_pip_installs_it_and_finds_no_conflict(stock: Path, tmp_path: Path) -> None:
    dependent = METADATA.replace(b"\n\n", b"\nRequires-Dist: demo-pkg==1.0\n\n", 1)
    dependent = dependent.replace(b"Name: demo-pkg", b"Name: other-pkg")
    run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"])
    python = tmp_path / "venv" / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python)
    run([*pip, "install", "--no-deps", "--no-index", tuned(stock, tmp_path)])
    assert run([*pip, "check"]).output == "No broken requirements found.\n"
    code = "import demo_pkg.fast, importlib.metadata as m; print(m.version('demo-pkg'))"
    assert run([python, "-c", code]).output == "1.0+skylake\n"
    assert (tmp_path / "venv" / "share" / "demo.txt").read_bytes() == b"from the data folder\n"


@pytest.mark.parametrize(
    ("name", "python"),
    [
        ("tensorflow_cpu-2.14.1+haswell-cp311-cp311-manylinux_2_17_x86_64.whl", "3.11"),
        ("intel_tensorflow_avx512-2.14.0-cp39-cp39-manylinux2014_x86_64.whl", "3.9"),
        ("tensorflow-2.14.1-cp310-cp310-manylinux_2_17_aarch64.manylinux2014_aarch64.whl", "3.10"),
    ],
)
def test_a_wheels_name_says_its_python(name: str, python: str) -> None:
    assert read_identity(Path(name)).python == python


def test_a_wheel_of_no_cpython_is_refused() -> None:
    with pytest.raises(WheelError, match="py3-none-any"):
        assert not read_identity(Path("tensorflow-2.14.1-py3-none-any.whl")).python
    with pytest.raises(WheelError):
        read_identity(Path("tensorflow.whl"))


# ---- another platform ----


def test_a_wheel_gets_the_platform_in_its_name_and_its_tags(stock: Path, tmp_path: Path) -> None:
    platform = "manylinux_2_17_x86_64.manylinux2014_x86_64"
    path = repack(stock, local="a", platform=platform, add={}, out_dir=tmp_path, dist_info_files={})
    assert path.name.endswith(f"-{platform}.whl")
    verify_record(path)
    (text,) = (data for name, data in contents(path).items() if name.endswith("/WHEEL"))
    lines = [line.split()[1] for line in text.decode().splitlines() if line.startswith("Tag:")]
    assert sorted(lines) == [*read_identity(path).tags]


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        (b"Tag: cp311-cp311-linux_x86_64\n", b"Tag: cp311-cp311-a\nTag: cp311-cp311-b\n"),
        (
            b"Wheel-Version: 1.0\r\nTag: py3-none-x\r\nTag: py3-none-y\r\n",
            b"Wheel-Version: 1.0\nTag: py3-none-a\nTag: py3-none-b\n",
        ),
    ],
)
def test_other_lines_of_wheel_stay(text: bytes, changed: bytes) -> None:
    assert replace_platform(text, "a.b").lstrip(b"\n") == changed


def test_a_wheel_without_a_tag_gets_none() -> None:
    with pytest.raises(zipfile.BadZipFile, match="no Tag line"):
        replace_platform(b"Wheel-Version: 1.0\n", "a")


def test_a_local_version_that_is_there_stays_and_another_is_refused(
    stock: Path, tmp_path: Path
) -> None:
    once = repack(stock, local="a.full", add={}, out_dir=tmp_path, dist_info_files={})
    again = repack(
        once, local="a_full", add={}, out_dir=tmp_path / "again", dist_info_files={"x": b""}
    )
    assert (again.name, len(contents(again))) == (once.name, len(contents(once)) + 1)
    verify_record(again)
    with pytest.raises(WheelError, match=r"'b' to .*\+a\.full"):
        repack(once, local="b", add={}, out_dir=tmp_path, dist_info_files={})
