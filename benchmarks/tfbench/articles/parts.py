"""What is measured for each article, as the experiments' own commands measure it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from tfbench.accuracy import command as accuracies
from tfbench.accuracy import elsewhere, figures, sets
from tfbench.accuracy import text as accuracy_text
from tfbench.accuracy.article import read_article
from tfbench.accuracy.results import Accuracy
from tfbench.arms import installs
from tfbench.articles.sizes import Sizes
from tfbench.articles.text import Part
from tfbench.cells.experiment import choose_arms
from tfbench.costs import article as cloud
from tfbench.costs import bill, catalog
from tfbench.measuring.comparison import COMPARISON
from tfbench.measuring.results import load
from tfbench.overhead import command as overheads
from tfbench.overhead import text as overhead_text
from tfbench.reports import findings
from tfbench.reports.document import Block, Points, Table, columns
from tfbench.reports.wording import factor_span, moment
from tfbench.sizing import command as sizings
from tfbench.sizing import text as sizing_text
from tfbench.strategies import command as placements
from tfbench.strategies import text as strategies_text
from tfbench.throughput import command as throughputs
from tfbench.throughput import text as throughput_text
from tfbuild.settings import Places


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """Where and how much is measured; `folder` gets a folder for each experiment."""

    sizes: Sizes
    folder: Path
    places: Places

    def out(self, kind: str) -> str:
        return str(self.folder / kind)


def cloud_cpus(bench: Bench) -> Part:
    """The article's own logs computed again, and the newest comparison of wheels made here."""
    book = catalog.shipped(cloud.PRICES)
    found = bill.bill_of_totals(cloud.read_totals(cloud.TOTALS), book)
    rows = tuple((str(n), arm, factor_span(amount)) for n, arm, amount in found.speedups)
    table = Table(
        caption="The article's logs, computed again",
        columns=columns("#vCPUs", "arm", "#geometric mean of its speedups over pip"),
        rows=rows,
    )
    newest = tuple(_newest_comparison(bench.places))
    lines = (*(f"{arm} on {n} vCPUs in 2017: {mean}" for n, arm, mean in rows), *newest)
    return Part(blocks=(table, Points(items=newest)), lines=lines)


def _newest_comparison(places: Places) -> Iterator[str]:
    every = sorted(places.reports.glob(f"*/{COMPARISON}"), key=lambda path: path.stat().st_mtime)
    if not every:
        yield "No comparison of wheels was made here yet: invoke quickstart, or invoke compare."
        return
    comparison = load(every[-1])
    yield f"The newest comparison here, {moment(comparison.made)}, {comparison.host.cpu.name}:"
    yield from findings.headlines(comparison)


def tpu_gpu(bench: Bench) -> Part:
    """Throughput by batch size, time to an accuracy, and the article's dollars again."""
    wanted = bench.sizes.throughput
    choices = choose_arms(wanted.arms, bench.places)
    question = throughputs.read(wanted, choices)
    speed = throughputs.measure(question, choices, bench.out(throughputs.KIND), bench.places)
    reached = _accuracy(bench)
    blocks: tuple[Block, ...] = (
        elsewhere.article_block(read_article("2018")),
        *throughput_text.section(speed).blocks,
        *accuracy_text.section(reached).blocks,
    )
    return Part(
        blocks=blocks,
        figures=(*throughput_text.figures(speed), *figures.curves(reached)),
        lines=(*throughput_text.lines(speed), *accuracy_text.lines(reached)),
    )


def _accuracy(bench: Bench) -> Accuracy:
    places = bench.places
    question = accuracies.read(bench.sizes.accuracy, places)
    examples = sets.load(question.data, question.file, places, Path.home())
    arms = installs.install(question.choices, places)
    return accuracies.measure(question, arms, examples, bench.out(accuracies.KIND), places)


def sizing(bench: Bench) -> Part:
    wanted = bench.sizes.sizing
    choices = choose_arms(wanted.arms, bench.places)
    question = sizings.read(wanted, choices)
    found = sizings.measure(question, choices, bench.out(sizings.KIND), bench.places)
    return Part(
        blocks=sizing_text.section(found).blocks,
        figures=tuple(sizing_text.figures(found)),
        lines=tuple(sizing_text.lines(found)),
    )


def strategies(bench: Bench) -> Part:
    wanted = bench.sizes.strategies
    choices = choose_arms(wanted.arms, bench.places)
    found = placements.measure(wanted, choices, bench.out(placements.KIND), bench.places)
    return Part(
        blocks=strategies_text.section(found).blocks,
        figures=tuple(strategies_text.figures(found)),
        lines=tuple(strategies_text.lines(found)),
    )


def dispatch(bench: Bench) -> Part:
    wanted = bench.sizes.overhead
    choices = choose_arms(wanted.arms, bench.places)
    question = overheads.read(wanted, choices)
    found = overheads.measure(question, choices, bench.out(overheads.KIND), bench.places)
    return Part(
        blocks=overhead_text.section(found).blocks,
        figures=tuple(overhead_text.figures(found)),
        lines=tuple(overhead_text.lines(found)),
    )


PARTS: Mapping[str, Callable[[Bench], Part]] = MappingProxyType(
    {
        "cloud-cpus": cloud_cpus,
        "tpu-gpu": tpu_gpu,
        "sizing": sizing,
        "strategies": strategies,
        "dispatch": dispatch,
    }
)
"""By the keys of articles.toml."""
