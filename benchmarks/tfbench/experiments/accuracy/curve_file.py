"""Read curves that others measured: DAWNBench entries and plain CSV.

A DAWNBench entry (stanford-futuredata/dawn-bench-entries, README) is a TSV file with the columns
epoch, hours, top1Accuracy and optionally top5Accuracy, in any order and in per cent. A JSON file
beside it has the machine and optionally costPerHour. A plain CSV file has epoch, seconds, accuracy.
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

from tfbench.costs.prices import LineItem, Mode, Price
from tfbench.experiments.accuracy.curve import CurvePoint
from tfcore.console import suggest_spelling
from tfcore.errors import SampleError, UsageError
from tfcore.records import parse_json, quote_value, read_text

EPOCH = "epoch"
TIMES: Mapping[str, int] = {"hours": 3600, "seconds": 1}
"""Columns of the time since the start of training, and their unit in seconds."""
IN_PERCENT = ("top1Accuracy", "top5Accuracy")
ACCURACIES = (IN_PERCENT[0], "accuracy")
"""Default columns of the accuracy; the first that exists is used."""
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?")
_MOST = 10**12
"""The largest valid epoch and time."""
_FORM = "Use the columns epoch,seconds,accuracy, or epoch, hours and top1Accuracy with tabs"
_UNITS = f"Write all values from 0 to 1, or in per cent in a column named {IN_PERCENT[0]}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """A curve read from a file. `column` is the column of the accuracies, `price` the machine's
    price, None if it is not stated.
    """

    name: str
    column: str
    points: tuple[CurvePoint, ...]
    price: Price | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Row:
    """A line of the file: its position and its three cells."""

    where: str
    epoch: float
    seconds: float
    accuracy: Decimal


def read_curve(path: Path, column: str = "") -> Curve:
    """Read the curve in a file, with the price from the JSON beside it if there is one. `column`
    is the column of the accuracy; if empty, the first of ACCURACIES that exists.

    Raises UsageError if the file or the column does not exist, SampleError if the file is not
    a curve.
    """
    try:
        text = read_text(path, encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise SampleError(f"{path} is not text ({error})", hint=_FORM) from error
    accuracy_column, points = parse_curve(text, path.name, column)
    return Curve(name=path.stem, column=accuracy_column, points=points, price=_read_price(path))


def parse_curve(text: str, name: str, column: str = "") -> tuple[str, tuple[CurvePoint, ...]]:
    """Return the column of the accuracy and a point per line, with rising epochs and times.

    `name` is the file's name in messages. Raises UsageError and SampleError, see `read_curve`.
    """
    rows = list(_split_rows(text, name))
    header, body = (rows[0][1], rows[1:]) if rows else ((), [])
    accuracy_column, time = (
        _find_accuracy_column(header, name, column),
        _find_time_column(header, name),
    )
    indices = [header.index(name_of_column) for name_of_column in (EPOCH, time, accuracy_column)]
    parsed = [_parse_row(cells, indices, header, f"{name}, line {line}") for line, cells in body]
    if not parsed:
        raise SampleError(f"{name} has a header but no epochs", hint=_FORM)
    _check_order(parsed)
    scale = _find_scale(parsed, accuracy_column, name)
    return accuracy_column, tuple(
        CurvePoint(
            epoch=row.epoch,
            seconds=row.seconds * TIMES[time],
            accuracy=float(row.accuracy / scale),
        )
        for row in parsed
    )


def _split_rows(text: str, name: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the non-empty lines as line number and cells."""
    separator = "\t" if "\t" in text.partition("\n")[0] else ","
    reader = csv.reader(text.splitlines(), delimiter=separator, strict=True)
    try:
        for cells in reader:
            if any(map(str.strip, cells)):
                yield reader.line_num, tuple(map(str.strip, cells))
    except csv.Error as error:
        raise SampleError(f"{name}, line {reader.line_num}: {error}", hint=_FORM) from error


def _find_accuracy_column(header: Sequence[str], name: str, column: str) -> str:
    if not header:
        raise SampleError(f"{name} is empty", hint=_FORM)
    if len({*header}) < len(header):
        raise SampleError(f"{name}: the header has duplicate columns", hint="Remove one of them")
    if column and column not in header:
        hint = suggest_spelling(column, header) or f"Available: {', '.join(header)}"
        raise UsageError(f"{name} has no column {column!r}", hint=hint)
    accuracy_column = column or next(
        (candidate for candidate in ACCURACIES if candidate in header), ""
    )
    if EPOCH not in header or not accuracy_column:
        missing = EPOCH if accuracy_column else ACCURACIES[-1]
        hint = _FORM if accuracy_column else f"Name the column with --column. {_FORM}"
        raise SampleError(f"{name}: the header lacks {missing}", hint=hint)
    return accuracy_column


