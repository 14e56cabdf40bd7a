"""Read a wheel file: its name, the lines of RECORD and the bytes of its members.

Everything is checked on reading. The error for a damaged wheel names the member.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import hashlib
import io
import lzma
import re
import shutil
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

from packaging.utils import parse_wheel_filename

from tfbuild.packing.zip_structure import check_structure, read_blocks
from tfcore.errors import DiskError, WheelError

BLOCK = 1 << 20
"""Block size for copying a member, in bytes."""
_SMALL_BYTES = 64 << 20
"""Largest member that is read into memory whole, in bytes. TensorFlow's RECORD has 1.2 MB."""

_LARGEST = 2 << 30
"""Largest member of a wheel, in bytes. The small code model of wheels' libraries permits no larger
library (x86-64 psABI). The largest member of a stock wheel, built for GPUs, has 1.1 GB."""
_MOST = 8 << 30
"""Largest sum of all members, in bytes: four times that of the largest stock wheel."""
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Compression methods that PyPI accepts. With others, zipfile unpacks blocks of any size whole."""

_SHORT = 500
"""Longest reason in an error message, in characters."""

_HASHES = ("sha256", "sha384", "sha512")
_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    NotImplementedError,  # a format version that zipfile does not support
    struct.error,
    csv.Error,
    UnicodeDecodeError,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelIdentity:
    """The parts of a wheel's file name: normalized name and version, sorted tags."""

    name: str
    version: str
    tags: tuple[str, ...]

    @property
    def python(self) -> str:
        """The Python version: 3.11 for cp311-cp311-manylinux_2_17_x86_64.

        Raises WheelError for a wheel that is not for one CPython version.
        """
        matched = re.match(r"cp([0-9])([0-9]+)-", self.tags[0])
        if not matched:
            raise WheelError(f"{self.name} {self.version} is for {self.tags[0]}, not one CPython")
        return f"{matched[1]}.{matched[2]}"

    @property
    def machine(self) -> str:
        """The machine: x86_64 for cp311-cp311-manylinux_2_17_x86_64."""
        return "aarch64" if self.tags[0].endswith("aarch64") else "x86_64"


class RecordLine(NamedTuple):
    """A line of RECORD: `digest` is `sha256=` and the hash in URL-safe base64 without padding."""

    name: str
    digest: str
    size: str


_LineOf: TypeAlias = Callable[[zipfile.ZipFile, zipfile.ZipInfo, RecordLine | None], RecordLine]


def read_identity(path: Path) -> WheelIdentity:
    """Parse a wheel's file name.

    Raises WheelError if it is not a wheel's.
    """
    if path.suffix != ".whl":
        raise WheelError(f"{path.name} is not a wheel: its name does not end in .whl")
    try:
        name, version, _, tags = parse_wheel_filename(path.name)
    except ValueError as error:
        raise WheelError(f"{path.name} is not the file name of a wheel ({error})") from error
    words = tuple(sorted(str(tag) for tag in tags))
    return WheelIdentity(name=name, version=str(version), tags=words)


def read_member(path: Path, name: str) -> bytes:
    """Return the bytes of one member.

    Raises WheelError if it is missing or damaged.
    """
    with open_wheel(path) as archive:
        if name not in archive.NameToInfo:
            raise WheelError(f"{path.name} has no {name}")
        return read_small_member(archive, archive.NameToInfo[name])


def read_stem(path: Path) -> str:
    """Return a wheel's stem from inside, such as tensorflow_cpu-2.14.1.

    Raises WheelError.
    """
    with open_wheel(path) as archive:
        return find_record_name(archive).removesuffix(".dist-info/RECORD")


def verify_record(path: Path) -> tuple[RecordLine, ...]:
    """Check every member's hash and return the lines of RECORD, except its own.

    They are in the archive's order.

    Raises WheelError naming the first member that is damaged, unlisted, or missing.
    """
    return _read_lines(path, _verify_member)


def read_record(path: Path) -> tuple[RecordLine, ...]:
    """Return the lines of RECORD of a wheel whose own hash is known to be right.

    Unlike in `verify_record`, its members are not read again, which takes seconds for
    TensorFlow's.

    Raises WheelError for a member that is unlisted or missing.
    """
    return _read_lines(path, _require_line)


