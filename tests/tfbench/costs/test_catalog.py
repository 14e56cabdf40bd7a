from __future__ import annotations

import math
from pathlib import Path

import pytest

from tfbench.costs import catalog
from tfbench.costs.prices import Mode, Price, merge_books
from tfcore.errors import UsageError

# The columns of SkyPilot's catalogues.
COLUMNS = (
    *("InstanceType", "vCPUs", "MemoryGiB", "AcceleratorName", "AcceleratorCount", "GpuInfo"),
    *("Region", "AvailabilityZone", "Price", "SpotPrice"),
)
M8 = {"InstanceType": "m8", "vCPUs": "8.0", "MemoryGiB": "30", "Region": "north", "Price": "0.5"}
TOML = """
as_of = 2020-02-29
provider = "cloud"
mode = "on_demand"

[[price]]
name = "m8"
usd_hour = 0.5
"""


def csv_file(folder: Path, *rows: dict[str, str], columns: tuple[str, ...] = COLUMNS) -> Path:
    path = folder / "prices.csv"
    lines = [",".join(columns), *(",".join(row.get(name, "") for name in columns) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def toml_file(folder: Path, text: str) -> Path:
    path = folder / "prices.toml"
    path.write_text(text, encoding="utf-8")
    return path


def read(path: Path) -> tuple[Price, ...]:
    return catalog.read_csv(path, as_of="2020-02-29").prices


def message(path: Path) -> str:
    with pytest.raises(UsageError) as caught:
        catalog.find_book(str(path), as_of="2020-02-29")
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("name", "usd_hour", "items"),
    [
        ("gpu", 0.745, 2),
        ("cpu8", 0.063642, 1),
        ("cpu16", 0.127284, 1),
        ("cpu32", 0.254568, 1),
        ("cpu64", 0.509136, 1),
    ],
)
def test_the_book_of_2017_has_the_articles_prices(name: str, usd_hour: float, items: int) -> None:
    price = catalog.find_book("2017-07-gce").find_price(name)
    assert math.isclose(price.usd_hour, usd_hour)
    assert len(price.items) == items
    assert price.mode is (Mode.ON_DEMAND if name == "gpu" else Mode.SPOT)


@pytest.mark.parametrize(
    ("name", "mode", "usd_hour"),
    [
        ("tpuv2", Mode.ON_DEMAND, 6.70),
        ("p3.8xlarge", Mode.ON_DEMAND, 12.24),
        ("p3.8xlarge", Mode.RESERVED_1Y, 8.34),
        ("4x V100", Mode.MONTHLY, 10.3),
    ],
)
def test_the_book_of_2018_has_the_articles_prices(name: str, mode: Mode, usd_hour: float) -> None:
    price = catalog.find_book("2018-04-riseml").restrict(mode=mode).find_price(name)
    assert math.isclose(price.usd_hour, usd_hour, abs_tol=0.05 if mode is Mode.MONTHLY else 1e-9)


@pytest.mark.parametrize("name", catalog.list_shipped_books())
def test_every_shipped_book_is_dated_as_its_name_says_and_has_sources(name: str) -> None:
    book = catalog.find_book(name)
    assert book.name == name
    assert name.startswith(book.as_of[:7])
    assert all(price.source for price in book.prices)


def test_shipped_books_say_which_machines_have_an_accelerator() -> None:
    prices = [
        price for name in catalog.list_shipped_books() for price in catalog.find_book(name).prices
    ]
    assert {price.name for price in prices if not price.accelerator} == {
        *("cpu8", "cpu16", "cpu32", "cpu64"),
    }


def test_an_unknown_book_is_told_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="2017-07-gce, 2018-04-riseml"):
        catalog.find_book("2016")


def test_the_columns_may_stand_in_any_order_among_others(tmp_path: Path) -> None:
    row = M8 | {"SpotPrice": "0.2", "Generation": "V2"}
    orders = [COLUMNS, COLUMNS[::-1], (*COLUMNS[3:], "Generation", *COLUMNS[:3])]
    books = [read(csv_file(tmp_path, row, columns=order)) for order in orders]
    assert books[0] == books[1] == books[2]
    on_demand, spot = books[0]
    assert (on_demand.mode, on_demand.usd_hour) == (Mode.ON_DEMAND, 0.5)
    assert (spot.mode, spot.usd_hour) == (Mode.SPOT, 0.2)
    assert (spot.vcpus, spot.memory_gib, spot.region) == (8, 30, "north")
    assert (spot.as_of, spot.source) == ("2020-02-29", "prices.csv")


