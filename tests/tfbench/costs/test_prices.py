from __future__ import annotations

import math
from typing import Any

import pytest
from tests.builders.prices import price

from tfbench.costs.prices import LineItem, Mode, Price, PriceBook, create_book, merge_books
from tfcore.errors import UsageError
from tfcore.records import format_canonical


def monthly(usd_month: float) -> Price:
    return price("rack", mode=Mode.MONTHLY, items=(), usd_month=usd_month)


def test_an_hour_costs_the_sum_of_its_items_times_the_multiplier() -> None:
    items = (LineItem(name="host", usd_hour=0.045), LineItem(name="gpu", usd_hour=0.7))
    assert math.isclose(price(items=items).usd_hour, 0.745)
    assert math.isclose(price(items=items, multiplier=2.0).usd_hour, 1.49)


def test_an_hour_of_a_rental_is_its_share_of_the_year() -> None:
    assert math.isclose(monthly(730.0).usd_hour, 1.0)
    assert math.isclose(monthly(100.0).usd_hour * 24 * 365, 12 * 100.0)


@pytest.mark.parametrize("usd_hour", [-0.01, math.nan, math.inf])
def test_an_item_without_a_price_is_refused(usd_hour: float) -> None:
    with pytest.raises(ValueError, match="price"):
        LineItem(name="host", usd_hour=usd_hour)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"name": ""}, "name"),
        ({"as_of": ""}, "date"),
        ({"as_of": "2019-02-29"}, "date"),
        ({"as_of": "20200229"}, "date"),
        ({"as_of": "2020-02"}, "date"),
        ({"multiplier": 0.0}, "invalid multiplier: 0"),
        ({"multiplier": math.nan}, "invalid multiplier: nan"),
        ({"vcpus": -8}, "invalid vcpus: -8"),
        ({"minimum_s": -1.0}, "invalid minimum_s: -1"),
        ({"billing_increment_s": math.inf}, "invalid billing_increment_s: inf"),
        ({"items": ()}, "items or usd_month"),
        ({"items": (LineItem(name="m8", usd_hour=0.0),)}, "price of 'm8' is 0"),
        ({"mode": Mode.MONTHLY}, "usd_month with the mode"),
        ({"usd_month": 10.0}, "usd_month with the mode"),
        ({"mode": Mode.MONTHLY, "usd_month": 10.0}, "items or usd_month"),
        ({"mode": Mode.MONTHLY, "usd_month": -10.0, "items": ()}, "invalid usd_month: -10"),
    ],
)
def test_a_price_that_is_none_is_refused(fields: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        price(**fields)


def test_a_price_is_a_record_that_can_be_saved() -> None:
    book = create_book("mine", [price(), monthly(10.0)])
    assert '"mode":"monthly"' in format_canonical(book)
    assert '"as_of":"2020-02-29"' in format_canonical(book)


def test_a_book_finds_the_one_price_that_is_meant() -> None:
    north = price(region="north", zone="north-a")
    south = price(region="south", zone="south-a")
    spot = price(region="south", zone="south-a", mode=Mode.SPOT)
    book = create_book("mine", [north, south, spot, price("m16")])
    assert book.restrict(region="north").find_price("m8") is north
    assert book.restrict(region="north-a").find_price("m8") is north
    assert book.restrict(mode=Mode.SPOT).find_price("m8") is spot
    assert book.restrict(region="south", mode=Mode.ON_DEMAND).find_price("m8") is south


def test_a_book_has_what_fits_a_region_and_a_mode() -> None:
    north = price(region="north", zone="north-a")
    spot = price("m16", region="south", mode=Mode.SPOT)
    book = create_book("mine", [north, spot])
    assert book.fitting == (north, spot)
    assert book.restrict(region="north-a").fitting == (north,)
    assert book.restrict(mode=Mode.SPOT).fitting == (spot,)
    assert book.restrict(region="north", mode=Mode.SPOT).fitting == ()


@pytest.mark.parametrize(
    ("name", "region", "expected", "hint"),
    [
        ("m8", "", "2 prices for 'm8'", "m8 (cloud/north, on_demand), m8 (cloud/south, on_demand)"),
        ("m8", "west", "no prices for 'm8' west", "m8 (cloud/north, on_demand)"),
        ("m9", "", "no prices for 'm9'", "Known: m8, m16"),
    ],
)
def test_a_book_says_what_it_has_instead(name: str, region: str, expected: str, hint: str) -> None:
    book = create_book("mine", [price(region="north"), price(region="south"), price("m16")])
    with pytest.raises(UsageError) as caught:
        book.restrict(region=region).find_price(name)
    assert expected in caught.value.message
    assert hint in caught.value.hint


def test_a_book_without_prices_is_refused() -> None:
    with pytest.raises(UsageError, match="no prices"):
        create_book("mine", [])


def test_a_machine_stands_once_in_a_book() -> None:
    with pytest.raises(UsageError, match=r"m8 \(cloud, on_demand\)"):
        create_book("mine", [price(), price(usd_hour=0.6)])


def dated(as_of: str, *names: str) -> PriceBook:
    return create_book(as_of, [price(name, as_of=as_of) for name in names])


def test_books_of_one_date_go_together_and_the_later_one_wins() -> None:
    list_prices = create_book("list", [price(), price("m16")])
    ours = create_book("ours", [price(usd_hour=0.4)])
    both = merge_books(list_prices, ours)
    assert both.find_price("m8").usd_hour == 0.4
    assert both.find_price("m16") == list_prices.find_price("m16")
    assert (both.name, both.as_of) == ("list + ours", "2020-02-29")


def test_books_of_two_dates_are_mixed_only_on_purpose() -> None:
    books = dated("2018-04-26", "v100"), dated("2017-07-04", "k80")
    with pytest.raises(UsageError, match="2017-07-04 and 2018-04-26"):
        merge_books(*books)
    mixed = merge_books(*books, mix_dates=True)
    assert mixed.as_of == "2017-07-04, 2018-04-26"
    assert set(mixed.names) == {"v100", "k80"}
    with pytest.raises(UsageError, match="different dates"):
        create_book("again", mixed.prices)