def _read_lines(path: Path, line_of: _LineOf) -> tuple[RecordLine, ...]:
    with open_wheel(path) as archive:
        record = find_record_name(archive)
        listed = _parse_record(read_small_member(archive, archive.NameToInfo[record]))
        unhashed = list_unhashed(record)
        _check_data(archive, record.removesuffix(".dist-info/RECORD"))
        for name in (unhashed - {record}) & archive.NameToInfo.keys():
            read_small_member(archive, archive.NameToInfo[name])
        members = [info for info in list_files(archive) if info.filename not in unhashed]
        lines = tuple(line_of(archive, info, listed.get(info.filename)) for info in members)
        missing = listed.keys() - archive.NameToInfo.keys()
        if missing:
            raise zipfile.BadZipFile(f"{min(missing)} is in RECORD but not in the wheel")
    return lines


def _check_data(archive: zipfile.ZipFile, stem: str) -> None:
    """Raise BadZipFile for a `.data` folder that installers treat differently.

    pip installs from every such folder, uv only from the wheel's own; if two members have the same
    place, either of them may win.
    """
    places: set[str] = set()
    for info in list_files(archive):
        folder, _, rest = info.filename.partition("/")
        place = info.filename
        if folder.endswith(".data"):
            if folder != f"{stem}.data":
                raise zipfile.BadZipFile(f"{info.filename} is in the data of another wheel")
            scheme, _, place = rest.partition("/")
            place = place if scheme in {"purelib", "platlib"} else rest
        if place in places:
            raise zipfile.BadZipFile(f"two members would be installed as {place}")
        places.add(place)


def extract(
    path: Path, prefixes: tuple[str, ...], folder: Path, *, without: tuple[str, ...] = ()
) -> None:
    """Unpack the members under `prefixes` into `folder`.

    Prefixes of folders end with a slash. Members under `without` are unpacked only if a
    prefix is longer. The folder appears at once when it is complete; an existing one is left
    unchanged.

    Raises WheelError if a prefix has no member, DiskError if the disk refuses.
    """
    if folder.exists():
        return
    with open_wheel(path) as archive:
        infos = [
            info for info in list_files(archive) if _is_under(info.filename, prefixes, without)
        ]
        for prefix in prefixes:
            if not any(_is_under(info.filename, (prefix,)) for info in infos):
                raise WheelError(f"{path.name} has no members under {prefix}")
        with convert_os_errors(folder):
            _unpack(archive, infos, folder)


def _is_under(name: str, prefixes: tuple[str, ...], without: tuple[str, ...] = ()) -> bool:
    def measure_longest(prefix_group: tuple[str, ...]) -> int:
        over = (prefix for prefix in prefix_group if name == prefix or _has_member(prefix, name))
        return max(map(len, over), default=0)

    return measure_longest(prefixes) > measure_longest(without)


def _has_member(folder: str, name: str) -> bool:
    return folder.endswith("/") and name.startswith(folder)


