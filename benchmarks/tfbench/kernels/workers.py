"""The workers that time ops: one process per arm, side by side in one launch."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from tfbench.arms.arm import Arm
from tfbench.engine import workers
from tfbench.engine.workers import Session
from tfbench.inside import timing
from tfbench.inside.call_sites import CallSite
from tfcore.errors import WorkerError
from tfcore.records import convert_record

LIMIT_S = 120.0
_ENV = {"TF_ENABLE_ONEDNN_OPTS": "0", "TENSORWRIGHT_FUSE": "0", "TF_CPP_MIN_LOG_LEVEL": "1"}
"""No rewriting by oneDNN or the fused ops, which would replace the ops to be timed; an arm's own
values take precedence."""


@contextlib.contextmanager
def open_workers(
    arms: Sequence[Arm], vcpus: tuple[int, ...], chance: Random, logs: Path
) -> Iterator[dict[str, Session]]:
    """Start every arm's worker on the same CPUs, a thread for each, and yield the loaded sessions.

    Raises WorkerError if one does not start or is not the arm's own TensorFlow, and DiskError.
    """
    opening = workers.start_sessions(
        [replace(arm, env=(*_ENV.items(), *arm.env)) for arm in arms],
        vcpus,
        chance,
        logs / str(len(vcpus)),
        module=timing.__name__,
        mode="a",
    )
    with opening as sessions:
        for session in sessions.values():
            session.send("load", vcpus=vcpus)
        for session in sessions.values():
            session.finish_load(vcpus)
        yield sessions


def prepare(session: Session, site: CallSite, copies: int) -> tuple[str, float]:
    """Prepare a call site; return why it cannot be executed, if so, and the seconds of a call."""
    answer = session.request("prepare", LIMIT_S, place=convert_record(site), copies=copies)
    return str(answer["reason"]), float(answer.get("call_s", 0.0))


def time_calls(session: Session, calls: int, *, alone: bool) -> float:
    """Time this many calls, in seconds.

    With one thread it is CPU time, so that another process on the CPU does no harm, else wall
    time. Raises WorkerError if the answer is not a positive number.
    """
    answer = session.request("time", LIMIT_S, calls=calls)
    seconds = float(answer["cpu_s" if alone else "wall_s"])
    if not (math.isfinite(seconds) and seconds > 0):
        raise WorkerError(
            f"arm {session.arm.name} reports an invalid time of a sample: {seconds} s",
            arm=session.arm.name,
        )
    return seconds
