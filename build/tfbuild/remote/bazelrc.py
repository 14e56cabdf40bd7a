"""Parses the user's bazelrc, which Bazel gets unchanged, before a build starts.

Lines are split as in Bazel's rc_file.cc. A line of a config (`build:NAME`) counts like any other:
Bazel passes it on whether the config is chosen or not.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tfcore.errors import UsageError

_LARGEST_B = 1 << 20
_SPACE = " \t\n\r\f\v"
# A value has no character that an event file can write in several ways.
_HEADER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*=[!#-&(-\[\]-~][ !#-&(-\[\]-~]*", re.ASCII)
_QUOTED = 'Quote the whole option: build "--remote_header=NAME=VALUE"'
# Options about a service, which do not change build results.
_SERVICE = ("remote_", "tls_", "bes_")


@dataclass(frozen=True, kw_only=True, slots=True)
class Bazelrc:
    """The options of the user's bazelrc, in order; none, and no path, without a file.

    An option has the command of its line, its name without hyphens, and its value.
    """

    path: Path | None = None
    options: tuple[tuple[str, str, str], ...] = field(default=(), repr=False)

    def get_values(self, *names: str) -> tuple[str, ...]:
        return tuple(value for _, name, value in self.options if name in names)

    @property
    def secrets(self) -> tuple[tuple[str, str], ...]:
        """Return the name and value of each header, whatever service it is for."""
        headers = (value.partition("=") for _, name, value in self.options if _is_header(name))
        return tuple((name, value) for name, _, value in headers)

    @property
    def build_sha256(self) -> str:
        """Return the SHA-256 of the options that may change what is built; "" if there are none."""
        build_options = (
            option
            for option in self.options
            if not option[1].removeprefix("no").startswith(_SERVICE)
        )
        text = "".join(f"{command} {name}={value}\n" for command, name, value in build_options)
        return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest() if text else ""


def read_bazelrc(path: Path | None) -> Bazelrc:
    """Read a bazelrc. Raises UsageError, which names the line but never shows it."""
    if path is None:
        return Bazelrc()
    text = read_user_file("--bazelrc", path).decode(errors="surrogateescape")
    options = (
        option
        for number, line in _join_lines(text)
        for option in _parse_options(split_words(line), f"line {number} of --bazelrc {path}")
    )
    return Bazelrc(path=path, options=tuple(options))


def read_user_file(option: str, path: Path) -> bytes:
    """Read a file that an option names, of at most 1 MiB. Raises UsageError."""
    try:
        if path.is_file() and path.stat().st_size <= _LARGEST_B:
            return path.read_bytes()
    except OSError:
        pass  # (reported below)
    raise UsageError(f"{option} {path} is not a readable file of at most 1 MiB")


def _join_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines with the number of their first one.

    A backslash at the end of a line continues it.
    """
    start, line = 1, ""
    for number, part in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        line += part.removesuffix("\\")
        if not part.endswith("\\"):
            yield start, line
            start, line = number + 1, ""
    yield start, line


def split_words(line: str) -> list[str]:
    """Split a line into words, as Bazel's rc_file.cc does.

    Quotes are of both kinds, a backslash escapes any character, and # begins a comment. An
    open quote ends with the line.
    """
    words, quote = [""], ""
    characters = iter(line.strip(_SPACE))
    for character in characters:
        if character == "\\":
            words[-1] += next(characters, "")
        elif character == quote:
            quote = ""
        elif quote:
            words[-1] += character
        elif character in "\"'":
            quote = character
        elif character == "#":
            break
        elif character in _SPACE:
            words.append("")
        else:
            words[-1] += character
    return [word for word in words if word]


def _parse_options(words: list[str], where: str) -> Iterator[tuple[str, str, str]]:
    """Yield the options of a line. A value follows an = or is the next word. Raises UsageError."""
    command = words[0] if words else ""
    if command.startswith(("startup", "import", "try-import")):
        raise UsageError(
            f"{where} has a startup option or an import, which a build does not accept",
            hint="Remove startup options, and copy imported lines into the file",
        )
    joined: list[str] = []
    for word in words[1:]:
        if word.startswith("-"):
            joined.append(word.lstrip("-"))
        elif joined and "=" not in joined[-1]:
            joined[-1] += f"={word}"
        else:
            raise UsageError(f"{where} has a word that belongs to no option", hint=_QUOTED)
    for option in joined:
        name, _, value = option.partition("=")
        if _is_header(name) and not _HEADER.fullmatch(value):
            wrong = "a header must be NAME=VALUE, in ASCII, without quotes or backslashes"
            raise UsageError(f"{where}: {wrong}", hint=_QUOTED)
        yield command, name, value


def _is_header(name: str) -> bool:
    """Return True for --remote_header, --remote_cache_header, --bes_header and all others."""
    return name.endswith("_header")