def _unpack(archive: zipfile.ZipFile, infos: Iterable[zipfile.ZipInfo], folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        for info in infos:
            path = part / info.filename
            path.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(info) as source, path.open("wb") as sink:
                shutil.copyfileobj(source, sink, BLOCK)
        part.chmod(0o755)
        part.rename(folder)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


@contextlib.contextmanager
def open_wheel(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open the wheel as an archive whose names are plain and unique.

    Two readers find the same members in it. Raises WheelError for a damaged wheel.
    """
    try:
        archive = zipfile.ZipFile(path)
    except OSError as error:
        raise WheelError(f"cannot read {path}: {error.strerror}") from error
    except (*_BROKEN, ValueError) as error:
        raise _build_error(path, error) from error
    with archive:
        try:
            _check_directory(archive)
            with path.open("rb") as source:
                check_structure(source, archive.infolist())
            yield archive
        except _BROKEN as error:
            raise _build_error(path, error) from error


def _build_error(path: Path, error: Exception) -> WheelError:
    hint = (
        "Delete it, then build or download it again"
        if path.suffix == ".whl"
        else "Give the path of a .whl file"
    )
    message = str(error)  # (zipfile quotes up to 64 kB of the file)
    short = message if len(message) <= _SHORT else f"{message[:_SHORT]}…"
    return WheelError(f"{path.name} is not a valid wheel: {short}", hint=hint)


def _check_directory(archive: zipfile.ZipFile) -> None:
    for info in archive.infolist():
        if not is_plain(info.filename.removesuffix("/")):
            raise zipfile.BadZipFile(f"{info.filename!r} is not a valid file name")
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
            raise zipfile.BadZipFile(f"{info.filename} is a link or a device, not a file")
        if info.compress_type not in _METHODS:
            raise zipfile.BadZipFile(f"{info.filename} has compression method {info.compress_type}")
        if info.file_size > _LARGEST:
            raise _build_size_error(info.filename, info.file_size)
    total = sum(info.file_size for info in archive.infolist())
    if total > _MOST:
        raise _build_size_error("the content", total)


def _build_size_error(part: str, size: int) -> zipfile.BadZipFile:
    return zipfile.BadZipFile(f"{part} is too large ({size} bytes)")


def is_plain(name: str) -> bool:
    """Return whether a member of this name stays inside the folder that it is unpacked in.

    Control characters are refused, too: RECORD does not distinguish a carriage return from a
    line end.
    """
    if re.search(r"[\0-\x1f\x7f\\]|^[A-Za-z]:", name):
        return False
    return not {"", ".", ".."} & {*name.split("/")}


def list_files(archive: zipfile.ZipFile) -> tuple[zipfile.ZipInfo, ...]:
    return tuple(info for info in archive.infolist() if not info.is_dir())


def read_small_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """Return the bytes of a small member.

    Raises BadZipFile for one that would fill the memory.
    """
    if info.file_size > _SMALL_BYTES:
        raise _build_size_error(info.filename, info.file_size)
    return b"".join(_read_member(archive, info))


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[bytes]:
    """Yield the content of a member, whose stream must end with its data (unlike with zipfile)."""
    assert archive.filename is not None  # noqa: S101  (it was opened by path)
    with Path(archive.filename).open("rb") as source:
        yield from read_blocks(source, info)


def find_record_name(archive: zipfile.ZipFile) -> str:
    names = [name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/RECORD", name)]
    if len(names) != 1:
        raise zipfile.BadZipFile(f"it has {len(names)} RECORD files")
    return names[0]


def list_unhashed(record: str) -> frozenset[str]:
    """List the members that RECORD has no hash of: itself and its signatures."""
    return frozenset((record, f"{record}.jws", f"{record}.p7s"))


def encode_digest(algorithm: str, digest: bytes) -> str:
    return f"{algorithm}={base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


def _parse_record(text: bytes) -> dict[str, RecordLine]:
    rows = [row for row in csv.reader(io.StringIO(text.decode(), newline=""), strict=True) if row]
    if any(len(row) != len(RecordLine._fields) for row in rows):
        raise zipfile.BadZipFile("a line of RECORD does not have three fields")
    return {row[0]: RecordLine(*row) for row in rows}


def _require_line(_: zipfile.ZipFile, info: zipfile.ZipInfo, line: RecordLine | None) -> RecordLine:
    """Return the member's line of RECORD.

    Raises BadZipFile if there is none.
    """
    if line is None:
        raise zipfile.BadZipFile(f"{info.filename} is not in RECORD")
    return line


def _verify_member(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, recorded: RecordLine | None
) -> RecordLine:
    """Return the member's line of RECORD after its hash and size were checked.

    Raises BadZipFile if they differ.
    """
    line = _require_line(archive, info, recorded)
    algorithm = line.digest.partition("=")[0]
    if algorithm not in _HASHES:
        raise zipfile.BadZipFile(f"RECORD has no supported hash of {info.filename}")
    try:
        digest = encode_digest(algorithm, _hash_member(archive, info, algorithm))
    except (*_BROKEN, OSError) as error:
        raise zipfile.BadZipFile(f"{info.filename} is damaged ({error})") from error
    if (digest, str(info.file_size)) != (line.digest, line.size):
        raise zipfile.BadZipFile(f"{info.filename} does not match RECORD")
    return line


def _hash_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, algorithm: str) -> bytes:
    digest = hashlib.new(algorithm)
    for block in _read_member(archive, info):
        digest.update(block)
    return digest.digest()


@contextlib.contextmanager
def convert_os_errors(path: Path) -> Iterator[None]:
    """Convert errors of the file system to a DiskError that names `path`."""
    try:
        yield
    except OSError as error:
        raise DiskError(f"cannot write {path}: {error.strerror or error}") from error
