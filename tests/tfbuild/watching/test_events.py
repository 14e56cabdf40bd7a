from __future__ import annotations

import base64
import itertools
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbuild.watching import events
from tfbuild.watching.events import (
    BuildFailure,
    BuildOutcome,
    build_outcome,
    read_events,
    read_outcome,
)
from tfbuild.watching.pace import Progress
from tfcore.settings import ROOT

RECORDED = ROOT / "tests" / "data" / "events"


def recorded(name: str) -> BuildOutcome:
    outcome = read_outcome(RECORDED / f"{name}.json")
    assert outcome is not None
    return outcome


def test_a_build_that_succeeded_tells_its_actions_and_who_ran_them() -> None:
    outcome = recorded("succeeded")
    assert outcome.finished
    assert (outcome.exit_code, outcome.exit_name, outcome.failures) == (0, "SUCCESS", ())
    assert (outcome.actions_created, outcome.actions_executed) == (41, 41)
    assert outcome.runners == {"internal": 1, "linux-sandbox": 40}
    assert outcome.seconds == pytest.approx(27.4, abs=0.1)


@pytest.mark.parametrize(
    ("name", "label", "kind", "exit_code", "number"),
    [
        ("killed", "@XNNPACK//:XNNPACK", "CppCompile", 137, 9),
        ("killed_7", "//:die", "Genrule", 137, 9),
        ("sigill", "//tensorflow/core:table", "Genrule", 132, 4),
        ("flag", "@XNNPACK//:XNNPACK", "CppCompile", 1, 0),
        ("link", "//tensorflow/core:op_gen", "CppLink", 1, 0),
        ("target", "//tensorflow/tools/pip_package:wheel", "LOADING_FAILURE", 0, 0),
        ("download", "//external:far", "LOADING_FAILURE", 0, 0),
    ],
)
def test_the_first_cause_is_told_and_what_follows_from_it_is_not(
    name: str, label: str, kind: str, exit_code: int, number: int
) -> None:
    outcome = recorded(name)
    assert outcome.finished
    assert outcome.exit_code
    (failure,) = outcome.failures
    assert (failure.label, failure.kind, failure.exit_code) == (label, kind, exit_code)
    assert failure.signal == number
    assert failure.message


@pytest.mark.parametrize("name", ["config", "option", "executor", "heap"])
def test_a_bazel_that_stopped_before_the_build_has_not_finished(name: str) -> None:
    outcome = recorded(name)
    assert not outcome.finished
    assert outcome.failures == ()


def test_no_file_is_no_outcome(tmp_path: Path) -> None:
    assert read_outcome(tmp_path / "none.json") is None


@given(st.integers(0, (RECORDED / "killed.json").stat().st_size))
def test_a_file_that_is_cut_anywhere_is_read_up_to_there(size: int) -> None:
    data = (RECORDED / "killed.json").read_bytes()
    whole = [json.loads(line) for line in data.splitlines()]
    lines = data[:size].decode().splitlines()
    records = [event for line in lines if (event := events._parse_event(line)) is not None]
    assert records == whole[: len(records)]
    assert len(lines) - len(records) in {0, 1}
    assert build_outcome(records).finished is any("finished" in event for event in records)


@given(st.binary(max_size=400))
def test_bytes_that_are_no_events_are_left_out(tmp_path_factory: Any, data: bytes) -> None:
    path = tmp_path_factory.mktemp("events") / "e.json"
    path.write_bytes(data + b'\n{"id":{"buildFinished":{}},"finished":{"exitCode":{"code":4}}}\n')
    assert build_outcome(read_events(path)).exit_code == 4


def test_unknown_events_and_payloads_change_nothing() -> None:
    unknown: list[events.Event] = [
        {"id": {"neverSeen": {}}, "neverSeen": {"x": 1}},
        {"id": {}},
        {"id": {"a": None}},
    ]
    known = list(read_events(RECORDED / "sigill.json"))
    assert build_outcome([*unknown, *known, *unknown]) == build_outcome(known)


def action(**detail: object) -> dict[str, Any]:
    return {
        "id": {"actionCompleted": {"label": "//a:b"}},
        "action": {"type": "CppCompile", **detail},
    }


def test_bazel_7_counts_as_bazel_4_does() -> None:
    outcome = recorded("killed_7")
    assert (outcome.exit_name, outcome.actions_executed) == ("BUILD_FAILURE", 2)
    assert outcome.runners == {"internal": 2}
    assert outcome.seconds > 0


def test_newer_bazels_count_runners_in_the_metrics() -> None:
    """Bazel 7: ActionSummary.RunnerCount in build_event_stream.proto; a total heads the list."""
    summary = {
        "actionsExecuted": "30",
        "runnerCount": [
            {"name": "total", "count": 30},
            {"name": "remote cache hit", "count": 12, "execKind": "Remote"},
            {"name": "disk cache hit", "count": 8},
            {"name": "internal", "count": 10},
        ],
    }
    metrics = {"id": {"buildMetrics": {}}, "buildMetrics": {"actionSummary": summary}}
    outcome = build_outcome([metrics])
    assert outcome.runners == {"remote cache hit": 12, "disk cache hit": 8, "internal": 10}


