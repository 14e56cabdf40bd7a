"""Handler of `invoke articles`: every article's experiments, and one page of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfbench.accuracy import handler as accuracies
from tfbench.articles import text
from tfbench.articles.article import Article, read_articles
from tfbench.articles.parts import PARTS, Scale
from tfbench.articles.sizes import FULL, QUICK, Sizes
from tfbench.articles.text import SectionPart
from tfbench.cells import experiment
from tfbench.commands import ArticlesOptions
from tfbench.overhead import handler as overheads
from tfbench.reports.page import HTML
from tfbench.sizing import handler as sizings
from tfbench.strategies import handler as placements
from tfbench.throughput import handler as throughputs
from tfbuild import console, settings
from tfbuild.errors import TensorwrightError, WorkerError
from tfbuild.measured.host import Host
from tfbuild.records import format_now

KIND = "articles"
SCHEMA = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class ArticlesResult:
    """The findings in sentences, by article; `failures` are of those that were not measured whole.
    Every experiment's own record lies in its folder beside this one."""

    schema: int = SCHEMA
    made: str
    host: Host
    quick: bool
    findings: Mapping[str, Sequence[str]]
    failures: Mapping[str, str]


def measure_articles(wanted: ArticlesOptions) -> str:
    """Measure all, or go on with what was stopped; what to print.

    An experiment that fails leaves its reason in its section, and the others go on. Raises
    UsageError, WheelError, HostError; WorkerError at the end, where one has failed.
    """
    paths = settings.paths()
    sizes = _sizes(wanted)
    experiment.choose_arms(wanted.arms, paths)
    articles = read_articles()
    with settings.lock_folder(paths.cache, "the articles' experiments"):
        run = experiment.start(KIND, sizes, {}, wanted.out, paths)  # (each part has its own arms)
        bench = Scale(sizes=sizes.into(run.out), paths=paths)
        parts = {article.key: _part(article, bench) for article in articles}
    host, made = run.host, format_now()
    subject = f"{console.format_vcpus(host.vcpus.usable)} of {host.cpu.name}, {made}"
    page = text.document(articles, parts, subject=subject, quick=wanted.quick)
    drawn = text.figures(parts)
    failures = {key: part.failure for key, part in parts.items() if part.failure}
    result = ArticlesResult(
        made=made,
        host=host,
        quick=wanted.quick,
        findings={key: part.lines for key, part in parts.items()},
        failures=failures,
    )
    found = text.summary(articles, parts)
    if failures:
        experiment.write_report(run.out, page, paths.templates, drawn)
        raise WorkerError(
            f"{found}Not all could be measured ({', '.join(failures)}), see {run.out}.\n",
            hint="Run the same command again: what was measured is kept",
        )
    experiment.finish(run, result, page, drawn, paths.templates)
    return f"{found}report: {run.out / HTML}\n"


def _sizes(wanted: ArticlesOptions) -> Sizes:
    return (QUICK if wanted.quick else FULL).on(wanted.arms)


def _part(article: Article, bench: Scale) -> SectionPart:
    with console.report_step(article.title):
        try:
            return PARTS[article.key](bench)
        except TensorwrightError as error:
            console.warn(str(error))
            return SectionPart(failure=str(error).strip())


def describe(wanted: ArticlesOptions) -> str:
    """What would be measured. Nothing is installed."""
    folder = Path(wanted.out) if wanted.out else settings.paths().choose_report_folder(KIND)
    sizes = _sizes(wanted).into(folder)
    described = (
        (throughputs.KIND, throughputs.describe(sizes.throughput)),
        (accuracies.KIND, accuracies.describe(sizes.accuracy)),
        (sizings.KIND, sizings.describe(sizes.sizing)),
        (placements.KIND, placements.describe(sizes.strategies)),
        (overheads.KIND, overheads.describe(sizes.overhead)),
    )
    return "\n".join(f"{name}\n{_indented(words)}" for name, words in described)


def _indented(words: str) -> str:
    return "".join(f"  {line}\n" for line in words.splitlines())
