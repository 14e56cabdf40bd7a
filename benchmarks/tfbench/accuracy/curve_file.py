"""Curves that others measured: DAWNBench's entries, and plain CSV.

A DAWNBench entry (stanford-futuredata/dawn-bench-entries, README) is a TSV with the columns epoch,
hours, top1Accuracy and perhaps top5Accuracy, in per cent and in any order, and beside it a JSON
with the machine and, if it likes, its costPerHour. A plain CSV has epoch, seconds, accuracy.
"""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from tfbench.accuracy.curve import CurvePoint
from tfbench.costs.prices import LineItem, Mode, Price
from tfbuild.console import suggest_spelling
from tfbuild.errors import SampleError, UsageError
from tfbuild.records import parse_json, quote_value, read_text

EPOCH = "epoch"
TIMES: Mapping[str, int] = {"hours": 3600, "seconds": 1}
"""Columns of the time since training began, and their seconds."""
IN_PERCENT = ("top1Accuracy", "top5Accuracy")
ACCURACIES = (IN_PERCENT[0], "accuracy")
"""Columns that are taken for the accuracy unless another is asked for, the first that is there."""
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?")
_MOST = 10**12
"""No epoch, and no time, is larger."""
_FORM = "Write epoch,seconds,accuracy, or epoch, hours and top1Accuracy with tabs between"
_UNITS = f"Write all of them from 0 to 1, or in per cent in a column that is called {IN_PERCENT[0]}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """`column` is where the accuracies stood, `price` what the machine cost, None where nobody says
    so."""

    name: str
    column: str
    points: tuple[CurvePoint, ...]
    price: Price | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Row:
    """A line of the file: where it stands, and its three cells."""

    where: str
    epoch: float
    seconds: float
    accuracy: Decimal


def read_curve(path: Path, column: str = "") -> Curve:
    """The curve in a file, with the price of the JSON beside it if there is one. `column` is the
    accuracy's, one of ACCURACIES if empty.

    Raises UsageError for a file or a column that is not there, SampleError for what is no curve.
    """
    try:
        text = read_text(path, encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise SampleError(f"{path} is not text ({error})", hint=_FORM) from error
    found, points = parse(text, path.name, column)
    return Curve(name=path.stem, column=found, points=points, price=_price(path))


def parse(text: str, name: str, column: str = "") -> tuple[str, tuple[CurvePoint, ...]]:
    """The column of the accuracy, and a point for every line, epochs and times rising.

    Raises UsageError and SampleError, see `read_curve`; `name` is the file's in messages.
    """
    rows = list(_rows(text, name))
    header, body = (rows[0][1], rows[1:]) if rows else ((), [])
    found, time = _accuracy_column(header, name, column), _time_column(header, name)
    places = [header.index(each) for each in (EPOCH, time, found)]
    read = [_row(cells, places, header, f"{name}, line {line}") for line, cells in body]
    if not read:
        raise SampleError(f"{name} has a header and no epochs", hint=_FORM)
    _check_order(read)
    scale = _scale(read, found, name)
    return found, tuple(
        CurvePoint(
            epoch=row.epoch,
            seconds=row.seconds * TIMES[time],
            accuracy=float(row.accuracy / scale),
        )
        for row in read
    )


def _rows(text: str, name: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Lines with something in them, by their number, in cells."""
    separator = "\t" if "\t" in text.partition("\n")[0] else ","
    reader = csv.reader(text.splitlines(), delimiter=separator, strict=True)
    try:
        for cells in reader:
            if any(map(str.strip, cells)):
                yield reader.line_num, tuple(map(str.strip, cells))
    except csv.Error as error:
        raise SampleError(f"{name}, line {reader.line_num}: {error}", hint=_FORM) from error


def _accuracy_column(header: Sequence[str], name: str, column: str) -> str:
    if not header:
        raise SampleError(f"{name} is empty", hint=_FORM)
    if len({*header}) < len(header):
        raise SampleError(f"{name}: the header has a column twice")
    if column and column not in header:
        hint = suggest_spelling(column, header) or f"There are {', '.join(header)}"
        raise UsageError(f"{name} has no column {column!r}", hint=hint)
    found = column or next((each for each in ACCURACIES if each in header), "")
    if EPOCH not in header or not found:
        lacking = EPOCH if found else ACCURACIES[-1]
        hint = _FORM if found else f"Name one with --column, or: {_FORM}"
        raise SampleError(f"{name}: the header lacks {lacking}", hint=hint)
    return found


