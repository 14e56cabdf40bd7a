"""Show a result as a table with lines and figures: on a terminal, and as a page. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tfbench.costs.cost import Amount
from tfbench.experiments.cell import Outcome
from tfbench.reports import wording
from tfbench.reports.canvas import Drawing
from tfbench.reports.document import (
    Answer,
    Document,
    Section,
    TextColumns,
    build_table_blocks,
    read_rows,
)
from tfbench.result_table import WIDTH, ResultTable

_R = TypeVar("_R", bound="DatedResult")
_T = TypeVar("_T")


class DatedResult(Protocol):
    """The result of an experiment."""

    @property
    def made(self) -> str: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class TablePage(Generic[_R, _T]):
    """The text of a result: the columns of its rows, the conclusions, and how it was measured.

    `key` names the section, `heading` stands above it, `caption` names the table.
    """

    key: str
    title: str
    heading: str
    caption: str
    method: str
    format_title: Callable[[_R], str]
    """Formats the title of the table, which is the subject of the page."""
    list_columns: Callable[[_R], TextColumns[_T]]
    list_items: Callable[[_R], Iterable[_T]]
    """Lists what the rows show."""
    list_lines: Callable[[_R], Iterable[str]]
    draw_figures: Callable[[_R], Iterable[Drawing]]
    width: int = WIDTH
    build_answers: Callable[[_R], Iterable[Answer]] = lambda _: ()
    list_warnings: Callable[[_R], Iterable[str]] = lambda _: ()

    def build_table(self, result: _R) -> ResultTable:
        columns = self.list_columns(result)
        return ResultTable(
            title=self.format_title(result),
            headings=tuple(columns),
            rows=tuple(read_rows(columns, self.list_items(result))),
            lines=tuple(self.list_lines(result)),
            width=self.width,
        )

    def build_section(self, result: _R) -> Section:
        blocks = (self.method, *build_table_blocks(self.build_table(result), self.caption))
        return Section(key=self.key, heading=self.heading, blocks=blocks)

    def build_document(self, result: _R) -> Document:
        return Document(
            title=self.title,
            subject=f"{self.format_title(result)}, {result.made}",
            answers=tuple(self.build_answers(result)),
            warnings=tuple(self.list_warnings(result)),
            sections=(self.build_section(result),),
        )


def format_speed(outcome: Outcome, speed: Amount | None) -> tuple[str, str]:
    """Format a rate and its interval, or the outcome of a cell without one."""
    if outcome is not Outcome.OK or speed is None:
        return outcome.value, ""
    return wording.format_rate_interval(speed)
