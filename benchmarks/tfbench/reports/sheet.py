"""A table of figures and what follows from it: the same on a terminal and in a report. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tfbench import grid
from tfbench.reports.document import Block, Document, Points, Section, Table, columns


@dataclass(frozen=True, kw_only=True, slots=True)
class Sheet:
    """`headings` as `document.columns` reads them: `#name` is a column of numbers."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    lines: tuple[str, ...]

    def printed(self, *, colour: bool, width: int) -> str:
        """What a terminal of that width shows."""
        names = [heading.lstrip("#") for heading in self.headings]
        texts = [heading for heading in self.headings if not heading.startswith("#")]
        table = grid.table(self.title, names, self.rows, left=texts)
        return grid.printed(table, self.lines, colour=colour, width=width)

    def blocks(self, caption: str) -> tuple[Block, ...]:
        table = Table(caption=caption, columns=columns(*self.headings), rows=self.rows)
        return (table, Points(items=self.lines)) if self.lines else (table,)

    def document(self, title: str, made: str, section: Section) -> Document:
        """A report of one section."""
        return Document(
            title=title,
            subject=f"{self.title}, {made}",
            answers=(),
            notes=(),
            warnings=(),
            sections=(section,),
        )
