"""The values of levers, and the environment variables that they set.

Pure, except the search for memory allocators in the dynamic linker's cache of libraries.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

from tfbench.arms.lever_table import LEVERS, MALLOCS, Lever, ValueKind
from tfcore import packages
from tfcore.console import format_choices, suggest_spelling
from tfcore.errors import UsageError
from tfcore.run import run

Pairs: TypeAlias = tuple[tuple[str, str], ...]
"""Names and values of levers or of environment variables."""
_LDCONFIG_FOLDERS = ("/sbin", "/usr/sbin")  # (not on every user's PATH)
_LDCONFIG_MACHINES = {"x86_64": "x86-64", "aarch64": "AArch64"}
_LDCONFIG_LINE = re.compile(r"\t(?P<name>\S+) \((?P<tags>[^)]*)\) => (?P<path>.+)")
_NUMBER = re.compile(r"[1-9][0-9]{0,3}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS = ("PATH", "HOME", "LD_LIBRARY_PATH")
_OURS_BEGIN = ("PYTHON", "TENSORWRIGHT_")


def find_lever(name: str, value: str) -> Lever:
    """Return the lever of this name.

    Raises UsageError if there is none, or if it does not take this value.
    """
    if name not in LEVERS:
        raise UsageError(f"unknown lever {name!r}", hint=suggest(name, LEVERS))
    lever = LEVERS[name]
    fits = {
        ValueKind.WORD: False,
        ValueKind.NUMBER: _NUMBER.fullmatch(value) is not None,
        ValueKind.MALLOC: _is_preloadable(value),
    }
    if value not in lever.words and not fits[lever.takes]:
        allowed = (*lever.words, *(() if lever.takes == ValueKind.WORD else (lever.takes,)))
        raise UsageError(
            f"{name} is {value!r}, but must be {format_choices(allowed)}",
            hint=suggest_spelling(value, lever.words),
        )
    return lever


def check_variable(name: str, value: str) -> None:
    """Raise UsageError for an environment variable that an arm may not set."""
    if not _VARIABLE.fullmatch(name):
        raise UsageError(f"{name!r} is not a valid name of an environment variable")
    if name in _OURS or name.startswith(_OURS_BEGIN):
        raise UsageError(f"{name} cannot be set for an arm: the comparison depends on it")
    if not value.isprintable():
        raise UsageError(f"the value of {name} ({value!r}) contains unprintable characters")


def resolve_lever(name: str, value: str, malloc: Callable[[str], Path]) -> Pairs:
    """Return the environment variables that a lever sets.

    `malloc` finds a library by its name, as `find_malloc` does. Raises UsageError.
    """
    lever = find_lever(name, value)
    if lever.takes == ValueKind.MALLOC and value in MALLOCS:
        value = str(malloc(value))
    values = lever.words.get(value, (value,) * len(lever.variables))
    return tuple(zip(lever.variables, values, strict=True))


def find_widest_tolerance(levers: Iterable[Lever], otherwise: float) -> float:
    """Return the widest tolerance that one of these levers needs, at least `otherwise`."""
    return max([otherwise, *(lever.tolerance or 0.0 for lever in levers)])


def suggest(word: str, known: Collection[str]) -> str:
    """Return a hint with the most similar known word, or else with all of them."""
    return suggest_spelling(word, known) or f"Use one of {', '.join(known)}"


def _is_preloadable(text: str) -> bool:
    """Return whether the dynamic linker reads the text as one path.

    It splits LD_PRELOAD at colons and white space.
    """
    return text.startswith("/") and text.isprintable() and not re.search(r"[\s:]", text)


def list_installed_mallocs() -> tuple[str, ...]:
    libraries = _list_libraries()
    return tuple(name for name in MALLOCS if malloc_among(libraries, name))


def find_malloc(name: str) -> Path:
    """Find a library of `MALLOCS` in the dynamic linker's cache.

    Raises UsageError, with the Debian package to install.
    """
    path = malloc_among(_list_libraries(), name)
    if path is None:
        package = MALLOCS[name].package
        raise UsageError(
            f"{name} is not installed on this machine",
            hint=f"{packages.suggest_install(name, package)}. Or give the absolute path of its "
            f"library: malloc=/…/{MALLOCS[name].files[0]}",
        )
    return path


def _list_libraries() -> dict[str, Path]:
    folders = os.pathsep.join((os.environ.get("PATH", os.defpath), *_LDCONFIG_FOLDERS))
    ldconfig = shutil.which("ldconfig", path=folders)
    listing = run([ldconfig, "-p"]).output if ldconfig else ""
    return parse_ldconfig(listing, platform.machine())


def parse_ldconfig(listing: str, machine: str) -> dict[str, Path]:
    """Parse the output of `ldconfig -p`: paths by file name, without those of other machines."""
    tag = _LDCONFIG_MACHINES.get(machine, machine)
    lines = (_LDCONFIG_LINE.fullmatch(line) for line in listing.splitlines())
    matches = (line for line in lines if line and tag in line["tags"].split(","))
    return {line["name"]: Path(line["path"]) for line in matches}


def malloc_among(libraries: Mapping[str, Path], name: str) -> Path | None:
    """Return the newest of these libraries that replaces malloc under this name."""
    for file in MALLOCS[name].files:
        versions = {key.removeprefix(f"{file}."): path for key, path in libraries.items()}
        known = {int(text): path for text, path in versions.items() if text.isdecimal()}
        if known:
            return known[max(known)]
    return None
