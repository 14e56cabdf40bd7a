"""Files of a tree on disk that are handed out only if a trusted key has signed their bytes.

That is all that an installer could install: of a form that is not known here it could be, too.
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
from tfwheels.identities import Signer
from tfwheels.layout import PROVENANCE, place
from tfwheels.provenance import signed_by

_NEVER_INSTALLED = (".html", ".json", ".metadata", PROVENANCE)
"""Pages, and what lies beside wheels."""
_Stamp = tuple[int, int, int, int]


class SignedFiles:
    """Remembers what it has seen of each file, until that or its provenance changes."""

    def __init__(self, root: Path, trusted: Sequence[Signer]) -> None:
        self._root = root
        self._trusted = tuple(trusted)
        self._passed: dict[str, tuple[_Stamp, _Stamp]] = {}
        self._lock = threading.Lock()

    def passes(self, key: str, file: IO[bytes]) -> bool:
        """Whether what is open as `file` may be handed out. A refusal has its line each time."""
        if not self._trusted or key.endswith(_NEVER_INSTALLED):
            return True
        try:
            with place(self._root, key + PROVENANCE).open("rb") as beside:
                stamps = _stamp(file), _stamp(beside)
                with self._lock:  # one request hashes, the others wait for it
                    if self._passed.get(key) != stamps:
                        name, sha256 = PurePosixPath(key).name, _sha256(file)
                        signed_by(beside.read(), name, sha256, self._trusted)
                        self._passed[key] = stamps
        except FileNotFoundError:
            return _refused(key, "it is unsigned")
        except (PublishError, OSError) as error:
            return _refused(key, str(error))
        return True


def _refused(key: str, why: str) -> bool:
    warn(f"refused {key}: {why}")
    return False


def _stamp(file: IO[bytes]) -> _Stamp:
    """What changes with the content; the time of the last change cannot be set back."""
    status = os.fstat(file.fileno())
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _sha256(file: IO[bytes]) -> str:
    digest = hashlib.sha256()
    file.seek(0)
    while block := file.read(BLOCK):
        digest.update(block)
    return digest.hexdigest()
