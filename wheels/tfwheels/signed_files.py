"""Check files before they are served: a trusted signer must have signed them.

This applies to every file that an installer could install, unknown formats included.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import IO

from tfbuild.console import warn
from tfbuild.errors import PublishError
from tfbuild.packing.wheel import BLOCK
from tfwheels.keys import PublicKey
from tfwheels.layout import PROVENANCE, resolve_key
from tfwheels.provenance import verify_provenance

_NEVER_INSTALLED = (".html", ".json", ".metadata", PROVENANCE)
"""Pages, and the files beside wheels."""
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
        if not self._trusted or key.endswith(_NEVER_INSTALLED):
            return True
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
