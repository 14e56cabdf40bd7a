"""What a session makes of a worker's answers; real workers are in tests/integration."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from tfbench.arms.arm import Arm
from tfbench.engine.workers import Session, start_session
from tfcore.errors import WorkerError


@contextlib.contextmanager
def answering(folder: Path, answer: dict[str, float]) -> Iterator[Session]:
    """A session with a program that answers its first request so."""
    python = folder / "python"
    python.write_text(f"#!/bin/sh\nread request\necho '{json.dumps(answer)}'\n", encoding="ascii")
    python.chmod(0o755)
    arm = Arm(name="tuned", python=python, label="")
    with start_session(arm, {}, folder / "log") as opened:
        yield opened


def test_a_log_is_begun_anew_or_gone_on_with(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$3" >&2\necho "{}"\nread request\n', encoding="ascii")
    python.chmod(0o755)
    arm, log = Arm(name="tuned", python=python, label=""), tmp_path / "log"
    modes: tuple[Literal["w", "a"], ...] = ("w", "w", "a")
    for module, mode in zip(("one", "two", "three"), modes, strict=True):
        with start_session(arm, {}, log, module=module, mode=mode) as opened:
            opened.receive("begin", 10)
    assert log.read_text("ascii").split() == ["two", "three"]


def test_what_a_worker_leaves_in_its_temporary_folder_goes_with_it(tmp_path: Path) -> None:
    python = tmp_path / "python"
    text = '#!/bin/sh\ntouch "$TMPDIR/left"\necho "{\\"folder\\": \\"$TMPDIR\\"}"\nsleep 60\n'
    python.write_text(text, encoding="ascii")
    python.chmod(0o755)
    arm = Arm(name="tuned", python=python, label="")
    with start_session(arm, {}, tmp_path / "log") as opened:
        folder = Path(opened.receive("begin", 10)["folder"])
        assert (folder / "left").exists()
    assert not folder.exists()


def test_a_sample_gets_our_own_time_beside_the_workers(tmp_path: Path) -> None:
    with answering(tmp_path, {"wall_s": 0.25, "canary_s": 0.001}) as opened:
        record = opened.sample("train", 1)
    assert record.pop("elapsed_s") > 0
    assert record == {"wall_s": 0.25, "canary_s": 0.001}


@pytest.mark.parametrize(
    ("number", "expected"),
    [(signal.SIGTERM, "SIGTERM"), (signal.SIGRTMIN + 1, f"signal {signal.SIGRTMIN + 1}")],
)
def test_a_worker_that_a_signal_ended_is_told_with_the_signal(
    number: int, expected: str, tmp_path: Path
) -> None:
    """Python has no names for the real-time signals between the first and the last."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nread request\nkill -{number:d} $$\n", encoding="ascii")
    python.chmod(0o755)
    arm = Arm(name="tuned", python=python, label="")
    with (
        start_session(arm, {}, tmp_path / "log") as opened,
        pytest.raises(WorkerError, match=f"was ended by {expected} during check"),
    ):
        opened.request("check", 10)


@pytest.mark.parametrize(("name", "expected"), [("wall_s", "sample"), ("canary_s", "canary")])
@pytest.mark.parametrize("seconds", [0.0, -0.25, float("nan"), float("inf")])
def test_a_time_that_is_none_is_the_workers_fault(
    name: str, expected: str, seconds: float, tmp_path: Path
) -> None:
    answer = {"wall_s": 0.25, "canary_s": 0.001, name: seconds}
    with (
        answering(tmp_path, answer) as opened,
        pytest.raises(WorkerError, match=f"tuned .*{expected}, ") as caught,
    ):
        opened.sample("train", 1)
    assert caught.value.arm == "tuned"
