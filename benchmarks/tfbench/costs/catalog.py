"""Price books: shipped ones, and files in our TOML form or in SkyPilot's CSV form."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
from collections.abc import Collection, Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

from tfbench.costs.machines import find_machine, parse_mode
from tfbench.costs.prices import LineItem, Mode, Price, PriceBook, create_book
from tfcore.errors import UsageError
from tfcore.records import parse_toml, read_text
from tfcore.settings import expand_home

SHIPPED = Path(__file__).with_name("books")
_KEYS = {field.name for field in dataclasses.fields(Price)}
_ROW_KEYS = _KEYS | {"usd_hour"}
_SHARED_KEYS = _KEYS - {"name", "items", "usd_month", "vcpus", "memory_gib", "accelerator"}
_NUMBERS = {"vcpus", "memory_gib", "multiplier", "usd_month", "billing_increment_s", "minimum_s"}
_TEXTS = {"name", "provider", "region", "zone", "source", "as_of", "accelerator"}
_CSV_MODES = {"Price": Mode.ON_DEMAND, "SpotPrice": Mode.SPOT}


def list_shipped_books() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.toml")))


def find_book(text: str, *, as_of: str = "", names: Collection[str] = ()) -> PriceBook:
    """Find a price book: a shipped one by its name, or a file.

    `as_of` and `names` are for a CSV file, see `read_csv`. Raises UsageError if there is no
    such book.
    """
    known = list_shipped_books()
    path = SHIPPED / f"{text}.toml" if text in known else expand_home(text)
    if not path.exists():
        hint = f"Give a .toml or .csv file, or one of {', '.join(known)}"
        raise UsageError(f"there is no price book {text}", hint=hint)
    match path.suffix:
        case ".toml":
            return read_toml(path)
        case ".csv":
            return read_csv(path, as_of=as_of, names=names)
        case suffix:
            raise UsageError(
                f"{path} is not a price book: its name ends in {suffix!r}",
                hint="Give a .csv or .toml file",
            )


def resolve_price(
    prices: str, machine: str, *, region: str = "", mode: str = "", vcpus: int = 0
) -> Price | None:
    """Return the price of the named machine in the named book; None if no book is named.

    All arguments are as typed by the user. Raises UsageError if they do not fit, or the
    machine has fewer vCPUs.
    """
    if not prices:
        if machine or region or mode:
            hint = f"Add, for example, --prices {list_shipped_books()[0]}"
            raise UsageError("--machine, --region and --mode need --prices", hint=hint)
        return None
    book = find_book(prices, names=(machine,) if machine else ()).restrict(
        region=region, mode=parse_mode(mode)
    )
    if not machine:
        raise UsageError(
            "--prices needs --machine", hint=f"Add --machine, one of {', '.join(book.names)}"
        )
    return find_machine(book, vcpus, machine)


def read_csv(path: Path, *, as_of: str, names: Collection[str] = ()) -> PriceBook:
    """Read a CSV file with SkyPilot's columns in any order; other columns are ignored.

    A row gives an on-demand and a spot price, or one of them. Rows that repeat another word
    by word count once, as catalogues have some. Only the machines in `names` are read, if any
    are given: catalogues are large, and not clean everywhere. A row without an instance type
    is an accelerator that is priced separately from its host. Raises UsageError if the file
    cannot be read or is invalid.
    """
    prices: dict[object, Price] = {}
    with _locate_errors(f"{path}"), path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        _check_header(reader.fieldnames or ())
        for row in reader:
            if not names or _get_csv_name(row) in names:
                with _locate_errors(f"{path}, line {reader.line_num}"):
                    for price in _parse_csv_prices(row, as_of=as_of, source=path.name):
                        if prices.setdefault(price.identity, price) != price:
                            raise ValueError(f"{price} is listed twice, at different prices")
    return create_book(path.stem, prices.values())


def read_toml(path: Path) -> PriceBook:
    """Read `[[price]]` tables; the keys above them apply to each of them.

    Raises UsageError if the file cannot be read or is invalid.
    """
    with _locate_errors(f"{path}"):
        fields = parse_toml(read_text(path))
        rows = fields.pop("price", [])
        name = str(fields.pop("name", path.stem))
        _check_keys(fields, _SHARED_KEYS)
        if not (isinstance(rows, list) and all(isinstance(row, dict) for row in rows)):
            raise ValueError("write prices as [[price]] tables")
    prices = []
    for number, row in enumerate(rows, start=1):
        with _locate_errors(f"{path}, price {number} ({row.get('name', 'without a name')})"):
            _check_keys(row, _ROW_KEYS)
            prices.append(_parse_toml_price(fields | row))
    return create_book(name, prices)


@contextlib.contextmanager
def _locate_errors(where: str) -> Iterator[None]:
    """Convert errors of the content to a UsageError of one line that begins with its location."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot read {where}: {error.strerror}") from error
    except (ValueError, csv.Error) as error:
        raise UsageError(f"{where}: {' '.join(str(error).split())}") from error


