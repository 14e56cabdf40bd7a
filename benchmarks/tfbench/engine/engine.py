"""Launch after launch until an experiment has enough, each kept as it comes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

Entry = TypeVar("Entry")
Launch = TypeVar("Launch")


@dataclass(frozen=True, kw_only=True, slots=True)
class Spent:
    """What this process has measured of a run: launches, and the seconds that they took."""

    launches: int
    seconds: float


class Experiment(Protocol[Entry, Launch]):
    """What one experiment measures. What it makes of the entries is its own affair.

    Entries are frozen records; a launch is one start of worker processes, and what they are asked.
    """

    def counts(self, entry: Entry, /) -> bool:
        """Whether what an earlier process has left is of this run, and need not be done again."""

    def following(self, entries: Sequence[Entry], spent: Spent, /) -> Launch | None:
        """What to launch next, by what is known; None when that is enough."""

    def launch(self, launch: Launch, keep: Callable[[Entry], None], /) -> None:
        """Do it. What a failing worker does is an entry as well, so that a run goes on."""


def run(
    experiment: Experiment[Entry, Launch],
    known: Sequence[Entry],
    keep: Callable[[Entry], None],
) -> tuple[Entry, ...]:
    """All entries of the experiment: those of `known` that count, and the new ones, each of which
    `keep` gets as it comes. Raises what a launch raises."""
    entries = [entry for entry in known if experiment.counts(entry)]

    def remember(entry: Entry) -> None:
        keep(entry)
        entries.append(entry)

    began, launches = time.monotonic(), 0
    while True:
        spent = Spent(launches=launches, seconds=time.monotonic() - began)
        launch = experiment.following(entries, spent)
        if launch is None:
            return tuple(entries)
        experiment.launch(launch, remember)
        launches += 1
