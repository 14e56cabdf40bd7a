"""Run the experiments of each article, with the code of their own commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

from tfbench.costs import article as cloud
from tfbench.costs import bill, catalog
from tfbench.engine import folder
from tfbench.experiments.accuracy import handler as accuracies
from tfbench.experiments.accuracy import imported_text
from tfbench.experiments.accuracy import text as accuracy_text
from tfbench.experiments.accuracy.article import read_article
from tfbench.experiments.articles.sizes import Sizes
from tfbench.experiments.articles.text import SectionPart
from tfbench.experiments.experiment import (
    CellExperiment,
    ExperimentConfig,
    ExperimentOptions,
    Summary,
    choose_arms,
)
from tfbench.experiments.overhead import handler as overheads
from tfbench.experiments.sizing import handler as sizings
from tfbench.experiments.strategies import handler as placements
from tfbench.experiments.throughput import handler as throughputs
from tfbench.measuring.comparing import KIND
from tfbench.reports import findings
from tfbench.reports.document import BulletList, tabulate
from tfbench.reports.wording import format_factor_span, format_time
from tfcore.comparisons.comparison import load
from tfcore.settings import Paths


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """The size of the experiments, and the folders they use."""

    sizes: Sizes
    paths: Paths


_W = TypeVar("_W", bound=ExperimentOptions)
_Q = TypeVar("_Q", bound=ExperimentConfig)
_R = TypeVar("_R")


def measure_cloud_cpus(bench: Scale) -> SectionPart:
    """Recompute the article's own logs, and report the newest comparison of wheels made here."""
    book = catalog.find_book(cloud.PRICES)
    totals_bill = bill.compute_bill_from_totals(cloud.read_totals(book), book)
    rows = tuple(
        (str(n), arm, format_factor_span(amount)) for n, arm, amount in totals_bill.speedups
    )
    headings = ("#vCPUs", "arm", "#geometric mean of the speedups over pip")
    logs = tabulate("The article's logs, recomputed", headings, rows)
    newest = tuple(_describe_newest_comparison(bench.paths))
    lines = (*(f"{arm} on {n} vCPUs in 2017: {mean}" for n, arm, mean in rows), *newest)
    return SectionPart(blocks=(logs, BulletList(items=newest)), lines=lines)


def _describe_newest_comparison(paths: Paths) -> Iterator[str]:
    path = folder.find_newest(KIND, paths)
    if path is None:
        yield "There is no comparison of wheels yet. Run invoke quickstart or invoke compare."
        return
    comparison = load(path)
    yield f"Newest comparison, {format_time(comparison.made)}, {comparison.host.cpu.name}:"
    yield from findings.list_headlines(comparison)


def measure_tpu_gpu(bench: Scale) -> SectionPart:
    """Measure throughput by batch and time to an accuracy, and recompute the article's dollars."""
    sizes, paths = bench.sizes, bench.paths
    throughput_part = _measure_part(throughputs.THROUGHPUT, sizes.throughput, paths)
    choices = choose_arms(sizes.accuracy.arms, paths)
    config = accuracies.parse_options(sizes.accuracy)
    result = accuracies.measure(config, choices, sizes.accuracy.out, paths)
    accuracy_part = _build_part(result, accuracy_text)
    return SectionPart(
        blocks=(
            imported_text.build_article_block(read_article("2018")),
            *throughput_part.blocks,
            *accuracy_part.blocks,
        ),
        figures=(*throughput_part.figures, *accuracy_part.figures),
        lines=(*throughput_part.lines, *accuracy_part.lines),
    )


def measure_sizing(bench: Scale) -> SectionPart:
    return _measure_part(sizings.create_experiment(), bench.sizes.sizing, bench.paths)


def measure_strategies(bench: Scale) -> SectionPart:
    return _measure_part(placements.STRATEGIES, bench.sizes.strategies, bench.paths)


def measure_dispatch(bench: Scale) -> SectionPart:
    return _measure_part(overheads.OVERHEAD, bench.sizes.overhead, bench.paths)


def _measure_part(experiment: CellExperiment[_W, _Q, _R], options: _W, paths: Paths) -> SectionPart:
    """Run an experiment and return its part of the section."""
    choices = choose_arms(options.arms, paths)
    result = experiment.measure(experiment.read(options), choices, options.out, paths)
    return _build_part(result, experiment.text)


def _build_part(result: _R, text: Summary[_R]) -> SectionPart:
    return SectionPart(
        blocks=text.build_section(result).blocks,
        figures=tuple(text.draw_figures(result)),
        lines=tuple(text.list_lines(result)),
    )


PARTS: Mapping[str, Callable[[Scale], SectionPart]] = MappingProxyType(
    {
        "cloud-cpus": measure_cloud_cpus,
        "tpu-gpu": measure_tpu_gpu,
        "sizing": measure_sizing,
        "strategies": measure_strategies,
        "dispatch": measure_dispatch,
    }
)
"""Functions by the keys of articles.toml."""
