"""Write a tuned wheel: the stock wheel with added members, under a local version.

TensorFlow's stock wheel has 600 MB in 12,000 members, and a tuned wheel changes three. The others
are copied in compressed form, which takes seconds instead of minutes. zipfile adds only members
that it compresses itself, so this module writes the local header and the bytes of a copied member.
zipfile writes the directory, the Zip64 records and all new members.
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
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from packaging.version import Version

from tfbuild.packing.wheel import (
    BLOCK,
    RecordLine,
    convert_os_errors,
    encode_digest,
    find_record_name,
    is_plain,
    list_unhashed,
    open_wheel,
    read_identity,
    read_record,
    read_small_member,
    verify_record,
)
from tfbuild.packing.zip_structure import seek_data
from tfcore.errors import BusyError, WheelError

_SIZES_FOLLOW = 0x8  # CRC and sizes follow the bytes, not in the local header
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time in a zip: equal input gives equal bytes
_UNIX = 3
FILE_MODE = 0o100644 << 16
"""Attributes of an added member: the Unix mode above the 16 bits of MS-DOS."""


Edit = Callable[[bytes], bytes]
"""A function from the bytes of a member to its new bytes."""


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
    """Write the stock wheel with added members, and return the path of the new wheel.

    `add` has the members by name, `dist_info_files` those in dist-info by their names there.
    The version gets the local part `local`, normalized as PEP 440 specifies, in the file
    name, METADATA, RECORD and dist-info alike; the members in `edit` are changed. The stock
    wheel is verified first, unless its own hash was (`pinned`). The same input gives the same
    bytes, and the wheel appears in `out_dir` when it is complete.

    A wheel that has `local` already keeps it; a wheel with another local version is refused.
    Without `local` the version loses its local part; `label` is a variant's (PEP 825), at the
    end of the file name. `platform` replaces the platform tags, in the file name and in
    WHEEL; several are joined by dots (PEP 425).

    Raises WheelError, DiskError, or BusyError if another process is writing the same wheel.
    """
    renaming = _build_renaming(stock, local, label, platform)
    edits = dict(edit or {})
    added = {name: add[name] for name in sorted(add)}
    for name in sorted(dist_info_files):
        added[f"{renaming.dist_info}/{name}"] = dist_info_files[name]
    lines = {line.name: line for line in (read_record if pinned else verify_record)(stock)}
    missing = sorted(edits.keys() - lines.keys())
    if missing:
        raise WheelError(f"cannot change {missing[0]}: it is not in {stock.name}")
    edits[f"{renaming.stock_info}/METADATA"] = partial(replace_version, version=renaming.version)
    if platform:
        edits[f"{renaming.stock_info}/WHEEL"] = partial(replace_platform, platform=platform)
    taken = {renaming.rename(name) for name in lines} | list_unhashed(renaming.record)
    for name in added:
        if not is_plain(name) or name in taken:
            raise WheelError(f"cannot add {name} to {stock.name}: the name is taken or invalid")
    final = out_dir / renaming.file_name
    with (
        open_wheel(stock) as archive,
        _write_atomically(final) as sink,
        zipfile.ZipFile(sink, "w") as target,
    ):
        wheel = _WheelWriter(target, sink)
        wheel.copy_stock(archive, renaming, lines, edits)
        for name, content in added.items():
            wheel.add_member(name, content)
        wheel.write_record(renaming.record)
    return final


# ---- naming ----


@dataclass(frozen=True, kw_only=True, slots=True)
class _Renaming:
    """The names of the stock and the tuned wheel: the file and two folders contain the version."""

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

    def rename(self, name: str) -> str:
        return rename_member(name, self.stock_stem, self.stem)


def rename_member(name: str, old: str, new: str) -> str:
    """Return a member's name after the wheel's stem, such as tensorflow_cpu-2.14.1, has changed."""
    for suffix in (".dist-info/", ".data/"):
        if name.startswith(old + suffix):
            return new + name.removeprefix(old)
    return name


def _build_renaming(stock: Path, local: str | None, label: str, platform: str) -> _Renaming:
    published = Version(read_identity(stock).version)
    try:
        version = published.public if local is None else str(Version(f"{published.public}+{local}"))
    except ValueError as error:
        raise WheelError(f"cannot add the local version {local!r} to {published}") from error
    if local is not None and published.local is not None and version != str(published):
        raise WheelError(f"cannot add the local version {local!r} to {published}: it has one")
    dist, stock_version, tail = stock.name.split("-", 2)
    with open_wheel(stock) as archive:
        record = find_record_name(archive)
    if record != f"{dist}-{stock_version}.dist-info/RECORD":
        raise WheelError(f"{stock.name} was renamed: it contains {record}")
    tags = tail.removesuffix(".whl")
    if platform:
        tags = f"{tags.rpartition('-')[0]}-{platform}"
    return _Renaming(
        file_name=f"{dist}-{version}-{tags}{label and f'-{label}'}.whl",
        stock_stem=f"{dist}-{stock_version}",
        stem=f"{dist}-{version}",
        version=version,
    )


def replace_version(metadata: bytes, version: str) -> bytes:
    """Return METADATA with another version: one header of a mail-like text, the rest byte for
    byte.

    Raises BadZipFile if the text does not have exactly one version.
    """
    end = re.search(rb"\r?\n\r?\n|\Z", metadata)
    assert end is not None  # noqa: S101  (every text has an end)
    headers = metadata[: end.start()]
    changed, count = re.subn(rb"(?mi)^(Version:[ \t]*)\S+", rb"\g<1>" + version.encode(), headers)
    if count != 1:
        raise zipfile.BadZipFile(f"METADATA has {count} Version lines")
    return changed + metadata[end.start() :]


def replace_platform(text: bytes, platform: str) -> bytes:
    """Return WHEEL with other platforms (joined by dots): a Tag line for each, the rest
    unchanged.

    Raises BadZipFile if the text has no tag.
    """
    tags = re.findall(rb"(?m)^Tag:[ \t]*(\S+)-[^-\s]+[ \t]*\r?$", text)
    if not tags:
        raise zipfile.BadZipFile("WHEEL has no Tag line")
    untagged = re.sub(rb"(?m)^Tag:.*\n?", b"", text).rstrip(b"\r\n")
    pairs = itertools.product(dict.fromkeys(tags), platform.split("."))
    lines = (b"Tag: %s-%s\n" % (tag, name.encode()) for tag, name in pairs)
    return untagged + b"\n" + b"".join(lines)


# ---- writing ----


class _WheelWriter:
    """A wheel being written, and its RECORD."""

    def __init__(self, archive: zipfile.ZipFile, sink: IO[bytes]) -> None:
        self._archive = archive
        self._sink = sink  # the file that the archive writes
        self._lines: list[RecordLine] = []

    def copy_stock(
        self,
        stock: zipfile.ZipFile,
        renaming: _Renaming,
        lines: Mapping[str, RecordLine],
        edits: Mapping[str, Edit],
    ) -> None:
        """Copy all members of the stock wheel, in their order, except RECORD, which comes last."""
        dropped = list_unhashed(find_record_name(stock))
        assert stock.filename is not None  # noqa: S101  (it was opened by path)
        with Path(stock.filename).open("rb") as source:
            for info in stock.infolist():
                name = renaming.rename(info.filename)
                if info.filename in edits:
                    self.add_member(name, edits[info.filename](read_small_member(stock, info)))
                elif info.is_dir():
                    self.copy(source, info, name)
                elif info.filename not in dropped:
                    self.copy(source, info, name)
                    self._lines.append(lines[info.filename]._replace(name=name))

    def copy(self, source: IO[bytes], info: zipfile.ZipInfo, name: str) -> None:
        """Copy a member's compressed bytes.

        `info` comes from the stock directory, which has the sizes even where the local header
        lacks them. Extra fields are dropped: they differ between the two, and hold nothing
        that an installer reads.
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

    def add_member(self, name: str, content: Path | bytes) -> None:
        """Compress a new member and record its line for RECORD."""
        info = zipfile.ZipInfo(name, _EPOCH)
        info.compress_type = zipfile.ZIP_DEFLATED
        info.create_system, info.external_attr = _UNIX, FILE_MODE
        digest = hashlib.sha256()
        with _open_content(content) as source:
            info.file_size = source.seek(0, io.SEEK_END)  # zipfile chooses Zip64 by it
            source.seek(0)
            with self._archive.open(info, "w") as sink:
                while block := source.read(BLOCK):
                    digest.update(block)
                    sink.write(block)
        line = RecordLine(name, encode_digest("sha256", digest.digest()), str(info.file_size))
        self._lines.append(line)

    def write_record(self, record: str) -> None:
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows([*self._lines, (record, "", "")])
        self.add_member(record, text.getvalue().encode())


