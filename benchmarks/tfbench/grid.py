"""A table and sentences below it, on a terminal; the same table in Markdown.

Headings with a `#` before them are of columns of figures.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDTH = 120


def printed(
    title: str,
    headings: Iterable[str],
    rows: Iterable[Sequence[str | Text]],
    lines: Iterable[str],
    *,
    colour: bool,
    width: int = WIDTH,
    unbroken: Collection[str] = (),
) -> str:
    """What a terminal of that width shows. Names stand on the left, may be long and are broken but
    for those in `unbroken`; figures stand on the right and are not broken."""
    sink = io.StringIO()
    console = Console(
        file=sink, width=width, force_terminal=colour, no_color=not colour, highlight=False
    )
    console.print(_table(title, headings, rows, unbroken))
    console.print()
    for each in lines:
        console.print(each, markup=False, soft_wrap=True)
    return "\n".join(line.rstrip() for line in sink.getvalue().splitlines()) + "\n"


def _table(
    title: str,
    headings: Iterable[str],
    rows: Iterable[Sequence[str | Text]],
    unbroken: Collection[str],
) -> Table:
    found = Table(
        title=Text(title) if title else None,
        title_justify="left",
        show_edge=False,
        pad_edge=False,
    )
    for heading in headings:
        figure = heading.startswith("#")
        found.add_column(
            Text(heading.removeprefix("#")),
            justify="right" if figure else "left",
            no_wrap=figure or heading in unbroken,
            overflow="fold",
        )
    for row in rows:
        found.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    return found


def markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of the table in Markdown."""
    yield f"| {' | '.join(heading.removeprefix('#') for heading in headings)} |"
    yield f"|{'|'.join('---:' if heading.startswith('#') else '---' for heading in headings)}|"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
