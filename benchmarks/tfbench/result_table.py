"""A table of results with the lines below it, for a terminal and in Markdown.

A heading that begins with `#` marks a column of numbers.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tfcore.records import format_json

WIDTH = 120


@dataclass(frozen=True, kw_only=True, slots=True)
class ResultTable:
    title: str = ""
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    lines: tuple[str, ...]
    width: int = WIDTH
    """Columns of the terminal."""

    def format_text(self, *, colour: bool) -> str:
        text = (self.title, self.headings, self.rows, self.lines)
        return format_table(*text, colour=colour, width=self.width)

    def format_markdown(self) -> Iterator[str]:
        """Yield the lines of the table in Markdown."""
        figures = [heading.startswith("#") for heading in self.headings]
        yield f"| {' | '.join(heading.removeprefix('#') for heading in self.headings)} |"
        yield f"|{'|'.join('---:' if figure else '---' for figure in figures)}|"
        for row in self.rows:
            yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"


def format_result(record: object, sheet: ResultTable, *, as_json: bool) -> str:
    """Format a result as JSON or as a table for the terminal."""
    return format_json(record) if as_json else sheet.format_text(colour=sys.stdout.isatty())


def format_table(
    title: str,
    headings: Iterable[str],
    rows: Iterable[Sequence[str | Text]],
    lines: Iterable[str],
    *,
    colour: bool,
    width: int = WIDTH,
    unbroken: Collection[str] = (),
) -> str:
    """Format a table and the lines below it for a terminal of `width` columns.

    Names are left-aligned and wrapped, except in the columns whose heading is in `unbroken`.
    Numbers are right-aligned and not wrapped.
    """
    sink = io.StringIO()
    console = Console(
        file=sink, width=width, force_terminal=colour, no_color=not colour, highlight=False
    )
    console.print(_build_table(title, headings, rows, unbroken))
    console.print()
    for text_line in lines:
        console.print(text_line, markup=False, soft_wrap=True)
    return "\n".join(line.rstrip() for line in sink.getvalue().splitlines()) + "\n"


def _build_table(
    title: str,
    headings: Iterable[str],
    rows: Iterable[Sequence[str | Text]],
    unbroken: Collection[str],
) -> Table:
    table = Table(
        title=Text(title) if title else None,
        title_justify="left",
        show_edge=False,
        pad_edge=False,
    )
    for heading in headings:
        figure = heading.startswith("#")
        table.add_column(
            Text(heading.removeprefix("#")),
            justify="right" if figure else "left",
            no_wrap=figure or heading in unbroken,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    return table