def _find_time_column(header: Sequence[str], name: str) -> str:
    matches = [candidate for candidate in TIMES if candidate in header]
    if len(matches) != 1:
        problem = "has two time columns" if matches else "lacks hours or seconds"
        raise SampleError(f"{name}: the header {problem}", hint=_FORM)
    return matches[0]


def _parse_row(
    cells: Sequence[str], places: Sequence[int], header: Sequence[str], where: str
) -> _Row:
    if any(cells[len(header) :]) or len(cells) < len(header):
        raise SampleError(f"{where} has {len(cells)} cells, the header has {len(header)}")
    numbers = []
    for index in places:
        if not _NUMBER.fullmatch(cells[index]):
            raise SampleError(
                f"{where}: {header[index]} is {cells[index]!r}, which is not a number"
            )
        numbers.append(Decimal(cells[index]))
    for index, number in zip(places, numbers, strict=True):
        if not 0 <= number <= _MOST:
            problem = "which is below 0" if number < 0 else "which is too large"
            raise SampleError(f"{where}: {header[index]} is {cells[index]}, {problem}")
    epoch, time, accuracy = numbers
    return _Row(where=where, epoch=float(epoch), seconds=float(time), accuracy=accuracy)


def _check_order(rows: Sequence[_Row]) -> None:
    for before, row in itertools.pairwise(rows):
        if row.epoch == before.epoch:
            raise SampleError(f"{row.where}: epoch {row.epoch:g} occurs twice")
        if row.epoch < before.epoch:
            raise SampleError(
                f"{row.where}: epoch {row.epoch:g} follows epoch {before.epoch:g}",
                hint="Sort the lines by epoch",
            )
        if row.seconds < before.seconds:
            raise SampleError(
                f"{row.where}: the time decreases from {before.seconds:g} to {row.seconds:g}",
                hint="Count times from the start of training, not of each epoch",
            )


def _find_scale(rows: Sequence[_Row], column: str, name: str) -> int:
    """Return the divisor of the accuracies: 1 or 100. Raises SampleError if one is above 100 or
    the unit is ambiguous: a column in per cent without values above 1, or another column with
    values both above and below 1.
    """
    above = [row for row in rows if row.accuracy > 1]
    invalid = next((row for row in rows if row.accuracy > 100), None)  # noqa: PLR2004  (per cent)
    if invalid is not None:
        raise SampleError(f"{invalid.where}: an accuracy of {invalid.accuracy} is above 100 %")
    if column in IN_PERCENT:
        if not above:
            raise SampleError(
                f"{name}: no value of {column} is above 1, but DAWNBench uses per cent",
                hint=f"Name the column {ACCURACIES[-1]} if its values are from 0 to 1",
            )
        return 100
    if above and len(above) < len(rows):
        raise SampleError(
            f"{name}: some values of {column} are above 1 and some are not: the unit is unclear",
            hint=_UNITS,
        )
    return 100 if above else 1


def _read_price(path: Path) -> Price | None:
    """Return the price per hour from DAWNBench's JSON beside the curve, None if it has none."""
    json_path = path.with_suffix(".json")
    if json_path == path or not json_path.is_file():
        return None
    try:
        facts: Any = parse_json(read_text(json_path, encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise SampleError(f"{json_path} is not valid JSON ({error})") from error
    usd = facts.get("costPerHour") if isinstance(facts, dict) else None
    if usd is None:
        return None
    if isinstance(usd, bool) or not isinstance(usd, int | float):
        raise SampleError(f"{json_path}: costPerHour is {quote_value(usd)}, not a price")
    machine = str(facts.get("hardware") or path.stem)
    try:
        return Price(
            name=machine,
            provider="",
            mode=Mode.ON_DEMAND,
            items=(LineItem(name=machine, usd_hour=float(usd)),),
            as_of=str(facts.get("timestamp", "")),
            source=json_path.name,
        )
    except (ValueError, OverflowError) as error:
        raise SampleError(f"{json_path}: {error}", hint="Correct or remove the file") from error
