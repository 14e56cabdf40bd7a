"""A comparison as CSV, for spreadsheets: one row per cell and arm. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from tfbench.reports.columns import CSV, Value
from tfbench.reports.findings import Row
from tfcore.comparisons.comparison import Comparison
from tfcore.comparisons.deciding import find_decision


def format_csv(comparison: Comparison) -> str:
    """Format a comparison as CSV: the names of CSV and a line per arm and cell, with numbers in
    full precision.
    """
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, CSV, lineterminator="\n")
    writer.writeheader()
    writer.writerows(list_rows(comparison))
    return buffer.getvalue()


def list_rows(comparison: Comparison) -> Iterator[dict[str, Value]]:
    """Yield the rows by cell, then by arm. An arm that failed in a cell has the reason, but
    no numbers.
    """
    for cell in comparison.cells:
        for arm in comparison.arms:
            decision = find_decision(comparison, cell, arm.name)
            row = Row(comparison=comparison, cell=cell, decision=decision)
            yield {name: read(row) for name, read in CSV.items()}
