"""The content of a page as records, independent of Markdown and HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias, TypeVar

from tfbench.result_table import ResultTable

SPEEDUPS, SCALING, LADDER, COST = "speedups", "scaling", "ladder", "cost"
"""Keys of sections that have figures."""


Item = TypeVar("Item")
TextColumns: TypeAlias = Mapping[str, Callable[[Item], str]]
"""Headings as in `tabulate`, and what the columns show of an item."""


class ColumnKind(StrEnum):
    """The kind of a column: left-aligned text, right-aligned numbers or marked verdicts."""

    TEXT = "text"
    NUMBER = "number"
    VERDICT = "verdict"


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    name: str
    kind: ColumnKind = ColumnKind.TEXT


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """A table. `caption` names it for screen readers. Raises ValueError if a row does not have a
    cell for each column.
    """

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        wrong = [row for row in self.rows if len(row) != len(self.columns)]
        if wrong:
            raise ValueError(
                f"{self.caption}: a row has {len(wrong[0])} cells, expected {len(self.columns)}"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class BulletList:
    """A bullet list."""

    items: tuple[str, ...]


Block: TypeAlias = str | BulletList | Table
"""A paragraph, a list or a table."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """A section of a page. Links and figures refer to it by `key`."""

    key: str
    heading: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """A headline: `figure` is shown large, `sentence` in full. `verdict` is empty if there is
    none.
    """

    label: str
    figure: str
    detail: str
    verdict: str = ""
    sentence: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """A page: its answers first, then notes and warnings, then the sections."""

    title: str
    subject: str
    answers: tuple[Answer, ...] = ()
    notes: tuple[str, ...] = ()
    """Remarks below the answers."""
    warnings: tuple[str, ...] = ()
    sections: tuple[Section, ...]


def tabulate(caption: str, names: Iterable[str], rows: Iterable[tuple[str, ...]]) -> Table:
    """Build a table. `#name` declares a column of numbers, `!name` a column of verdicts."""
    kinds = {"#": ColumnKind.NUMBER, "!": ColumnKind.VERDICT}
    columns = (
        Column(name=name.lstrip("#!"), kind=kinds.get(name[0], ColumnKind.TEXT)) for name in names
    )
    return Table(caption=caption, columns=tuple(columns), rows=tuple(rows))


def read_rows(columns: TextColumns[Item], items: Iterable[Item]) -> Iterator[tuple[str, ...]]:
    """Yield a row of a table for each item."""
    for item in items:
        yield tuple(read(item) for read in columns.values())


def build_list(items: Iterable[str]) -> tuple[BulletList, ...]:
    """Build a bullet list as a tuple of blocks, which is empty if there are no items."""
    bullets = BulletList(items=tuple(items))
    return (bullets,) if bullets.items else ()


def build_table_blocks(sheet: ResultTable, caption: str) -> tuple[Block, ...]:
    return (tabulate(caption, sheet.headings, sheet.rows), *build_list(sheet.lines))


def build_table_section(
    key: str,
    heading: str,
    caption: str,
    names: Iterable[str],
    rows: Iterable[tuple[str, ...]],
    *text: str,
) -> Section:
    """Build a section of introductory text and a table. The section is empty if the table has no
    rows.
    """
    table = tabulate(caption, names, rows)
    return Section(key=key, heading=heading, blocks=(*text, table) if table.rows else ())


def split_paragraphs(text: str) -> tuple[Block, ...]:
    """Split a text into paragraphs at empty lines. Lines that begin with "- " become a bullet
    list.
    """
    return tuple(_parse_block(part) for part in text.strip().split("\n\n"))


def _parse_block(part: str) -> Block:
    if not part.startswith("- "):
        return " ".join(part.split())
    return BulletList(items=tuple(" ".join(item.split()) for item in part[2:].split("\n- ")))
