"""What the program says to a person: always on stderr, in colour only on a terminal."""

from __future__ import annotations

import contextlib
import difflib
import re
import time
from collections.abc import Collection, Iterator

from rich.console import Console


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """A reader that goes away ends a task as it does on standard output."""
        raise BrokenPipeError


_console = _Console(stderr=True, highlight=False, soft_wrap=True)


def say(text: str) -> None:
    _console.print(text, markup=False)


def note(text: str) -> None:
    """Something a person may want to know, less loud than what is being done."""
    _console.print(f"  {text}", style="dim", markup=False)


def warn(text: str) -> None:
    _console.print(f"warning: {text}", style="yellow", markup=False)


@contextlib.contextmanager
def step(name: str) -> Iterator[None]:
    """Say what begins, and when it ends say how long it took."""
    _console.print(f"→ {name}", style="bold", markup=False)
    started = time.monotonic()
    yield
    _console.print(f"  done in {duration(time.monotonic() - started)}", style="dim")


@contextlib.contextmanager
def counting(unit: str, total: int) -> Iterator[_Count]:
    """Progress of long work: done of total, and an estimate of what is left."""
    count = _Count(unit, total)
    with contextlib.ExitStack() as stack:
        if _console.is_terminal:
            count.live = stack.enter_context(_console.status(count.line()))
        yield count


class _Count:
    """Counts what is done. On a terminal one line is redrawn, elsewhere a line every 15 s."""

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
        """`tempo` is the rate and the estimate where the caller knows better than done of total in
        the time since the start."""
        self.done, self.total = done, self.total if total is None else total
        self.detail, self.tempo = detail, tempo
        update = getattr(self.live, "update", None)
        if update is not None:
            update(self.line())
        elif time.monotonic() - self._said > _QUIET_S:
            self._said = time.monotonic()
            note(self.line())

    def line(self) -> str:
        spent = time.monotonic() - self._started
        left = f", {self.tempo}" if self.tempo else ""
        if self.tempo is None and 0 < self.done < self.total:
            left = f", about {duration(spent / self.done * (self.total - self.done))} left"
        tail = f"  {self.detail}" if self.detail else ""
        unit = _PLURAL.sub("", self.unit) if self.total == 1 else self.unit
        return f"{self.done} of {self.total} {unit}, {duration(spent)}{left}{tail}"


_QUIET_S = 15.0
_PLURAL = re.compile(r"(?<=ch)es$|s$")


def duration(seconds: float) -> str:
    """Seconds as a person reads them: 4.2 s, 3 min 05 s, 2 h 10 min."""
    if round(seconds, 1) < 60:  # noqa: PLR2004
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:  # noqa: PLR2004
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def size(count: float) -> str:
    """Bytes as a person reads them, in powers of 1000."""
    for unit in ("B", "kB", "MB", "GB"):
        if round(count, 1) < 1000:  # noqa: PLR2004
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def count(number: int, one: str, many: str = "") -> str:
    """`1 launch`, `2 launches`; `many` is `one` with an s where none is given."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def vcpus(number: int) -> str:
    return count(number, "vCPU")


def near(word: str, known: Collection[str]) -> list[str]:
    """The few that are spelled most like `word`, best first; capitals do not count."""
    folded = {name.casefold(): name for name in known}
    found = difflib.get_close_matches(word.casefold(), folded)
    return [folded[name] for name in found]


def did_you_mean(word: str, known: Collection[str]) -> str:
    """A hint that names what is probably meant; empty when nothing is near."""
    found = near(word, known)
    return f"Did you mean {' or '.join(found)}?" if found else ""
