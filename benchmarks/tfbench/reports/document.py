"""A page as records: what it says, apart from how Markdown or HTML show it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from tfbench.sheet import ResultTable

SPEEDUPS, SCALING, LADDER, COST = "speedups", "scaling", "ladder", "cost"
"""Keys of sections that have figures."""


class ColumnKind(StrEnum):
    """What a column holds: text on the left, numbers on the right, verdicts marked."""

    TEXT = "text"
    NUMBER = "number"
    VERDICT = "verdict"


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    name: str
    kind: ColumnKind = ColumnKind.TEXT


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """`caption` names it for those who hear the page. Raises ValueError for a row of another
    length than there are columns."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        wrong = [row for row in self.rows if len(row) != len(self.columns)]
        if wrong:
            raise ValueError(f"{self.caption}: a row of {len(wrong[0])} for {len(self.columns)}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Points:
    """A list."""

    items: tuple[str, ...]


Block: TypeAlias = str | Points | Table
"""A paragraph, a list or a table."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """`key` is what links and figures find it by."""

    key: str
    heading: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """A headline: `figure` large, `sentence` in full. `verdict` is empty where none was made."""

    label: str
    figure: str
    detail: str
    verdict: str = ""
    sentence: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """The answer first, then what to know about it, then everything else."""

    title: str
    subject: str
    answers: tuple[Answer, ...] = ()
    notes: tuple[str, ...] = ()
    """What is to be said beside the answers."""
    warnings: tuple[str, ...] = ()
    sections: tuple[Section, ...]


def tabulate(caption: str, names: Iterable[str], rows: Iterable[tuple[str, ...]]) -> Table:
    """`#name` is a column of numbers, `!name` one of verdicts."""
    kinds = {"#": ColumnKind.NUMBER, "!": ColumnKind.VERDICT}
    columns = (
        Column(name=name.lstrip("#!"), kind=kinds.get(name[0], ColumnKind.TEXT)) for name in names
    )
    return Table(caption=caption, columns=tuple(columns), rows=tuple(rows))


def points(items: Iterable[str]) -> tuple[Points, ...]:
    """A list; nothing where it would be empty."""
    found = Points(items=tuple(items))
    return (found,) if found.items else ()


def sheet_blocks(sheet: ResultTable, caption: str) -> tuple[Block, ...]:
    return (tabulate(caption, sheet.headings, sheet.rows), *points(sheet.lines))


def tabled(
    key: str,
    heading: str,
    caption: str,
    names: Iterable[str],
    rows: Iterable[tuple[str, ...]],
    *text: str,
) -> Section:
    """A section of a table below what is told of it; an empty one without rows."""
    found = tabulate(caption, names, rows)
    return Section(key=key, heading=heading, blocks=(*text, found) if found.rows else ())


def paragraphs(text: str) -> tuple[Block, ...]:
    """Of a text with empty lines between paragraphs; lines that begin with "- " are a list."""
    return tuple(_block(part) for part in text.strip().split("\n\n"))


def _block(part: str) -> Block:
    if not part.startswith("- "):
        return " ".join(part.split())
    return Points(items=tuple(" ".join(item.split()) for item in part[2:].split("\n- ")))
