"""Time grouped convolutions of Keras with fused/grouped and as XLA computes them; see README.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kernels.turns import run_benchmark

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
HEADINGS = ("shape", *("#XLA ms", "#fused ms", "#ratio", "#95% interval") * 2)


def name_shape(shape: Sequence[int]) -> str:
    images, size, channels, filters, groups, taps, stride = shape
    return f"{images}, {size}x{size}, {channels} to {filters}, {groups}, {taps}x{taps}, {stride}"


if __name__ == "__main__":
    run_benchmark(
        description=__doc__,
        title="fused/grouped: outputs, then both gradients",
        headings=HEADINGS,
        worker=Path(__file__).with_name("grouped_worker.py"),
        shapes=SHAPES,
        name=name_shape,
    )
