"""Fit the cost model of fused/products to measured times, and write costs.h; see README.md.

The time of a kernel is modelled as a sum of counts of its work (work.h), each multiplied by a
constant that is not negative. The constants minimise the squared relative errors.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import math
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy import optimize

from kernels.shapes import Shape, read_shapes
from tfcore.cpus.compilers import find_compiler
from tfcore.errors import RecordError, TensorwrightError
from tfcore.run import run

FOLDER = Path(__file__).parent
NATIVE = FOLDER.parents[1] / "build/tfbuild/native"
COSTS = NATIVE / "ops/products/costs.h"
CLASSES = {"Avx2": ("-mavx2", "-mfma"), "Avx512": ("-mavx512f", "-mfma")}
"""Compiler flags by the name of a class of CPUs. The times are in the file of that name."""
MARGIN_ERRORS = 1.0
"""A kernel is used if its predicted advantage is above this many standard errors."""
LEAST_SAVING = 0.02
"""A kernel that would save less of the time of the measured shapes is not used."""
_FEWEST = 2 * 9
"""The fewest shapes for a fit of 9 constants."""
_NORMAL_MEDIAN = 1.4826
"""Standard deviation of a normal distribution, divided by its median absolute deviation."""
_SLOWER = 0.99
"""A ratio below this counts as slower."""

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Timing:
    """The counts of a kernel's work, and nanoseconds, by this library and by oneDNN."""

    counts: tuple[Array, Array]
    times: tuple[float, float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fit:
    """The fitted constants of a kernel, and how well they choose among the measured shapes.

    The ratios are times of oneDNN divided by times of this library. `predicted` ratios come from
    constants that were fitted without the shape itself.
    """

    ours: Array
    onednn: Array
    actual: Array
    predicted: Array

    @property
    def error(self) -> float:
        """Standard error of the logarithm of the predicted ratio, from the median deviation."""
        deviations = np.abs(np.log(self.predicted / self.actual))
        return float(_NORMAL_MEDIAN * np.median(deviations))

    @property
    def margin(self) -> float:
        """Predicted ratio above which the kernel is used; 0 if it is never used."""
        return math.exp(MARGIN_ERRORS * self.error) if self.saving >= LEAST_SAVING else 0.0

    @property
    def chosen(self) -> Array:
        """The actual ratios of the shapes for which the kernel would be used."""
        return self.actual[self.predicted > math.exp(MARGIN_ERRORS * self.error)]

    @property
    def saving(self) -> float:
        """Mean logarithm of the ratio over all shapes, if the kernel is used where chosen."""
        return float(np.log(self.chosen).sum() / len(self.actual))

    def describe(self) -> str:
        """Describe the residuals in one line."""
        count, best = len(self.actual), float(np.log(np.maximum(self.actual, 1)).mean())
        slower = int((self.chosen < _SLOWER).sum())
        worst = f", worst {self.chosen.min():.2f}" if slower else ""
        return (
            f"error {self.error:.0%}; faster for {(self.actual > 1).sum()} of {count} shapes, "
            f"used for {len(self.chosen)} (slower: {slower}{worst}); "
            f"gain {math.exp(self.saving):.3f} of {math.exp(best):.3f}"
        )


def read_timings(path: Path, printed: Sequence[str]) -> dict[str, list[Timing]]:
    """Read the times that compare.py --drawn wrote, by kernel.

    `printed` are the lines that work.cc prints for these shapes.
    """
    names, *counts = printed
    with path.open(encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(line for line in file if not line.startswith("#"))]
    timings: dict[str, list[Timing]] = {name: [] for name in names.split()}
    for row, line in zip(rows, counts, strict=True):
        kernel, *numbers = line.split()
        ours, onednn = np.split(np.array(numbers, float), 2)  # empty for `none`
        times = (float(row["fused_us"]) * 1e3, float(row["stock_us"]) * 1e3)
        if kernel in timings:
            timings[kernel].append(Timing(counts=(ours, onednn), times=times))
    return timings


def count_work(shapes: Sequence[Shape], flags: Sequence[str]) -> list[str]:
    """Run work.cc, compiled for a class of CPUs, for the shapes. Raises CompilerError,
    CommandError.
    """
    compiler = find_compiler()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tensorwright").symlink_to(NATIVE)
        program, lines = Path(folder) / "work", Path(folder) / "shapes"
        source = FOLDER / "work.cc"
        options = ("-O1", "-std=c++17", *flags, f"-I{folder}")
        run([compiler.path, *options, source, "-o", program, "-lstdc++"])
        names = (
            *("op", "turned", "rows", "depth", "columns", "filters", "height", "width", "stride"),
            *("batch", "equation"),
        )
        lines.write_text(
            "".join(
                " ".join(str(getattr(shape, name)) for name in names) + "\n" for shape in shapes
            )
        )
        return run([program, lines]).output.splitlines()


def fit_constants(counts: Array, times: Array) -> Array:
    """Return constants >= 0 that minimise the squared relative errors of counts @ constants."""
    relative = counts / times[:, None]
    scales = relative.max(axis=0) + (relative == 0).all(axis=0)
    constants, _ = optimize.nnls(relative / scales, np.ones(len(times)))
    return np.asarray(constants / scales)


def fit_kernel(timings: Sequence[Timing]) -> Fit:
    constants, predicted = [], []
    all_times = np.array([timing.times for timing in timings])
    for side in (0, 1):
        counts, times = np.array([timing.counts[side] for timing in timings]), all_times[:, side]
        constants.append(fit_constants(counts, times))
        others = [np.arange(len(times)) != index for index in range(len(times))]
        predicted.append(
            np.array(
                [counts[~rest][0] @ fit_constants(counts[rest], times[rest]) for rest in others]
            )
        )
    return Fit(
        ours=constants[0],
        onednn=constants[1],
        actual=all_times[:, 1] / all_times[:, 0],
        predicted=predicted[1] / predicted[0],
    )


def fit_class(name: str) -> tuple[str, dict[str, Fit]]:
    """Return the CPU that the times of a class were measured on, and the fit of each kernel.

    Raises RecordError if the file does not have the times of every kernel.
    """
    path = FOLDER / f"{name.lower()}.csv"
    title = path.read_text("utf-8").partition("\n")[0].removeprefix("# ")
    timings = read_timings(path, count_work(read_shapes(path), CLASSES[name]))
    if missing := [kernel for kernel, shapes in timings.items() if len(shapes) < _FEWEST]:
        raise RecordError(
            f"{path} has too few times of {', '.join(missing)}",
            hint="Write it with compare.py --drawn",
        )
    fits = {kernel: fit_kernel(shapes) for kernel, shapes in timings.items()}
    return title, fits


def render_header(fitted: Mapping[str, tuple[str, Mapping[str, Fit]]]) -> str:
    """Render costs.h."""
    arrays = "\n".join(_render_class(name, *fit) for name, fit in fitted.items())
    return f"""\
// Constants of the cost model of fused/products, by class of CPUs and kernel. Generated by
// benchmarks/kernels/fit.py; do not edit.

#ifndef TENSORWRIGHT_OPS_PRODUCTS_COSTS_H_
#define TENSORWRIGHT_OPS_PRODUCTS_COSTS_H_

#include "tensorwright/ops/products/work.h"

namespace tensorwright {{

// Nanoseconds for each count of Work, by this library and by oneDNN. The kernel is used if the
// ratio of the predicted times is above `margin`; a margin of 0 means never.
struct Costs {{
  double ours[Work::kCounts], onednn[Work::kCounts], margin;
}};

// In the comments, the error is the standard error of the predicted ratio. The gain is the mean
// ratio of all shapes if the kernel is used as predicted, then that of the best choice.

// clang-format off
{arrays}
// clang-format on

inline constexpr const auto& kCosts = kHasAvx512 ? kCostsAvx512 : kCostsAvx2;

}}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_PRODUCTS_COSTS_H_
"""


def _render_class(name: str, title: str, fits: Mapping[str, Fit]) -> str:
    rows = "".join(
        f"    // {kernel}: {fit.describe()}\n"
        f"    {{{_render_numbers(fit.ours)},\n     {_render_numbers(fit.onednn)}, "
        f"{fit.margin:.3f}}},\n"
        for kernel, fit in fits.items()
    )
    return f"// {title}\ninline constexpr Costs kCosts{name}[] = {{\n{rows}}};\n"


def _render_numbers(numbers: Array) -> str:
    return "{" + ", ".join(f"{number:.4g}" for number in numbers) + "}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args()
    try:
        fitted = {name: fit_class(name) for name in CLASSES}
    except (TensorwrightError, OSError) as error:
        sys.exit(f"error: {error}")
    COSTS.write_text(render_header(fitted), encoding="utf-8")
    for title, fits in fitted.values():
        sys.stdout.write(f"{title}\n")
        for kernel, fit in fits.items():
            sys.stdout.write(f"  {kernel}: {fit.describe()}\n")


if __name__ == "__main__":
    main()
