"""Headers for a shared cache: secrets that no argument, log or kept file may show.

They reach Bazel by a bazelrc that only its owner can read. A Bazel in batch mode repeats each line
of its bazelrcs in the arguments of its JVM, so a build with headers runs with a server, which takes
them over a socket (seen with 4.2.3). The build event file repeats every option: it is made for its
owner only, and redacted afterwards.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tfbuild.errors import DiskError, UsageError
from tfbuild.records import write_atomic

_HEADER = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*[:=]\s*(?P<value>\S.*)", re.ASCII)
# Nothing that a bazelrc, a shell or JSON would write in another way.
_VALUE = re.compile(r"[ !#-&(-\[\]-~]+")
_OTHERS = 0o077
_IDLE_S = 1


def need_private(option: str, path: Path) -> None:
    """Raises UsageError when others than its owner can read the file."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise UsageError(f"{option} {path} cannot be read: {error.strerror}") from error
    if mode & _OTHERS:
        raise UsageError(
            f"{option} {path} can be read by others (mode {mode & 0o777:o})",
            hint=f"Run: chmod 600 {path}",
        )


def read_headers(path: Path) -> tuple[tuple[str, str], ...]:
    """The name and value of each line `Name: value` or `Name=value`; # begins a comment line.

    Raises UsageError that names the line and never shows it.
    """
    need_private("--remote-headers", path)
    try:
        lines = path.read_text(encoding="ascii").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--remote-headers {path} is no text file of ASCII lines") from error
    found: list[tuple[str, str]] = []
    for number, line in enumerate(lines, start=1):
        text = line.strip(" \t\r")
        if not text or text.startswith("#"):
            continue
        header = _HEADER.fullmatch(text)
        if header is None or not _VALUE.fullmatch(header["value"]):
            raise UsageError(
                f"line {number} of --remote-headers {path} is not `Name: value`",
                hint="A value is printable ASCII without quotes and backslashes",
            )
        found.append((header["name"], header["value"]))
    if not found:
        raise UsageError(f"--remote-headers {path} holds no header")
    return tuple(found)


def rc_text(path: Path) -> str:
    """The lines of a bazelrc that give Bazel the headers. Raises UsageError."""
    pairs = read_headers(path)
    return "".join(f'build "--remote_header={name}={value}"\n' for name, value in pairs)


@contextlib.contextmanager
def private_rc(path: Path | None, root: Path) -> Iterator[tuple[str, ...]]:
    """Startup options that give Bazel the headers, by a file that is gone afterwards.

    `root` becomes a folder that is closed to others, with all of Bazel's output in it: Bazel opens
    its --output_user_root to everybody, and the log that it keeps there repeats every option. So a
    build with headers has its output apart from one without. A file that a killed build left is
    removed, too: the caller sees to it that there is one build at a time. Raises UsageError,
    DiskError.
    """
    if path is None:
        yield ()
        return
    text = rc_text(path)
    rc: Path | None = None
    try:
        try:
            root.mkdir(parents=True, exist_ok=True)
            root.chmod(0o700)
            for left in root.glob("headers-*.bazelrc"):
                left.unlink()
            handle, name = tempfile.mkstemp(prefix="headers-", suffix=".bazelrc", dir=root)
            rc = Path(name)  # (mode 0600)
            with os.fdopen(handle, "w", encoding="ascii") as sink:
                sink.write(text)
        except OSError as error:
            raise DiskError(f"cannot write in {root}: {error.strerror}") from error
        output = f"--output_user_root={root / 'bazel'}"
        yield ("--nobatch", f"--max_idle_secs={_IDLE_S}", output, f"--bazelrc={rc}")
    finally:
        if rc is not None:
            rc.unlink(missing_ok=True)


def closed(path: Path) -> Path:
    """An empty file that only its owner can read, for Bazel to write its events into."""
    write_atomic(path, "")
    path.chmod(0o600)
    return path


def redact(secrets: Sequence[tuple[str, str]], events: Path) -> None:
    """Put *** in place of each header's value in a finished event file, which stays closed."""
    if not secrets or not events.is_file():
        return
    text = events.read_text(encoding="utf-8", errors="surrogateescape")
    for name, value in secrets:
        for equals, seen in (("=", value), ("\\u003d", _in_json(value))):
            text = text.replace(f"{name}{equals}{seen}", f"{name}{equals}***")
    write_atomic(events, text.encode("utf-8", errors="surrogateescape"))
    events.chmod(0o600)


def _in_json(value: str) -> str:
    """As Bazel's JSON writer has it, which is Gson made safe for HTML."""
    return "".join(f"\\u{ord(each):04x}" if each in "=<>&" else each for each in value)
