from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tfcore.errors import BusyError, DiskError
from tfcore.settings import ROOT, lock_folder, paths, require_disk

BUILD = ROOT / "build"
HOLD = (
    "import sys, time, pathlib; from tfcore.settings import lock_folder\n"
    "with lock_folder(pathlib.Path(sys.argv[1]), 'a build'):\n"
    "    print('held', flush=True)\n"
    "    time.sleep(300)"
)


@pytest.mark.parametrize(
    ("env", "cache"),
    [
        ({"HOME": "/home/me"}, "/home/me/.cache/tensorwright"),
        ({}, "/.cache/tensorwright"),
        ({"HOME": "/home/me", "XDG_CACHE_HOME": "/xdg"}, "/xdg/tensorwright"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/xdg", "TENSORWRIGHT_CACHE": "/mine"}, "/mine"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "", "TENSORWRIGHT_CACHE": ""}, "/h/.cache/tensorwright"),
    ],
)
def test_where_the_cache_lies(env: dict[str, str], cache: str) -> None:
    assert paths(env).cache == Path(cache)


def test_every_folder_lies_in_the_checkout_or_in_the_cache() -> None:
    own_paths = paths({"TENSORWRIGHT_CACHE": "/mine", "TENSORWRIGHT_MIRROR": "https://x.example/"})
    assert own_paths.mirror == "https://x.example/"
    assert own_paths.root == ROOT
    assert {own_paths.templates, own_paths.reports, own_paths.pool} == {
        ROOT / "templates",
        ROOT / "reports",
        ROOT / "wheels",
    }
    cached = [
        own_paths.downloads,
        own_paths.sources,
        own_paths.stock,
        own_paths.work,
        own_paths.arms,
        own_paths.tools,
    ]
    assert len(set(cached)) == len(cached)
    assert all(folder.parent == Path("/mine") for folder in cached)


def test_reports_have_folders_that_sort_by_time() -> None:
    own_paths = paths({"HOME": "/home/me"})
    assert own_paths.choose_report_folder().parent == own_paths.reports
    assert re.fullmatch(r"\d{8}-\d{6}", own_paths.choose_report_folder().name)
    assert re.fullmatch(r"merged-\d{8}-\d{6}", own_paths.choose_report_folder("merged").name)


def holder(folder: Path) -> subprocess.Popen[str]:
    env = os.environ | {"PYTHONPATH": str(BUILD)}
    held = subprocess.Popen(
        [sys.executable, "-c", HOLD, folder], env=env, stdout=subprocess.PIPE, text=True
    )
    assert held.stdout is not None
    assert held.stdout.readline() == "held\n"
    return held


def test_a_second_process_is_told_soon_who_is_busy(tmp_path: Path) -> None:
    with holder(tmp_path) as held:
        started = time.monotonic()
        with (
            pytest.raises(BusyError, match=f"process {held.pid} .*{tmp_path}"),
            lock_folder(tmp_path, "a build"),
        ):
            pytest.fail("two processes hold one folder")
        assert time.monotonic() - started < 1
        held.kill()


def test_a_lock_that_ends_within_a_moment_is_not_reported(tmp_path: Path) -> None:
    """The child that a killed process was starting holds its lock a moment longer."""
    with holder(tmp_path) as held:
        ending = threading.Timer(0.1, held.kill)
        ending.start()
        with lock_folder(tmp_path, "a build"):
            assert held.wait(30) == -signal.SIGKILL


def test_whoever_waits_gets_the_folder_when_its_holder_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with holder(tmp_path) as held:
        ending = threading.Timer(1, held.kill)
        ending.start()
        with lock_folder(tmp_path, "a build", wait=True):
            assert held.wait(30) == -signal.SIGKILL
            assert (tmp_path / ".lock").read_text().startswith(f"process {os.getpid()} ")
    assert f"process {held.pid} is using {tmp_path}" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_holder_that_was_ended_leaves_the_folder_free(tmp_path: Path, number: int) -> None:
    with holder(tmp_path) as held:
        held.send_signal(number)
        held.wait(30)
    with lock_folder(tmp_path, "a build"):
        text = (tmp_path / ".lock").read_text()
        assert text == f"process {os.getpid()} is using {tmp_path} for a build"


def test_the_folder_is_free_again_after_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    with pytest.raises(ValueError, match="no"), lock_folder(folder, "a build"):
        raise ValueError("no")
    with lock_folder(folder, "a build"):
        pass


def test_a_child_of_ours_does_not_keep_the_folder(tmp_path: Path) -> None:
    with lock_folder(tmp_path, "a build"):
        child = subprocess.Popen(["sleep", "300"])
    try:
        with lock_folder(tmp_path, "a build"):
            pass
    finally:
        child.kill()
        child.wait()


def test_a_folder_that_cannot_be_written_is_a_disk_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    path = tmp_path / "file"
    with pytest.raises(DiskError, match=str(path)), lock_folder(path, "a build"):
        pytest.fail("a file was held as a folder")


def test_too_little_disk_is_said_with_both_sizes(tmp_path: Path) -> None:
    with pytest.raises(DiskError, match=rf"1000\.0 TB .*{tmp_path}"):
        require_disk(tmp_path / "not" / "there", 10**15, "a build")
    require_disk(tmp_path / "not" / "there", 1, "a build")
    assert not (tmp_path / "not").exists()
