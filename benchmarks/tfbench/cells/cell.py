"""A cell of an experiment: what one process is asked, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tfbuild.records import hash_record


class Outcome(StrEnum):
    """What came of a cell. Only OK has an answer; the others are marks in a table."""

    OK = "ok"
    OUT_OF_MEMORY = "out of memory"
    NOT_HERE = "not here"
    """The machine lacks what the cell needs."""
    REFUSED = "refused"
    """Makes no sense, or would give wrong numbers."""
    FAILED = "failed"
    LATE = "took too long"


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """`place` says where it stands among the others: names and values, as ("batch", 8). A cell that
    is measured several times has several launches. `module` runs inside the arm and answers
    `request`; `vcpus` CPUs and `memory_mb` are all that it gets.
    """

    arm: str
    place: tuple[tuple[str, str | int | float | bool], ...]
    launch: int
    module: str
    request: Mapping[str, Any]
    vcpus: tuple[int, ...]
    memory_mb: float | None = None
    env: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> str:
        """The same question has the same key, whenever it is asked."""
        return hash_record(self)

    @property
    def name(self) -> str:
        """Words as they are, numbers with what they are of; without what is off or no limit."""
        return " ".join(
            value if isinstance(value, str) else name if value is True else f"{name} {value}"
            for name, value in self.place
            if value
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchResult:
    """What came of one launch of a cell. `answer` is the module's, empty unless OK."""

    key: str
    outcome: Outcome
    reason: str = ""
    seconds: float = 0.0
    answer: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class CellResult:
    """All launches of the cells at one place. `outcome` is OK when all were, else the first other
    one's, with its reason."""

    place: Mapping[str, Any]
    outcome: Outcome
    reason: str
    answers: tuple[Mapping[str, Any], ...]


def gathered(cells: Iterable[Cell], results: Mapping[str, LaunchResult]) -> tuple[CellResult, ...]:
    """By place, in the order of the cells; those that were not measured are left out."""
    places: dict[tuple[tuple[str, Any], ...], list[LaunchResult]] = {}
    for cell in cells:
        if cell.key in results:
            places.setdefault(cell.place, []).append(results[cell.key])
    return tuple(_cell_result(dict(place), launches) for place, launches in places.items())


def _cell_result(place: Mapping[str, Any], launches: Sequence[LaunchResult]) -> CellResult:
    marked = next((each for each in launches if each.outcome is not Outcome.OK), None)
    return CellResult(
        place=place,
        outcome=Outcome.OK if marked is None else marked.outcome,
        reason="" if marked is None else marked.reason,
        answers=tuple(each.answer for each in launches if each.outcome is Outcome.OK),
    )
