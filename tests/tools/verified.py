"""Render docs/verified.md from the records in benchmarks/records.

`PYTHONPATH=build:benchmarks python -m tests.tools.verified` writes the page; `--check` compares it.
"""

from __future__ import annotations

import csv
import math
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tfbench.measuring.replay import recompute_comparison
from tfcore.settings import ROOT

RECORDS = ROOT / "benchmarks" / "records"
PAGE = ROOT / "docs" / "verified.md"
TEMPLATE = "docs/verified.md.j2"

Row = dict[str, str]


@dataclass(frozen=True)
class Mean:
    """The geometric mean of one arm's speedups as its run reported it; A/A may be missing."""

    vcpus: int
    arm: str
    speedup: float
    low: float
    high: float
    noise: tuple[float, ...] = ()

    @classmethod
    def parse(cls, row: Sequence[Any]) -> Self:
        """Read `[vcpus, arm, speedup, low, high]`, with the A/A interval's two ends or without."""
        vcpus, arm, speedup, low, high, *noise = row
        return cls(vcpus, arm, speedup, low, high, tuple(noise))


@dataclass(frozen=True)
class Run:
    """One comparison: a CSV file and its entry in records.toml."""

    file: str
    title: str
    cpu: str
    onednn: str
    arms: dict[str, str]
    rows: tuple[Row, ...]
    means: tuple[Mean, ...] = ()
    base: str = ""
    summary: str = ""
    note: str = ""
    phase: str = "train"

    @property
    def vcpus(self) -> list[int]:
        """Return the numbers of vCPUs of the run."""
        return sorted({int(row["vcpus"]) for row in self.rows})

    @property
    def baseline(self) -> str:
        """Return the name of the arm without speedups."""
        arms = {row["arm"] for row in self.rows}
        (baseline,) = arms - {row["arm"] for row in self.rows if row["speedup"]}
        return baseline

    @property
    def release(self) -> str:
        """Return the release of the baseline."""
        return next(row["tensorflow"] for row in self.rows if row["arm"] == self.baseline)

    @property
    def models(self) -> list[str]:
        """Return the workloads in the order of the run."""
        return list(dict.fromkeys(row["workload"] for row in self.rows))

    @property
    def launches(self) -> str:
        """Return the fewest and the most launches of a model, as `3` or `3 to 4`."""
        return format_range(sorted({int(row["launches"]) for row in self.rows}), "d")

    def find(self, model: str, vcpus: int, arm: str) -> Row | None:
        """Return the row of one cell and arm, or None if the run has none."""
        expected = (model, str(vcpus), arm)
        rows = (row for row in self.rows if (row["workload"], row["vcpus"], row["arm"]) == expected)
        return next(rows, None)

    def list_facts(self) -> list[str]:
        """Return what the CSV file holds beside times: loss differences and peak memory."""
        return [f"`{arm}`: {'; '.join(self._list_facts(arm))}" for arm in self.arms]

    def _list_facts(self, arm: str) -> Iterator[str]:
        rows = [row for row in self.rows if row["arm"] == arm]
        losses = [float(row["loss_difference"]) for row in rows if row.get("loss_difference")]
        if losses:
            yield f"first losses differ by at most {max(losses):.1e}"
        peaks = []
        for row in rows:
            stock = self.find(row["workload"], int(row["vcpus"]), self.baseline)
            if stock and row["peak_mb"]:
                peaks.append(float(row["peak_mb"]) / float(stock["peak_mb"]))
        yield f"peak memory {format_range(sorted(peaks), '.2f')} of the baseline's"

    def compute_mean(self, vcpus: int, arm: str) -> float:
        """Return the geometric mean of an arm's speedups in the CSV file."""
        rows = [self.find(model, vcpus, arm) for model in self.models]
        logs = [math.log(float(row["speedup"])) for row in rows if row and row["speedup"]]
        return math.exp(math.fsum(logs) / len(logs))


def load_runs() -> list[Run]:
    """Read every run that records.toml names, in its order."""
    document = tomllib.loads((RECORDS / "records.toml").read_text("utf-8"))
    runs = []
    for entry in document["run"]:
        with (RECORDS / f"{entry['file']}.csv").open(newline="", encoding="utf-8") as file:
            rows = tuple(csv.DictReader(file))
        means = tuple(map(Mean.parse, entry.pop("means", ())))
        runs.append(Run(**entry, rows=rows, means=means))
    return runs


