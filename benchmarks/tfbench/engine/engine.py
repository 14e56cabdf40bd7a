"""Run the launches of an experiment until it needs no more, and store each result at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

Entry = TypeVar("Entry")
Launch = TypeVar("Launch")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunProgress:
    """The part of a run that this process measured: the number of launches and their seconds."""

    launches: int
    seconds: float


class Experiment(Protocol[Entry, Launch]):
    """An experiment: it chooses its launches, and runs them to get entries.

    Entries are frozen records. A launch is one start of worker processes with their requests.
    """

    def is_reusable(self, entry: Entry, /) -> bool:
        """Return whether an entry of an earlier process counts and is not measured again."""

    def choose_next(self, entries: Sequence[Entry], spent: RunProgress, /) -> Launch | None:
        """Return the next launch, given the entries so far; None if they are enough."""

    def run_launch(self, launch: Launch, keep: Callable[[Entry], None], /) -> None:
        """Run a launch. A worker's failure is an entry, too, so that the run continues."""


def run(
    experiment: Experiment[Entry, Launch],
    known: Sequence[Entry],
    keep: Callable[[Entry], None],
) -> tuple[Entry, ...]:
    """Run an experiment until it needs no more launches, and return all its entries.

    These are the reusable ones of `known` and the new ones. Each new entry is passed to `keep` at
    once. Raises the errors of a launch.
    """
    entries = [entry for entry in known if experiment.is_reusable(entry)]

    def add_entry(entry: Entry) -> None:
        keep(entry)
        entries.append(entry)

    began, launches = time.monotonic(), 0
    while True:
        spent = RunProgress(launches=launches, seconds=time.monotonic() - began)
        launch = experiment.choose_next(entries, spent)
        if launch is None:
            return tuple(entries)
        experiment.run_launch(launch, add_entry)
        launches += 1
