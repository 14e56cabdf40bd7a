"""Time grouped convolutions of Keras with fused/grouped and as XLA computes them; see README.md."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from kernels.compare import install_wheel
from tfbench.measuring.statistics import estimate_mean
from tfbench.result_table import ResultTable
from tfcore import console
from tfcore.comparisons.host import read_host
from tfcore.cpus.cpu import read_vcpus
from tfcore.errors import TensorwrightError
from tfcore.run import run
from tfcore.settings import ROOT

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
Launch = Sequence[Sequence[tuple[float, float]]]
"""For each shape, and for its outputs and gradients: seconds of XLA and of fused/grouped."""


def format_ratio(ratio: float) -> str:
    """Format a ratio with three digits."""
    return f"{ratio:.{2 if ratio < 10 else 1 if ratio < 100 else 0}f}"  # noqa: PLR2004


def build_row(shape: Sequence[int], launches: Sequence[Sequence[tuple[float, float]]]) -> list[str]:
    """Build the row of a shape from the times of its outputs and gradients in each launch."""
    images, size, channels, filters, groups, taps, stride = shape
    row = [f"{images}, {size}x{size}, {channels} to {filters}, {groups}, {taps}x{taps}, {stride}"]
    for cells in zip(*launches, strict=True):
        xla, fused = (min(times) * 1e3 for times in zip(*cells, strict=True))
        ratio = estimate_mean([math.log(times[0] / times[1]) for times in cells])
        value, low, high = (
            format_ratio(math.exp(each)) for each in (ratio.value, ratio.low, ratio.high)
        )
        row += [f"{xla:.2f}", f"{fused:.2f}", value, f"{low} to {high}"]
    return row


def measure(python: Path, threads: int) -> Launch:
    """Time all shapes in a fresh process. Raises CommandError."""
    worker = Path(__file__).with_name("grouped_worker.py")
    env = {**os.environ, "PYTHONPATH": str(ROOT / "build"), "TF_CPP_MIN_LOG_LEVEL": "2"}
    output = run([python, worker, str(threads), json.dumps(SHAPES)], env=env).output
    launch: Launch = json.loads(output.splitlines()[-1])
    return launch


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheel", type=Path, help="default: the newest tuned wheel in wheels/")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--launches", type=int, default=3)
    options = parser.parse_args()
    if not 1 <= options.threads <= read_vcpus().usable:
        parser.error(f"--threads {options.threads}: use 1 to {read_vcpus().usable}")
    if options.launches < 2:  # noqa: PLR2004  (fewer have no interval)
        parser.error(f"--launches {options.launches}: use 2 or more")
    return options


def main() -> None:
    options = parse_options()
    try:
        python = install_wheel(options.wheel).python
        launches = []
        with console.track_progress("launches", options.launches) as count:
            for launch in range(options.launches):
                launches.append(measure(python, options.threads))
                count.advance(launch + 1)
    except (TensorwrightError, OSError) as error:
        sys.exit(f"error: {error}")
    table = ResultTable(
        title=f"fused/grouped on {read_host().cpu.name}: outputs, then both gradients",
        headings=HEADINGS,
        rows=tuple(
            tuple(build_row(shape, times))
            for shape, times in zip(SHAPES, zip(*launches, strict=True), strict=True)
        ),
        lines=(),
        width=140,
    )
    sys.stdout.write(table.format_text(colour=sys.stdout.isatty()) + "\n")


if __name__ == "__main__":
    main()
