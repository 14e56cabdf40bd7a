"""The tables of docs/verified.md show what the records of benchmarks/ have."""

from __future__ import annotations

import csv
import functools
import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest

from tfbuild.settings import ROOT

PAGE = ROOT / "docs" / "verified.md"
RECORDS = ROOT / "benchmarks" / "records"
TABLE = re.compile(r"(?:^\|.*\|\n)+", re.MULTILINE)
FIGURE = re.compile(r"(\d+\.\d+)(?: \((\d+\.\d+) to (\d+\.\d+)\))?")
MEAN = "geometric mean"
HALF = 0.51
"""Of the last digit that is printed: some records have six digits only, so are rounded twice."""

Rows = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Column:
    """Of a table, down to a geometric mean: the figures of models or programs, and their mean."""

    title: str
    figures: tuple[tuple[str, str], ...]
    mean: str

    def __str__(self) -> str:
        return f"{self.title}, {self.figures[0][0]} to {self.figures[-1][0]}"


def cells(line: str) -> list[str]:
    return [each.strip(" *`") for each in line.strip().strip("|").split("|")]


def found_columns() -> Iterator[Column]:
    for block in TABLE.findall(PAGE.read_text("utf-8")):
        head, _, *rows = map(cells, block.splitlines())
        for part in parts(rows):
            (*_, last) = part
            measured = part[:-1] if MEAN in last[0] else part
            for place, title in enumerate(head[1:], start=1):
                if title == "stock again":
                    continue
                figures = [(row[0].split(",")[0], row[place]) for row in measured if row[place]]
                mean = last[place] if measured is not part else ""
                if figures:
                    yield Column(title, tuple(figures), mean)


def parts(rows: Rows) -> Iterator[Rows]:
    """Each ends with a geometric mean, the last one perhaps without."""
    ends = [at for at, row in enumerate(rows, start=1) if MEAN in row[0]]
    for first, end in itertools.pairwise(sorted({0, *ends, len(rows)})):
        yield rows[first:end]


COLUMNS = [*found_columns()]


@functools.cache
def records() -> tuple[tuple[str, dict[str, str]], ...]:
    found = []
    for path in sorted(RECORDS.glob("*.csv")):
        with path.open(newline="") as file:
            found += [(path.name, row) for row in csv.DictReader(file)]
    return tuple(found)


def sources(name: str, shown: str) -> set[tuple[str, str]]:
    """Records, and numbers of vCPUs in them, in which a workload has what is shown: the time of
    stock in ms, or a speedup with its interval."""
    found = FIGURE.fullmatch(shown)
    assert found, shown
    return {
        (file, row["vcpus"])
        for file, row in records()
        if row["workload"].removeprefix("own:").partition(":")[0] == name
        and all(itertools.starmap(is_printed_so, zip(found.groups(), said(row), strict=True)))
    }


def said(row: dict[str, str]) -> tuple[str | None, ...]:
    if row["arm"].startswith("stock"):
        return row.get("train_ms") or row["infer_ms"], None, None
    return row["speedup"], row["speedup_low"], row["speedup_high"]


def is_printed_so(shown: str | None, said: str | None) -> bool:
    if not (shown and said):
        return not (shown or said)
    digits = len(shown.partition(".")[2])
    return abs(float(shown) - float(said)) <= HALF * 10.0**-digits


def value(shown: str) -> float:
    return float(shown.partition(" ")[0])


@pytest.mark.parametrize("column", COLUMNS, ids=str)
def test_a_column_is_of_one_record(column: Column) -> None:
    found = {each: sources(*each) for each in column.figures}
    assert all(found.values()), f"in no record: {[each for each in found if not found[each]]}"
    assert set.intersection(*found.values()), "of several records"


@pytest.mark.parametrize("column", [each for each in COLUMNS if each.mean], ids=str)
def test_a_geometric_mean_is_that_of_its_column(column: Column) -> None:
    shown = [value(figure) for _, figure in column.figures]
    mean = math.exp(math.fsum(map(math.log, shown)) / len(shown))
    assert value(column.mean) == pytest.approx(mean, abs=1e-3)


def test_the_page_has_tables_at_all() -> None:
    assert len(COLUMNS) > 40
