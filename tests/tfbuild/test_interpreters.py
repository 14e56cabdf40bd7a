"""Which interpreter serves a Python version: real programs, found in made folders."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.builders.locked_wheels import HERE

from tfbuild.interpreters import find_candidates, find_python
from tfcore.errors import PythonError

OTHER = f"{sys.version_info[0]}.{sys.version_info[1] + 1}"
SHIM = '#!/bin/sh\necho "pyenv: python: command not found" >&2\nexit 127\n'
Program = Callable[[str, str], Path]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without any Python, and a PATH that is empty but for `path` in it."""
    for name in ("PYENV_ROOT", "UV_PYTHON_INSTALL_DIR", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    return tmp_path


@pytest.fixture
def program(home: Path) -> Program:
    """Makes a program below home, by its path and its text."""

    def make(name: str, text: str) -> Path:
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        return path

    return make


def python(version: str) -> str:
    """A program that answers as Python `version` does to the one thing that it is asked."""
    return f'#!/bin/sh\n[ "$1 $2" = "-I -c" ] && echo {version}\n'


def test_this_python_is_found_wherever_it_lies(home: Path) -> None:
    assert find_python(HERE) == Path(sys.executable)


def test_another_python_is_found_by_its_name_on_path(program: Program) -> None:
    path = program(f"path/python{OTHER}", python(OTHER))
    assert find_python(OTHER) == path


def test_a_shim_is_passed_over_for_the_python_behind_it(program: Program) -> None:
    program(f"path/python{OTHER}", SHIM)
    real = program(f".pyenv/versions/{OTHER}.1/bin/python{OTHER}", python(OTHER))
    assert find_python(OTHER) == real


@pytest.mark.parametrize(
    "text", [SHIM, python(HERE), "", "\x7fELF of another machine", "#!/nowhere/sh\n"]
)
def test_what_does_not_answer_as_the_version_is_none(program: Program, text: str) -> None:
    path = program(f"path/python{OTHER}", text)
    with pytest.raises(PythonError, match=f"Python {OTHER}") as caught:
        find_python(OTHER)
    assert str(path) in caught.value.message


def test_the_newest_of_pyenv_comes_before_uv(program: Program, home: Path) -> None:
    uv = f".local/share/uv/python/cpython-{OTHER}.2-linux-x86_64-gnu/bin/python{OTHER}"
    pyenv = f".pyenv/versions/{OTHER}.{{}}/bin/python{OTHER}"
    paths = [program(name, python(OTHER)) for name in (pyenv.format(9), uv, pyenv.format(10))]
    assert find_python(OTHER) == paths[2]
    assert [*find_candidates(OTHER, {"HOME": str(home)})] == [paths[2], paths[0], paths[1]]


def test_folders_that_the_environment_names_come_first(program: Program, home: Path) -> None:
    path = program(f"mine/versions/{OTHER}.0/bin/python{OTHER}", python(OTHER))
    env = {"HOME": str(home), "PYENV_ROOT": str(home / "mine")}
    assert [*find_candidates(OTHER, env)] == [path]


def test_a_python_that_is_not_here_is_an_error(home: Path) -> None:
    with pytest.raises(PythonError, match=r"Python 3\.98") as caught:
        find_python("3.98")
    assert HERE in caught.value.hint
    assert "uv python install 3.98" in caught.value.hint
