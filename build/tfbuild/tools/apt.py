"""Install Debian packages with apt-get."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

from tfcore import console
from tfcore.errors import CommandError, ToolError
from tfcore.run import run

WAIT_S = 300.0
"""Time limit for apt's lock, in seconds. A cloud machine updates its packages at its start."""
_PAUSE_S = 3.0
_LIMIT_S = 1800.0
# apt's untranslated message. Its option DPkg::Lock::Timeout applies only to dpkg's lock: `update`
# fails at once (pkgAcquire::Setup in apt 2.6).
_HELD = "Could not get lock"


def install(packages: Iterable[str], *, wait_s: float = WAIT_S) -> None:
    """Install Debian packages; wait while another process holds apt's lock. Raises ToolError."""
    names = tuple(packages)
    with console.report_step(f"apt-get install {' '.join(names)}"):
        deadline = time.monotonic() + wait_s
        _run_apt(("update", "-qq"), deadline)
        _run_apt(("install", "-y", "-qq", "--no-install-recommends", *names), deadline)


def _run_apt(words: tuple[str, ...], deadline: float) -> None:
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    announced = False
    while True:
        try:
            run(["apt-get", *words], env=env, timeout_s=_LIMIT_S)
        except CommandError as error:
            held = [line for line in error.message.splitlines() if _HELD in line]
            if not held:
                raise ToolError(f"apt-get failed: {error.message}") from error
            if time.monotonic() >= deadline:
                raise ToolError(
                    f"apt-get failed: {held[0]}",
                    hint="Wait until that process has finished, then run the same command again",
                ) from error
            if not announced:
                console.print_note(f"waiting: {held[0].removeprefix('E: ')}")
                announced = True
            time.sleep(_PAUSE_S)
        else:
            return
