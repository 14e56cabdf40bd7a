"""The tuned wheel: the stock wheel with members added, under a local version.

TensorFlow's stock wheel holds 600 MB in 12,000 members, of which a tuned one changes three. So the
others are copied as the compressed bytes that they are: seconds instead of minutes. zipfile adds
only what it compresses itself, so local header and bytes of a copied member are written here; the
directory, Zip64 and everything new are zipfile's.
"""

from __future__ import annotations

import contextlib
import csv
import fcntl
import hashlib
import io
import itertools
import os
import re
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from packaging.version import Version

from tfbuild.errors import BusyError, WheelError
from tfbuild.packing.wheel import (
    BLOCK,
    RecordLine,
    encode_digest,
    is_plain,
    opened,
    read_identity,
    read_record,
    record_name,
    self_signed,
    small_member,
    verify_record,
    writing,
)

_LOCAL_HEADER = struct.Struct("<26xHH")  # PKWARE's APPNOTE.TXT 4.3.7: the two lengths at its end
_SIZES_FOLLOW = 0x8  # the local header is silent: CRC and sizes stand behind the bytes
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can hold: equal input gives equal bytes
_UNIX = 3
FILE_MODE = 0o100644 << 16
"""Of a member that is added, as zip has it: what Unix has, above 16 bits of MS-DOS's."""


Edit = Callable[[bytes], bytes]
"""The new bytes of a member, made of its own."""


def repack(
    stock: Path,
    *,
    local: str | None,
    label: str = "",
    platform: str = "",
    add: Mapping[str, Path | bytes],
    out_dir: Path,
    dist_info_files: Mapping[str, bytes],
    edit: Mapping[str, Edit] | None = None,
    pinned: bool = False,
) -> Path:
    """Write the stock wheel with `add` (member names) and `dist_info_files` (names in dist-info).

    The version gets the local part `local`, normalized as PEP 440 says, in the file name, METADATA,
    RECORD and dist-info alike; the members in `edit` are changed. The stock wheel is verified
    first, unless its own hash was (`pinned`). The same input gives the same bytes, and the wheel
    appears in `out_dir` when it is whole. Raises WheelError, DiskError, or BusyError when another
    process is writing the same wheel.

    A wheel that has `local` already keeps it, another one is refused. Without a `local` the version
    loses the one that it has; `label` is a variant's (PEP 825), at
    the end of the file name. `platform` takes the place of the platform tags, in the file name as
    in WHEEL; several are joined by dots (PEP 425).
    """
    renaming = _renaming(stock, local, label, platform)
    edits = dict(edit or {})
    added = {name: add[name] for name in sorted(add)}
    for name in sorted(dist_info_files):
        added[f"{renaming.dist_info}/{name}"] = dist_info_files[name]
    lines = {line.name: line for line in (read_record if pinned else verify_record)(stock)}
    absent = sorted(edits.keys() - lines.keys())
    if absent:
        raise WheelError(f"{stock.name} has no {absent[0]} to change")
    edits[f"{renaming.stock_info}/METADATA"] = partial(with_version, version=renaming.version)
    if platform:
        edits[f"{renaming.stock_info}/WHEEL"] = partial(with_platform, platform=platform)
    taken = {renaming.member(name) for name in lines} | self_signed(renaming.record)
    for name in added:
        if not is_plain(name) or name in taken:
            raise WheelError(f"{name} cannot be added to {stock.name}")
    final = out_dir / renaming.file_name
    with (
        opened(stock) as archive,
        _arriving(final) as sink,
        zipfile.ZipFile(sink, "w") as target,
    ):
        wheel = _Assembly(target, sink)
        wheel.take(archive, renaming, lines, edits)
        for name, content in added.items():
            wheel.put(name, content)
        wheel.finish(renaming.record)
    return final


# ---- naming ----


