"""Format an imported curve and the 2018 article. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from tfbench.experiments.accuracy.article import PricedArticle
from tfbench.experiments.accuracy.curve import find_best, format_accuracy
from tfbench.experiments.accuracy.curve_plots import KEY
from tfbench.experiments.accuracy.results import ImportedCurve
from tfbench.reports import wording
from tfbench.reports.document import Answer, Document, Table, build_table_section, tabulate
from tfbench.result_table import ResultTable
from tfcore import console

_CURVE = ("curve", "#target", "#epoch", "#hours", "#USD")
_ARTICLE = (
    *("machine", "price", "#images/s", "#accuracy", "#epochs", "#hours", "#USD"),
    "#USD in the article",
)


def build_table(result: ImportedCurve) -> ResultTable:
    return ResultTable(
        title="", headings=_CURVE, rows=(_format_row(result),), lines=tuple(list_lines(result))
    )


def build_document(result: ImportedCurve) -> Document:
    line, *more = list_lines(result)
    return Document(
        title=f"Time to {format_accuracy(result.target)}",
        subject=f"{result.curve.name}: {console.format_count(len(result.curve.points), 'epoch')}",
        answers=(
            Answer(
                label=result.curve.name,
                figure=console.format_duration(result.reached.seconds)
                if result.reached
                else "not reached",
                detail=result.curve.column,
                sentence=line,
            ),
        ),
        notes=tuple(more),
        sections=(
            build_table_section(KEY, "The curve", "Time and cost", _CURVE, [_format_row(result)]),
        ),
    )


def _format_row(result: ImportedCurve) -> tuple[str, ...]:
    reached, target = result.reached, format_accuracy(result.target)
    if reached is None:
        return (result.curve.name, target, "", "not reached", "")
    epoch = f"≤ {reached.epoch:g}" if reached.missing else f"{reached.epoch:g}"
    return (result.curve.name, target, epoch, f"{reached.seconds / 3600:.4g}", _format_usd(result))


def _format_usd(result: ImportedCurve) -> str:
    return "" if result.usd is None else wording.format_usd(result.usd)


def list_lines(result: ImportedCurve) -> Iterator[str]:
    reached, price, target = result.reached, result.curve.price, format_accuracy(result.target)
    if reached is None:
        highest = find_best(result.curve.points)
        yield (
            f"{result.curve.column}: {target} is not reached; the best is "
            f"{format_accuracy(highest.accuracy)} at epoch {highest.epoch:g}."
        )
        return
    cost = f" and costs {_format_usd(result)} USD" if result.usd is not None else ""
    yield (
        f"{result.curve.column}: {target} is {reached}. This takes "
        f"{console.format_duration(reached.seconds)}{cost}."
    )
    if price is None:
        yield (
            "There is no price. Give --prices and --machine, or costPerHour in the JSON file "
            "beside the curve."
        )
    else:
        yield (
            f"{price} costs {price.usd_hour:.4g} USD per hour as of {price.as_of} ({price.source})."
        )


# --- the article ----------------------------------------------------------------------------------


def build_article_table(article: PricedArticle) -> ResultTable:
    return ResultTable(
        title=f"{article.name}: ResNet-50",
        headings=_ARTICLE,
        rows=build_article_block(article).rows,
        lines=tuple(_list_article_lines(article)),
    )


def build_article_block(article: PricedArticle) -> Table:
    """Build the table of all runs of the article, with the costs that the article states."""
    return tabulate(
        f"{article.name}, recomputed",
        _ARTICLE,
        (
            (
                *(run.name, run.mode.value, f"{run.images_s:g}", format_accuracy(run.accuracy)),
                *(f"{run.epochs}", f"{run.seconds / 3600:.2f}", f"{run.usd:.1f}"),
                wording.format_optional(run.printed_usd, "g"),
            )
            for run in article.runs
        ),
    )


def _list_article_lines(article: PricedArticle) -> Iterator[str]:
    yield (
        f"Hours are epochs times {article.images} images divided by images/s, without evaluation "
        "and start-up, as in the article."
    )
    yield f"Price book: {article.prices}. Source: {article.source}, {article.as_of}."
