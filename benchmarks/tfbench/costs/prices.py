"""Prices of machines per hour: dated, with their source, each a sum of line items. Pure."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum

from tfcore.errors import UsageError

HOURS_PER_MONTH = 365 * 24 / 12


class Mode(StrEnum):
    """A way to pay for a machine."""

    ON_DEMAND = "on_demand"
    SPOT = "spot"
    RESERVED_1Y = "reserved_1y"
    MONTHLY = "monthly"


@dataclass(frozen=True, kw_only=True, slots=True)
class LineItem:
    """A part of a price: the machine, a GPU in it, a licence.

    Raises ValueError if its price is negative or not finite.
    """

    name: str
    usd_hour: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.usd_hour) and self.usd_hour >= 0):
            raise ValueError(f"invalid price of {self.name!r}: {self.usd_hour:g} USD per hour")


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """A machine's price on the day `as_of`. `multiplier` applies to all items, like a premium.

    A flat monthly rental has `usd_month` and no items: an hour costs its share of the month,
    which is right for a machine that is kept busy. Seconds are billed in whole increments,
    and never fewer than the minimum; an increment of 0 bills exactly what was used.
    `accelerator` names the GPU or the like, if the machine has one. Raises ValueError if a
    field is invalid.
    """

    name: str
    provider: str
    mode: Mode
    items: tuple[LineItem, ...]
    as_of: str
    source: str
    region: str = ""
    zone: str = ""
    vcpus: float | None = None
    memory_gib: float | None = None
    multiplier: float = 1.0
    usd_month: float | None = None
    billing_increment_s: float = 0.0
    minimum_s: float = 0.0
    accelerator: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a price has no name")
        _check_date(self.as_of)
        for field in ("vcpus", "memory_gib", "multiplier", "usd_month"):
            _check_number(field, getattr(self, field), above=True)
        for field in ("billing_increment_s", "minimum_s"):
            _check_number(field, getattr(self, field), above=False)
        if (self.mode is Mode.MONTHLY) != (self.usd_month is not None):
            raise ValueError("give usd_month with the mode 'monthly', and only with it")
        if bool(self.items) == (self.usd_month is not None):
            raise ValueError("give either items or usd_month")
        if not self.usd_hour > 0:
            raise ValueError(f"the price of {self.name!r} is 0")

    @property
    def usd_hour(self) -> float:
        monthly = (self.usd_month or 0.0) / HOURS_PER_MONTH
        return self.multiplier * (math.fsum(item.usd_hour for item in self.items) + monthly)

    @property
    def identity(self) -> tuple[str, str, str, str, Mode]:
        return (self.name, self.provider, self.region, self.zone, self.mode)

    def __str__(self) -> str:
        where = "/".join(part for part in (self.provider, self.zone or self.region) if part)
        return f"{self.name} ({', '.join(part for part in (where, self.mode.value) if part)})"


@dataclass(frozen=True, kw_only=True, slots=True)
class PriceBook:
    """Prices, each machine once. If dates were mixed on purpose, `as_of` names all of them.

    Only the prices of the region, or zone, and the mode count, if these are given.
    """

    name: str
    as_of: str
    prices: tuple[Price, ...]
    region: str = ""
    mode: Mode | None = None

    def restrict(self, *, region: str = "", mode: Mode | None = None) -> PriceBook:
        return dataclasses.replace(self, region=region, mode=mode)

    def find_price(self, name: str) -> Price:
        """Find the price of a machine. Raises UsageError if none or several fit."""
        same_name = [price for price in self.prices if price.name == name]
        matches = [price for price in self.fitting if price.name == name]
        if len(matches) == 1:
            return matches[0]
        alternatives = matches or same_name
        raise UsageError(
            f"the price book {self.name} has {len(matches) or 'no'} prices for {name!r}"
            + "".join(f" {part}" for part in (self.region, self.mode) if part),
            hint=f"Known: "
            f"{format_first(alternatives) if alternatives else format_first(self.names, most=10)}",
        )

    @property
    def fitting(self) -> tuple[Price, ...]:
        return tuple(
            price
            for price in self.prices
            if self.region in ("", price.region, price.zone) and self.mode in (None, price.mode)
        )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(price.name for price in self.prices))


def format_first(known: Sequence[object], *, most: int = 5) -> str:
    """Format the first items for a message."""
    return ", ".join(map(str, known[:most])) + (", …" if len(known) > most else "")


def create_book(name: str, prices: Iterable[Price], *, mix_dates: bool = False) -> PriceBook:
    """Create a book of these prices.

    Raises UsageError if there are none, if a machine is there twice, or if dates differ and
    are not mixed on purpose.
    """
    prices = tuple(prices)
    if not prices:
        raise UsageError(f"the price book {name} has no prices")
    identities: set[object] = set()
    for price in prices:
        if price.identity in identities:
            raise UsageError(f"the price book {name} lists {price} twice")
        identities.add(price.identity)
    return PriceBook(name=name, as_of=_join_dates(prices, mix_dates=mix_dates), prices=prices)


def merge_books(*books: PriceBook, mix_dates: bool = False) -> PriceBook:
    """Merge price books; a later book's price replaces an earlier one's of the same machine.

    Raises UsageError if the books have different dates, unless `mix_dates`.
    """
    prices = {price.identity: price for book in books for price in book.prices}
    return create_book(
        " + ".join(book.name for book in books), prices.values(), mix_dates=mix_dates
    )


def _join_dates(prices: tuple[Price, ...], *, mix_dates: bool) -> str:
    dates = sorted({price.as_of for price in prices})
    if len(dates) > 1 and not mix_dates:
        raise UsageError(
            f"the prices have different dates: {' and '.join(dates)}",
            hint="Use prices of one date, or add --mix-dates",
        )
    return ", ".join(dates)


def _check_number(quantity: str, value: float | None, *, above: bool) -> None:
    if value is None:
        return
    if not math.isfinite(value) or value < 0 or (above and value == 0):
        raise ValueError(f"invalid {quantity}: {value:g}")


def _check_date(text: str) -> None:
    if not text:
        raise ValueError("no date: give the day of the price as as_of")
    try:
        is_date = date.fromisoformat(text).isoformat() == text
    except ValueError:
        is_date = False
    if not is_date:
        raise ValueError(f"{text!r} is not a date (YYYY-MM-DD)")
