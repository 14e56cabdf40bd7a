"""A table and sentences below it, on a terminal; the same table in Markdown."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text


def table(
    title: str,
    headings: Iterable[str],
    rows: Iterable[Sequence[str]] = (),
    *,
    left: Collection[str],
    unbroken: Collection[str] = (),
) -> Table:
    """`left` are the headings of the columns with names, which may be long and are broken but for
    those in `unbroken`; figures stand on the right and are not broken."""
    found = Table(
        title=Text(title) if title else None,
        title_justify="left",
        show_edge=False,
        pad_edge=False,
    )
    for heading in headings:
        figure = heading not in left
        found.add_column(
            Text(heading),
            justify="right" if figure else "left",
            no_wrap=figure or heading in unbroken,
            overflow="fold",
        )
    for row in rows:
        found.add_row(*map(Text, row))
    return found


def printed(found: Table, lines: Iterable[str], *, colour: bool, width: int) -> str:
    """What a terminal of that width shows."""
    sink = io.StringIO()
    console = Console(
        file=sink, width=width, force_terminal=colour, no_color=not colour, highlight=False
    )
    console.print(found)
    console.print()
    for each in lines:
        console.print(each, markup=False, soft_wrap=True)
    return "\n".join(line.rstrip() for line in sink.getvalue().splitlines()) + "\n"


def markdown(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, left: Collection[str]
) -> Iterator[str]:
    """The lines of the table in Markdown."""
    yield f"| {' | '.join(headings)} |"
    yield f"|{'|'.join('---' if heading in left else '---:' for heading in headings)}|"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