def _copy_raw(source: IO[bytes], info: zipfile.ZipInfo, sink: IO[bytes]) -> None:
    seek_data(source, info)
    remaining = info.compress_size
    while remaining:
        block = source.read(min(remaining, BLOCK))
        if not block:
            raise EOFError(f"{info.filename} is truncated")
        sink.write(block)
        remaining -= len(block)


@contextlib.contextmanager
def _open_content(content: Path | bytes) -> Iterator[IO[bytes]]:
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
def _write_atomically(final: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file that is renamed to `final` when it is complete.

    A temporary file that a killed run left is overwritten.
    """
    part = final.with_name(f".{final.name}.part")
    with convert_os_errors(final):
        final.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(part, os.O_RDWR | os.O_CREAT, 0o644), "w+b") as sink:
            _lock_file(sink, part)
            try:
                sink.truncate(0)
                yield sink
                sink.flush()
                os.fsync(sink.fileno())
                part.replace(final)
            except BaseException:
                part.unlink(missing_ok=True)
                raise


def _lock_file(sink: IO[bytes], part: Path) -> None:
    """Lock the file for this process.

    Raises BusyError if another process holds it, or the file lost its name: between opening
    and locking, that process may have finished, and then these are the bytes of a finished
    wheel.
    """
    try:
        fcntl.flock(sink, fcntl.LOCK_EX | fcntl.LOCK_NB)
        locked = part.stat().st_ino == os.fstat(sink.fileno()).st_ino
    except (BlockingIOError, FileNotFoundError):
        locked = False
    if not locked:
        raise BusyError(
            f"another process is writing {part.name.removeprefix('.').removesuffix('.part')}",
            hint="Wait until it has finished, then run the same command again",
        )