def _check_header(columns: Collection[str]) -> None:
    missing = [name for name in ("InstanceType", "Region") if name not in columns]
    if not set(_CSV_MODES) & set(columns):
        missing.append("Price")
    if missing:
        raise ValueError(f"the header lacks {', '.join(missing)}")
    if len(set(columns)) < len(columns):
        raise ValueError("the header repeats a column")


def _get_csv_name(row: Mapping[str, str | None]) -> str:
    """Return the instance type, or the accelerator as `K80`, or `4x K80`."""
    instance, accelerator = _get_cell(row, "InstanceType"), _get_cell(row, "AcceleratorName")
    count = _parse_csv_number(row, "AcceleratorCount") if accelerator and not instance else None
    return instance or (f"{count:g}x {accelerator}" if count and count != 1 else accelerator)


def _parse_csv_prices(
    row: Mapping[str, str | None], *, as_of: str, source: str
) -> tuple[Price, ...]:
    name = _get_csv_name(row)
    quoted = {mode: _parse_csv_number(row, column) for column, mode in _CSV_MODES.items()}
    priced = {mode: usd for mode, usd in quoted.items() if usd is not None}
    if not priced:
        raise ValueError(f"{name!r} has no price")
    return tuple(
        Price(
            name=name,
            provider="",
            mode=mode,
            items=(LineItem(name=name, usd_hour=usd),),
            as_of=as_of,
            source=source,
            region=_get_cell(row, "Region"),
            zone=_get_cell(row, "AvailabilityZone"),
            vcpus=_parse_csv_number(row, "vCPUs"),
            memory_gib=_parse_csv_number(row, "MemoryGiB"),
            accelerator=_get_cell(row, "AcceleratorName"),
        )
        for mode, usd in priced.items()
    )


def _get_cell(row: Mapping[str, str | None], column: str) -> str:
    return (row.get(column) or "").strip()


def _parse_csv_number(row: Mapping[str, str | None], column: str) -> float | None:
    text = _get_cell(row, column)
    try:
        return float(text) if text else None
    except ValueError:
        raise ValueError(f"{column} is {text!r}, which is not a number") from None


def _check_keys(fields: Mapping[str, Any], known: Collection[str]) -> None:
    unknown = sorted(set(fields) - set(known))
    if unknown:
        raise ValueError(f"{unknown[0]!r} is not one of {', '.join(sorted(known))}")


def _parse_toml_price(row: Mapping[str, Any]) -> Price:
    """Parse a price from a table. Raises ValueError if a field is invalid."""
    numbers: dict[str, Any] = {key: _require_number(row, key) for key in _NUMBERS if key in row}
    texts: dict[str, Any] = {key: _require_text(row, key) for key in _TEXTS}
    return Price(
        mode=_parse_toml_mode(_require_text(row, "mode")),
        items=_parse_items(row),
        **texts,
        **numbers,
    )


def _parse_items(row: Mapping[str, Any]) -> tuple[LineItem, ...]:
    """Parse `items`, or `usd_hour` of a machine that is one item. A monthly rental has neither.

    Raises ValueError if they are invalid.
    """
    if "usd_hour" in row and "items" in row:
        raise ValueError("give either items or usd_hour")
    if "usd_hour" in row:
        return (
            LineItem(name=_require_text(row, "name"), usd_hour=_require_number(row, "usd_hour")),
        )
    items = row.get("items", [])
    if not (isinstance(items, list) and all(isinstance(item, dict) for item in items)):
        raise ValueError("write items as {name = …, usd_hour = …}")
    if not items and "usd_month" not in row:
        raise ValueError("no price: give items, usd_hour or usd_month")
    return tuple(
        LineItem(name=_require_text(item, "name"), usd_hour=_require_number(item, "usd_hour"))
        for item in items
    )


def _parse_toml_mode(text: str) -> Mode:
    if text not in set(Mode):
        raise ValueError(f"mode is {text!r}, not one of {', '.join(Mode)}")
    return Mode(text)


def _require_number(row: Mapping[str, Any], key: str) -> float:
    value = row.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{key} is {value!r}, which is not a number")  # noqa: TRY004  (in a file)
    return float(value)


def _require_text(row: Mapping[str, Any], key: str) -> str:
    """Return the text of a field; a date may be written with or without quotes."""
    value = row.get(key, "")
    if type(value) is date:
        return value.isoformat()
    if not isinstance(value, str):
        raise ValueError(f"{key} is {value!r}, which is not text")  # noqa: TRY004  (in a file)
    return value
