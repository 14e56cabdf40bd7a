"""Time the ops that fused/products replaces, with and without it; see README.md."""

from __future__ import annotations

import argparse
import csv
import dataclasses
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tfbench.arms import installs, lineup
from tfbench.arms.arm import Arm
from tfbench.inside.call_sites import CallSite, CallSiteInput
from tfbench.kernels.profiles import RankedCallSite
from tfbench.kernels.timings import Bench, TimingStage, group_series, time_call_sites
from tfbench.result_table import ResultTable
from tfcore import console, settings
from tfcore.comparisons.host import read_host
from tfcore.cpus.cpu import read_vcpus
from tfcore.errors import TensorwrightError
from tfcore.records import hash_record

SHAPES = Path(__file__).with_name("shapes.csv")
HEADINGS = (
    "op",
    "shape",
    "#threads",
    "#stock us",
    "#fused us",
    "#GFLOP/s",
    "#ratio",
    "#95% interval",
)
_FLOAT = 1
"""DT_FLOAT in TensorFlow's types.proto."""
_GUESSED_RATE = 50e9
"""Additions and multiplications per second of one core, to choose the number of calls."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shape:
    """A row of shapes.csv: an op and its sizes.

    For MatMul `rows`, `depth` and `columns`; `turned` is 1 if the left matrix is transposed. For a
    convolution NHWC, stride 1 and padding SAME: `rows` images of `depth` x `depth` pixels,
    `columns` channels, `filters` filters of `height` x `width`.
    """

    op: str
    rows: int
    depth: int
    columns: int
    turned: int = 0
    filters: int = 0
    height: int = 0
    width: int = 0

    @property
    def operations(self) -> float:
        """Additions and multiplications of the direct algorithm."""
        if self.op == "MatMul":
            return 2.0 * self.rows * self.depth * self.columns
        taps = self.height * self.width
        return 2.0 * taps * self.rows * self.depth**2 * self.columns * self.filters

    @property
    def text(self) -> str:
        if self.op == "MatMul":
            turned = "transposed " if self.turned else ""
            return f"{turned}{self.rows}x{self.depth} by {self.depth}x{self.columns}"
        return (
            f"{self.height}x{self.width}, {self.rows} of {self.depth}x{self.depth}, "
            f"{self.columns} to {self.filters}"
        )

    def create_site(self) -> CallSite:
        if self.op == "MatMul":
            left = (self.depth, self.rows) if self.turned else (self.rows, self.depth)
            attributes = {"transpose_a": f"b: {str(bool(self.turned)).lower()}"}
            return _create_site(self.op, attributes, [left, (self.depth, self.columns)])
        image = (self.rows, self.depth, self.depth)
        inputs, outputs = (*image, self.columns), (*image, self.filters)
        filters = (self.height, self.width, self.columns, self.filters)
        attributes = {"strides": "list { i: 1 i: 1 i: 1 i: 1 }", "padding": 's: "SAME"'}
        match self.op:
            case "Conv2D":
                return _create_site(self.op, attributes, [inputs, filters])
            case "Conv2DBackpropInput":
                return _create_site(self.op, attributes, [filters, outputs], {0: inputs})
            case _:
                return _create_site(self.op, attributes, [inputs, outputs], {1: filters})


def _create_site(
    op: str,
    attributes: dict[str, str],
    shapes: Sequence[tuple[int, ...]],
    sizes: dict[int, tuple[int, ...]] | None = None,
) -> CallSite:
    """Create a call site with inputs of float; `sizes` are inputs of int32, by position."""
    inputs = [CallSiteInput(dtype="float", shape=shape) for shape in shapes]
    for position, values in (sizes or {}).items():
        inputs.insert(position, CallSiteInput(dtype="int32", shape=(len(values),), values=values))
    return CallSite(op=op, types={"T": (_FLOAT,)}, attributes=attributes, inputs=tuple(inputs))


def read_shapes(path: Path) -> tuple[Shape, ...]:
    with path.open(encoding="utf-8", newline="") as file:
        return tuple(
            Shape(op=row["op"], **{name: int(row[name] or 0) for name in _SIZES})
            for row in csv.DictReader(file)
        )


_SIZES = ("rows", "depth", "columns", "turned", "filters", "height", "width")


def create_arms(wheel: Path | None) -> tuple[Arm, Arm]:
    """Create two arms with the same tuned wheel: without fused/products, and with it."""
    paths = settings.paths()
    candidate = wheel or installs.find_newest_runnable(paths)
    choices = installs.choose(lineup.read_lineup(), str(candidate), paths)
    _, tuned = installs.install(choices, paths)
    onednn = ("TF_ENABLE_ONEDNN_OPTS", "1")
    return tuple(  # type: ignore[return-value]
        dataclasses.replace(tuned, name=name, env=(onednn, ("TENSORWRIGHT_FUSE", parts)))
        for name, parts in (("stock", "0"), ("fused", "products"))
    )


def measure(
    shapes: Sequence[Shape], arms: tuple[Arm, Arm], threads: int, launches: int, out: Path
) -> Iterator[tuple[str, ...]]:
    """Time the shapes, and yield a row for each."""
    sites = {}
    for shape in shapes:
        place = shape.create_site()
        key, call_s = hash_record(place), shape.operations / _GUESSED_RATE
        site = RankedCallSite(key=key, place=place, share=0.0, most=0.0, call_s=call_s)
        sites[key] = (shape, site)
    bench = Bench(stock=arms[0], tuned=arms[1], cpus=read_host().affinity, out=out)
    stage = TimingStage(name="search", launches=launches, budget_s=None, seed=1)
    wanted = {threads: [site for _, site in sites.values()]}
    with console.track_progress("timings", len(shapes) * launches) as count:
        series, reasons = group_series(time_call_sites(bench, stage, wanted, count.advance))
    for key, (shape, _) in sites.items():
        if key in reasons:
            yield (shape.op, shape.text, str(threads), reasons[key], "", "", "", "")
            continue
        timed = series[key, threads]
        gain = timed.gain.interval
        yield (
            shape.op,
            shape.text,
            str(threads),
            f"{timed.stock_s * 1e6:.1f}",
            f"{timed.tuned_s * 1e6:.1f}",
            f"{shape.operations / timed.tuned_s * 1e-9:.0f}",
            f"{gain.value:.3f}",
            f"{gain.low:.3f} to {gain.high:.3f}",
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheel", type=Path, help="default: the newest tuned wheel in wheels/")
    parser.add_argument("--shapes", type=Path, default=SHAPES)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--launches", type=int, default=5)
    parser.add_argument("--csv", type=Path, help="write the table to this file, too")
    options = parser.parse_args()
    if not 1 <= options.threads <= read_vcpus().usable:
        parser.error(f"--threads {options.threads}: use 1 to {read_vcpus().usable}")
    try:
        with tempfile.TemporaryDirectory() as folder:
            rows = tuple(
                measure(
                    read_shapes(options.shapes),
                    create_arms(options.wheel),
                    options.threads,
                    options.launches,
                    Path(folder),
                )
            )
    except (TensorwrightError, OSError) as error:
        parser.exit(1, f"error: {error}\n")
    cpu = read_host().cpu.name
    title = f"fused/products on {cpu}: time of the same wheel without it, divided by its time"
    table = ResultTable(title=title, headings=HEADINGS, rows=rows, lines=(), width=140)
    sys.stdout.write(table.format_text(colour=sys.stdout.isatty()) + "\n")
    if options.csv:
        with options.csv.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow([heading.removeprefix("#") for heading in HEADINGS])
            writer.writerows(rows)


if __name__ == "__main__":
    main()
