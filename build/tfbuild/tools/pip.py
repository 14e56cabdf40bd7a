"""Run pip with the user's own index settings."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from tfcore.run import run

_LIMIT_S = 3600.0
_PIP = ("-m", "pip", "--disable-pip-version-check")
_HERE = Path(sys.executable)


def list_settings(env: Mapping[str, str]) -> list[str]:
    """Return the lines of `pip config list`: SECTION.NAME='VALUE'. Raises CommandError."""
    return run([_HERE, *_PIP, "config", "list"], env=env).output.splitlines()


def resolve(requirement: str, report: Path, *choice: str, target: Path) -> None:
    """Write pip's report of the file that it would install into the folder `target`, alone.

    `choice` are the tags of the file. Raises CommandError.
    """
    words = ("install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps", "--no-cache-dir")
    files = ("--target", target, "--report", report)
    run([_HERE, *_PIP, *words, *files, *choice, requirement], timeout_s=_LIMIT_S)


def download(
    requirements: Path,
    folder: Path,
    *choice: str,
    interpreter: Path | None = None,
    python: Path = _HERE,
    on_line: Callable[[str], None] | None = None,
) -> None:
    """Download the files of a list of hashed requirements into `folder`, without dependencies.

    `choice` selects files, for `interpreter` if one is given. The interpreter need not have pip:
    the pip of `python` is run. Raises CommandError.
    """
    target = () if interpreter is None else ("--python", str(interpreter))
    words = ("download", "--no-deps", "--require-hashes", "--no-cache-dir", "--progress-bar", "off")
    files = ("--dest", folder, "--requirement", requirements)
    run([python, *_PIP, *target, *words, *choice, *files], timeout_s=_LIMIT_S, on_line=on_line)
