"""TensorFlow's sources: downloaded, checked and staged.

The order is: the user's path, the cache, the mirror, the release's home, and Debian's source
package through apt, which checks the signatures itself.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

# Debian 12's Python, 3.11.2, has no extraction filters yet (PEP 706).
from backports import tarfile

from tfbuild.upstream import download
from tfbuild.upstream.download import Pin
from tfcore import console
from tfcore.errors import (
    ChecksumError,
    CommandError,
    DiskError,
    DownloadError,
    ToolError,
)
from tfcore.records import hash_record, write_atomic
from tfcore.run import run
from tfcore.settings import Paths, lock_folder, require_disk

TREE = "tree"
"""The folder of staged sources in a Bazel repository; paths in it are those in the release's tree.
Files in the repository's root would precede all other quoted headers."""
_MB = 1_000_000
_STAGED_BYTES = 400 * _MB
_TREE_BYTES = 700 * _MB  # (2.14.1's tree takes 354 MB)
_MOST = 4000 * _MB
"""Largest unpacked size of an archive in bytes: ten times 2.14.1's tree."""
_AT_ONCE = 1 << 20
"""Largest read in bytes: tarfile reads files in smaller parts, and valid headers are smaller."""
_TORN = (
    *(tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError),
    KeyError,  # (tarfile's error for a link to a missing member)
    *(gzip.BadGzipFile, lzma.LZMAError, zlib.error),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class SourcePin:
    """One form of a release's sources: `kind` is "home" or "debian".

    For "home" `origin` is a URL; for "debian" it is "<suite>/<source package>".
    """

    kind: str
    origin: str
    file: Pin


@dataclass(frozen=True, kw_only=True, slots=True)
class Staging:
    """The prefixes and suffixes of the paths of a tree that are staged."""

    prefixes: tuple[str, ...]
    suffixes: tuple[str, ...]


def fetch_source(pins: tuple[SourcePin, ...], paths: Paths, archive: Path | None) -> Path:
    """Return the source archive, with the pinned bytes.

    Raises DownloadError that lists all attempts; ChecksumError for an `archive` with other
    bytes.
    """
    if archive is not None:
        return _require_pinned(pins, archive)
    # Checked under the lock: a file that another run still writes is not a damaged one.
    with lock_folder(paths.downloads, "downloading TensorFlow's sources", wait=True):
        return _keep_cached(pins, paths) or _fetch_any(pins, paths)


def _keep_cached(pins: tuple[SourcePin, ...], paths: Paths) -> Path | None:
    """Return the archive that an earlier run downloaded, if any."""
    cached = (download.keep_verified(paths.downloads / pin.file.name, pin.file) for pin in pins)
    return next(filter(None, cached), None)


def _fetch_any(pins: tuple[SourcePin, ...], paths: Paths) -> Path:
    tried: list[str] = []
    for origin, attempt in _list_attempts(pins, paths):
        try:
            return attempt()
        except (DownloadError, ChecksumError, ToolError, CommandError) as error:
            tried.append(f"{origin}: {error.message.splitlines()[0]}")
            console.print_note(f"{tried[-1]}; trying the next place")
    lines = "".join(f"\n  - {line}" for line in tried)
    raise DownloadError(
        f"cannot download the sources. Tried:{lines}\n",
        hint="Download the archive on another machine and give it with --source PATH",
    )


def _require_pinned(pins: tuple[SourcePin, ...], archive: Path) -> Path:
    if not archive.is_file():
        raise DownloadError(f"--source {archive}: no such file")
    sha256 = download.hash_file(archive)
    if sha256 not in {pin.file.sha256 for pin in pins}:
        expected = " or ".join(f"{pin.file.name} ({pin.file.sha256})" for pin in pins)
        raise ChecksumError(f"--source {archive} has SHA-256 {sha256}, expected {expected}")
    return archive


def _list_attempts(
    pins: tuple[SourcePin, ...], paths: Paths
) -> Iterator[tuple[str, Callable[[], Path]]]:
    """Yield the possible attempts, cheapest first."""
    folder = paths.downloads

    def create_download(url: str, pin: SourcePin) -> Callable[[], Path]:
        return lambda: download.fetch(url, pin.file, folder)

    def create_apt_download(pin: SourcePin) -> Callable[[], Path]:
        return lambda: _fetch_debian(pin, paths)

    if paths.mirror:
        for pin in pins:
            yield (
                f"mirror {pin.file.name}",
                create_download(download.build_mirror_url(paths.mirror, pin.file.name), pin),
            )
    for pin in pins:
        if pin.kind == "home":
            yield "TensorFlow on GitHub", create_download(pin.origin, pin)
    for pin in pins:
        if pin.kind == "debian":
            yield f"Debian source package {pin.origin}", create_apt_download(pin)


def _fetch_debian(pin: SourcePin, paths: Paths) -> Path:
    """Download Debian's source package, through apt in a private state folder.

    It uses the machine's mirror, and does not change the machine's package lists.
    """
    suite, _, package = pin.origin.partition("/")
    with tempfile.TemporaryDirectory(prefix="tensorwright-apt-") as name:
        state = Path(name)
        state.chmod(0o755)  # (apt's unprivileged downloader must be able to read it)
        for folder in ("lists/partial", "cache/archives/partial", "out"):
            (state / folder).mkdir(parents=True)
        uri = _find_debian_mirror()
        keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
        write_atomic(state / "sources.list", f"deb-src [signed-by={keyring}] {uri} {suite} main\n")
        options = (
            *("-o", f"Dir::State::Lists={state}/lists"),
            *("-o", f"Dir::Etc::SourceList={state}/sources.list"),
            *("-o", "Dir::Etc::SourceParts=/dev/null"),
            *("-o", f"Dir::Cache={state}/cache"),
            *("-o", "APT::Sandbox::User=root"),
        )
        run(["apt-get", *options, "update"], timeout_s=300)
        run(
            ["apt-get", *options, "source", "--download-only", "--tar-only", package],
            cwd=state / "out",
            timeout_s=1800,
        )
        return download.adopt(state / "out" / pin.file.name, pin.file, paths.downloads)


def _find_debian_mirror() -> str:
    """Return the archive that this machine installs from: the first that is no security archive.

    Raises DownloadError.
    """
    listing = run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(SUITE)"]).output
    for line in listing.splitlines():
        uri, _, suite = line.partition(" ")
        if "/" in uri and "security" not in f"{uri} {suite}":
            return uri
    raise DownloadError(
        "cannot find a Debian mirror: apt has no package lists", hint="Run: sudo apt-get update"
    )


def stage(archive: Path, sha256: str, staging: Staging, paths: Paths) -> Path:
    """Unpack the files of a kernels build into a folder named by the hashes of archive and staging.

    The folder is a Bazel repository. TensorFlow's BUILD files are excluded, because Bazel would
    treat their folders as packages. Raises ChecksumError for a broken archive; DiskError.
    """

    def fill(scratch_folder: Path) -> None:
        with archive.open("rb") as packed, _open_archive(packed) as tar:
            tar.extractall(
                scratch_folder / TREE, members=_select_members(tar, staging), filter="data"
            )
        if not (scratch_folder / TREE).is_dir():
            raise ChecksumError(f"{archive} contains none of {', '.join(staging.prefixes)}")

    folder = paths.sources / f"{sha256[:16]}-{hash_record(staging)[:8]}-staged"
    return create_folder(folder, _STAGED_BYTES, "unpacking TensorFlow's sources", fill) / TREE


def unpack(archive: Path, sha256: str, paths: Paths) -> Path:
    """Unpack the whole tree into a folder named by the archive's hash.

    An existing folder is used as it is: it appears only when it is complete. Raises
    ChecksumError for an archive that is broken, or has a member or a link that leads out of
    it; DiskError.
    """

    def fill(scratch_folder: Path) -> None:
        with archive.open("rb") as packed, _open_archive(packed) as tar:
            tar.extractall(scratch_folder, members=_track_members(tar, packed), filter="data")
        if not any(scratch_folder.iterdir()):
            raise ChecksumError(f"{archive} contains no folder with a source tree")

    folder = paths.sources / f"{sha256[:16]}-tree"
    return create_folder(folder, _TREE_BYTES, "unpacking TensorFlow's source tree", fill)


@contextlib.contextmanager
def _open_archive(packed: io.BufferedReader) -> Iterator[tarfile.TarFile]:
    """Open a packed archive.

    Raises ChecksumError if the block finds it broken.
    """
    try:
        limited = _LimitedStream(_open_stream(packed))
        with tarfile.open(fileobj=limited, mode="r:") as tar:
            yield tar
    except _TORN as error:
        raise ChecksumError(f"{packed.name} cannot be unpacked: {error}") from error


def _open_stream(packed: io.BufferedReader) -> io.BufferedIOBase:
    begin = packed.peek(2)
    if begin.startswith(b"\x1f\x8b"):
        return gzip.open(packed)
    if begin.startswith(b"\xfd7zXZ"):
        return lzma.open(packed)
    return bz2.open(packed) if begin.startswith(b"BZh") else packed


@contextlib.contextmanager
def _convert_errors() -> Iterator[None]:
    """Raise a read error of the archive as ReadError.

    Without this, an unreadable archive would be reported as an error of the output disk.
    """
    try:
        yield
    except OSError as error:
        raise tarfile.ReadError(str(error)) from error


class _LimitedStream:
    """An unpacked archive that rejects headers that would fill the memory."""

    def __init__(self, stream: io.BufferedIOBase) -> None:
        self._stream = stream

    def read(self, size: int) -> bytes:
        if size > _AT_ONCE:
            raise tarfile.ReadError(f"it has a header of {size} bytes")
        with _convert_errors():
            return self._stream.read(size)

    def seek(self, place: int) -> int:
        with _convert_errors():
            return self._stream.seek(place)

    def tell(self) -> int:
        return self._stream.tell()


def _list_members(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield all members, each before a byte of it is unpacked.

    Raises ReadError if the archive unpacks to too many bytes.
    """
    for member in tar:
        if member.offset_data + member.size > _MOST:
            raise tarfile.ReadError(f"it unpacks to more than {_MOST // _MB} MB")
        yield member


def create_folder(
    folder: Path, needed_bytes: int, purpose: str, fill: Callable[[Path], None]
) -> Path:
    """Let `fill` fill a folder that appears under its name only when it is complete.

    An existing folder is used as it is. If several processes create it, all but one wait. Raises
    DiskError, and what `fill` raises.
    """
    if not folder.is_dir():
        with lock_folder(folder.parent, purpose, wait=True):
            if not folder.is_dir():
                require_disk(folder.parent, needed_bytes, purpose)
                with _stage_folder(folder) as scratch_folder:
                    fill(scratch_folder)
    return folder


@contextlib.contextmanager
def _stage_folder(folder: Path) -> Iterator[Path]:
    """Yield a folder that gets its name only if the block succeeds.

    Raises DiskError.
    """
    for leftover in folder.parent.glob(f".{folder.name}.*"):  # (of a killed run)
        shutil.rmtree(leftover, ignore_errors=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        yield temporary
        temporary.chmod(0o755)
        temporary.rename(folder)
    except OSError as error:
        raise DiskError(f"cannot write {folder}: {error.strerror}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _track_members(tar: tarfile.TarFile, packed: io.BufferedReader) -> Iterator[tarfile.TarInfo]:
    """Yield every member without the archive's own top folder, and show the progress of reading."""
    total = Path(packed.name).stat().st_size
    with console.track_progress("MB of the archive", total // _MB) as count:
        for member in _list_members(tar):
            _, _, inner_name = member.name.partition("/")
            linked = member.linkname.partition("/")[2] if member.islnk() else member.linkname
            if inner_name:
                yield member.replace(name=inner_name, linkname=linked, deep=False)
            count.advance(packed.tell() // _MB)


def _select_members(tar: tarfile.TarFile, staging: Staging) -> Iterator[tarfile.TarInfo]:
    """Yield the members below the prefixes, without the archive's own top folder."""
    for member in _list_members(tar):
        _, _, inner_name = member.name.partition("/")
        if (
            member.isreg()
            and inner_name.startswith(staging.prefixes)
            and is_staged(inner_name, staging)
        ):
            yield member.replace(name=inner_name, mode=0o644, deep=False)


def is_staged(name: str, staging: Staging) -> bool:
    """Return True if a file below the prefixes is staged, by its suffix.

    A file that is itself a prefix always is. Eigen's headers have no suffix and are staged, too.
    """
    if name in staging.prefixes:
        return True
    file = name.rpartition("/")[2]
    if "." not in file:
        return "/Eigen/" in f"/{name}" and file != "BUILD"
    return file.endswith(staging.suffixes)
