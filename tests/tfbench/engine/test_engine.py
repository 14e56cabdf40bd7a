"""The loop over launches, with an experiment of a few lines and real files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import pytest

from tfbench.engine import engine
from tfbench.engine.engine import RunProgress
from tfbench.engine.journal import Keep, Kinds, open_journal, read_entries
from tfcore.errors import WorkerError


@dataclass(frozen=True, kw_only=True, slots=True)
class Square:
    number: int
    value: int
    stage: str = "one"


KINDS: Kinds[Square] = MappingProxyType({"square": Square})


@dataclass(frozen=True, kw_only=True, slots=True)
class Squares:
    """The squares of some numbers; `breaks` is one that its worker dies of."""

    numbers: tuple[int, ...]
    breaks: int | None = None
    spent: list[RunProgress] = field(default_factory=list)

    def is_reusable(self, entry: Square) -> bool:
        return entry.stage == "one"

    def choose_next(self, squares: Sequence[Square], spent: RunProgress) -> int | None:
        self.spent.append(spent)
        known = {square.number for square in squares}
        return next((number for number in self.numbers if number not in known), None)

    def run_launch(self, number: int, keep: Keep[Square]) -> None:
        if number == self.breaks:
            raise WorkerError("it ended")
        keep(Square(number=number, value=number**2))


def ran(path: Path, experiment: Squares) -> tuple[Square, ...]:
    with open_journal(path, KINDS) as (known, keep):
        return engine.run(experiment, known, keep)


def test_launches_go_on_until_the_experiment_has_enough(tmp_path: Path) -> None:
    path, experiment = tmp_path / "journal.jsonl", Squares(numbers=(3, 1, 2))
    squares = ran(path, experiment)
    assert [(square.number, square.value) for square in squares] == [(3, 9), (1, 1), (2, 4)]
    assert read_entries(path, KINDS) == squares
    assert [run_progress.launches for run_progress in experiment.spent] == [0, 1, 2, 3]
    assert all(run_progress.seconds >= 0 for run_progress in experiment.spent)


def test_a_run_that_was_ended_goes_on_from_its_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with pytest.raises(WorkerError):
        ran(path, Squares(numbers=(1, 2, 3), breaks=3))
    again = Squares(numbers=(1, 2, 3))
    assert [square.number for square in ran(path, again)] == [1, 2, 3]
    assert [run_progress.launches for run_progress in again.spent] == [0, 1]


def test_entries_that_do_not_count_stay_in_the_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    other_square = Square(number=1, value=1, stage="two")
    with open_journal(path, KINDS) as (_, keep):
        keep(other_square)
    squares = ran(path, Squares(numbers=(1,)))
    assert [square.stage for square in squares] == ["one"]
    assert read_entries(path, KINDS) == (other_square, *squares)
