"""Check files before they are served: a trusted signer must have signed them.

This applies to every file that an installer could install, unknown formats included. Pages and the
files beside wheels need no signature, but must be text: an installer takes the name of a wheel from
the link to it, so a page could be a wheel.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import IO

from tfbuild.packing.wheel import BLOCK
from tfcore.console import warn
from tfcore.errors import PublishError
from tfwheels.keys import PublicKey
from tfwheels.layout import PROVENANCE, REBUILT, resolve_key
from tfwheels.provenance import verify_provenance

_TEXTS = (".html", ".json", ".metadata", PROVENANCE, REBUILT)
"""Pages, and the files beside wheels."""
_LARGEST_TEXT = 64 << 20
_TAR_HEADER = 512
_TAR_CHECKSUM = slice(148, 156)
_Stamp = tuple[int, int, int, int]


class SignedFiles:
    """A check of files, whose result is cached until a file or its provenance changes."""

    def __init__(self, root: Path, trusted: Sequence[PublicKey]) -> None:
        self._root = root
        self._trusted = tuple(trusted)
        self._passed: dict[str, tuple[_Stamp, _Stamp]] = {}
        self._lock = threading.Lock()

    def is_allowed(self, key: str, file: IO[bytes]) -> bool:
        """Return whether the open `file` may be served; every refusal is logged."""
        if not self._trusted:
            return True
        if key.endswith(_TEXTS):
            return _is_text(file) or _refuse(key, "it is not text")
        try:
            with resolve_key(self._root, key + PROVENANCE).open("rb") as beside:
                stamps = _read_stamp(file), _read_stamp(beside)
                with self._lock:  # one request hashes, the others wait for it
                    if self._passed.get(key) != stamps:
                        name, sha256 = PurePosixPath(key).name, _sha256(file)
                        verify_provenance(beside.read(), name, sha256, self._trusted)
                        self._passed[key] = stamps
        except FileNotFoundError:
            return _refuse(key, "it is unsigned")
        except (PublishError, OSError) as error:
            return _refuse(key, str(error))
        return True


def _is_text(file: IO[bytes]) -> bool:
    """Return whether the file is text, and no archive.

    An archive is never UTF-8 without zero bytes, except bzip2 and tar, which are recognised by
    their headers. (Each member of a zip has a zero byte in its compression method.)
    """
    file.seek(0)
    data = file.read(_LARGEST_TEXT + 1)
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    archive = b"\0" in data or data.startswith(b"BZh") or _is_tar(data[:_TAR_HEADER])
    return len(data) <= _LARGEST_TEXT and not archive


def _is_tar(header: bytes) -> bool:
    """Return whether the header has the checksum of a tar archive: the sum of its other bytes."""
    stored = re.search(rb"[0-7]+", header[_TAR_CHECKSUM])
    spaces = b" " * len(header[_TAR_CHECKSUM])
    cleared = header[: _TAR_CHECKSUM.start] + spaces + header[_TAR_CHECKSUM.stop :]
    unsigned = sum(cleared)
    signed = unsigned - 256 * sum(byte >> 7 for byte in cleared)
    return stored is not None and int(stored[0], 8) in {unsigned, signed}


def _refuse(key: str, reason: str) -> bool:
    warn(f"refused {key}: {reason}")
    return False


def _read_stamp(file: IO[bytes]) -> _Stamp:
    """Return values that change with the content; programs cannot set the change time (ctime)."""
    status = os.fstat(file.fileno())
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _sha256(file: IO[bytes]) -> str:
    digest = hashlib.sha256()
    file.seek(0)
    while block := file.read(BLOCK):
        digest.update(block)
    return digest.hexdigest()
