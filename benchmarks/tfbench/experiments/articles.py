"""All articles: run the experiments of each and write one page of claims, results and limits."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from tfbench.commands import (
    AccuracyOptions,
    ArticlesOptions,
    OverheadOptions,
    SizingOptions,
    StrategiesOptions,
    ThroughputOptions,
)
from tfbench.costs import article as cloud
from tfbench.costs import bill, catalog
from tfbench.engine import folder
from tfbench.experiments import experiment, sizing
from tfbench.experiments.accuracy import imported
from tfbench.experiments.accuracy.datasets import DIGITS
from tfbench.experiments.accuracy.handler import ACCURACY
from tfbench.experiments.experiment import CommandExperiment
from tfbench.experiments.overhead import OVERHEAD
from tfbench.experiments.strategies.handler import STRATEGIES
from tfbench.experiments.throughput import THROUGHPUT
from tfbench.measuring.comparing import KIND as COMPARISON
from tfbench.reports import findings
from tfbench.reports.canvas import Drawing
from tfbench.reports.document import Block, BulletList, Document, Section, tabulate
from tfbench.reports.page import HTML
from tfbench.reports.wording import format_factor_span, format_time
from tfcore import console, settings
from tfcore.comparisons.comparison import load
from tfcore.comparisons.host import Host
from tfcore.errors import TensorwrightError, WorkerError
from tfcore.records import format_now
from tfcore.settings import Paths

KIND = "articles"
SCHEMA = 1
_FILE = Path(__file__).with_name("articles.toml")

Sizes: TypeAlias = Mapping[str, Any]
"""The options of each experiment's own command, by the kind of the experiment."""
QUICK: Sizes = {
    THROUGHPUT.kind: ThroughputOptions(image="64", batches="4,8,16", steps="20", launches="3"),
    ACCURACY.kind: AccuracyOptions(data=DIGITS, reach="95%", seeds="3"),
    sizing.KIND: SizingOptions(image="64", inputs="cached,20MB/s", seconds="2", launches="3"),
    STRATEGIES.kind: StrategiesOptions(
        strategies="central,server,ring,one_device,independent",
        workloads="alexnet:image=64:batch=8,resnet50:image=64:batch=4",
        devices="2",
        launches="3",
        seconds="1",
    ),
    OVERHEAD.kind: OverheadOptions(launches="3"),
}
"""About 20 minutes on two vCPUs."""
FULL: Sizes = {
    THROUGHPUT.kind: ThroughputOptions(workloads="resnet50,inception_v3", augmentation="both"),
    ACCURACY.kind: AccuracyOptions(),
    sizing.KIND: SizingOptions(inputs="memory,cached,cold,20MB/s", memory="0,4000,2000,1000"),
    STRATEGIES.kind: StrategiesOptions(),
    OVERHEAD.kind: OverheadOptions(),
}
"""The commands' defaults, with more inputs and limits. Takes hours."""
EXPERIMENTS: Mapping[str, CommandExperiment[Any, Any, Any]] = MappingProxyType(
    {
        declared.kind: declared
        for declared in (THROUGHPUT, ACCURACY, sizing.create_experiment(), STRATEGIES, OVERHEAD)
    }
)
"""The experiments by kind."""
ARTICLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "cloud-cpus": (),
        "tpu-gpu": (THROUGHPUT.kind, ACCURACY.kind),
        "sizing": (sizing.KIND,),
        "strategies": (STRATEGIES.kind,),
        "dispatch": (OVERHEAD.kind,),
    }
)
"""The experiments of each article, by the keys of articles.toml."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Article:
    """An article: its claims, and what cannot be measured here. `key` names its section of the
    report; `command` reproduces it at any size.
    """

    key: str
    title: str
    source: str
    link: str
    command: str
    claims: tuple[str, ...]
    missing: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SectionPart:
    """The content of an article's section beside its claims, or the `failure` that prevented it."""

    blocks: tuple[Block, ...] = ()
    figures: tuple[Drawing, ...] = ()
    lines: tuple[str, ...] = ()
    """The results in sentences, for a terminal."""
    failure: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ArticlesResult:
    """The findings in sentences, by article; `failures` has the reason for each article that was
    not measured completely. Every experiment's own record is in its folder beside this one.
    """

    schema: int = SCHEMA
    made: str
    host: Host
    quick: bool
    findings: Mapping[str, Sequence[str]]
    failures: Mapping[str, str]


