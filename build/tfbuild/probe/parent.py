"""Ends a process when its parent ends, for whatever reason (prctl(2), Linux)."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)  # opened before any fork


def end_with_parent(parent: int) -> None:
    """Have the kernel end this process when its `parent`, a process id, has ended."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # the parent ended before the call of prctl
        os.kill(os.getpid(), signal.SIGKILL)
