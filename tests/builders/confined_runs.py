"""What a reader may take: so much time, so much memory, and one folder to write in."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

SECONDS = 20
"""For one input; the machine may be busy, so it is more than any reader needs."""
BYTES = 1 << 30
"""Beyond what the process has already."""
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Each with the places of the paths in what Python tells of it; last comes an open folder's number.
_CHANGES = {
    "os.mkdir": (0,),
    "os.remove": (0,),
    "os.rmdir": (0,),
    "os.rename": (0, 1),
    "os.link": (1,),
    "os.symlink": (1,),
}
_NO_FOLDER = -1
_roots: list[Path] = []
_outside: list[str] = []


class TooLongError(BaseException):
    """No reader's own `except Exception` takes it."""


@contextlib.contextmanager
def confined(folder: Path) -> Iterator[None]:
    """Whatever happens inside has SECONDS and BYTES, and writes below `folder` only.

    Raises AssertionError; who asks for more memory gets a MemoryError.
    """
    _watch()
    before, most = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGALRM, _expire)
    signal.alarm(SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (_size() + BYTES, most))
    _roots.append(folder.resolve())
    bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # (Python's, not a reader's)
    try:
        yield
    except TooLongError:
        raise AssertionError(f"it took more than {SECONDS} s") from None
    finally:
        _roots.pop()
        sys.dont_write_bytecode = bytecode
        resource.setrlimit(resource.RLIMIT_AS, (before, most))
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
        outside = _outside.copy()
        _outside.clear()
    assert not outside, f"it changes {outside}"


def _expire(number: int, frame: FrameType | None) -> None:
    raise TooLongError


def _size() -> int:
    """Bytes of address space that this process has."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[0]
    return int(pages) * resource.getpagesize()


def _watch() -> None:
    if not hasattr(sys, "_confined_is_watching"):
        sys._confined_is_watching = True  # type: ignore[attr-defined]
        sys.addaudithook(_hear)


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if not _roots:
        return
    if event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITES:
        _note(arguments[0])
    elif event in _CHANGES and arguments[-1] == _NO_FOLDER:
        for number in _CHANGES[event]:
            _note(arguments[number])


def _note(path: object) -> None:
    """A path that is not below the folder; Python's own compiled modules are let pass."""
    if not isinstance(path, str | bytes | os.PathLike):
        return
    actual = Path(os.path.abspath(os.fsdecode(path)))  # noqa: PTH100  (no link is followed)
    if actual == Path(os.devnull) or actual.parent.name == "__pycache__":
        return
    if not actual.is_relative_to(_roots[-1]):
        _outside.append(str(actual))