def read_articles() -> tuple[Article, ...]:
    """Read the five articles, ordered by year."""
    rows = tomllib.loads(_FILE.read_text(encoding="utf-8"))["article"]
    return tuple(Article(**{**row, "claims": tuple(row["claims"])}) for row in rows)


# --- measuring ------------------------------------------------------------------------------------


def measure_articles(options: ArticlesOptions) -> str:
    """Measure all articles, or continue a stopped run, and return what to print.

    An experiment that fails leaves its reason in its section, and the others continue. Raises
    UsageError, WheelError, HostError; WorkerError at the end if an experiment failed.
    """
    paths = settings.paths()
    sizes = choose_sizes(options)
    experiment.choose_arms(options.arms, paths)
    articles = read_articles()
    with settings.lock_folder(paths.cache, "the articles' experiments"):
        # Without arms: each part has its own.
        run = experiment.start_run(KIND, sizes, {}, options.out, paths)
        placed_sizes = set_folders(sizes, run.out)
        parts = {article.key: measure_section(article, placed_sizes, paths) for article in articles}
    host, finished = run.host, format_now()
    subject = f"{console.format_vcpus(host.vcpus.usable)} of {host.cpu.name}, {finished}"
    page = build_document(articles, parts, subject=subject, quick=options.quick)
    drawings = {key: part.figures for key, part in parts.items()}
    failures = {key: part.failure for key, part in parts.items() if part.failure}
    result = ArticlesResult(
        made=finished,
        host=host,
        quick=options.quick,
        findings={key: part.lines for key, part in parts.items()},
        failures=failures,
    )
    summary = format_summary(articles, parts)
    if failures:
        experiment.write_report(run.out, page, paths.templates, drawings)
        raise WorkerError(
            f"{summary}Some experiments failed ({', '.join(failures)}), see {run.out}.\n",
            hint="Run the same command again: it keeps the results so far",
        )
    experiment.finish_run(run, result, page, drawings, paths.templates)
    return f"{summary}report: {run.out / HTML}\n"


def choose_sizes(options: ArticlesOptions) -> Sizes:
    """Return the options of each experiment, with its wheels; sizing uses only the first one."""
    return {
        kind: dataclasses.replace(
            own, arms=options.arms.partition(",")[0] if kind == sizing.KIND else options.arms
        )
        for kind, own in (QUICK if options.quick else FULL).items()
    }


def set_folders(sizes: Sizes, out: Path) -> Sizes:
    """Return the sizes with each experiment in its own subfolder of `out`."""
    return {kind: dataclasses.replace(own, out=str(out / kind)) for kind, own in sizes.items()}


def describe_plan(options: ArticlesOptions) -> str:
    """Describe what would be measured. Nothing is installed."""
    out = Path(options.out) if options.out else settings.paths().choose_report_folder(KIND)
    return "\n".join(
        f"{kind}\n{_indent_lines(EXPERIMENTS[kind].describe_plan(own))}"
        for kind, own in set_folders(choose_sizes(options), out).items()
    )


def _indent_lines(words: str) -> str:
    return "".join(f"  {line}\n" for line in words.splitlines())


