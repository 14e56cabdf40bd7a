"""The user's bazelrc, which Bazel gets as it is: what a build has to know of it before it starts.

Lines are split as Bazel's rc_file.cc does it. One behind a config (`build:NAME`) counts as any
other: Bazel passes it on, chosen or not.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tfbuild.errors import UsageError

_LARGEST_B = 1 << 20
_SPACE = " \t\n\r\f\v"
# A value has nothing that an event file would write in several ways.
_HEADER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*=[!#-&(-\[\]-~][ !#-&(-\[\]-~]*", re.ASCII)
_QUOTED = 'Put the whole option into quotes: build "--remote_header=NAME=VALUE"'
# Options about a service: what is built does not depend on them.
_SERVICE = ("remote_", "tls_", "bes_")


@dataclass(frozen=True, kw_only=True, slots=True)
class Bazelrc:
    """The options of a file in their order, each as the command of its line, its name without
    hyphens, and its value. None, and no path, where the user gave no file."""

    path: Path | None = None
    options: tuple[tuple[str, str, str], ...] = field(default=(), repr=False)

    def values(self, *names: str) -> tuple[str, ...]:
        return tuple(value for _, name, value in self.options if name in names)

    @property
    def secrets(self) -> tuple[tuple[str, str], ...]:
        """Name and value of each header, whatever service it is for."""
        found = (value.partition("=") for _, name, value in self.options if _is_header(name))
        return tuple((name, value) for name, _, value in found)

    @property
    def deciding(self) -> str:
        """The SHA-256 of the options that may change what is built; empty where there are none."""
        own = (each for each in self.options if not each[1].removeprefix("no").startswith(_SERVICE))
        text = "".join(f"{command} {name}={value}\n" for command, name, value in own)
        return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest() if text else ""


def read(path: Path | None) -> Bazelrc:
    """Raises UsageError that names the line and never shows it."""
    if path is None:
        return Bazelrc()
    text = content("--bazelrc", path).decode(errors="surrogateescape")
    found = (
        option
        for number, line in _lines(text)
        for option in _options(split(line), f"line {number} of --bazelrc {path}")
    )
    return Bazelrc(path=path, options=tuple(found))


def content(option: str, path: Path) -> bytes:
    """What a file of the user's holds. Raises UsageError."""
    try:
        if path.is_file() and path.stat().st_size <= _LARGEST_B:
            return path.read_bytes()
    except OSError:
        pass  # (said below)
    raise UsageError(f"{option} {path} is no file that can be read, or has more than 1 MiB")


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Each with the number that it begins at: a backslash at the end continues it."""
    start, line = 1, ""
    for number, each in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        line += each.removesuffix("\\")
        if not each.endswith("\\"):
            yield start, line
            start, line = number + 1, ""
    yield start, line


def split(line: str) -> list[str]:
    """The words of a line: quotes of both kinds, a backslash before any character, # to the end.
    What is left open ends with the line."""
    words, quote = [""], ""
    rest = iter(line.strip(_SPACE))
    for each in rest:
        if each == "\\":
            words[-1] += next(rest, "")
        elif each == quote:
            quote = ""
        elif quote:
            words[-1] += each
        elif each in "\"'":
            quote = each
        elif each == "#":
            break
        elif each in _SPACE:
            words.append("")
        else:
            words[-1] += each
    return [each for each in words if each]


def _options(words: list[str], where: str) -> Iterator[tuple[str, str, str]]:
    """Those of a line. A value stands behind an = or is the next word. Raises UsageError."""
    command = words[0] if words else ""
    if command.startswith(("startup", "import", "try-import")):
        raise UsageError(
            f"{where} has a startup option or an import, which a build cannot take",
            hint="Startup options are the build's own; copy what is imported into the file",
        )
    joined: list[str] = []
    for word in words[1:]:
        if word.startswith("-"):
            joined.append(word.lstrip("-"))
        elif joined and "=" not in joined[-1]:
            joined[-1] += f"={word}"
        else:
            raise UsageError(f"{where} has a word that belongs to no option", hint=_QUOTED)
    for each in joined:
        name, _, value = each.partition("=")
        if _is_header(name) and not _HEADER.fullmatch(value):
            wrong = "a header is NAME=VALUE, in ASCII without quotes and backslashes"
            raise UsageError(f"{where}: {wrong}", hint=_QUOTED)
        yield command, name, value


def _is_header(name: str) -> bool:
    """Of --remote_header, --remote_cache_header, --bes_header and all others."""
    return name.endswith("_header")
