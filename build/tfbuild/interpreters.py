"""Finds Python interpreters: this one, and those on PATH, of pyenv and of uv."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tfcore.errors import CommandError, PythonError, ToolError
from tfcore.run import run

_ASK = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
_ASK_S = 30.0
_NUMBER = re.compile(r"[0-9]+")


def find_python(version: str) -> Path:
    """Return an interpreter for "3.11" that starts and can create environments.

    It is this one if the version is the same. Every other candidate is started, because a
    file proves nothing: pyenv puts a shim on PATH for each of its Pythons, and the shims of
    inactive ones fail. Raises PythonError.
    """
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return Path(sys.executable)
    refused: list[str] = []
    for path in find_candidates(version, os.environ):
        if not (fault := _find_fault(path, version)):
            return path
        refused.append(f"{path} {fault}")
    tried = f" ({'; '.join(refused)})" if refused else ""
    raise PythonError(
        f"Python {version} is not installed: no working python{version} on PATH, in pyenv or in "
        f"uv{tried}",
        hint=f"Install it, for example with uv python install {version}, or choose another with "
        f"--python (this is Python {sys.version_info[0]}.{sys.version_info[1]})",
    )


def is_here(version: str) -> bool:
    """Return True if find_python finds an interpreter."""
    try:
        find_python(version)
    except PythonError:
        return False
    return True


def find_candidates(version: str, env: Mapping[str, str]) -> Iterator[Path]:
    """Yield the executables that may be an interpreter for `version`.

    In the order of PATH, then pyenv's and uv's, the newest patch release first.
    """
    home = Path(env.get("HOME", "/"))
    data = Path(env.get("XDG_DATA_HOME") or home / ".local" / "share")
    pyenv = Path(env.get("PYENV_ROOT") or home / ".pyenv") / "versions"
    uv = Path(env.get("UV_PYTHON_INSTALL_DIR") or data / "uv" / "python")
    folders = (
        *(Path(entry) for entry in env.get("PATH", "").split(os.pathsep) if entry),
        *(install / "bin" for install in _sort_newest_first(pyenv, f"{version}.*")),
        *(install / "bin" for install in _sort_newest_first(uv, f"cpython-{version}.*")),
    )
    for folder in dict.fromkeys(folders):
        path = folder / f"python{version}"
        if path.is_file() and os.access(path, os.X_OK):
            yield path


def _sort_newest_first(folder: Path, pattern: str) -> list[Path]:
    def parse_version(path: Path) -> tuple[int, ...]:
        return tuple(int(number) for number in _NUMBER.findall(path.name)[:3])

    return sorted(folder.glob(pattern), key=parse_version, reverse=True)


def _find_fault(path: Path, version: str) -> str:
    """Return why an interpreter cannot be used; empty if it can."""
    try:
        output = run([path, "-I", "-c", _ASK], timeout_s=_ASK_S).output.strip()
    except (CommandError, ToolError):
        return "does not start, or has no module venv"
    return "" if output == version else f"is Python {output}"
