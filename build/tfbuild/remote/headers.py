"""Protects the headers in the user's bazelrc: secrets that no argument, log or file may show.

In batch mode Bazel repeats each line of its bazelrcs in the arguments of its JVM. So a build with
headers runs with a server, which gets them over a socket (seen with 4.2.3). The build event file
repeats every option: only its owner can read it, and it is redacted afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tfbuild.remote.bazelrc import Bazelrc
from tfcore.errors import DiskError, UsageError
from tfcore.records import write_atomic

_OTHERS = 0o077
_IDLE_S = 1
SILENT = ("--noannounce_rc", "--build_event_text_file=", "--build_event_binary_file=")
"""Options that override any bazelrc, such as TensorFlow's: Bazel prints no option, and writes no
events except those that are redacted."""


def require_private(option: str, path: Path) -> None:
    """Raise UsageError if others than its owner can read the file."""
    mode = path.stat().st_mode
    if mode & _OTHERS:
        raise UsageError(
            f"other users can read {option} {path} (mode {mode & 0o777:o})",
            hint=f"Run: chmod 600 {path}",
        )


def build_startup_options(rc: Bazelrc, root: Path) -> tuple[str, ...]:
    """Return the startup options that give Bazel the user's file. Raises DiskError.

    If it has secrets, `root` becomes a folder that is closed to others, with all of Bazel's
    output in it: Bazel opens its --output_user_root to everybody, and the log that it keeps
    there repeats every option. So a build with headers has its output apart from one without.
    """
    if rc.path is None:
        return ()
    rc_option = f"--bazelrc={rc.path}"
    if not rc.secrets:
        return (rc_option,)
    try:
        root.mkdir(parents=True, exist_ok=True)
        root.chmod(0o700)
    except OSError as error:
        raise DiskError(f"cannot write in {root}: {error.strerror}") from error
    output = f"--output_user_root={root / 'bazel'}"
    return ("--nobatch", f"--max_idle_secs={_IDLE_S}", output, rc_option)


def create_private_file(path: Path) -> Path:
    """Create an empty file that only its owner can read, for Bazel to write its events into."""
    write_atomic(path, "")
    path.chmod(0o600)
    return path


def redact(secrets: Sequence[tuple[str, str]], events: Path) -> None:
    """Replace each header's value with *** in a finished event file, which stays private."""
    if not secrets or not events.is_file():
        return
    text = events.read_text(encoding="utf-8", errors="surrogateescape")
    for name, value in sorted(secrets, reverse=True):  # (a value before its own beginning)
        for equals, written in (("=", value), ("\\u003d", _escape_json(value))):
            text = text.replace(f"{name}{equals}{written}", f"{name}{equals}***")
    write_atomic(events, text.encode("utf-8", errors="surrogateescape"))
    events.chmod(0o600)


def _escape_json(value: str) -> str:
    """Escape a value as Bazel's JSON writer does: Gson made safe for HTML."""
    return "".join(f"\\u{ord(char):04x}" if char in "=<>&" else char for char in value)
