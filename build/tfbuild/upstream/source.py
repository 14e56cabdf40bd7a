"""TensorFlow's own sources: fetched from where they can be had, checked, and staged.

Tried in this order: a path that the user gives, what an earlier run fetched, the mirror, the
release's home, and Debian's source package through apt, whose signature chain apt checks itself.
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

from tfbuild import console
from tfbuild.errors import (
    ChecksumError,
    CommandError,
    DiskError,
    DownloadError,
    ToolError,
)
from tfbuild.records import write_atomic
from tfbuild.run import run
from tfbuild.settings import Paths, exclusive, need_disk
from tfbuild.upstream import download
from tfbuild.upstream.download import Pin

TREE = "tree"
"""The folder in a repository of staged sources that they lie in, by their paths in the release's
tree. In the repository itself quoted headers would be looked for before anywhere else."""
_MB = 1_000_000
_STAGED_BYTES = 400 * _MB
_TREE_BYTES = 700 * _MB  # (2.14.1's tree takes 354 MB)
_MOST = 4000 * _MB
"""Bytes that an archive may unpack to: ten times 2.14.1's tree."""
_AT_ONCE = 1 << 20
"""Bytes that tarfile reads at once: of files it takes less, and so have all headers."""
_TORN = (
    *(tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError),
    KeyError,  # (tarfile's of a link to a member that the archive lacks)
    *(gzip.BadGzipFile, lzma.LZMAError, zlib.error),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class SourcePin:
    """One form in which a release's sources exist: `kind` is "home" or "debian".

    For "home" `origin` is a URL; for "debian" it is "<suite>/<source package>".
    """

    kind: str
    origin: str
    file: Pin


@dataclass(frozen=True, kw_only=True, slots=True)
class Staging:
    """Which files of a tree are taken: those whose paths have such a prefix and suffix."""

    prefixes: tuple[str, ...]
    suffixes: tuple[str, ...]


def fetch_source(pins: tuple[SourcePin, ...], paths: Paths, given: Path | None) -> Path:
    """The archive, with the pinned bytes. Raises DownloadError that lists everything tried."""
    if given is not None:
        return _given(pins, given)
    # Looked at under the lock: what another run is writing is not a file that went bad.
    with exclusive(paths.downloads, "downloading TensorFlow's sources", wait=True):
        return _kept(pins, paths) or _fetched(pins, paths)


def _kept(pins: tuple[SourcePin, ...], paths: Paths) -> Path | None:
    """What an earlier run has fetched."""
    found = (download.kept(paths.downloads / pin.file.name, pin.file) for pin in pins)
    return next(filter(None, found), None)


def _fetched(pins: tuple[SourcePin, ...], paths: Paths) -> Path:
    tried: list[str] = []
    for what, attempt in _attempts(pins, paths):
        try:
            return attempt()
        except (DownloadError, ChecksumError, ToolError, CommandError) as error:
            tried.append(f"{what}: {error.message.splitlines()[0]}")
            console.note(f"{tried[-1]}; trying the next place")
    lines = "".join(f"\n  - {line}" for line in tried)
    raise DownloadError(
        f"the sources could not be had. Tried:{lines}\n",
        hint="Fetch one of them elsewhere and pass it with --source PATH",
    )


def _given(pins: tuple[SourcePin, ...], given: Path) -> Path:
    if not given.is_file():
        raise DownloadError(f"--source {given}: there is no such file")
    seen = download.sha256_of(given)
    if seen not in {pin.file.sha256 for pin in pins}:
        known = " or ".join(f"{pin.file.name} ({pin.file.sha256})" for pin in pins)
        raise ChecksumError(f"--source {given} has sha256 {seen}; wanted is {known}")
    return given


def _attempts(
    pins: tuple[SourcePin, ...], paths: Paths
) -> Iterator[tuple[str, Callable[[], Path]]]:
    """What can be tried, cheapest first."""
    folder = paths.downloads

    def web(url: str, pin: SourcePin) -> Callable[[], Path]:
        return lambda: download.fetch(url, pin.file, folder)

    def apt(pin: SourcePin) -> Callable[[], Path]:
        return lambda: _from_debian(pin, paths)

    if paths.mirror:
        for pin in pins:
            yield (
                f"mirror {pin.file.name}",
                web(download.mirrored(paths.mirror, pin.file.name), pin),
            )
    for pin in pins:
        if pin.kind == "home":
            yield "home", web(pin.origin, pin)
    for pin in pins:
        if pin.kind == "debian":
            yield f"Debian source package {pin.origin}", apt(pin)


def _from_debian(pin: SourcePin, paths: Paths) -> Path:
    """Debian's source package, through apt in a private state folder.

    The mirror is the machine's own; the machine's package lists are left alone.
    """
    suite, _, package = pin.origin.partition("/")
    with tempfile.TemporaryDirectory(prefix="tensorwright-apt-") as name:
        state = Path(name)
        state.chmod(0o755)  # (apt's unprivileged fetcher must be able to look in)
        for folder in ("lists/partial", "cache/archives/partial", "out"):
            (state / folder).mkdir(parents=True)
        uri = _debian_mirror()
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


def _debian_mirror() -> str:
    """The archive that this machine installs from: the first that is no security archive."""
    listing = run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(SUITE)"]).output
    for line in listing.splitlines():
        uri, _, suite = line.partition(" ")
        if "/" in uri and "security" not in f"{uri} {suite}":
            return uri
    raise DownloadError(
        "apt has no package lists to take a mirror from", hint="Run: sudo apt-get update"
    )


def stage(archive: Path, sha256: str, staging: Staging, paths: Paths) -> Path:
    """Unpack what a kernels build reads: the tree, in a folder named by the archive's hash, which
    is a repository of Bazel's.

    The BUILD files stay out, or Bazel would see packages of TensorFlow's own there. Raises
    ChecksumError for an archive that is torn, DiskError.
    """
    folder = paths.sources / f"{sha256[:16]}-staged"
    if folder.is_dir():
        return folder / TREE
    need_disk(paths.sources, _STAGED_BYTES, "unpacking TensorFlow's sources")
    with scratch(folder) as fresh:
        with archive.open("rb") as packed, _opened(packed) as tar:
            tar.extractall(fresh / TREE, members=_chosen(tar, staging), filter="data")
        if not (fresh / TREE).is_dir():
            raise ChecksumError(f"{archive} holds none of {', '.join(staging.prefixes)}")
    return folder / TREE


def unpack(archive: Path, sha256: str, paths: Paths) -> Path:
    """Unpack the whole tree into a folder named by the archive's hash.

    A folder that is there is taken as it is: it appeared when it was whole. Raises ChecksumError
    for an archive that is torn, or has a member or a link that leads out of it; DiskError.
    """
    folder = paths.sources / f"{sha256[:16]}-tree"
    if folder.is_dir():
        return folder
    need_disk(paths.sources, _TREE_BYTES, "unpacking TensorFlow's source tree")
    with scratch(folder) as fresh:
        with archive.open("rb") as packed, _opened(packed) as tar:
            tar.extractall(fresh, members=_counted(tar, packed), filter="data")
        if not any(fresh.iterdir()):
            raise ChecksumError(f"{archive} holds no folder with a source tree")
    return folder


@contextlib.contextmanager
def _opened(packed: io.BufferedReader) -> Iterator[tarfile.TarFile]:
    """Raises ChecksumError for what the block finds torn."""
    try:
        limited = _Limited(_unpacked(packed))
        with tarfile.open(fileobj=limited, mode="r:") as tar:
            yield tar
    except _TORN as error:
        raise ChecksumError(f"{packed.name} cannot be unpacked: {error}") from error


def _unpacked(packed: io.BufferedReader) -> io.BufferedIOBase:
    begin = packed.peek(2)
    if begin.startswith(b"\x1f\x8b"):
        return gzip.open(packed)
    if begin.startswith(b"\xfd7zXZ"):
        return lzma.open(packed)
    return bz2.open(packed) if begin.startswith(b"BZh") else packed


@contextlib.contextmanager
def _torn() -> Iterator[None]:
    """What cannot be read is no fault of the disk that is written to."""
    try:
        yield
    except OSError as error:
        raise tarfile.ReadError(str(error)) from error


class _Limited:
    """An unpacked archive of which no header fills the memory."""

    def __init__(self, stream: io.BufferedIOBase) -> None:
        self._stream = stream

    def read(self, size: int) -> bytes:
        if size > _AT_ONCE:
            raise tarfile.ReadError(f"it has a header of {size} bytes")
        with _torn():
            return self._stream.read(size)

    def seek(self, place: int) -> int:
        with _torn():
            return self._stream.seek(place)

    def tell(self) -> int:
        return self._stream.tell()


def _members(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """All members, each before a byte of it is unpacked."""
    for member in tar:
        if member.offset_data + member.size > _MOST:
            raise tarfile.ReadError(f"it unpacks to more than {_MOST // _MB} MB")
        yield member


@contextlib.contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """A folder that appears under its name only when the block ends well."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    for left in folder.parent.glob(f".{folder.name}.*"):  # by a run that was killed
        shutil.rmtree(left, ignore_errors=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        yield fresh
        fresh.chmod(0o755)
        fresh.rename(folder)
    except OSError as error:
        raise DiskError(f"cannot write {folder}: {error.strerror}") from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _counted(tar: tarfile.TarFile, packed: io.BufferedReader) -> Iterator[tarfile.TarInfo]:
    """Every member with the archive's own top folder taken off; progress is how much is read."""
    total = Path(packed.name).stat().st_size
    with console.counting("MB of the archive", total // _MB) as count:
        for member in _members(tar):
            _, _, inner = member.name.partition("/")
            linked = member.linkname.partition("/")[2] if member.islnk() else member.linkname
            if inner:
                yield member.replace(name=inner, linkname=linked, deep=False)
            count.advance(packed.tell() // _MB)


def _chosen(tar: tarfile.TarFile, staging: Staging) -> Iterator[tarfile.TarInfo]:
    """Members below the prefixes, with the archive's own top folder taken off."""
    for member in _members(tar):
        _, _, inner = member.name.partition("/")
        if member.isreg() and inner.startswith(staging.prefixes) and wanted(inner, staging):
            yield member.replace(name=inner, mode=0o644, deep=False)


def wanted(name: str, staging: Staging) -> bool:
    """A file that is named itself is; Eigen's headers have no suffix at all, and are."""
    if name in staging.prefixes:
        return True
    file = name.rpartition("/")[2]
    if "." not in file:
        return "/Eigen/" in f"/{name}" and file != "BUILD"
    return file.endswith(staging.suffixes)
