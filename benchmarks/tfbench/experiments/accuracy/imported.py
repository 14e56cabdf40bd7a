"""Times and costs that others measured: an imported curve, and the 2018 article, whose hours and
dollars are computed from its rates and epochs. Reads only the article's file beside this module.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfbench.costs import catalog
from tfbench.costs.cost import compute_run_cost, compute_seconds_to_accuracy, get_value
from tfbench.costs.prices import Mode, Price
from tfbench.experiments.accuracy.curve import Reached, find_best, find_target, format_accuracy
from tfbench.experiments.accuracy.curve_file import Curve
from tfbench.experiments.accuracy.results import SCHEMA, compute_usd
from tfbench.experiments.accuracy.text import KEY, build_track, describe_ends, draw_tracks
from tfbench.reports import wording
from tfbench.reports.canvas import Drawing
from tfbench.reports.document import Answer, Document, Table, build_table_section, tabulate
from tfbench.result_table import ResultTable
from tfcore import console
from tfcore.errors import UsageError

FILES = {"2018": Path(__file__).with_name("riseml-2018.toml")}

_HOUR_S = 3600
_CURVE = ("curve", "#target", "#epoch", "#hours", "#USD")
_ARTICLE = (
    *("machine", "price", "#images/s", "#accuracy", "#epochs", "#hours", "#USD"),
    "#USD in the article",
)


# --- a curve --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportedCurve:
    """An imported curve, and when it reached a target."""

    schema: int
    curve: Curve
    target: float
    reached: Reached | None
    usd: float | None
    """The cost of the time until then; None without a price."""


def import_curve(curve: Curve, target: float, price: Price | None) -> ImportedCurve:
    """Find the target in an imported curve. `price` takes precedence over the curve's own price."""
    first, used_price = find_target(curve.points, target), price or curve.price
    return ImportedCurve(
        schema=SCHEMA,
        curve=Curve(name=curve.name, column=curve.column, points=curve.points, price=used_price),
        target=target,
        reached=first,
        usd=compute_usd(used_price, first.seconds)
        if first and first.seconds and used_price
        else None,
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


def draw_curve(result: ImportedCurve) -> Iterator[Drawing]:
    """Draw an imported curve over hours, up to the end of the file."""
    points = result.curve.points
    is_reached = result.reached is not None
    line = build_track(points, result.curve.name, 0, _HOUR_S, reached=is_reached)
    yield draw_tracks(
        [line], result.target, "hours", f"{result.curve.name}, {describe_ends(points)}"
    )


# --- the article ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class ArticleRun:
    """Training on one machine to an accuracy, without evaluation and start-up. `printed_usd` is
    the cost that the article states, None if its text states none.
    """

    name: str
    machine: str
    mode: Mode
    images_s: float
    accuracy: float
    epochs: int
    seconds: float
    usd_hour: float
    usd: float
    printed_usd: float | None
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PricedArticle:
    """An article on time to accuracy. `images` is the number of images of an epoch, `prices` the
    book that prices the hours.
    """

    schema: int
    name: str
    as_of: str
    source: str
    prices: str
    images: int
    runs: tuple[ArticleRun, ...]


def read_article(year: str) -> PricedArticle:
    """Read the article of a year. Raises UsageError if there is none."""
    if year not in FILES:
        raise UsageError(
            f"--article {year} is unknown",
            hint=f"Available: {', '.join(FILES)}",
        )
    facts = tomllib.loads(FILES[year].read_text(encoding="utf-8"))
    return PricedArticle(
        schema=SCHEMA,
        name=facts["name"],
        as_of=facts["as_of"].isoformat(),
        source=facts["source"],
        prices=facts["prices"],
        images=facts["images"],
        runs=tuple(_build_run(row, facts) for row in facts["run"]),
    )


def _build_run(row: dict[str, Any], facts: dict[str, Any]) -> ArticleRun:
    mode = Mode(row["mode"])
    price = catalog.find_book(facts["prices"]).restrict(mode=mode).find_price(row["machine"])
    seconds = compute_seconds_to_accuracy(
        epochs=row["epochs"], images=facts["images"], images_s=row["images_s"]
    )
    return ArticleRun(
        name=row["name"],
        machine=row["machine"],
        mode=mode,
        images_s=row["images_s"],
        accuracy=row["accuracy"],
        epochs=row["epochs"],
        seconds=get_value(seconds),
        usd_hour=price.usd_hour,
        usd=get_value(compute_run_cost(seconds, price)),
        printed_usd=row.get("printed_usd"),
        source=row["source"],
    )


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
