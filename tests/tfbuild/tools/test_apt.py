from __future__ import annotations

import fcntl
import os
import re
import shutil
from pathlib import Path

import pytest

from tfbuild.tools import apt
from tfcore.errors import ToolError
from tfcore.run import run

# Held as often as the file has lines; then it notes what it was called with.
APT = """#!/bin/sh
if [ -s "{left}" ]; then
  sed -i 1d "{left}"
  echo "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 7 (apt-get)"
  exit 100
fi
echo "$*" >> "{done}"
"""


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, held: int) -> Path:
    """An apt-get whose lock another process holds so often; the file of what it was told to do."""
    remaining_file, done, program = folder / "left", folder / "done", folder / "bin" / "apt-get"
    remaining_file.write_text("held\n" * held)
    program.parent.mkdir()
    program.write_text(APT.format(left=remaining_file, done=done))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(apt, "_PAUSE_S", 0.01)
    return done


def test_a_lock_that_another_process_holds_is_waited_for_and_that_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = stand_in(tmp_path, monkeypatch, held=3)
    apt.install(["clang-16"])
    assert done.read_text().splitlines() == [
        "update -qq",
        "install -y -qq --no-install-recommends clang-16",
    ]
    assert capsys.readouterr().err.count("held by process 7") == 1


def test_a_lock_that_is_never_released_is_an_error_that_names_its_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = stand_in(tmp_path, monkeypatch, held=1000)
    with pytest.raises(ToolError, match="process 7") as caught:
        apt.install(["clang-16"], wait_s=0.1)
    assert caught.value.hint
    assert not done.exists()


def test_another_failure_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "apt-get").symlink_to("/bin/false")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolError, match="apt-get exited with 1"):
        apt.install(["no-such-package"])


@pytest.mark.toolchain
@pytest.mark.skipif(shutil.which("apt-get") is None, reason="needs apt-get")
def test_the_words_that_are_waited_for_are_those_of_the_real_one(tmp_path: Path) -> None:
    lists = tmp_path / "lists"
    (lists / "partial").mkdir(parents=True)
    options = (f"Dir::State::Lists={lists}", "Dir::Etc::SourceList=/dev/null")
    words = [
        word for option in (*options, "Dir::Etc::SourceParts=/dev/null") for word in ("-o", option)
    ]
    with (lists / "lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        env = os.environ | {"LC_ALL": "C"}
        done = run(["apt-get", *words, "update"], env=env, check=False)
    assert done.returncode
    assert re.search(
        rf"^E: {apt._HELD} .* held by process {os.getpid()} ", done.output, re.MULTILINE
    )
