"""The wrapper, in a copy of the checkout that has no virtual environment."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tfbuild.settings import ROOT

# What the wrapper itself calls.
PROGRAMS = ("bash", "cat", "cksum", "dirname", "flock")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """All that the wrapper and `--list` need, in a folder with a blank in its name."""
    folder = tmp_path / "a checkout"
    folder.mkdir()
    for name in ("inv", "requirements.txt", "tasks.py"):
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
    assert (checkout / ".venv" / "tensorwright.lock").is_file()
    finish(checkout)
    assert inv(checkout, "--list", "--no-install").returncode != 15


def finish(checkout: Path) -> None:
    """An environment that stands for the one of these tests."""
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True, exist_ok=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    lock = (checkout / "requirements.txt").read_bytes()
    stamp = subprocess.run(["cksum"], input=lock, capture_output=True, check=True).stdout
    (checkout / ".venv" / "tensorwright.lock").write_bytes(stamp)


def test_arguments_reach_invoke_from_any_folder(checkout: Path) -> None:
    finish(checkout)
    found = json.loads(inv(checkout, "--list", "-F", "json").stdout)
    assert "quickstart" in {task["name"] for task in found["tasks"]}
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
    assert "another call is making" in done.stderr
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
    assert done.stderr.startswith(f"error: invoke {word} has no value")
    assert done.stderr.count("\n") == 1
