"""Time grouped convolutions and their gradients, with fused/grouped and without it (turns.py)."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from kernels.alternation import Call, answer
from tfbuild.probe.fusing import Tensor, in_graph


def trace(shape: Sequence[int], switch: str) -> tuple[Call, Call]:
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


if __name__ == "__main__":
    answer(trace, "grouped")
