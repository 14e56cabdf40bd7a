"""Limit the memory of a process: by a control group if permitted, otherwise by a resource limit."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tfcore.errors import UsageError

LEAST_MB = 200
"""Memory that importing TensorFlow 2.14 allocates (VmData 208 MB; 380 MB resident with its
library)."""
CGROUP, RLIMIT = "cgroup", "RLIMIT_DATA"
_FILES = ("memory.max", "memory.limit_in_bytes")
"""Files of the limit in cgroup versions 2 and 1, see cgroups(7)."""
_SWAP = {"memory.max": "memory.swap.max", "memory.limit_in_bytes": "memory.memsw.limit_in_bytes"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Limit:
    """A memory limit.

    `folder` is the control group's, None if the process sets a resource limit for itself.
    """

    memory_mb: float
    folder: Path | None

    @property
    def means(self) -> str:
        """Return how memory is limited: CGROUP or RLIMIT."""
        return RLIMIT if self.folder is None else CGROUP

    @property
    def request(self) -> dict[str, object]:
        """Return the fields of a request with which the process limits itself."""
        group = None if self.folder is None else str(self.folder)
        return {"memory_mb": self.memory_mb, "cgroup": group}


def detect_method() -> str:
    """Detect how memory can be limited on this machine.

    It tries to create a control group, without a process in it.
    """
    with limit_memory(LEAST_MB) as limit:
        return limit.means


def check_memory(memory_mb: float) -> None:
    """Raise UsageError if the limit is less than TensorFlow itself needs."""
    if memory_mb < LEAST_MB:
        raise UsageError(
            f"a memory limit of {memory_mb:g} MB is too small to import TensorFlow",
            hint=f"Use {LEAST_MB} MB or more; TensorFlow and a small model need about 400 MB",
        )


@contextlib.contextmanager
def limit_memory(memory_mb: float, root: Path = Path("/")) -> Iterator[Limit]:
    """Yield a memory limit for one process, and remove its control group afterwards."""
    folder = _create_group(memory_mb, root)
    try:
        yield Limit(memory_mb=memory_mb, folder=folder)
    finally:
        if folder is not None:
            with contextlib.suppress(OSError):  # (a process in it may still be ending)
                folder.rmdir()


def _create_group(memory_mb: float, root: Path) -> Path | None:
    """Create a control group with the limit below this process's group; None if not permitted."""
    for parent in _find_memory_groups(root):
        folder = parent / f"tensorwright-{os.getpid()}"
        try:
            folder.mkdir(exist_ok=True)
        except OSError:
            continue
        if _set_limit(folder, memory_mb):
            return folder
        with contextlib.suppress(OSError):
            folder.rmdir()
    return None


def _set_limit(folder: Path, memory_mb: float) -> bool:
    file = next((name for name in _FILES if (folder / name).exists()), None)
    if file is None or not (folder / "cgroup.procs").exists():
        return False
    limit = str(int(memory_mb * 1e6))
    try:
        (folder / file).write_text(limit, encoding="ascii")
    except OSError:
        return False
    with contextlib.suppress(OSError):  # (no swap, which is slow; some kernels cannot limit it)
        text = "0" if file == "memory.max" else limit
        (folder / _SWAP[file]).write_text(text, encoding="ascii")
    return True


def _find_memory_groups(root: Path) -> Iterator[Path]:
    """Yield the folders where this process's memory is counted, of cgroup versions 2 and 1."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="ascii").splitlines()
    except OSError:
        return
    base = root / "sys/fs/cgroup"
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield from (base / path.strip("/"), base / "unified" / path.strip("/"))
        elif "memory" in controllers.split(","):
            # In a container the path may name folders that only the host can see.
            yield from (base / "memory" / path.strip("/"), base / "memory")
