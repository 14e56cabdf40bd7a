"""Time grouped convolutions and their gradients, with fused/grouped and without it.

Runs inside an arm with a tuned wheel (grouped.py): `ARM_PYTHON grouped_worker.py THREADS SHAPES`.
Prints JSON: for each shape, and for its outputs and both gradients, the least seconds of XLA and of
fused/grouped, which take turns.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tfbuild.probe.fusing import Tensor, in_graph

SECONDS, FEWEST = 1.0, 4
"""Seconds of XLA's calls, and the fewest calls."""
Call = Callable[[], Tensor]


def trace(shape: tuple[int, ...], switch: str) -> tuple[Call, Call]:
    """Return what computes the outputs, and both gradients. `switch` is the value of
    TENSORWRIGHT_FUSE when they are prepared.
    """
    images, size, channels, filters, groups, taps, stride = shape
    rng = np.random.default_rng(1)
    inputs = tf.constant(rng.standard_normal((images, size, size, channels)), "float32")
    filter_ = tf.constant(rng.standard_normal((taps, taps, channels // groups, filters)), "float32")

    @in_graph(tf, jit_compile=True)
    def convolve(inputs: Tensor, filter_: Tensor) -> Tensor:
        return tf.nn.conv2d(inputs, filter_, stride, "SAME")

    @in_graph(tf)
    def compute(*arrays: Tensor) -> Tensor:
        return convolve(*arrays)

    @in_graph(tf)
    def differentiate(*arrays: Tensor) -> Tensor:
        with tf.GradientTape() as tape:
            tape.watch(arrays)
            outputs = convolve(*arrays)
        return tape.gradient(outputs, arrays)

    calls: tuple[Call, Call] = (
        lambda: compute(inputs, filter_),
        lambda: differentiate(inputs, filter_),
    )
    os.environ["TENSORWRIGHT_FUSE"] = switch
    for call in calls:
        call()
    return calls


def measure(calls: tuple[Call, ...]) -> list[float]:
    """Return the least time of each call in seconds; they take turns."""
    times: list[list[float]] = [[] for _ in calls]
    while len(times[0]) < FEWEST or sum(times[0]) < SECONDS:
        for seconds, call in zip(times, calls, strict=True):
            start = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - start)
    return [min(seconds) for seconds in times]


def main() -> None:
    threads, shapes = int(sys.argv[1]), json.loads(sys.argv[2])
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    answer = []
    for shape in shapes:
        pairs = zip(trace(shape, "-grouped"), trace(shape, "grouped"), strict=True)
        answer.append([measure(pair) for pair in pairs])
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
