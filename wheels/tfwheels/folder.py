"""An index in a folder, as a web server shows it. Nobody ever sees half a file in it."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tfbuild import console, settings
from tfbuild.errors import ChecksumError, PublishError
from tfbuild.packing.wheel import BLOCK, convert_os_errors
from tfbuild.upstream.download import hash_file
from tfwheels.layout import place


@dataclass(frozen=True, kw_only=True, slots=True)
class Folder:
    """What each function does is said in store.Store. A full disk is a DiskError everywhere."""

    root: Path

    @property
    def where(self) -> str:
        return str(self.root)

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Raises BusyError while another process publishes here."""
        place(self.root, ".lock")
        with settings.lock_folder(self.root, "publishing"):
            yield

    def read(self, key: str) -> bytes | None:
        path = place(self.root, key)
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise PublishError(f"cannot read {path}: {error.strerror}") from error

    def sizes(self, prefix: str) -> dict[str, int]:
        found = (self.root / prefix).rglob("*")
        return {
            path.relative_to(self.root).as_posix(): path.lstat().st_size
            for path in sorted(found)
            if path.is_file()
        }

    @contextlib.contextmanager
    def local(self, key: str) -> Iterator[Path]:
        yield place(self.root, key)

    def differing(self, files: Mapping[str, bytes]) -> tuple[str, ...]:
        return tuple(key for key, data in files.items() if self.read(key) != data)

    def holds(self, key: str, content: Path, sha256: str) -> bool:  # noqa: ARG002  (see Bucket)
        """All bytes are read: neither size nor time shows what a bad disk or a careless copy has
        changed."""
        return self._sha256(key) == sha256

    def put_new(self, key: str, content: Path | bytes, sha256: str) -> bool:
        """A wheel is copied, never linked: who writes into the original must not change it here."""
        path = place(self.root, key)
        if path.exists():
            need_same(self.where, key, self._sha256(key), sha256)
            return False
        if isinstance(content, bytes):
            self._write(path, (content,), sha256)
        else:
            self._write(path, _blocks(content), sha256)
        return True

    def put(self, key: str, data: bytes) -> None:
        self._write(place(self.root, key), (data,), hashlib.sha256(data).hexdigest())

    def swap(self, key: str, data: bytes, expected: bytes | None) -> bool:
        if self.read(key) != expected:
            return False
        self.put(key, data)
        _sync(place(self.root, key).parent)
        return True

    def _sha256(self, key: str) -> str:
        path = place(self.root, key)
        try:
            return hash_file(path)
        except OSError as error:
            raise PublishError(f"cannot read {path}: {error.strerror}") from error

    def _write(self, path: Path, blocks: Iterable[bytes], sha256: str) -> None:
        """Write, hash and settle the bytes beside everything else, then give them their name.

        There is one writer at a time (`exclusive`), so one name for what is not finished is enough:
        what a killed run has left is written over. File systems keep names in the order in which
        they were given, so only the last one is waited for, in `swap`.
        Raises ChecksumError, DiskError.
        """
        part = place(self.root, ".part")
        try:
            with convert_os_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                actual = _settle(part, blocks)
            _need_unchanged(path, actual, sha256)
            with convert_os_errors(path):
                part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


OWN_NAME = "A published file never changes: give the wheel a version of its own"


def need_same(where: str, key: str, actual: str, sha256: str, *, hint: str = OWN_NAME) -> None:
    """Raises PublishError unless the bytes that are there have this SHA-256."""
    if actual != sha256:
        raise PublishError(
            f"{where} has other bytes as {key}: sha256 {actual}, not {sha256}", hint=hint
        )


def _need_unchanged(path: Path, actual: str, sha256: str) -> None:
    if actual != sha256:
        raise ChecksumError(
            f"the bytes for {path} have sha256 {actual}, and had {sha256} before",
            hint="Something writes into the wheel: publish it again when that is done",
        )


def _settle(part: Path, blocks: Iterable[bytes]) -> str:
    """Write the blocks and wait until the disk has them; their SHA-256."""
    digest = hashlib.sha256()
    with part.open("wb") as sink:
        for block in blocks:
            digest.update(block)
            sink.write(block)
        sink.flush()
        os.fchmod(sink.fileno(), 0o644)
        os.fsync(sink.fileno())
    return digest.hexdigest()


def _blocks(path: Path) -> Iterator[bytes]:
    with (
        path.open("rb") as source,
        console.track_progress("MB", path.stat().st_size >> 20) as count,
    ):
        while block := source.read(BLOCK):
            yield block
            count.advance(source.tell() >> 20, detail=path.name)


def _sync(folder: Path) -> None:
    """Wait until the disk knows the names in a folder."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
