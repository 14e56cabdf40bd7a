"""A cell of an experiment: the request to one process, and its result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tfcore.records import hash_record


class Outcome(StrEnum):
    """The outcome of a cell. Only OK has an answer; tables show the other values as marks."""

    OK = "ok"
    OUT_OF_MEMORY = "out of memory"
    NOT_HERE = "not here"
    """The machine lacks hardware or software that the cell needs."""
    REFUSED = "refused"
    """The request is invalid, or its numbers would be wrong."""
    FAILED = "failed"
    LATE = "took too long"


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One process of an experiment.

    `place` is its position in the experiment: names and values, such as ("batch", 8). A cell that
    is measured several times has several launches. `module` runs inside the arm and answers
    `request`; the process is limited to the CPUs `vcpus` and to `memory_mb` MB.
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
        """Return a key that is the same for equal cells, across runs."""
        return hash_record(self)

    @property
    def name(self) -> str:
        """Return the values of `place`: texts as they are, numbers with their names.

        Excludes zeros and empty values.
        """
        return " ".join(
            value if isinstance(value, str) else name if value is True else f"{name} {value}"
            for name, value in self.place
            if value
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchResult:
    """The result of one launch of a cell. `answer` is the module's answer, empty unless OK."""

    key: str
    outcome: Outcome
    reason: str = ""
    seconds: float = 0.0
    answer: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class CellResult:
    """The results of all launches of the cells at one place.

    `outcome` is OK if all launches were OK, otherwise that of the first other one, with its reason.
    """

    place: Mapping[str, Any]
    outcome: Outcome
    reason: str
    answers: tuple[Mapping[str, Any], ...]


def group_results(
    cells: Iterable[Cell], results: Mapping[str, LaunchResult]
) -> tuple[CellResult, ...]:
    """Group the results by place, in the order of the cells.

    Cells that were not measured are excluded.
    """
    launches_by_place: dict[tuple[tuple[str, Any], ...], list[LaunchResult]] = {}
    for cell in cells:
        if cell.key in results:
            launches_by_place.setdefault(cell.place, []).append(results[cell.key])
    return tuple(
        _merge_launches(dict(key), launches) for key, launches in launches_by_place.items()
    )


def _merge_launches(place: Mapping[str, Any], launches: Sequence[LaunchResult]) -> CellResult:
    marked = next((launch for launch in launches if launch.outcome is not Outcome.OK), None)
    return CellResult(
        place=place,
        outcome=Outcome.OK if marked is None else marked.outcome,
        reason="" if marked is None else marked.reason,
        answers=tuple(launch.answer for launch in launches if launch.outcome is Outcome.OK),
    )