def test_newer_bazels_say_in_the_end_why_a_build_failed() -> None:
    end = {
        "id": {"buildFinished": {}},
        "finished": {
            "exitCode": {"name": "LOCAL_ENVIRONMENTAL_ERROR", "code": 36},
            "failureDetail": {"message": "no space"},
        },
    }
    assert build_outcome([end]).failures == (
        BuildFailure(label="", kind="Build", message="no space"),
    )
    failed = build_outcome([action(exitCode=1), end])
    assert [failure.label for failure in failed.failures] == ["//a:b"]


def test_a_failed_test_is_a_failure() -> None:
    summary = {
        "id": {"testSummary": {"label": "//a:t"}},
        "testSummary": {"overallStatus": "FAILED"},
    }
    assert build_outcome([summary]).failures == (BuildFailure(label="//a:t", kind="Test FAILED"),)


def test_what_a_program_said_comes_from_its_file_without_colours(tmp_path: Path) -> None:
    path = tmp_path / "std err-1"
    path.write_bytes(b"\x1b[1mclang: \x1b[0;31merror:\x1b[0m no\n" + b"x" * (1 << 17))
    uri = path.as_uri()
    (failure,) = build_outcome([action(exitCode=1, stderr={"uri": uri})]).failures
    assert failure.stderr.startswith("clang: error: no\nxxx")
    assert len(failure.stderr) <= 1 << 16


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ({"contents": base64.b64encode(b"short").decode()}, "short"),
        ({"contents": "no base64"}, ""),
        ({"uri": "file:///nowhere/stderr-1"}, ""),
        ({"uri": "bytestream://host/blobs/1/2"}, ""),
        ({"uri": "file:///"}, ""),
        ({}, ""),
    ],
)
def test_what_a_program_said_may_be_anywhere_or_gone(file: dict[str, str], message: str) -> None:
    (failure,) = build_outcome([action(exitCode=1, stderr=file)]).failures
    assert failure.stderr == message


def test_a_successful_action_and_a_consequence_are_no_failures() -> None:
    aborted = {"id": {"targetCompleted": {"label": "//a:c"}}, "aborted": {"reason": "INCOMPLETE"}}
    assert build_outcome([action(success=True), aborted]).failures == ()


# Following ----------------------------------------------------------------------------------------


def progress(done: int, total: int) -> str:
    stderr = f"[{done:,} / {total:,}] Compiling x.cc; 1s local\n"
    return json.dumps({"id": {"progress": {}}, "progress": {"stderr": stderr}}) + "\n"


def until(met: Any) -> None:
    for _ in itertools.takewhile(lambda _: not met(), range(500)):
        time.sleep(0.01)
    assert met()


def test_progress_is_told_line_by_line_while_the_file_grows(tmp_path: Path) -> None:
    path, updates = tmp_path / "events.json", list[Progress]()
    with events.follow_events(path, updates.append), path.open("w") as file:
        file.write(progress(1, 1200) + progress(1001, 1234)[:20])
        file.flush()
        until(lambda: len(updates) == 1)
        file.write(progress(1001, 1234)[20:] + "no event\n")
        file.flush()
        until(lambda: len(updates) == 2)
        file.write(progress(1234, 1234))
    assert [(update.done, update.total) for update in updates] == [
        (1, 1200),
        (1001, 1234),
        (1234, 1234),
    ]
    assert updates[-1].detail == "Compiling x.cc; 1s local"


def test_the_last_progress_of_an_event_counts_with_time_and_colour() -> None:
    assert events._parse_progress(
        "(12:00:01) [1 / 3] a\n\x1b[32m[2 / 3]\x1b[0m b\nINFO: [9 / 9] c\n"
    ) == (
        2,
        3,
        "b",
    )
    assert events._parse_progress("src.cc:1: [1 / 2] of it\n") is None


def test_what_an_earlier_build_left_is_not_told_and_the_mode_stays(tmp_path: Path) -> None:
    path, updates = tmp_path / "events.json", list[Progress]()
    path.write_text(progress(5, 5))
    path.chmod(0o600)
    with events.follow_events(path, updates.append):
        path.write_text(progress(1, 9))
        until(lambda: updates)
    assert [update.total for update in updates] == [9]
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("path", ["missing/events.json", "folder"])
def test_a_file_that_cannot_be_followed_is_no_failure(tmp_path: Path, path: str) -> None:
    (tmp_path / "folder").mkdir()
    before = threading.active_count()
    with events.follow_events(tmp_path / path, lambda _: None):
        pass
    until(lambda: threading.active_count() == before)


def test_a_display_that_fails_ends_the_following_and_not_the_build(tmp_path: Path) -> None:
    displays: list[Progress] = []

    def fails(updates: Progress) -> None:
        displays.append(updates)
        raise ValueError

    path = tmp_path / "events.json"
    with events.follow_events(path, fails):
        path.write_text(progress(1, 9) + progress(2, 9))
        until(lambda: displays)
    assert len(displays) == 1


def test_an_error_in_the_block_is_the_blocks(tmp_path: Path) -> None:
    with pytest.raises(KeyError), events.follow_events(tmp_path / "e.json", lambda _: None):
        raise KeyError


def test_bazel_is_told_to_hold_nothing_back(tmp_path: Path) -> None:
    assert events.build_options(tmp_path / "e.json") == (
        f"--build_event_json_file={tmp_path}/e.json",
        "--bes_outerr_buffer_size=1",
    )