@dataclass(frozen=True, kw_only=True, slots=True)
class _Renaming:
    """Stock names to tuned names: the version stands in the file name and in two folders."""

    file_name: str
    stock_stem: str  # tensorflow_cpu-2.14.1
    stem: str  # tensorflow_cpu-2.14.1+skylake
    version: str

    @property
    def dist_info(self) -> str:
        return f"{self.stem}.dist-info"

    @property
    def stock_info(self) -> str:
        return f"{self.stock_stem}.dist-info"

    @property
    def record(self) -> str:
        return f"{self.dist_info}/RECORD"

    def member(self, name: str) -> str:
        return renamed(name, self.stock_stem, self.stem)


def renamed(name: str, old: str, new: str) -> str:
    """A member's name when the wheel's own, such as tensorflow_cpu-2.14.1, becomes another."""
    for suffix in (".dist-info/", ".data/"):
        if name.startswith(old + suffix):
            return new + name.removeprefix(old)
    return name


def _renaming(stock: Path, local: str | None, label: str, platform: str) -> _Renaming:
    published = Version(read_identity(stock).version)
    try:
        version = published.public if local is None else str(Version(f"{published.public}+{local}"))
    except ValueError as error:
        raise WheelError(f"{published} cannot get the local version {local!r}") from error
    if local is not None and published.local is not None and version != str(published):
        raise WheelError(f"{published} cannot get the local version {local!r}: it has one")
    dist, stock_version, rest = stock.name.split("-", 2)
    with opened(stock) as archive:
        record = record_name(archive)
    if record != f"{dist}-{stock_version}.dist-info/RECORD":
        raise WheelError(f"{stock.name} was renamed: inside is {record}")
    tags = rest.removesuffix(".whl")
    if platform:
        tags = f"{tags.rpartition('-')[0]}-{platform}"
    return _Renaming(
        file_name=f"{dist}-{version}-{tags}{label and f'-{label}'}.whl",
        stock_stem=f"{dist}-{stock_version}",
        stem=f"{dist}-{version}",
        version=version,
    )


def with_version(metadata: bytes, version: str) -> bytes:
    """METADATA with another version: one header of a mail-like text, the rest byte for byte.

    Raises BadZipFile for a text that has not one version.
    """
    end = re.search(rb"\r?\n\r?\n|\Z", metadata)
    assert end is not None  # noqa: S101  (every text has an end)
    headers = metadata[: end.start()]
    changed, count = re.subn(rb"(?mi)^(Version:[ \t]*)\S+", rb"\g<1>" + version.encode(), headers)
    if count != 1:
        raise zipfile.BadZipFile(f"METADATA has {count} versions")
    return changed + metadata[end.start() :]


def with_platform(text: bytes, platform: str) -> bytes:
    """WHEEL with other platforms (joined by dots): a Tag line for each, the rest as it is.

    Raises BadZipFile for a text without a tag.
    """
    tags = re.findall(rb"(?m)^Tag:[ \t]*(\S+)-[^-\s]+[ \t]*\r?$", text)
    if not tags:
        raise zipfile.BadZipFile("WHEEL has no tag")
    kept = re.sub(rb"(?m)^Tag:.*\n?", b"", text).rstrip(b"\r\n")
    pairs = itertools.product(dict.fromkeys(tags), platform.split("."))
    lines = (b"Tag: %s-%s\n" % (tag, each.encode()) for tag, each in pairs)
    return kept + b"\n" + b"".join(lines)


# ---- writing ----


