"""Time calls with and without a fused op, which take turns, and print a table.

For benchmarks of one fused op: each has a worker, which runs inside an arm with a tuned wheel, as
`ARM_PYTHON WORKER THREADS SHAPES`, and prints JSON (alternation.py).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from kernels.compare import install_wheel
from tfbench.measuring.statistics import estimate_mean
from tfbench.result_table import ResultTable
from tfcore import console
from tfcore.comparisons.host import read_host
from tfcore.cpus.cpu import read_vcpus
from tfcore.errors import TensorwrightError
from tfcore.run import run
from tfcore.settings import ROOT

Shape = TypeVar("Shape")
Launch = Sequence[Sequence[tuple[float, float]]]
"""For each shape, and for each of its calls: seconds without and with the fused op."""


def format_ratio(ratio: float) -> str:
    """Format a ratio with three digits."""
    return f"{ratio:.{2 if ratio < 10 else 1 if ratio < 100 else 0}f}"  # noqa: PLR2004


def build_row(name: str, launches: Sequence[Sequence[tuple[float, float]]]) -> list[str]:
    """Build the row of a shape from the times of its calls in each launch."""
    row = [name]
    for cells in zip(*launches, strict=True):
        without, fused = (min(times) * 1e3 for times in zip(*cells, strict=True))
        ratio = estimate_mean([math.log(times[0] / times[1]) for times in cells])
        value, low, high = (
            format_ratio(math.exp(each)) for each in (ratio.value, ratio.low, ratio.high)
        )
        row += [f"{without:.2f}", f"{fused:.2f}", value, f"{low} to {high}"]
    return row


def _measure(worker: Path, shapes: Sequence[object], python: Path, threads: int) -> Launch:
    """Time all shapes in a fresh process. Raises CommandError."""
    paths = os.pathsep.join(str(ROOT / name) for name in ("build", "benchmarks"))
    env = {**os.environ, "PYTHONPATH": paths, "TF_CPP_MIN_LOG_LEVEL": "2"}
    output = run([python, worker, str(threads), json.dumps(shapes)], env=env).output
    launch: Launch = json.loads(output.splitlines()[-1])
    return launch


def _parse_options(description: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--wheel", type=Path, help="default: the newest tuned wheel in wheels/")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--launches", type=int, default=3)
    options = parser.parse_args()
    if not 1 <= options.threads <= read_vcpus().usable:
        parser.error(f"--threads {options.threads}: use 1 to {read_vcpus().usable}")
    if options.launches < 2:  # noqa: PLR2004  (fewer have no interval)
        parser.error(f"--launches {options.launches}: use 2 or more")
    return options


def run_benchmark(
    description: str,
    title: str,
    headings: tuple[str, ...],
    worker: Path,
    shapes: Sequence[Shape],
    name: Callable[[Shape], str],
) -> None:
    """Time the shapes as the options of the command line say, and print the table. `name` names a
    shape in the first column. Exits with a message if the wheel cannot be installed or run.
    """
    options = _parse_options(description)
    try:
        python = install_wheel(options.wheel).python
        launches = []
        with console.track_progress("launches", options.launches) as count:
            for launch in range(options.launches):
                launches.append(_measure(worker, shapes, python, options.threads))
                count.advance(launch + 1)
    except (TensorwrightError, OSError) as error:
        sys.exit(f"error: {error}")
    table = ResultTable(
        title=f"{title}; {read_host().cpu.name}",
        headings=headings,
        rows=tuple(
            tuple(build_row(name(shape), times))
            for shape, times in zip(shapes, zip(*launches, strict=True), strict=True)
        ),
        lines=(),
        width=140,
    )
    sys.stdout.write(table.format_text(colour=sys.stdout.isatty()) + "\n")
