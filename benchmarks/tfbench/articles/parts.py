"""What is measured for each article, as the experiments' own commands measure it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

from tfbench.accuracy import handler as accuracies
from tfbench.accuracy import imported_text
from tfbench.accuracy import text as accuracy_text
from tfbench.accuracy.article import read_article
from tfbench.articles.sizes import Sizes
from tfbench.articles.text import SectionPart
from tfbench.cells.experiment import (
    CellExperiment,
    ExperimentConfig,
    ExperimentOptions,
    Summary,
    choose_arms,
)
from tfbench.costs import article as cloud
from tfbench.costs import bill, catalog
from tfbench.engine import folder
from tfbench.measuring.comparison import KIND
from tfbench.overhead import handler as overheads
from tfbench.reports import findings
from tfbench.reports.document import Points, tabulate
from tfbench.reports.wording import factor_span, moment
from tfbench.sizing import handler as sizings
from tfbench.strategies import handler as placements
from tfbench.throughput import handler as throughputs
from tfbuild.measured.comparison import load
from tfbuild.settings import Paths


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """How much is measured, and in which folders."""

    sizes: Sizes
    paths: Paths


_W = TypeVar("_W", bound=ExperimentOptions)
_Q = TypeVar("_Q", bound=ExperimentConfig)
_R = TypeVar("_R")


def cloud_cpus(bench: Scale) -> SectionPart:
    """The article's own logs computed again, and the newest comparison of wheels made here."""
    book = catalog.find_book(cloud.PRICES)
    found = bill.compute_bill_from_totals(cloud.read_totals(book), book)
    rows = tuple((str(n), arm, factor_span(amount)) for n, arm, amount in found.speedups)
    headings = ("#vCPUs", "arm", "#geometric mean of its speedups over pip")
    logs = tabulate("The article's logs, computed again", headings, rows)
    newest = tuple(_newest_comparison(bench.paths))
    lines = (*(f"{arm} on {n} vCPUs in 2017: {mean}" for n, arm, mean in rows), *newest)
    return SectionPart(blocks=(logs, Points(items=newest)), lines=lines)


def _newest_comparison(paths: Paths) -> Iterator[str]:
    path = folder.find_newest(KIND, paths)
    if path is None:
        yield "No comparison of wheels was made here yet: invoke quickstart, or invoke compare."
        return
    comparison = load(path)
    yield f"The newest comparison here, {moment(comparison.made)}, {comparison.host.cpu.name}:"
    yield from findings.headlines(comparison)


def tpu_gpu(bench: Scale) -> SectionPart:
    """Throughput by batch size, time to an accuracy, and the article's dollars again."""
    wanted, paths = bench.sizes, bench.paths
    speed = _part(throughputs.THROUGHPUT, wanted.throughput, paths)
    choices = choose_arms(wanted.accuracy.arms, paths)
    config = accuracies.read(wanted.accuracy)
    found = accuracies.measure(config, choices, wanted.accuracy.out, paths)
    reached = _shown(found, accuracy_text)
    return SectionPart(
        blocks=(imported_text.article_block(read_article("2018")), *speed.blocks, *reached.blocks),
        figures=(*speed.figures, *reached.figures),
        lines=(*speed.lines, *reached.lines),
    )


def sizing(bench: Scale) -> SectionPart:
    return _part(sizings.sizing(), bench.sizes.sizing, bench.paths)


def strategies(bench: Scale) -> SectionPart:
    return _part(placements.STRATEGIES, bench.sizes.strategies, bench.paths)


def dispatch(bench: Scale) -> SectionPart:
    return _part(overheads.OVERHEAD, bench.sizes.overhead, bench.paths)


def _part(experiment: CellExperiment[_W, _Q, _R], wanted: _W, paths: Paths) -> SectionPart:
    """An experiment's answer to what is wanted."""
    choices = choose_arms(wanted.arms, paths)
    found = experiment.measure(experiment.read(wanted), choices, wanted.out, paths)
    return _shown(found, experiment.text)


def _shown(found: _R, text: Summary[_R]) -> SectionPart:
    return SectionPart(
        blocks=text.section(found).blocks,
        figures=tuple(text.figures(found)),
        lines=tuple(text.lines(found)),
    )


PARTS: Mapping[str, Callable[[Scale], SectionPart]] = MappingProxyType(
    {
        "cloud-cpus": cloud_cpus,
        "tpu-gpu": tpu_gpu,
        "sizing": sizing,
        "strategies": strategies,
        "dispatch": dispatch,
    }
)
"""By the keys of articles.toml."""
