"""The probe's workers: forked, and none outlives what it works for. What they find is tested in
tests/integration."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

from tests.builders.processes import gone

from tfcore.settings import ROOT

KILLED = """
import json, os, signal
from tfbuild.probe.__main__ import _run_forked, _distribute

def judge(number):
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 2:
        os.abort()
    if number == 3:
        raise RuntimeError("a worker's own fault")
    os.write(1, f"{number}\\n".encode())

os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
print(json.dumps(_distribute(6, judge)))
print(_run_forked(os.abort, 60))
"""

SHARED = """
import json, os, signal
from pathlib import Path
from tfbuild.probe import __main__ as probe

def seen(fuse):
    probe._test_share = fuse
    try:
        return probe._test_fused(Path("x.so"), "part", {"A"}, 60)
    except ChildProcessError as error:
        return str(error)

def tried(path, part, share, shares):
    return {"cases": len(range(21)[share::shares]), "ulps": float(share)}

def refused(path, part, share, shares):
    return {"reason": "it differs"} if share == shares - 1 else tried(path, part, share, shares)

def killed(path, part, share, shares):
    os.kill(os.getpid(), signal.SIGKILL)

os.sched_getaffinity = lambda _: range(3)
print(json.dumps([seen(tried), seen(refused), seen(killed)]))
"""

WAITING = """
import os, time
from tfbuild.probe import parent
from tfbuild.probe.__main__ import _run_forked, _distribute

def child():
    os.write(1, f"{os.getpid()}\\n".encode())
    time.sleep(300)

def judge(number):
    os.write(1, f"{os.getpid()}\\n".encode())
    _run_forked(child, 60)

_distribute(1, judge)
"""

LATE = """
import os, time
from tfbuild.probe import parent

ours = os.getpid()
if os.fork() == 0:
    while os.getppid() == ours:
        time.sleep(0.01)
    parent.end_with_parent(ours)
    os.write(1, b"it goes on")
"""


def started(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(ROOT / "build")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_worker_that_dies_takes_its_own_unit_along_and_says_how() -> None:
    with started(KILLED) as process:
        out, err = process.communicate(timeout=120)
    *done, lost, crashed = out.splitlines()
    assert done == ["0", "4", "5"]
    assert lost == (
        '{"1": "was ended by SIGKILL", "2": "was ended by SIGABRT", "3": "ended with code 1"}'
    )
    assert crashed == "{'reason': 'the process that ran it was ended by SIGABRT'}"
    assert "a worker's own fault" in err


def test_a_fused_units_cases_are_shared_and_each_share_counts() -> None:
    with started(SHARED) as process:
        out, err = process.communicate(timeout=120)
    tried, refused, lost = json.loads(out)
    assert tried == {"cases": 21, "ulps": {"A": 2.0}}, err
    assert refused == {"reason": "it differs"}
    assert lost == "the process that ran it was ended by SIGKILL"


def test_nothing_of_a_probe_outlives_it() -> None:
    with started(WAITING) as process:
        assert process.stdout is not None
        pids = [int(process.stdout.readline()) for _ in range(2)]
        os.kill(process.pid, signal.SIGKILL)
        process.wait(10)
        alive = [pid for pid in pids if not gone(pid, within_s=2)]
        for pid in alive:
            os.kill(pid, signal.SIGKILL)
    assert alive == []


def test_a_child_whose_parent_had_ended_before_it_asked_ends_too() -> None:
    with started(LATE) as process:
        out, _ = process.communicate(timeout=60)
    assert out == ""
