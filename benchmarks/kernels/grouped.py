"""Times grouped convolutions of Keras and their gradients, with fused/grouped and without it.

Run it with the Python of an environment that has a tuned wheel:

    PYTHONPATH=build python benchmarks/kernels/grouped.py [--threads N] [--library FILE]

It alternates in one process, and prints the least times in milliseconds and their ratio.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tfbuild.probe.fusing import Tensor, in_graph

SHAPES = (
    # ResNeXt-50 32x4d: images, size, channels, filters, groups, taps, stride.
    (1, 56, 128, 128, 32, 3, 1),
    (1, 56, 256, 256, 32, 3, 2),
    (1, 28, 256, 256, 32, 3, 1),
    (1, 14, 512, 512, 32, 3, 1),
    (4, 7, 1024, 1024, 32, 3, 1),
    # Few groups.
    (4, 24, 64, 64, 8, 3, 1),
    (8, 16, 64, 64, 2, 3, 1),
    (8, 8, 256, 256, 4, 3, 1),
    # ShuffleNet: 1x1.
    (2, 28, 240, 240, 3, 1, 1),
    # One channel per group.
    (2, 28, 64, 64, 64, 5, 1),
)
SWITCH = "TENSORWRIGHT_FUSE"
Call = Callable[[], Tensor]


def trace(shape: tuple[int, ...], switch: str) -> tuple[Call, ...]:
    """Return what computes the outputs, these and the gradient of the filter, and these and both
    gradients. `switch` is the value of TENSORWRIGHT_FUSE when they are prepared.
    """
    images, size, channels, filters, groups, taps, stride = shape
    rng = np.random.default_rng(1)
    inputs = tf.constant(rng.standard_normal((images, size, size, channels)), "float32")
    filter_ = tf.constant(rng.standard_normal((taps, taps, channels // groups, filters)), "float32")

    @in_graph(tf, jit_compile=True)
    def convolve(inputs: Tensor, filter_: Tensor) -> Tensor:
        return tf.nn.conv2d(inputs, filter_, stride, "SAME")

    def differentiate(watched: int) -> Call:
        @in_graph(tf)
        def run(*arrays: Tensor) -> Tensor:
            with tf.GradientTape() as tape:
                tape.watch(arrays)
                outputs = convolve(*arrays)
            return tape.gradient(outputs, arrays[2 - watched :])

        return lambda: run(inputs, filter_)

    @in_graph(tf)
    def compute(inputs: Tensor, filter_: Tensor) -> Tensor:
        return convolve(inputs, filter_)

    calls: tuple[Call, ...] = (
        lambda: compute(inputs, filter_),
        differentiate(1),
        differentiate(2),
    )
    os.environ[SWITCH] = switch
    for call in calls:
        call()
    del os.environ[SWITCH]
    return calls


def measure(calls: tuple[Call, ...], seconds: float) -> list[float]:
    """Return the least time of each call in seconds; they take turns."""
    least = [float("inf")] * len(calls)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or max(least) == float("inf"):
        for number, call in enumerate(calls):
            start = time.perf_counter()
            call()
            least[number] = min(least[number], time.perf_counter() - start)
    return least


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--library", help="a kernel library to load, instead of a wheel's")
    parser.add_argument("--seconds", type=float, default=6.0, help="for each shape")
    options = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    if options.library:
        tf.load_library(options.library)
    print("| images, size, channels, filters, groups, taps, stride | outputs | filter | both |")
    for shape in SHAPES:
        pairs = zip(trace(shape, "-grouped"), trace(shape, "grouped"), strict=True)
        cells = []
        for pair in pairs:
            stock, ours = measure(pair, options.seconds / 3)
            cells.append(f"{stock * 1e3:.2f}, {ours * 1e3:.2f}, {stock / ours:.2f}")
        print("|", ", ".join(map(str, shape)), "|", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
