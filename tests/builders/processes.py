"""Whether processes have ended."""

from __future__ import annotations

import time
from pathlib import Path


def gone(pid: int, within_s: float = 10.0) -> bool:
    """Whether the process has ended (a zombie that nobody has waited for has, too)."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False
