"""Time the ops that fused/products replaces, with and without it; see README.md."""

from __future__ import annotations

import argparse
import csv
import dataclasses
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from kernels import shapes
from kernels.shapes import Shape
from tfbench.arms import installs, lineup
from tfbench.arms.arm import Arm
from tfbench.kernels.keep_rules import Series
from tfbench.kernels.profiles import RankedCallSite
from tfbench.kernels.timings import Bench, TimingStage, group_series, time_call_sites
from tfbench.result_table import ResultTable
from tfcore import console, settings
from tfcore.comparisons.host import read_host
from tfcore.cpus.cpu import read_vcpus
from tfcore.errors import TensorwrightError
from tfcore.records import hash_record

MODELS = Path(__file__).with_name("shapes.csv")
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
_GUESSED_RATE = 50e9
"""Additions and multiplications per second of one core, to choose the number of calls."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimedShape:
    """A shape and its times; without times, `reason` explains why."""

    shape: Shape
    series: Series | None
    reason: str = ""

    def build_row(self, threads: int) -> tuple[str, ...]:
        """Build the row of the printed table."""
        if self.series is None:
            return self.shape.op, self.shape.text, str(threads), "", "", "", "", ""
        gain = self.series.gain.interval
        return (
            self.shape.op,
            self.shape.text,
            str(threads),
            f"{self.series.stock_s * 1e6:.1f}",
            f"{self.series.tuned_s * 1e6:.1f}",
            f"{self.shape.operations / self.series.tuned_s * 1e-9:.0f}",
            f"{gain.value:.3f}",
            f"{gain.low:.3f} to {gain.high:.3f}",
        )


def install_wheel(wheel: Path | None) -> Arm:
    """Install a tuned wheel, by default the newest that this CPU can run, and return its arm."""
    paths = settings.paths()
    candidate = wheel or installs.find_newest_runnable(paths)
    choices = installs.choose(lineup.read_lineup(), str(candidate), paths)
    return installs.install(choices, paths)[-1]


def create_arms(wheel: Path | None, *, everything: bool, isa: str) -> tuple[Arm, Arm]:
    """Create two arms with the same tuned wheel: without fused/products, and with it.

    With `everything`, it computes all shapes that it can. `isa` limits oneDNN in both arms.
    """
    tuned = install_wheel(wheel)
    env = [("TF_ENABLE_ONEDNN_OPTS", "1")]
    env += [("ONEDNN_MAX_CPU_ISA", isa)] * bool(isa)
    fused = [("TENSORWRIGHT_FUSE", "products")]
    fused += [("TENSORWRIGHT_PRODUCTS", "always")] * everything
    return (
        dataclasses.replace(tuned, name="stock", env=(*env, ("TENSORWRIGHT_FUSE", "0"))),
        dataclasses.replace(tuned, name="fused", env=(*env, *fused)),
    )


def measure(
    timed: Sequence[Shape], arms: tuple[Arm, Arm], threads: int, launches: int, out: Path
) -> Iterator[TimedShape]:
    """Time the shapes."""
    sites = {}
    for shape in timed:
        place = shape.create_site()
        key, call_s = hash_record(place), shape.operations / _GUESSED_RATE
        site = RankedCallSite(key=key, place=place, share=0.0, most=0.0, call_s=call_s)
        sites[key] = (shape, site)
    bench = Bench(stock=arms[0], tuned=arms[1], cpus=read_host().affinity, out=out)
    stage = TimingStage(name="search", launches=launches, budget_s=None, seed=1)
    wanted = {threads: [site for _, site in sites.values()]}
    with console.track_progress("timings", len(timed) * launches) as count:
        series, reasons = group_series(time_call_sites(bench, stage, wanted, count.advance))
    for key, (shape, _) in sites.items():
        reason = reasons.get(key, "")
        yield TimedShape(
            shape=shape, series=None if reason else series[key, threads], reason=reason
        )


def write_csv(path: Path, title: str, rows: Sequence[TimedShape]) -> None:
    """Write sizes and times in microseconds; rows without times are left out."""
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(f"# {title}\n")
        writer = csv.writer(file, lineterminator="\n")
        names = [field.name for field in dataclasses.fields(Shape)]
        writer.writerow([*names, "stock_us", "fused_us", "low", "high"])
        for row in rows:
            if row.series is None:
                continue
            gain = row.series.gain.interval
            sizes = dataclasses.astuple(row.shape)
            times = (f"{row.series.stock_s * 1e6:.2f}", f"{row.series.tuned_s * 1e6:.2f}")
            writer.writerow([*sizes, *times, f"{gain.low:.3f}", f"{gain.high:.3f}"])


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheel", type=Path, help="default: the newest tuned wheel in wheels/")
    parser.add_argument("--shapes", type=Path, default=MODELS)
    parser.add_argument(
        "--drawn", action="store_true", help="time shapes drawn at random, for fit.py"
    )
    parser.add_argument("--isa", default="", help="limit oneDNN, for example to AVX2")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--launches", type=int, default=5)
    parser.add_argument("--csv", type=Path, help="write sizes and times to this file, too")
    options = parser.parse_args()
    if not 1 <= options.threads <= read_vcpus().usable:
        parser.error(f"--threads {options.threads}: use 1 to {read_vcpus().usable}")
    return options


def main() -> None:
    options = parse_options()
    try:
        timed = shapes.draw_shapes() if options.drawn else shapes.read_shapes(options.shapes)
        with tempfile.TemporaryDirectory() as folder:
            arms = create_arms(options.wheel, everything=options.drawn, isa=options.isa)
            found = measure(timed, arms, options.threads, options.launches, Path(folder))
            rows = tuple(found)
    except (TensorwrightError, OSError) as error:
        sys.exit(f"error: {error}")
    limit = f", oneDNN limited to {options.isa}" if options.isa else ""
    cpu = read_host().cpu
    title = f"{cpu.name} (family {cpu.family}, model {cpu.model}){limit}"
    table = ResultTable(
        title=f"fused/products on {title}: time of the same wheel without it, divided by its time",
        headings=HEADINGS,
        rows=tuple(row.build_row(options.threads) for row in rows),
        lines=tuple(
            f"{row.shape.op} {row.shape.text}: {row.reason}" for row in rows if row.series is None
        ),
        width=140,
    )
    sys.stdout.write(table.format_text(colour=sys.stdout.isatty()) + "\n")
    if options.csv:
        write_csv(options.csv, title, rows)


if __name__ == "__main__":
    main()
