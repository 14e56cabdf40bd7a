"""Messages to the user, always on stderr, in colour only on a terminal."""

from __future__ import annotations

import contextlib
import difflib
import re
import time
from collections.abc import Collection, Iterator, Sequence

from rich.console import Console


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError when the reader goes away, as for standard output."""
        raise BrokenPipeError


_console = _Console(stderr=True, highlight=False, soft_wrap=True)


def print_message(text: str) -> None:
    _console.print(text, markup=False)


def print_note(text: str) -> None:
    """Print a dimmed line of background information."""
    _console.print(f"  {text}", style="dim", markup=False)


def warn(text: str) -> None:
    _console.print(f"warning: {text}", style="yellow", markup=False)


@contextlib.contextmanager
def report_step(name: str) -> Iterator[None]:
    """Print the name of a step when it begins, and the time that it took when it ends."""
    _console.print(f"→ {name}", style="bold", markup=False)
    started = time.monotonic()
    yield
    _console.print(f"  done in {format_duration(time.monotonic() - started)}", style="dim")


@contextlib.contextmanager
def track_progress(unit: str, total: int) -> Iterator[_ProgressCounter]:
    """Show the progress of long work: done of total, and an estimate of the time that is left."""
    count = _ProgressCounter(unit, total)
    with contextlib.ExitStack() as stack:
        if _console.is_terminal:
            count.live = stack.enter_context(_console.status(count.format_line()))
        yield count


class _ProgressCounter:
    """A counter of finished work.

    On a terminal one line is redrawn; elsewhere a line is printed every 15 s.
    """

    def __init__(self, unit: str, total: int) -> None:
        self.unit = unit
        self.total = total
        self.done = 0
        self.detail = ""
        self.tempo: str | None = None
        self.live: object | None = None
        self._started = time.monotonic()
        self._said = self._started

    def advance(
        self, done: int, total: int | None = None, detail: str = "", tempo: str | None = None
    ) -> None:
        """Set how much is done.

        `tempo` is the caller's own rate and estimate. Without it the estimate comes from the
        work done and the time since the start.
        """
        self.done, self.total = done, self.total if total is None else total
        self.detail, self.tempo = detail, tempo
        update = getattr(self.live, "update", None)
        if update is not None:
            update(self.format_line())
        elif time.monotonic() - self._said > _QUIET_S:
            self._said = time.monotonic()
            print_note(self.format_line())

    def format_line(self) -> str:
        spent = time.monotonic() - self._started
        remaining = f", {self.tempo}" if self.tempo else ""
        if self.tempo is None and 0 < self.done < self.total:
            remaining = (
                f", about {format_duration(spent / self.done * (self.total - self.done))} left"
            )
        tail = f"  {self.detail}" if self.detail else ""
        unit = _PLURAL.sub("", self.unit) if self.total == 1 else self.unit
        return f"{self.done} of {self.total} {unit}, {format_duration(spent)}{remaining}{tail}"


_QUIET_S = 15.0
_PLURAL = re.compile(r"(?<=ch)es$|s$")


def format_duration(seconds: float) -> str:
    """Format seconds for a person: 4.2 s, 3 min 05 s, 2 h 10 min."""
    if round(seconds, 1) < 60:  # noqa: PLR2004
        return f"{seconds:.1f} s"
    minutes, remainder = divmod(round(seconds), 60)
    if minutes < 60:  # noqa: PLR2004
        return f"{minutes} min {remainder:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def format_size(count: float) -> str:
    """Format bytes for a person, in powers of 1000."""
    for unit in ("B", "kB", "MB", "GB"):
        if round(count, 1) < 1000:  # noqa: PLR2004
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def format_count(number: int, noun: str, many: str = "") -> str:
    """Format a number with its noun: `1 launch`, `2 launches`.

    `many` is the plural; by default `noun` with an s.
    """
    return f"{number} {noun if number == 1 else many or f'{noun}s'}"


def format_vcpus(number: int) -> str:
    return format_count(number, "vCPU")


def find_similar(word: str, known: Collection[str]) -> list[str]:
    """Return the few known words that are spelled most like `word`, best first, ignoring case."""
    folded = {name.casefold(): name for name in known}
    matches = difflib.get_close_matches(word.casefold(), folded)
    return [folded[name] for name in matches]


def suggest_spelling(word: str, known: Collection[str]) -> str:
    """Return a hint with the names that were probably meant; empty if none is similar."""
    matches = find_similar(word, known)
    return f"Did you mean {format_choices(matches)}?" if matches else ""


def format_choices(words: Sequence[str]) -> str:
    """Format one or more words as `a, b or c`."""
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last
