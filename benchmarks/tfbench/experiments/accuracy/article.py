"""The 2018 article: its rates and epochs, and the hours and dollars computed from them. Reads only
the file beside this module."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfbench.costs import catalog
from tfbench.costs.cost import compute_run_cost, compute_seconds_to_accuracy, get_value
from tfbench.costs.prices import Mode
from tfcore.errors import UsageError

SCHEMA = 1
FILES = {"2018": Path(__file__).with_name("riseml-2018.toml")}


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
