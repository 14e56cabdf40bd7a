"""Rows of releases.toml and lines of lock files as text, for a release that is added. Pure."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packaging.markers import Marker
from packaging.version import Version

from tfbuild.upstream.lock_files import describe_environment
from tfbuild.upstream.releases import CPU_PACKAGES
from tfcore.errors import ReleaseError

MACHINES = ("x86_64", "aarch64")
_HEAD = "[[release]]"
_NOT_TAKEN = ("wheels", "debian")
"""What a row does not take over from the release before it, beside what is its own."""
_REQUIREMENT = re.compile(r"(?m)^(?P<pin>[\w.-]+==\S+) ; (?P<marker>[^\\\n]+?) \\$")


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedWheel:
    """A wheel that the index has, with its SHA-256 (hex)."""

    package: str
    python: str
    machine: str
    file: str
    sha256: str


def require_new(table: str, version: str) -> None:
    """Raise ReleaseError if the release is in the table, or is older than all."""
    _, versions = _split(table)
    if version in versions:
        raise ReleaseError(f"TensorFlow {version} is in the table already")
    if all(Version(version) < Version(known) for known in versions):
        raise ReleaseError(
            f"TensorFlow {version} is older than the releases of the table",
            hint="Write its row by hand",
        )


def add_row(table: str, version: str, wheels: Sequence[PublishedWheel], source_sha256: str) -> str:
    """Return the table with a row for a release that is new (`require_new`).

    What only the release's sources would show is taken over from the release before it, and a
    comment says so.
    """
    head, rows = _split(table)
    before = [known for known in rows if Version(known) < Version(version)]
    row = render_row(_parse(rows[before[-1]]), version, wheels, source_sha256)
    texts = {known: text.rstrip("\n") for known, text in rows.items()} | {version: row.rstrip("\n")}
    return head + "\n\n".join(texts[known] for known in sorted(texts, key=Version)) + "\n"


def _split(table: str) -> tuple[str, dict[str, str]]:
    """Return what stands before the rows, and the rows by version."""
    head, *rows = re.split(r"(?m)^(?=\[\[release\]\]$)", table)
    return head, {_parse(row)["version"]: row for row in rows}


def _parse(row: str) -> dict[str, Any]:
    (fields,) = tomllib.loads(row)["release"]
    return dict(fields)


def render_row(
    earlier: Mapping[str, Any],
    version: str,
    wheels: Sequence[PublishedWheel],
    source_sha256: str,
) -> str:
    """Render a row: what is the release's own first, then what is taken over."""
    cpu = {wheel.python for wheel in wheels if wheel.machine == MACHINES[0]}
    own = {
        "version": version,
        "verified_kernels": "",
        "verified_full": f"settings of {earlier['version']}, not checked; nothing was built",
        "pythons": sorted(cpu, key=Version),
        "source_sha256": source_sha256,
    }
    lines = [_HEAD, *(f"{key} = {_render(value)}" for key, value in own.items())]
    lines += [
        f"{key} = {_render(value)} # as {earlier['version']}, not checked"
        for key, value in earlier.items()
        if key not in own and key not in _NOT_TAKEN
    ]
    lines.append("wheels = [")
    lines += [f'    {{ file = "{wheel.file}", sha256 = "{wheel.sha256}" }},' for wheel in wheels]
    return "\n".join([*lines, "]", ""])


def _render(value: object) -> str:
    if isinstance(value, Mapping):
        pairs = (f"{name} = {_render(item)}" for name, item in value.items())
        return f"{{ {', '.join(pairs)} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_render, value))}]"
    return json.dumps(value)  # strings, numbers and booleans are the same in TOML


def record_verification(table: str, version: str, text: str) -> str:
    """Return the table with what was verified of the release's kernels."""
    head, rows = _split(table)
    line = f"verified_kernels = {json.dumps(text)}"
    row = re.sub(r"(?m)^verified_kernels = .*$", lambda _: line, rows[version], count=1)
    return head + "".join((rows | {version: row}).values())


def simplify_lock(lock: str, pythons: Sequence[str]) -> str:
    """Return a lock whose markers only tell apart these Pythons on Linux, and machines."""

    def simplify(match: re.Match[str]) -> str:
        marker = simplify_marker(match["marker"], pythons)
        return f"{match['pin']}{f' ; {marker}' if marker else ''} \\"

    return _REQUIREMENT.sub(simplify, lock)


def simplify_marker(marker: str, pythons: Sequence[str]) -> str:
    """Return the shortest marker with the same value on all these Pythons and machines.

    It is empty if the value is always true. Raises ReleaseError for a marker that holds nowhere,
    or for Pythons that do not follow each other.
    """
    by_machine = {
        machine: [
            python
            for python in pythons
            if Marker(marker).evaluate(describe_environment(python, machine))
        ]
        for machine in MACHINES
    }
    conditions = {
        machine: _describe_pythons(found, pythons) for machine, found in by_machine.items() if found
    }
    if not conditions:
        raise ReleaseError(f"no Python of the release meets the marker {marker}")
    if len(conditions) == len(MACHINES) and len(set(conditions.values())) == 1:
        return next(iter(conditions.values()))
    parts = [
        " and ".join(filter(None, [f"platform_machine == '{machine}'", condition]))
        for machine, condition in conditions.items()
    ]
    return " or ".join(f"({part})" for part in parts) if len(parts) > 1 else parts[0]


def _describe_pythons(found: Sequence[str], pythons: Sequence[str]) -> str:
    if list(found) == list(pythons):
        return ""
    first, last = pythons.index(found[0]), pythons.index(found[-1])
    if list(pythons[first : last + 1]) != list(found):
        raise ReleaseError(
            f"a lock is for Python {', '.join(found)}, which do not follow each other"
        )
    if len(found) == 1 and 0 < first < len(pythons) - 1:
        return f"python_full_version == '{found[0]}.*'"
    above = f"python_full_version >= '{found[0]}'" if first > 0 else ""
    below = f"python_full_version < '{pythons[last + 1]}'" if last < len(pythons) - 1 else ""
    return " and ".join(filter(None, (above, below)))


def order_wheels(wheels: Iterable[PublishedWheel]) -> list[PublishedWheel]:
    """Order wheels as the table does: by machine, by package, by Python."""
    return sorted(
        wheels,
        key=lambda wheel: (
            MACHINES.index(wheel.machine),
            CPU_PACKAGES.index(wheel.package),
            Version(wheel.python),
        ),
    )
