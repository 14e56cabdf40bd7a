"""What others measured, in words and tables: an imported curve, the article. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from tfbench.accuracy.article import PricedArticle
from tfbench.accuracy.curve import best, share
from tfbench.accuracy.figures import KEY
from tfbench.accuracy.results import ImportedCurve
from tfbench.reports import wording
from tfbench.reports.document import Answer, Document, Table, tabled, tabulate
from tfbench.sheet import ResultTable
from tfbuild import console

_CURVE = ("curve", "#target", "#epoch", "#hours", "#USD")
_ARTICLE = ("machine", "paid", "#images/s", "#accuracy", "#epochs", "#hours", "#USD", "#printed")


def sheet(result: ImportedCurve) -> ResultTable:
    return ResultTable(title="", headings=_CURVE, rows=(_row(result),), lines=tuple(lines(result)))


def document(result: ImportedCurve) -> Document:
    line, *more = lines(result)
    return Document(
        title=f"Time to {share(result.target)}",
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
        sections=(tabled(KEY, "The curve", "Time and cost", _CURVE, [_row(result)]),),
    )


def _row(result: ImportedCurve) -> tuple[str, ...]:
    found, target = result.reached, share(result.target)
    if found is None:
        return (result.curve.name, target, "", "not reached", "")
    epoch = f"≤ {found.epoch:g}" if found.missing else f"{found.epoch:g}"
    return (result.curve.name, target, epoch, f"{found.seconds / 3600:.4g}", _usd(result))


def _usd(result: ImportedCurve) -> str:
    return "" if result.usd is None else wording.usd(result.usd)


def lines(result: ImportedCurve) -> Iterator[str]:
    found, price, target = result.reached, result.curve.price, share(result.target)
    if found is None:
        highest = best(result.curve.points)
        yield (
            f"{target} of {result.curve.column} is not reached: the best is "
            f"{share(highest.accuracy)} at epoch {highest.epoch:g}."
        )
        return
    cost = f" and {_usd(result)} USD" if result.usd is not None else ""
    yield (
        f"{target} of {result.curve.column} is {found}. It took {console.format_duration(found.seconds)}"
        f"{cost}."
    )
    if price is None:
        yield "There is no price: give --prices and --machine, or costPerHour in the JSON beside."
    else:
        yield (
            f"{price} costs {price.usd_hour:.4g} USD per hour as of {price.as_of} ({price.source})."
        )


# --- the article ----------------------------------------------------------------------------------


def article_sheet(article: PricedArticle) -> ResultTable:
    return ResultTable(
        title=f"{article.name}: ResNet-50",
        headings=_ARTICLE,
        rows=article_block(article).rows,
        lines=tuple(_article_lines(article)),
    )


def article_block(article: PricedArticle) -> Table:
    """Every run that the article tells of, with what it printed."""
    return tabulate(
        f"{article.name}, computed again",
        _ARTICLE,
        (
            (
                *(run.name, run.mode.value, f"{run.images_s:g}", share(run.accuracy)),
                *(f"{run.epochs}", f"{run.seconds / 3600:.2f}", f"{run.usd:.1f}"),
                wording.known(run.printed_usd, "g"),
            )
            for run in article.runs
        ),
    )


def _article_lines(article: PricedArticle) -> Iterator[str]:
    yield (
        f"Hours are epochs times {article.images} images over images/s; evaluation and start-up "
        "are not in them, as in the article."
    )
    yield f"Prices of an hour: {article.prices}. Source: {article.source}, {article.as_of}."
