"""Where an index lives: a folder, or a bucket of an object store."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from tfbuild.errors import UsageError
from tfbuild.packing.wheel import is_plain
from tfwheels.bucket import open_bucket
from tfwheels.folder import Folder

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


class Store(Protocol):
    """Files of a published tree by key. Whoever reads one gets the old bytes or the new."""

    @property
    def where(self) -> str:
        """For a person; no credentials stand in it."""

    def exclusive(self) -> AbstractContextManager[None]:
        """Hold the index for one publisher, where the store can. Raises BusyError."""

    def read(self, key: str) -> bytes | None:
        """The bytes; None where there is no such file."""

    def sizes(self, prefix: str) -> dict[str, int]:
        """The files below a folder, or all with an empty prefix, in bytes."""

    def local(self, key: str) -> AbstractContextManager[Path]:
        """A large file on this machine, with the time at which it was stored."""

    def differing(self, files: Mapping[str, bytes]) -> tuple[str, ...]:
        """Which of the files are not there with these bytes."""

    def holds(self, key: str, content: Path, sha256: str) -> bool | None:
        """Whether a file that is there has the bytes of `content`, whose hash is given. None where
        only the bytes would tell, and they would have to be sent here."""

    def put_new(self, key: str, content: Path | bytes, sha256: str) -> bool:
        """Store a file that never changes; False when it is there already.

        Raises PublishError when the name has other bytes.
        """

    def put(self, key: str, data: bytes) -> None:
        """Store a file, or replace it in one step."""

    def swap(self, key: str, data: bytes, expected: bytes | None) -> bool:
        """Replace a file if it still has the bytes that were seen (None: if it is still absent).

        False when another publisher was faster.
        """


def open_store(text: str) -> Store:
    """The store of a folder's path or of s3://bucket/prefix. Raises UsageError, ToolError.

    The text of an address that is refused is not repeated: a password may stand in it.
    """
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise UsageError("--to has an address that is none", hint=_ADDRESSES) from error
    if not text or parts.scheme not in {"", "s3"}:
        raise UsageError(f"--to {parts.scheme}: is no place for an index", hint=_ADDRESSES)
    if not parts.scheme:
        return Folder(root=_expanded(Path(text)))
    prefix = parts.path.strip("/")
    extra = parts.query or parts.fragment or (prefix and not is_plain(prefix))
    if extra or not _BUCKET.fullmatch(parts.netloc):
        raise UsageError(
            "--to s3: takes the name of a bucket and a plain prefix, and nothing else",
            hint="Credentials come from the environment or a profile, never from the address",
        )
    return open_bucket(parts.netloc, f"{prefix}/" if prefix else "")


def _expanded(path: Path) -> Path:
    """Shells leave the ~ of --to=~/index as it is."""
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise UsageError(f"--to {path} is in the home of nobody") from error


_ADDRESSES = (
    "Use a folder or s3://bucket/prefix; for another store publish to a folder and copy it there "
    "as its manifest.json says"
)
