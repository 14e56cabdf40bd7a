"""uv, which puts wheel files that are here into environments, faster than pip does. It asks no
index, and reads no settings of the user's: those are pip's here."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from uv import find_uv_bin

from tfbuild.errors import CommandError
from tfbuild.run import run

_LIMIT_S = 1800.0
_CAUSE = re.compile(r"^ *(?:cause|Caused by): (.+)$", re.MULTILINE)
_ALONE = ("--offline", "--no-config", "--color", "never", "--no-progress")


def install(interpreter: Path, *wanted: str | Path, log: Path) -> None:
    """Wheel files, or requirements and the folder of their files, into the environment of an
    interpreter, and nothing that they need beside. Raises CommandError."""
    words = ("install", "--no-deps", "--no-build", "--no-index")
    # Unpacked beside the environment, so that files are linked to where they stay, not copied.
    with tempfile.TemporaryDirectory(dir=interpreter.parents[1], prefix=".uv-") as folder:
        _pip(interpreter, *words, "--cache-dir", folder, *wanted, log=log)


def check(interpreter: Path, *, log: Path) -> None:
    """Raises CommandError for what an installed package needs and has not."""
    _pip(interpreter, "check", "--no-cache", log=log)


def reason(error: CommandError) -> str:
    """What uv says of a failure, without the sentences that follow from it."""
    found = _CAUSE.findall(error.message)
    return found[-1] if found else error.last_line


def _pip(interpreter: Path, command: str, *words: str | Path, log: Path) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("UV_")}
    own = (find_uv_bin(), *_ALONE, "pip", command, "--python", interpreter)
    run([*own, *words], env=env | {"UV_NO_WRAP": "1"}, log=log, timeout_s=_LIMIT_S)
