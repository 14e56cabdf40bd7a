"""Launch after launch until an experiment has enough, each kept as it comes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

Entry = TypeVar("Entry")
Launch = TypeVar("Launch")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunProgress:
    """The part of a run that this process has measured: launches, and the seconds that they
    took.
    """

    launches: int
    seconds: float


class Experiment(Protocol[Entry, Launch]):
    """An experiment: which launches it needs, and the entries that they give.

    Entries are frozen records; a launch is one start of worker processes, and what they are
    asked. What follows from the entries is up to the experiment.
    """

    def is_reusable(self, entry: Entry, /) -> bool:
        """Return whether an entry of an earlier process is of this run, and need not be measured
        again.
        """

    def choose_next(self, entries: Sequence[Entry], spent: RunProgress, /) -> Launch | None:
        """Return what to launch next, given the entries so far; None if they are enough."""

    def run_launch(self, launch: Launch, keep: Callable[[Entry], None], /) -> None:
        """Run a launch; a worker's failure is an entry as well, so that the run goes on."""


def run(
    experiment: Experiment[Entry, Launch],
    known: Sequence[Entry],
    keep: Callable[[Entry], None],
) -> tuple[Entry, ...]:
    """Run an experiment until it has enough, and return all its entries.

    These are those of `known` that count, and the new ones, each of which is passed to `keep`
    at once. Raises the errors of a launch.
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