class _Assembly:
    """A wheel being written, and the RECORD of what is in it."""

    def __init__(self, archive: zipfile.ZipFile, sink: IO[bytes]) -> None:
        self._archive = archive
        self._sink = sink  # what the archive writes to
        self._lines: list[RecordLine] = []

    def take(
        self,
        stock: zipfile.ZipFile,
        renaming: _Renaming,
        lines: Mapping[str, RecordLine],
        edits: Mapping[str, Edit],
    ) -> None:
        """Everything in the stock wheel, in its order, but for RECORD, which comes last."""
        dropped = self_signed(record_name(stock))
        assert stock.filename is not None  # noqa: S101  (it was opened by path)
        with Path(stock.filename).open("rb") as source:
            for info in stock.infolist():
                name = renaming.member(info.filename)
                if info.filename in edits:
                    self.put(name, edits[info.filename](small_member(stock, info)))
                elif info.is_dir():
                    self.copy(source, info, name)
                elif info.filename not in dropped:
                    self.copy(source, info, name)
                    self._lines.append(lines[info.filename]._replace(name=name))

    def copy(self, source: IO[bytes], info: zipfile.ZipInfo, name: str) -> None:
        """Copy a member's compressed bytes.

        `info` comes from the stock directory, which knows the sizes even where the local header
        does not. Extra fields are left out: they differ between the two, and hold nothing that
        an installer reads.
        """
        copied = zipfile.ZipInfo(name, info.date_time)
        copied.compress_type, copied.CRC = info.compress_type, info.CRC
        copied.compress_size, copied.file_size = info.compress_size, info.file_size
        copied.create_system, copied.external_attr = info.create_system, info.external_attr
        copied.flag_bits = info.flag_bits & ~_SIZES_FOLLOW
        copied.header_offset = self._archive.start_dir
        self._sink.seek(copied.header_offset)
        self._sink.write(copied.FileHeader())
        _copy_raw(source, info, self._sink)
        self._archive.start_dir = self._sink.tell()
        self._archive.filelist.append(copied)
        self._archive.NameToInfo[name] = copied

    def put(self, name: str, content: Path | bytes) -> None:
        """Compress a new member and take down its line for RECORD."""
        info = zipfile.ZipInfo(name, _EPOCH)
        info.compress_type = zipfile.ZIP_DEFLATED
        info.create_system, info.external_attr = _UNIX, FILE_MODE
        digest = hashlib.sha256()
        with _reading(content) as source:
            info.file_size = source.seek(0, io.SEEK_END)  # zipfile decides about Zip64 by it
            source.seek(0)
            with self._archive.open(info, "w") as sink:
                while block := source.read(BLOCK):
                    digest.update(block)
                    sink.write(block)
        line = RecordLine(name, encode_digest("sha256", digest.digest()), str(info.file_size))
        self._lines.append(line)

    def finish(self, record: str) -> None:
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows([*self._lines, (record, "", "")])
        self.put(record, text.getvalue().encode())


def _copy_raw(source: IO[bytes], info: zipfile.ZipInfo, sink: IO[bytes]) -> None:
    source.seek(info.header_offset)
    name_length, extra_length = _LOCAL_HEADER.unpack(source.read(_LOCAL_HEADER.size))
    source.seek(name_length + extra_length, io.SEEK_CUR)
    left = info.compress_size
    while left:
        block = source.read(min(left, BLOCK))
        if not block:
            raise EOFError(f"{info.filename} ends early")
        sink.write(block)
        left -= len(block)


@contextlib.contextmanager
def _reading(content: Path | bytes) -> Iterator[IO[bytes]]:
    if isinstance(content, bytes):
        yield io.BytesIO(content)
        return
    try:
        source = content.open("rb")
    except OSError as error:
        raise WheelError(f"cannot read {content}: {error.strerror}") from error
    with source:
        yield source


@contextlib.contextmanager
def _arriving(final: Path) -> Iterator[IO[bytes]]:
    """A file that gets its name when it is whole. What a killed run left is written over."""
    part = final.with_name(f".{final.name}.part")
    with writing(final):
        final.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(part, os.O_RDWR | os.O_CREAT, 0o644), "w+b") as sink:
            _claim(sink, part)
            try:
                sink.truncate(0)
                yield sink
                sink.flush()
                os.fsync(sink.fileno())
                part.replace(final)
            except BaseException:
                part.unlink(missing_ok=True)
                raise


def _claim(sink: IO[bytes], part: Path) -> None:
    """Lock the file for this process, or raise BusyError.

    It must still have its name: between opening and locking, the process that held it may have
    finished, and then these are the bytes of a finished wheel.
    """
    try:
        fcntl.flock(sink, fcntl.LOCK_EX | fcntl.LOCK_NB)
        ours = part.stat().st_ino == os.fstat(sink.fileno()).st_ino
    except (BlockingIOError, FileNotFoundError):
        ours = False
    if not ours:
        raise BusyError(
            f"another process is writing {part.name.removeprefix('.').removesuffix('.part')}",
            hint="Wait until it has finished, then run the same command again",
        )
