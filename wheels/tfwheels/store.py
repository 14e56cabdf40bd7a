"""The storage of an index: a folder, or a bucket of an object store."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from tfbuild.packing.wheel import is_plain
from tfcore.errors import UsageError
from tfcore.settings import expand_home
from tfwheels.bucket import open_bucket
from tfwheels.folder import Folder

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


class Store(Protocol):
    """The files of a published tree by key; readers get the old or the new bytes of a file."""

    @property
    def where(self) -> str:
        """Return the location for messages, without credentials."""

    def lock(self) -> AbstractContextManager[None]:
        """Lock the index for one publisher, if the store can.

        Raises BusyError.
        """

    def read(self, key: str) -> bytes | None:
        """Return the bytes of a file; None if there is no such file."""

    def list_sizes(self, prefix: str) -> dict[str, int]:
        """Return the sizes in bytes of the files below a folder, or of all with an empty prefix."""

    def open_local(self, key: str) -> AbstractContextManager[Path]:
        """Provide a large file on this machine, with the time when it was stored."""

    def find_differing(self, files: Mapping[str, bytes]) -> tuple[str, ...]:
        """Return the files that are not stored with these bytes."""

    def has_content(self, key: str, content: Path, sha256: str) -> bool | None:
        """Return whether a stored file has the bytes of `content`, whose hash is given.

        None if only a download would show it.
        """

    def put_new(self, key: str, content: Path | bytes, sha256: str) -> bool:
        """Store a file that never changes; return False if it exists.

        Raises PublishError if it exists with other bytes.
        """

    def put(self, key: str, data: bytes) -> None:
        """Store a file, or replace it in one step."""

    def swap(self, key: str, data: bytes, expected: bytes | None) -> bool:
        """Replace a file if it still has the `expected` bytes (None: if it is still absent).

        Returns False if another publisher was faster.
        """


def open_store(text: str) -> Store:
    """Open the index in a folder or at s3://bucket/prefix.

    Errors do not repeat the address, because it may contain a password. Raises UsageError,
    ToolError.
    """
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise UsageError("--to is not a valid address", hint=_ADDRESSES) from error
    if not text or parts.scheme not in {"", "s3"}:
        raise UsageError(f"--to {parts.scheme}: is not supported", hint=_ADDRESSES)
    if not parts.scheme:
        return Folder(root=expand_home(text, "--to"))
    prefix = parts.path.strip("/")
    extra = parts.query or parts.fragment or (prefix and not is_plain(prefix))
    if extra or not _BUCKET.fullmatch(parts.netloc):
        raise UsageError(
            "the address of --to is not a bucket and a prefix of ordinary characters",
            hint="Use s3://bucket/prefix. Credentials come from the environment or a profile, "
            "never from the address",
        )
    return open_bucket(parts.netloc, f"{prefix}/" if prefix else "")


_ADDRESSES = (
    "Use a folder or s3://bucket/prefix. For another store, publish to a folder and copy it as its "
    "manifest.json describes"
)
