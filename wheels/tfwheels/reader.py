"""Read the files of an index in a folder or on a server."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from tfcore.cpus.cpu import read_cpu
from tfcore.cpus.targets import Target, match_cpu, parse_target
from tfcore.errors import UsageError
from tfcore.settings import expand_home
from tfwheels.folder import Folder
from tfwheels.layout import build_folder_key
from tfwheels.remote import Credentials, Index, check_url, open_index, read_body

_PLAIN_URL = re.compile(r"[A-Za-z0-9:/.%_~+\[\]-]+")


class IndexReader(Protocol):
    """The files of an index by key."""

    @property
    def where(self) -> str:
        """Return the location for messages."""

    def read(self, key: str) -> bytes | None:
        """Return the bytes of a file; None if there is no such file. Raises PublishError."""


class _Server:
    def __init__(self, base: str, index: Index) -> None:
        self.where = base
        self._index = index

    def read(self, key: str) -> bytes | None:
        address = f"{self.where}/{quote(key)}"
        response = self._index.get(address)
        if response is None:
            return None
        with response:
            return read_body(response, address)


def find_folder(at: str) -> Path | None:
    """Return the folder that `at` names; None for an address.

    Raises UsageError if the folder is not an index, or `at` is empty.
    """
    if not at:
        raise UsageError("--at is missing", hint="Pass the folder or the address of the index")
    if "://" in at:
        return None
    folder = expand_home(at, "--at")
    if not (folder / build_folder_key()).is_dir():
        raise UsageError(f"{at} is not an index: it has no folder {build_folder_key()}")
    return folder


def parse_address(at: str) -> str:
    """Return the address without a slash at its end.

    Raises UsageError for an invalid one, and for characters that a shell would change.
    """
    check_url(at, "--at")
    if not _PLAIN_URL.fullmatch(at):
        raise UsageError("--at contains characters that a shell would change")
    return at.rstrip("/")


def find_target(arch: str) -> Target:
    """Return the target that --arch names; that of this CPU for an empty text.

    Raises TargetError, CpuError.
    """
    return parse_target(arch) if arch else match_cpu(read_cpu()).best


@contextlib.contextmanager
def open_reader(at: str) -> Iterator[IndexReader]:
    """Open the index in a folder or at an address. Raises UsageError, PublishError."""
    folder = find_folder(at)
    if folder is not None:
        yield Folder(root=folder.resolve())
        return
    base = parse_address(at)
    with open_index(base, f"{base}/{build_folder_key()}", Credentials()) as index:
        yield _Server(base, index)
