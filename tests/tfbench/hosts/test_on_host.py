"""on_host.py on this machine, with commands that answer at once: what it keeps and what ends it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.builders.fleet_hosts import make_checkout, make_wheel

from tfbench.hosts import bundle
from tfbench.hosts.results import HostOutcome, HostStatus, load_outcome, read_result


@pytest.fixture
def stage(tmp_path: Path) -> Path:
    """What a host has in the beginning, apart from its job."""
    folder = tmp_path / "stage"
    folder.mkdir()
    wheels = [make_wheel(tmp_path, "a"), make_wheel(tmp_path, "b")]
    described = bundle.describe_wheels(wheels)
    bundle.write_bundle(
        folder, described, wheels, ["--phase", "train"], make_checkout(tmp_path / "c")
    )
    return folder


def job(stage: Path, **fields: Any) -> None:
    described = json.loads((stage / "bundle.json").read_text())
    whole = {
        "name": "one",
        "folder": str(stage.parent / "kept"),
        "limit_s": 0.0,
        "vcpus": [1, 2],
        "environment": {},
    }
    (stage / "job.json").write_text(json.dumps(described | whole | fields))


def run(stage: Path, **fields: Any) -> HostOutcome:
    job(stage, **fields)
    subprocess.run([sys.executable, "on_host.py"], cwd=stage, check=True, timeout=60)
    return load_outcome(stage)


def again(stage: Path) -> None:
    """The files that a second call brings."""
    wheels = [make_wheel(stage.parent, "a"), make_wheel(stage.parent, "b")]
    described = bundle.describe_wheels(wheels)
    bundle.write_bundle(stage, described, wheels, ["--phase", "train"], stage.parent / "c")


def test_it_compares_the_wheels_and_writes_what_came_out(stage: Path) -> None:
    outcome = run(stage, environment={"CPU": "My CPU", "TARGET": "zen4"})
    assert (outcome.status, outcome.reason, outcome.refused) == (HostStatus.DONE, "", ())
    assert (outcome.cpu, outcome.target, outcome.usable) == ("My CPU", "zen4", 2)
    (words_file,) = (stage.parent / "kept" / "runs").glob("*/words.json")
    words = json.loads(words_file.read_text())
    assert words[2:6] == ["--phase", "train", "--vcpus", "1,2"]
    arms = dict(arm.split("=") for arm in words[-1].split(",")[1:])
    assert words[-1].startswith("stock,wheel-1=")
    assert Path(arms["wheel-2"]).read_bytes() == b"b" * 1000
    shutil.copy(stage / "outcome.json", stage / "results")
    result = read_result(stage / "results", name="one", machine="", count=1)
    assert {row.arm for row in result.speedups} == {"control", "tuned"}


def test_what_is_large_or_private_does_not_stay_behind(stage: Path) -> None:
    run(stage, environment={"PIP_INDEX_URL": "https://user:secret@index.example"})
    assert not [path for path in stage.rglob("*") if path.suffix in {".whl", ".gz"}]
    assert not [
        path for path in stage.rglob("*") if path.is_file() and b"secret" in path.read_bytes()
    ]


def test_a_finished_comparison_is_not_repeated(stage: Path) -> None:
    run(stage)
    (comparison,) = (stage.parent / "kept" / "runs").glob("*/comparison.json")
    shutil.rmtree(stage / "results")
    again(stage)
    assert run(stage, environment={"COMPARE": "1"}).status is HostStatus.DONE
    assert (stage / "results" / "comparison.json").read_bytes() == comparison.read_bytes()


def test_a_wheel_that_the_host_cannot_run_is_left_out(stage: Path) -> None:
    outcome = run(stage, environment={"ADMIT": "24"})
    assert outcome.status is HostStatus.DONE
    assert [name for name, _ in outcome.refused] == ["wheel-1", "wheel-2"]
    assert "does not fit" in outcome.refused[0][1]
    assert not (stage / "results" / "comparison.json").exists()


@pytest.mark.parametrize(
    ("fields", "step", "code", "reason"),
    [
        ({"environment": {"ADMIT": "20"}}, "admit-wheel-1", 20, "does not fit"),
        ({"environment": {"COMPARE": "25"}}, "compare", 25, "compare failed. Do something"),
        ({"vcpus": [64]}, "compare", 2, "only 2 are usable"),
        ({"archive": {"file": bundle.ARCHIVE, "sha256": "0" * 64}}, "copy", 17, "checksum"),
        ({"folder": "/proc/nowhere"}, "files", 18, "/proc/nowhere"),
    ],
)
def test_a_failure_names_the_step(
    stage: Path, fields: dict[str, Any], step: str, code: int, reason: str
) -> None:
    outcome = run(stage, **fields)
    assert (outcome.status, outcome.step, outcome.code) == (HostStatus.FAILED, step, code)
    assert reason in outcome.reason


def test_a_limit_ends_the_comparison(stage: Path, tmp_path: Path) -> None:
    waiting = tmp_path / "waiting"
    outcome = run(stage, limit_s=10.0, environment={"WAIT": str(waiting)})
    assert (outcome.step, outcome.reason) == ("compare", "the limit of this host is over")
    assert not Path(f"/proc/{waiting.read_text()}").exists()


def wait_for(path: Path) -> str:
    deadline = time.monotonic() + 30
    while not (path.is_file() and path.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return path.read_text()


def test_a_lost_connection_stops_the_comparison(stage: Path, tmp_path: Path) -> None:
    """A shell stands for the connection: it is killed, and what it started is not."""
    waiting = tmp_path / "waiting"
    job(stage, environment={"WAIT": str(waiting)})
    command = f"{sys.executable} on_host.py; true"
    with subprocess.Popen(["sh", "-c", command], cwd=stage, start_new_session=True) as shell:
        number = wait_for(waiting)
        shell.kill()
    wait_for(stage / "outcome.json")
    assert load_outcome(stage).reason == "the connection to this host was lost"
    assert not Path(f"/proc/{number}").exists()


def test_a_scheduler_that_ends_the_job_gets_an_answer(stage: Path, tmp_path: Path) -> None:
    waiting = tmp_path / "waiting"
    job(stage, environment={"WAIT": str(waiting)})
    with subprocess.Popen([sys.executable, "on_host.py"], cwd=stage) as process:
        number = wait_for(waiting)
        os.kill(process.pid, signal.SIGTERM)
    assert load_outcome(stage).reason == "the scheduler ended the job"
    assert not Path(f"/proc/{number}").exists()


def test_two_comparisons_on_one_host_run_one_after_another(stage: Path, tmp_path: Path) -> None:
    waiting = tmp_path / "waiting"
    job(stage, environment={"WAIT": str(waiting)})
    with subprocess.Popen([sys.executable, "on_host.py"], cwd=stage) as first:
        wait_for(waiting)
        second = tmp_path / "second"
        shutil.copytree(stage.parent / "c", tmp_path / "d")
        second.mkdir()
        wheel = make_wheel(tmp_path, "e")
        bundle.write_bundle(
            second, bundle.describe_wheels([wheel]), [wheel], [], stage.parent / "c"
        )
        job(second)
        with subprocess.Popen([sys.executable, "on_host.py"], cwd=second) as other:
            time.sleep(1.0)
            assert other.poll() is None
            first.terminate()
            first.wait()
            assert other.wait(30) == 0
    assert load_outcome(second).status is HostStatus.DONE