def test_a_price_that_is_not_offered_may_be_empty(tmp_path: Path) -> None:
    spot_only = M8 | {"Price": "", "SpotPrice": "0.2", "InstanceType": "m16"}
    prices = read(csv_file(tmp_path, M8, spot_only))
    assert [(price.name, price.mode) for price in prices] == [
        ("m8", Mode.ON_DEMAND),
        ("m16", Mode.SPOT),
    ]


def test_an_accelerator_without_a_host_has_its_own_name(tmp_path: Path) -> None:
    k80 = {"AcceleratorName": "K80", "AcceleratorCount": "1.0", "Region": "north", "Price": "0.45"}
    four = k80 | {"AcceleratorCount": "4.0", "Price": "1.8"}
    with_host = M8 | {"AcceleratorName": "V100", "AcceleratorCount": "1"}
    prices = read(csv_file(tmp_path, k80, four, with_host, M8 | {"InstanceType": "m16"}))
    assert [price.name for price in prices] == ["K80", "4x K80", "m8", "m16"]
    assert [price.accelerator for price in prices] == ["K80", "K80", "V100", ""]


def test_a_row_that_repeats_another_counts_once(tmp_path: Path) -> None:
    assert len(read(csv_file(tmp_path, M8, M8))) == 1


def test_zones_keep_their_own_prices(tmp_path: Path) -> None:
    zones = [
        M8 | {"AvailabilityZone": zone, "Price": usd}
        for zone, usd in [("north-a", "0.5"), ("north-b", "0.6")]
    ]
    book = catalog.read_csv(csv_file(tmp_path, *zones), as_of="2020-02-29")
    assert book.restrict(region="north-b").find_price("m8").usd_hour == 0.6
    assert str(book.restrict(region="north-a").find_price("m8")) == "m8 (north-a, on_demand)"


def test_only_the_machines_that_are_asked_for_must_be_clean(tmp_path: Path) -> None:
    path = csv_file(tmp_path, M8, M8 | {"InstanceType": "broken", "Price": ""})
    book = catalog.read_csv(path, as_of="2020-02-29", names=["m8"])
    assert book.names == ("m8",)


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"Price": ""}, "line 3: 'm16'"),
        ({"Price": "-0.5"}, "line 3: invalid price of 'm16': -0.5 USD per hour"),
        ({"Price": "nan"}, "line 3: invalid price of 'm16': nan USD per hour"),
        ({"Price": "0"}, "line 3: the price of 'm16' is 0"),
        ({"Price": "much"}, "line 3: Price is 'much'"),
        ({"SpotPrice": "inf"}, "line 3: invalid price of 'm16': inf USD per hour"),
        ({"vCPUs": "0"}, "line 3: invalid vcpus: 0"),
        ({"InstanceType": ""}, "line 3: a price"),
        ({"InstanceType": "m8", "Price": "0.6"}, "line 3: m8 (north, on_demand)"),
    ],
)
def test_a_bad_row_is_told_with_file_and_line(
    tmp_path: Path, wrong: dict[str, str], expected: str
) -> None:
    path = csv_file(tmp_path, M8, M8 | {"InstanceType": "m16"} | wrong)
    assert message(path).startswith(f"{path}, {expected}")


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (("vCPUs", "Price"), "InstanceType, Region"),
        (("InstanceType", "Region"), "lacks Price"),
        (("InstanceType", "Region", "Price", "Price"), "repeats a column"),
    ],
)
def test_a_header_that_is_not_skypilots_is_told(
    tmp_path: Path, columns: tuple[str, ...], expected: str
) -> None:
    assert expected in message(csv_file(tmp_path, M8, columns=columns))


