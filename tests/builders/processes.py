"""Processes: whether they have ended, and their children."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path


def alive(pid: int) -> bool:
    """Whether the process is there and not merely waiting to be reaped."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def gone(pid: int, within_s: float = 10.0) -> bool:
    """Whether the process has ended."""
    deadline = time.monotonic() + within_s
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(pid)


def children(pid: int) -> set[int]:
    numbers: set[int] = set()
    with contextlib.suppress(OSError):  # (it has ended meanwhile)
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            numbers |= set(map(int, path.read_text(encoding="ascii").split()))
    return numbers
