"""Install local wheel files with uv, which is faster than pip.

uv uses no index and reads no settings: the user's index settings are those of pip.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from uv import find_uv_bin

from tfcore.errors import CommandError
from tfcore.run import run

_LIMIT_S = 1800.0
_CAUSE = re.compile(r"^ *(?:cause|Caused by): (.+)$", re.MULTILINE)
_ALONE = ("--offline", "--no-config", "--color", "never", "--no-progress")


def install(interpreter: Path, *requirements: str | Path, log: Path) -> None:
    """Install wheel files, or requirements and the folder of their files, without dependencies.

    They go into the environment of `interpreter`. Raises CommandError.
    """
    words = ("install", "--no-deps", "--no-build", "--no-index")
    # Unpacked beside the environment, so that files are linked and not copied.
    with tempfile.TemporaryDirectory(dir=interpreter.parents[1], prefix=".uv-") as folder:
        _run_pip(interpreter, *words, "--cache-dir", folder, *requirements, log=log)


def check(interpreter: Path, *, log: Path) -> None:
    """Raise CommandError if an installed package lacks a dependency."""
    _run_pip(interpreter, "check", "--no-cache", log=log)


def extract_reason(error: CommandError) -> str:
    """Return uv's reason for a failure, without the consequences that uv prints."""
    causes = _CAUSE.findall(error.message)
    return causes[-1] if causes else error.last_line


def _run_pip(interpreter: Path, command: str, *words: str | Path, log: Path) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("UV_")}
    command_start = (find_uv_bin(), *_ALONE, "pip", command, "--python", interpreter)
    run([*command_start, *words], env=env | {"UV_NO_WRAP": "1"}, log=log, timeout_s=_LIMIT_S)
