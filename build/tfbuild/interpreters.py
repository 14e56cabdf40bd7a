"""The Python interpreters of a machine: this one, those on PATH, pyenv's and uv's."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tfbuild.errors import CommandError, PythonError, ToolError
from tfbuild.run import run

_ASK = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
_ASK_S = 30.0
_NUMBER = re.compile(r"[0-9]+")


def find_python(version: str) -> Path:
    """An interpreter for "3.11" that starts and can make environments: this one if it is that.

    A file alone proves nothing: pyenv's shims stand on PATH for every Python that it has, and
    answer "command not found" for all but those that are switched on. Raises PythonError.
    """
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return Path(sys.executable)
    refused: list[str] = []
    for path in candidates(version, os.environ):
        if not (fault := _fault(path, version)):
            return path
        refused.append(f"{path} {fault}")
    seen = f" ({'; '.join(refused)})" if refused else ""
    raise PythonError(
        f"Python {version} is not here: no python{version} that works on PATH, and none of pyenv's "
        f"or uv's{seen}",
        hint=f"Install it, for example by uv python install {version}, or choose another with "
        f"--python (this one is {sys.version_info[0]}.{sys.version_info[1]})",
    )


def is_here(version: str) -> bool:
    """Whether find_python finds one."""
    try:
        find_python(version)
    except PythonError:
        return False
    return True


def candidates(version: str, env: Mapping[str, str]) -> Iterator[Path]:
    """Where an interpreter for `version` may be: in the order of PATH, then pyenv's and uv's, the
    newest patch release first. Each is an executable file."""
    home = Path(env.get("HOME", "/"))
    data = Path(env.get("XDG_DATA_HOME") or home / ".local" / "share")
    pyenv = Path(env.get("PYENV_ROOT") or home / ".pyenv") / "versions"
    uv = Path(env.get("UV_PYTHON_INSTALL_DIR") or data / "uv" / "python")
    folders = (
        *(Path(entry) for entry in env.get("PATH", "").split(os.pathsep) if entry),
        *(each / "bin" for each in _newest_first(pyenv, f"{version}.*")),
        *(each / "bin" for each in _newest_first(uv, f"cpython-{version}.*")),
    )
    for folder in dict.fromkeys(folders):
        path = folder / f"python{version}"
        if path.is_file() and os.access(path, os.X_OK):
            yield path


def _newest_first(folder: Path, pattern: str) -> list[Path]:
    def patch(path: Path) -> tuple[int, ...]:
        return tuple(int(number) for number in _NUMBER.findall(path.name)[:3])

    return sorted(folder.glob(pattern), key=patch, reverse=True)


def _fault(path: Path, version: str) -> str:
    """Why an interpreter is of no use; empty when it is."""
    try:
        said = run([path, "-I", "-c", _ASK], timeout_s=_ASK_S).output.strip()
    except (CommandError, ToolError):
        return "does not start, or has no module venv"
    return "" if said == version else f"says that it is Python {said}"