def _time_column(header: Sequence[str], name: str) -> str:
    found = [each for each in TIMES if each in header]
    if len(found) != 1:
        what = "has two columns of time" if found else "lacks hours or seconds"
        raise SampleError(f"{name}: the header {what}", hint=_FORM)
    return found[0]


def _row(cells: Sequence[str], places: Sequence[int], header: Sequence[str], where: str) -> _Row:
    if any(cells[len(header) :]) or len(cells) < len(header):
        raise SampleError(f"{where} has {len(cells)} cells, the header has {len(header)}")
    numbers = []
    for place in places:
        if not _NUMBER.fullmatch(cells[place]):
            raise SampleError(f"{where}: {header[place]} is {cells[place]!r}, which is no number")
        numbers.append(Decimal(cells[place]))
    for place, number in zip(places, numbers, strict=True):
        if not 0 <= number <= _MOST:
            what = "below 0" if number < 0 else "too much"
            raise SampleError(f"{where}: {header[place]} is {cells[place]}, {what}")
    epoch, time, accuracy = numbers
    return _Row(where=where, epoch=float(epoch), seconds=float(time), accuracy=accuracy)


def _check_order(rows: Sequence[_Row]) -> None:
    for before, row in itertools.pairwise(rows):
        if row.epoch == before.epoch:
            raise SampleError(f"{row.where}: epoch {row.epoch:g} is there twice")
        if row.epoch < before.epoch:
            raise SampleError(
                f"{row.where}: epoch {row.epoch:g} stands after {before.epoch:g}",
                hint="Sort the lines by their epochs",
            )
        if row.seconds < before.seconds:
            raise SampleError(
                f"{row.where}: time goes back, from {before.seconds:g} to {row.seconds:g}",
                hint="Times are counted from the start of training, not of each epoch",
            )


def _scale(rows: Sequence[_Row], column: str, name: str) -> int:
    """What the accuracies are divided by. Raises SampleError where it cannot be told: in a column
    of per cent nothing above 1, in another one numbers on both sides of it."""
    above = [row for row in rows if row.accuracy > 1]
    wrong = next((row for row in rows if row.accuracy > 100), None)  # noqa: PLR2004  (per cent)
    if wrong is not None:
        raise SampleError(f"{wrong.where}: an accuracy of {wrong.accuracy} is above 100 %")
    if column in IN_PERCENT:
        if not above:
            raise SampleError(
                f"{name}: no {column} is above 1, and DAWNBench writes it in per cent",
                hint=f"Call the column {ACCURACIES[-1]} if they are from 0 to 1",
            )
        return 100
    if above and len(above) < len(rows):
        raise SampleError(
            f"{name}: some {column} are above 1 and some are not, so their unit is not known",
            hint=_UNITS,
        )
    return 100 if above else 1


def _price(path: Path) -> Price | None:
    """What DAWNBench's JSON beside the curve says an hour costs, if it does."""
    beside = path.with_suffix(".json")
    if beside == path or not beside.is_file():
        return None
    try:
        facts: Any = parse_json(read_text(beside, encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise SampleError(f"{beside} is not whole JSON ({error})") from error
    usd = facts.get("costPerHour") if isinstance(facts, dict) else None
    if usd is None:
        return None
    if isinstance(usd, bool) or not isinstance(usd, int | float):
        raise SampleError(f"{beside}: costPerHour is {quote_value(usd)}, which is no price")
    machine = str(facts.get("hardware") or path.stem)
    try:
        return Price(
            name=machine,
            provider="",
            mode=Mode.ON_DEMAND,
            items=(LineItem(name=machine, usd_hour=float(usd)),),
            as_of=str(facts.get("timestamp", "")),
            source=beside.name,
        )
    except (ValueError, OverflowError) as error:
        raise SampleError(f"{beside}: {error}", hint="Correct it, or remove the file") from error
