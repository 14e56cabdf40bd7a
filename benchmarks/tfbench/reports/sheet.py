"""A table of figures and what follows from it: the same on a terminal and in a report. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tfbench import grid
from tfbench.reports.document import Block, Document, Section, points, tabulate


@dataclass(frozen=True, kw_only=True, slots=True)
class Sheet:
    """`headings` as `document.tabulate` and `grid` read them: `#name` is a column of numbers."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    lines: tuple[str, ...]
    width: int = grid.WIDTH
    """Of the terminal."""

    def printed(self, *, colour: bool) -> str:
        text = (self.title, self.headings, self.rows, self.lines)
        return grid.printed(*text, colour=colour, width=self.width)

    def blocks(self, caption: str) -> tuple[Block, ...]:
        return (tabulate(caption, self.headings, self.rows), *points(self.lines))

    def document(self, title: str, made: str, section: Section) -> Document:
        """A report of one section."""
        return Document(title=title, subject=f"{self.title}, {made}", sections=(section,))
