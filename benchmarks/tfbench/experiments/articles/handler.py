"""Handler of `invoke articles`: run the experiments of all articles and write one page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfbench.commands import ArticlesOptions
from tfbench.experiments import experiment
from tfbench.experiments.accuracy import handler as accuracies
from tfbench.experiments.articles import text
from tfbench.experiments.articles.article import Article, read_articles
from tfbench.experiments.articles.parts import PARTS, Scale
from tfbench.experiments.articles.sizes import FULL, QUICK, Sizes
from tfbench.experiments.articles.text import SectionPart
from tfbench.experiments.overhead import handler as overheads
from tfbench.experiments.sizing import handler as sizings
from tfbench.experiments.strategies import handler as placements
from tfbench.experiments.throughput import handler as throughputs
from tfbench.reports.page import HTML
from tfcore import console, settings
from tfcore.comparisons.host import Host
from tfcore.errors import TensorwrightError, WorkerError
from tfcore.records import format_now

KIND = "articles"
SCHEMA = 1


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


def measure_articles(options: ArticlesOptions) -> str:
    """Measure all articles, or continue a stopped run, and return what to print.

    An experiment that fails leaves its reason in its section, and the others continue. Raises
    UsageError, WheelError, HostError; WorkerError at the end if an experiment failed.
    """
    paths = settings.paths()
    sizes = _choose_sizes(options)
    experiment.choose_arms(options.arms, paths)
    articles = read_articles()
    with settings.lock_folder(paths.cache, "the articles' experiments"):
        # Without arms: each part has its own.
        run = experiment.start_run(KIND, sizes, {}, options.out, paths)
        bench = Scale(sizes=sizes.set_folder(run.out), paths=paths)
        parts = {article.key: _measure_part(article, bench) for article in articles}
    host, finished = run.host, format_now()
    subject = f"{console.format_vcpus(host.vcpus.usable)} of {host.cpu.name}, {finished}"
    page = text.build_document(articles, parts, subject=subject, quick=options.quick)
    drawings = text.collect_figures(parts)
    failures = {key: part.failure for key, part in parts.items() if part.failure}
    result = ArticlesResult(
        made=finished,
        host=host,
        quick=options.quick,
        findings={key: part.lines for key, part in parts.items()},
        failures=failures,
    )
    summary = text.format_summary(articles, parts)
    if failures:
        experiment.write_report(run.out, page, paths.templates, drawings)
        raise WorkerError(
            f"{summary}Some experiments failed ({', '.join(failures)}), see {run.out}.\n",
            hint="Run the same command again: it keeps the results so far",
        )
    experiment.finish_run(run, result, page, drawings, paths.templates)
    return f"{summary}report: {run.out / HTML}\n"


def _choose_sizes(options: ArticlesOptions) -> Sizes:
    return (QUICK if options.quick else FULL).set_arms(options.arms)


def _measure_part(article: Article, bench: Scale) -> SectionPart:
    with console.report_step(article.title):
        try:
            return PARTS[article.key](bench)
        except TensorwrightError as error:
            console.warn(str(error))
            return SectionPart(failure=str(error).strip())


def describe_plan(options: ArticlesOptions) -> str:
    """Describe what would be measured. Nothing is installed."""
    folder = Path(options.out) if options.out else settings.paths().choose_report_folder(KIND)
    sizes = _choose_sizes(options).set_folder(folder)
    plans = (
        (throughputs.KIND, throughputs.describe_plan(sizes.throughput)),
        (accuracies.KIND, accuracies.describe_plan(sizes.accuracy)),
        (sizings.KIND, sizings.describe_plan(sizes.sizing)),
        (placements.KIND, placements.describe_plan(sizes.strategies)),
        (overheads.KIND, overheads.describe_plan(sizes.overhead)),
    )
    return "\n".join(f"{name}\n{_indent_lines(plan)}" for name, plan in plans)


def _indent_lines(words: str) -> str:
    return "".join(f"  {line}\n" for line in words.splitlines())