def render_page(runs: Sequence[Run]) -> str:
    """Return the text of docs/verified.md."""
    environment = Environment(
        loader=FileSystemLoader(ROOT / "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701  (Markdown)
    )
    summary = format_table(SUMMARY, [row for run in runs for row in list_summary(run)])
    recordings = format_table(RECORDED, list_recorded())
    sections = [(run, format_table(*list_cells(run))) for run in runs]
    return environment.get_template(TEMPLATE).render(
        summary=summary, recordings=recordings, sections=sections
    )


SUMMARY = ("CPU", "TensorFlow", "oneDNN in stock", "vCPUs", "models", "arm", "speedup", "A/A")
"""The columns of the table on top of the page."""


def list_summary(run: Run) -> list[list[str]]:
    """Return the rows of the summary table for one run: the means of its summary arm."""
    rows = []
    for mean in [mean for mean in run.means if mean.arm == run.summary]:
        models = f"[{len(run.models)}](#{make_anchor(run.title)})"
        models += ", inference" * (run.phase == "infer")
        noise = format_interval(*mean.noise) if mean.noise else ""
        speedup = format_speedup(mean.speedup, mean.low, mean.high)
        arm = run.arms[mean.arm]
        rows.append(
            [run.cpu, run.release, run.onednn, str(mean.vcpus), models, arm, speedup, noise]
        )
    return rows


RECORDINGS = ROOT / "tests" / "data" / "recordings"
RECORDED = ("recording", "vCPUs", "models", "arm", "speedup", "A/A")
"""The columns of the table of recorded runs."""


def list_recorded() -> Iterator[list[str]]:
    """Yield the geometric means of the recordings in tests/data, by today's statistics."""
    for folder in sorted(path for path in RECORDINGS.iterdir() if path.is_dir()):
        comparison, _ = recompute_comparison(folder)
        for overall in comparison.overall:
            interval, noise = overall.speedup.interval, overall.noise
            speedup = format_speedup(interval.value, interval.low, interval.high)
            cells = [str(overall.vcpus), str(overall.workloads), f"`{overall.speedup.arm}`"]
            yield [folder.name, *cells, speedup, format_interval(noise.low, noise.high)]


def list_cells(run: Run) -> tuple[list[str], list[list[str]]]:
    """Return the head and the rows of one run's table: models down, vCPUs and arms across."""
    unit = "ms per step" if run.phase == "train" else "ms per request"
    head = ["model"]
    for vcpus in run.vcpus:
        suffix = f", {vcpus} vCPU{'s' * (vcpus > 1)}"
        head += [f"{run.baseline}, {unit}{suffix}", *(f"{arm}{suffix}" for arm in run.arms)]
    rows = [[f"`{model}`", *list_figures(run, model)] for model in run.models]
    if any(run.means):
        rows.append(["**geometric mean**", *list_means(run)])
    return head, rows


def list_figures(run: Run, model: str) -> Iterable[str]:
    """Yield one model's cells: the baseline's time, then every arm's speedup."""
    for vcpus in run.vcpus:
        row = run.find(model, vcpus, run.baseline)
        yield f"{float(row.get('train_ms') or row['infer_ms']):.2f}" if row else ""
        for arm in run.arms:
            row = run.find(model, vcpus, arm)
            names = ("speedup", "speedup_low", "speedup_high")
            figures = [float(row[name]) for name in names if row[name]] if row else []
            yield format_speedup(*figures) if figures else ""


def list_means(run: Run) -> Iterable[str]:
    """Yield the last row: the reported mean with its interval, else the mean of the rows."""
    for vcpus in run.vcpus:
        yield ""
        for arm in run.arms:
            reported = [mean for mean in run.means if (mean.vcpus, mean.arm) == (vcpus, arm)]
            if reported:
                (mean,) = reported
                yield f"**{format_speedup(mean.speedup, mean.low, mean.high)}**"
            else:
                yield f"**{run.compute_mean(vcpus, arm):.3f}**"


def format_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def format_speedup(speedup: float, low: float, high: float) -> str:
    """Return a speedup with its interval, as `1.774 (1.759 to 1.788)`."""
    return f"{speedup:.3f} ({format_interval(low, high)})"


def format_interval(low: float, high: float) -> str:
    """Return both ends, as `1.759 to 1.788`."""
    return f"{low:.3f} to {high:.3f}"


def format_range(values: Sequence[float], form: str) -> str:
    """Return the first and the last of sorted values, or one if both print alike."""
    ends = dict.fromkeys((f"{values[0]:{form}}", f"{values[-1]:{form}}"))
    return " to ".join(ends)


def make_anchor(title: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    text = "".join(char for char in title.lower() if char.isalnum() or char in " -_")
    return text.replace(" ", "-")


def main(arguments: Sequence[str]) -> int:
    """Write the page, or with --check compare it; return the exit code."""
    text = render_page(load_runs())
    if "--check" in arguments:
        return 0 if text == PAGE.read_text("utf-8") else 1
    PAGE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
