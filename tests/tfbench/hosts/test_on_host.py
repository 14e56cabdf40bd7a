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


def bring(stage: Path, *names: str, fleet: str = "f1") -> None:
    """The files that a call brings, apart from the job."""
    stage.mkdir(exist_ok=True)
    wheels = [make_wheel(stage.parent, name) for name in names]
    bundle.write_bundle(
        stage,
        bundle.describe_wheels(wheels),
        wheels,
        ["--phase", "train"],
        fleet=fleet,
        root=stage.parent / "c",
    )


@pytest.fixture
def stage(tmp_path: Path) -> Path:
    """What a host has in the beginning, apart from its job."""
    make_checkout(tmp_path / "c")
    bring(tmp_path / "stage", "a", "b")
    return tmp_path / "stage"


def job(stage: Path, environment: dict[str, str] | None = None, **fields: Any) -> None:
    described = json.loads((stage / "bundle.json").read_text())
    lock = {"TENSORWRIGHT_FLEET_LOCK": str(stage.parent / "lock")}
    whole = {
        "name": "one",
        "folder": str(stage.parent / "kept"),
        "limit_s": 0.0,
        "vcpus": [1, 2],
        "environment": lock | (environment or {}),
    }
    (stage / "job.json").write_text(json.dumps(described | whole | fields))


def run(stage: Path, **fields: Any) -> HostOutcome:
    job(stage, **fields)
    subprocess.run(["sh", "start.sh", sys.executable], cwd=stage, check=True, timeout=60)
    return load_outcome(stage)


def test_it_compares_the_wheels_and_writes_what_came_out(stage: Path) -> None:
    outcome = run(stage, environment={"CPU": "My CPU", "TARGET": "zen4"})
    assert (outcome.status, outcome.reason, outcome.refused) == (HostStatus.DONE, "", ())
    assert (outcome.cpu, outcome.target, outcome.usable) == ("My CPU", "zen4", 2)
    (words_file,) = (stage.parent / "kept" / "one" / "runs").glob("*/words.json")
    words = json.loads(words_file.read_text())
    assert words[2:6] == ["--phase", "train", "--vcpus", "1,2"]
    arms = dict(arm.split("=") for arm in words[-1].split(",")[1:])
    assert words[-1].startswith("stock,wheel-1=")
    assert Path(arms["wheel-2"]).read_bytes() == b"b" * 1000
    shutil.copy(stage / "outcome.json", stage / "results")
    result = read_result(stage / "results", ["tuned"], name="one", machine="", count=1)
    assert {row.arm for row in result.speedups} == {"control", "tuned"}


def test_what_is_large_or_private_does_not_stay_behind(stage: Path) -> None:
    run(stage, environment={"PIP_INDEX_URL": "https://user:secret@index.example"})
    assert not [path for path in stage.rglob("*") if path.suffix in {".whl", ".gz"}]
    assert not [
        path for path in stage.rglob("*") if path.is_file() and b"secret" in path.read_bytes()
    ]


def test_a_finished_comparison_is_not_repeated(stage: Path) -> None:
    run(stage)
    (comparison,) = (stage.parent / "kept" / "one" / "runs").glob("*/comparison.json")
    shutil.rmtree(stage / "results")
    bring(stage, "a", "b")
    before = comparison.stat().st_mtime_ns
    assert run(stage).status is HostStatus.DONE
    assert comparison.stat().st_mtime_ns == before
    assert (stage / "results" / "comparison.json").read_bytes() == comparison.read_bytes()


@pytest.mark.parametrize(
    ("fleet", "variables"),
    [("f2", {}), ("f1", {"CPU": "Another"}), ("f1", {"TARGET": "zen4"}), ("f1", {"X": "1"})],
)
def test_another_fleet_cpu_or_environment_is_measured_again(
    stage: Path, fleet: str, variables: dict[str, str]
) -> None:
    run(stage)
    bring(stage, "a", "b", fleet=fleet)
    assert run(stage, environment={"COMPARE": "19"} | variables).status is HostStatus.FAILED


def test_a_wheel_that_computes_something_else_is_a_result(stage: Path) -> None:
    """compare then ends with 26, and its comparison is complete."""
    assert run(stage, environment={"THEN": "26"}).status is HostStatus.DONE
    assert (stage / "results" / "comparison.json").is_file()


def test_a_failed_comparison_sends_back_what_there_is(stage: Path) -> None:
    outcome = run(stage, environment={"THEN": "30"})
    assert (outcome.status, outcome.code) == (HostStatus.FAILED, 30)
    assert (stage / "results" / "comparison.json").is_file()


def test_a_host_without_python_says_so_and_keeps_nothing(stage: Path) -> None:
    job(stage, environment={"PIP_INDEX_URL": "SECRET"})
    subprocess.run(["sh", "start.sh", "/opt/none/python3"], cwd=stage, check=True)
    outcome = load_outcome(stage)
    assert (outcome.step, outcome.code) == ("start", 13)
    assert outcome.reason.startswith("/opt/none/python3 is not Python 3.11")
    assert {path.name for path in stage.iterdir()} == {
        *("bundle.json", "fleet_check.py", "on_host.py", "start.sh", "outcome.json")
    }


def test_what_earlier_calls_left_is_deleted(stage: Path, tmp_path: Path) -> None:
    first = tmp_path / "rfm.AbCdEfGh"
    stage.rename(first)
    run(first)
    kept = tmp_path / "kept" / "one"
    old = kept / "runs" / "old"
    old.mkdir()
    os.utime(old, (0, 0))
    second = tmp_path / "rfm.IjKlMnOp"
    (tmp_path / "c" / "tasks.py").write_text("# changed")
    bring(second, "b")
    assert run(second).status is HostStatus.DONE
    assert not first.exists()
    assert second.exists()
    assert not old.exists()
    assert len(list(kept.glob("source-*"))) == 1
    assert [path.name for path in kept.glob("wheels/*/*")] == ["b-1.0-py3-none-any.whl"]


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


def test_two_comparisons_on_one_machine_run_one_after_another(stage: Path, tmp_path: Path) -> None:
    """Their folders differ. The limit of the second begins when it does."""
    waiting = tmp_path / "waiting"
    job(stage, environment={"WAIT": str(waiting)})
    second = tmp_path / "second"
    bring(second, "e")
    job(second, folder=str(tmp_path / "other"))
    with subprocess.Popen([sys.executable, "on_host.py"], cwd=stage) as first:
        wait_for(waiting)
        with subprocess.Popen([sys.executable, "on_host.py"], cwd=second) as other:
            time.sleep(2.0)
            assert other.poll() is None
            first.terminate()
            first.wait()
            assert other.wait(30) == 0
    assert load_outcome(second).status is HostStatus.DONE


def test_one_that_waits_stops_with_its_connection(stage: Path, tmp_path: Path) -> None:
    waiting = tmp_path / "waiting"
    job(stage, environment={"WAIT": str(waiting)})
    second = tmp_path / "second"
    bring(second, "e")
    job(second)
    with subprocess.Popen([sys.executable, "on_host.py"], cwd=stage) as first:
        wait_for(waiting)
        command = f"{sys.executable} on_host.py; true"
        with subprocess.Popen(["sh", "-c", command], cwd=second, start_new_session=True) as shell:
            while (second / "job.json").exists():
                time.sleep(0.1)
            time.sleep(1.0)
            shell.kill()
        wait_for(second / "outcome.json")
        assert first.poll() is None
        first.terminate()
    assert load_outcome(second).reason == "the connection to this host was lost"
