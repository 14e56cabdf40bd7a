"""An index in a folder, for any web server. Readers never see an incomplete file."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tfbuild.packing.wheel import BLOCK, convert_os_errors
from tfbuild.upstream.download import hash_file
from tfcore import console, settings
from tfcore.errors import ChecksumError, PublishError
from tfwheels.layout import resolve_key


@dataclass(frozen=True, kw_only=True, slots=True)
class Folder:
    """An index in a folder, which implements `store.Store`. All methods raise DiskError on a full
    disk.
    """

    root: Path

    @property
    def where(self) -> str:
        return str(self.root)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the index.

        Raises BusyError while another process publishes here.
        """
        resolve_key(self.root, ".lock")
        with settings.lock_folder(self.root, "publishing"):
            yield

    def read(self, key: str) -> bytes | None:
        path = resolve_key(self.root, key)
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise PublishError(f"cannot read {path}: {error.strerror}") from error

    def list_sizes(self, prefix: str) -> dict[str, int]:
        paths = (self.root / prefix).rglob("*")
        return {
            path.relative_to(self.root).as_posix(): path.lstat().st_size
            for path in sorted(paths)
            if path.is_file()
        }

    @contextlib.contextmanager
    def open_local(self, key: str) -> Iterator[Path]:
        yield resolve_key(self.root, key)

    def find_differing(self, files: Mapping[str, bytes]) -> tuple[str, ...]:
        return tuple(key for key, data in files.items() if self.read(key) != data)

    def has_content(self, key: str, content: Path, sha256: str) -> bool:  # noqa: ARG002  (see Bucket)
        """Return whether the file has these bytes.

        Reads the whole file: its size and time do not show changes by a bad disk or a careless
        copy.
        """
        return self._hash_file(key) == sha256

    def put_new(self, key: str, content: Path | bytes, sha256: str) -> bool:
        """Store a file that never changes; return False if it exists.

        A wheel is copied, never linked: writing to the original must not change the copy.
        """
        path = resolve_key(self.root, key)
        if path.exists():
            require_same(self.where, key, self._hash_file(key), sha256)
            return False
        if isinstance(content, bytes):
            self._write(path, (content,), sha256)
        else:
            self._write(path, _read_blocks(content), sha256)
        return True

    def put(self, key: str, data: bytes) -> None:
        self._write(resolve_key(self.root, key), (data,), hashlib.sha256(data).hexdigest())

    def swap(self, key: str, data: bytes, expected: bytes | None) -> bool:
        if self.read(key) != expected:
            return False
        self.put(key, data)
        _sync_folder(resolve_key(self.root, key).parent)
        return True

    def _hash_file(self, key: str) -> str:
        path = resolve_key(self.root, key)
        try:
            return hash_file(path)
        except OSError as error:
            raise PublishError(f"cannot read {path}: {error.strerror}") from error

    def _write(self, path: Path, blocks: Iterable[bytes], sha256: str) -> None:
        """Write the bytes to a temporary file, sync and check it, then move it to `path`.

        There is one writer at a time (`lock`), so one temporary name is enough; it overwrites the
        file of a killed run. File systems preserve the order of renames, so only the last one is
        synced, in `swap`. Raises ChecksumError, DiskError.
        """
        part = resolve_key(self.root, ".part")
        try:
            with convert_os_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                actual = _write_blocks(part, blocks)
            _require_unchanged(path, actual, sha256)
            with convert_os_errors(path):
                part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


OWN_NAME = "A published file never changes: build the wheel with another version"


def require_same(where: str, key: str, actual: str, sha256: str, *, hint: str = OWN_NAME) -> None:
    """Raise PublishError unless the stored bytes have this SHA-256."""
    if actual != sha256:
        raise PublishError(
            f"{where} has {key} with other bytes: sha256 {actual}, not {sha256}", hint=hint
        )


def _require_unchanged(path: Path, actual: str, sha256: str) -> None:
    if actual != sha256:
        raise ChecksumError(
            f"the wheel changed while it was copied to {path}: sha256 {actual}, not {sha256}",
            hint="Wait until no program writes to the wheel, then publish it again",
        )


def _write_blocks(part: Path, blocks: Iterable[bytes]) -> str:
    """Write the blocks, sync them to disk and return their SHA-256."""
    digest = hashlib.sha256()
    with part.open("wb") as sink:
        for block in blocks:
            digest.update(block)
            sink.write(block)
        sink.flush()
        os.fchmod(sink.fileno(), 0o644)
        os.fsync(sink.fileno())
    return digest.hexdigest()


def _read_blocks(path: Path) -> Iterator[bytes]:
    with (
        path.open("rb") as source,
        console.track_progress("MB", path.stat().st_size >> 20) as count,
    ):
        while block := source.read(BLOCK):
            yield block
            count.advance(source.tell() >> 20, detail=path.name)


def _sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