@pytest.mark.parametrize("as_of", ["", "last week"])
def test_a_csv_has_a_date_or_is_refused(tmp_path: Path, as_of: str) -> None:
    path = csv_file(tmp_path, M8)
    with pytest.raises(UsageError, match="date") as caught:
        catalog.read_csv(path, as_of=as_of)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "lacks"),
        (b"\xff\xfe\x00", "decode"),
        (b'InstanceType,Region,Price\n"m8,north,0.5\n', "unexpected end"),
        (b"InstanceType,Region,Price\n", "no prices"),
    ],
)
def test_a_file_that_is_no_csv_is_told(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "prices.csv"
    path.write_bytes(content)
    assert expected in message(path)


@pytest.mark.parametrize("name", ["missing.csv", "missing.toml"])
def test_a_missing_file_is_told(tmp_path: Path, name: str) -> None:
    assert message(tmp_path / name).startswith(f"there is no price book {tmp_path / name}")


@pytest.mark.parametrize("name", ["folder.csv", "folder.toml"])
def test_a_file_that_cannot_be_read_is_told(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    assert message(tmp_path / name).startswith(f"cannot read {tmp_path / name}")


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "prices.yaml"
    path.touch()
    assert message(path).startswith(f"{path} is not a price book: its name ends in '.yaml'")


def test_what_stands_above_the_prices_holds_for_each(tmp_path: Path) -> None:
    more = '[[price]]\nname = "m16"\nusd_hour = 1\nmode = "spot"\nminimum_s = 60\n'
    path = toml_file(tmp_path, "billing_increment_s = 1\n" + TOML + more)
    m8, m16 = catalog.read_toml(path).prices
    assert (m8.mode, m16.mode) == (Mode.ON_DEMAND, Mode.SPOT)
    assert m8.provider == m16.provider == "cloud"
    assert (m8.billing_increment_s, m16.billing_increment_s, m16.minimum_s) == (1, 1, 60)
    assert m16.as_of == "2020-02-29"


def test_a_day_may_stand_in_quotes(tmp_path: Path) -> None:
    quoted = toml_file(tmp_path, TOML.replace("2020-02-29", '"2020-02-29"'))
    assert catalog.read_toml(quoted).as_of == "2020-02-29"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("usd_hour = 0.5", "", "price 1 (m8): no price"),
        ("usd_hour = 0.5", "usd_hour = -0.5", "invalid price of 'm8': -0.5 USD per hour"),
        ("usd_hour = 0.5", "usd_hour = nan", "invalid price of 'm8': nan USD per hour"),
        ("usd_hour = 0.5", "usd_hour = true", "price 1 (m8): usd_hour is True"),
        ("usd_hour = 0.5", "usd_hour = '0.5'", "price 1 (m8): usd_hour is '0.5'"),
        ("usd_hour = 0.5", "usd_hr = 0.5", "price 1 (m8): 'usd_hr'"),
        ("usd_hour = 0.5", "items = [0.5]", "price 1 (m8): write items"),
        ("usd_hour = 0.5", "items = [{name = 'gpu'}]", "price 1 (m8): usd_hour is None"),
        ("usd_hour = 0.5", "usd_hour = 1\nitems = []", "items or usd_hour"),
        ('"on_demand"', '"rented"', "price 1 (m8): mode is 'rented', not one of on_demand, spot"),
        ('"on_demand"', "1", "price 1 (m8): mode is 1"),
        ('mode = "on_demand"', "", "price 1 (m8): mode is ''"),
        ('"on_demand"', '"monthly"', "price 1 (m8): give usd_month"),
        ("as_of = 2020-02-29", "", "price 1 (m8): no date"),
        ("2020-02-29", "2020-02-29T10:00:00", "price 1 (m8): as_of is datetime"),
        ('name = "m8"', "", "price 1 (without a name): a price has no name"),
        ("[[price]]", "[[prices]]", "'prices' is not one of"),
        ("[[price]]", "[price]", "write prices as [[price]] tables"),
        ("[[price]]", "[[price]", "Expected"),
    ],
)
def test_a_bad_toml_is_told_with_file_and_price(
    tmp_path: Path, old: str, new: str, expected: str
) -> None:
    assert old in TOML
    path = toml_file(tmp_path, TOML.replace(old, new))
    text = message(path)
    assert text.startswith(str(path))
    assert expected in text


def test_a_machine_that_is_there_twice_is_told(tmp_path: Path) -> None:
    path = toml_file(tmp_path, TOML + TOML[TOML.index("[[") :])
    assert "lists m8 (cloud, on_demand) twice" in message(path)


def test_one_file_holds_one_date(tmp_path: Path) -> None:
    later = '[[price]]\nname = "m16"\nusd_hour = 1\nas_of = 2021-01-01\n'
    assert "2020-02-29 and 2021-01-01" in message(toml_file(tmp_path, TOML + later))


def test_the_shipped_books_do_not_mix() -> None:
    books = [catalog.find_book(name) for name in catalog.list_shipped_books()]
    with pytest.raises(UsageError, match="2017-07-04 and 2018-04-26"):
        merge_books(*books)
    assert merge_books(*books, mix_dates=True).find_price("cpu8") == books[0].find_price("cpu8")
