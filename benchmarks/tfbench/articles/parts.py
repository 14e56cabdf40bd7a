"""What is measured for each article, as the experiments' own commands measure it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol, TypeVar

from tfbench.accuracy import command as accuracies
from tfbench.accuracy import elsewhere
from tfbench.accuracy import text as accuracy_text
from tfbench.accuracy.article import read_article
from tfbench.arms.installs import Choice
from tfbench.articles.sizes import Sizes
from tfbench.articles.text import Part
from tfbench.cells.experiment import choose_arms
from tfbench.costs import article as cloud
from tfbench.costs import bill, catalog
from tfbench.engine import folder
from tfbench.measuring.comparison import KIND
from tfbench.measuring.results import load
from tfbench.overhead import command as overheads
from tfbench.overhead import text as overhead_text
from tfbench.reports import findings
from tfbench.reports.canvas import Drawing
from tfbench.reports.document import Points, Section, Table, columns
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
    """How much is measured, and in which folders."""

    sizes: Sizes
    places: Places


class _Wanted(Protocol):
    @property
    def arms(self) -> str: ...

    @property
    def out(self) -> str: ...


_W = TypeVar("_W", bound=_Wanted)
_Q = TypeVar("_Q")
_R = TypeVar("_R")
_R_contra = TypeVar("_R_contra", contravariant=True)


class _Text(Protocol[_R_contra]):
    """What says an experiment's result."""

    def section(self, found: _R_contra, /) -> Section: ...

    def figures(self, found: _R_contra, /) -> Iterable[Drawing]: ...

    def lines(self, found: _R_contra, /) -> Iterable[str]: ...


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
    path = folder.newest(KIND, places)
    if path is None:
        yield "No comparison of wheels was made here yet: invoke quickstart, or invoke compare."
        return
    comparison = load(path)
    yield f"The newest comparison here, {moment(comparison.made)}, {comparison.host.cpu.name}:"
    yield from findings.headlines(comparison)


def tpu_gpu(bench: Bench) -> Part:
    """Throughput by batch size, time to an accuracy, and the article's dollars again."""
    wanted, places = bench.sizes, bench.places
    speed = _part(wanted.throughput, throughputs.read, throughputs.measure, throughput_text, places)
    reached = _part(wanted.accuracy, accuracies.read, accuracies.measure, accuracy_text, places)
    return Part(
        blocks=(elsewhere.article_block(read_article("2018")), *speed.blocks, *reached.blocks),
        figures=(*speed.figures, *reached.figures),
        lines=(*speed.lines, *reached.lines),
    )


def sizing(bench: Bench) -> Part:
    return _part(bench.sizes.sizing, sizings.read, sizings.measure, sizing_text, bench.places)


def strategies(bench: Bench) -> Part:
    wanted, places = bench.sizes.strategies, bench.places
    return _part(wanted, placements.read, placements.measure, strategies_text, places)


def dispatch(bench: Bench) -> Part:
    wanted, places = bench.sizes.overhead, bench.places
    return _part(wanted, overheads.read, overheads.measure, overhead_text, places)


def _part(
    wanted: _W,
    read: Callable[[_W], _Q],
    measure: Callable[[_Q, tuple[Choice, ...], str, Places], _R],
    text: _Text[_R],
    places: Places,
) -> Part:
    """An experiment's answer to what is wanted."""
    choices = choose_arms(wanted.arms, places)
    found = measure(read(wanted), choices, wanted.out, places)
    return Part(
        blocks=text.section(found).blocks,
        figures=tuple(text.figures(found)),
        lines=tuple(text.lines(found)),
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