def measure_section(article: Article, sizes: Sizes, paths: Paths) -> SectionPart:
    """Run the experiments of an article; one that fails leaves only its reason."""
    with console.report_step(article.title):
        try:
            if not ARTICLES[article.key]:
                return recompute_cloud_cpus(paths)
            parts = [_measure_part(kind, sizes[kind], paths) for kind in ARTICLES[article.key]]
        except TensorwrightError as error:
            console.warn(str(error))
            return SectionPart(failure=str(error).strip())
    # The article of 2018 has dollars, too.
    priced = ACCURACY.kind in ARTICLES[article.key]
    logs = (imported.build_article_block(imported.read_article("2018")),) if priced else ()
    return SectionPart(
        blocks=(*logs, *(block for part in parts for block in part.blocks)),
        figures=tuple(figure for part in parts for figure in part.figures),
        lines=tuple(line for part in parts for line in part.lines),
    )


def _measure_part(kind: str, options: Any, paths: Paths) -> SectionPart:  # noqa: ANN401
    """Run an experiment with the options of its command, and return its part of the section."""
    measured = EXPERIMENTS[kind]
    choices = experiment.choose_arms(options.arms, paths)
    result = measured.measure(measured.parse_options(options), choices, options.out, paths)
    return SectionPart(
        blocks=measured.text.build_section(result).blocks,
        figures=tuple(measured.text.draw_figures(result)),
        lines=measured.text.build_table(result).lines,
    )


def recompute_cloud_cpus(paths: Paths) -> SectionPart:
    """Recompute the article's own logs, and report the newest comparison of wheels made here."""
    book = catalog.find_book(cloud.PRICES)
    totals_bill = bill.compute_bill_from_totals(cloud.read_totals(book), book)
    rows = tuple(
        (str(n), arm, format_factor_span(amount)) for n, arm, amount in totals_bill.speedups
    )
    headings = ("#vCPUs", "arm", "#geometric mean of the speedups over pip")
    logs = tabulate("The article's logs, recomputed", headings, rows)
    newest = tuple(_describe_newest_comparison(paths))
    lines = (*(f"{arm} on {n} vCPUs in 2017: {mean}" for n, arm, mean in rows), *newest)
    return SectionPart(blocks=(logs, BulletList(items=newest)), lines=lines)


def _describe_newest_comparison(paths: Paths) -> Iterator[str]:
    path = folder.find_newest(COMPARISON, paths)
    if path is None:
        yield "There is no comparison of wheels yet. Run invoke quickstart or invoke compare."
        return
    comparison = load(path)
    yield f"Newest comparison, {format_time(comparison.made)}, {comparison.host.cpu.name}:"
    yield from findings.list_headlines(comparison)


# --- the page -------------------------------------------------------------------------------------


def build_document(
    articles: Sequence[Article], parts: Mapping[str, SectionPart], *, subject: str, quick: bool
) -> Document:
    failures = ((article.title, parts[article.key].failure) for article in articles)
    small = ("A short run: few processes and few steps per cell, so intervals are wide.",)
    return Document(
        title="The experiments of five articles",
        subject=subject,
        notes=small if quick else (),
        warnings=tuple(f"{title}: {failure}" for title, failure in failures if failure),
        sections=tuple(_build_section(article, parts[article.key]) for article in articles),
    )


def _build_section(article: Article, part: SectionPart) -> Section:
    link = f" {article.link}" if article.link else ""
    failed = (f"An experiment failed: {part.failure}",) if part.failure else ()
    return Section(
        key=article.key,
        heading=article.title,
        blocks=(
            f"{article.source}.{link}",
            "Claims:",
            BulletList(items=article.claims),
            "Results:",
            *part.blocks,
            *failed,
            f"Not measured: {article.missing}",
            f"Commands: {article.command}",
        ),
    )


def format_summary(articles: Sequence[Article], parts: Mapping[str, SectionPart]) -> str:
    """Format the findings of each article for a terminal."""
    texts: list[str] = []
    for article in articles:
        part = parts[article.key]
        texts += [article.title, *(f"  {line}" for line in part.lines)]
        if part.failure:
            texts.append(f"  failed: {part.failure}")
    return "\n".join(texts) + "\n"
