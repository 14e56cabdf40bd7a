"""Time calls that take turns. Runs inside an arm."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

SECONDS, FEWEST = 1.0, 4
"""Seconds of the calls without the fused op, and the fewest calls."""
Call = Callable[[], Any]


def measure(calls: Sequence[Call]) -> list[float]:
    """Return the least time of each call in seconds; they take turns."""
    times: list[list[float]] = [[] for _ in calls]
    while len(times[0]) < FEWEST or sum(times[0]) < SECONDS:
        for seconds, call in zip(times, calls, strict=True):
            start = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - start)
    return [min(seconds) for seconds in times]


def answer(trace: Callable[[Any, str], Sequence[Call]], part: str) -> None:
    """Print, for each shape of the command line and each of its calls, the least seconds without
    and with a part of the fused ops. `trace(shape, switch)` returns the calls, which it has made
    once with this value of TENSORWRIGHT_FUSE.
    """
    threads, shapes = int(sys.argv[1]), json.loads(sys.argv[2])
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    times = []
    for shape in shapes:
        pairs = zip(trace(shape, f"-{part}"), trace(shape, "1"), strict=True)
        times.append([measure(pair) for pair in pairs])
    sys.stdout.write(json.dumps(times) + "\n")
