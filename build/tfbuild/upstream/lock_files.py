"""The pinned dependencies of a release's stock wheels: one file in `locks` per release.

A line that is not for all Pythons has a marker (PEP 508).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from packaging.requirements import Requirement

from tfbuild.upstream.releases import StockWheel, parse_python_tag
from tfcore.errors import WheelError

LOCKS = Path(__file__).with_name("locks")
_LATE_PATCH = ".99"
"""Markers would read a bare 3.9 as 3.9.0, which some packages exclude."""


def load_requirements(wheel: StockWheel) -> str:
    """Return the hashed requirements of the wheel's Python and machine.

    The wheel itself is not among them. Raises WheelError if none are stored for its release.
    """
    path = LOCKS / f"{wheel.version}.txt"
    if not path.is_file():
        raise WheelError(
            f"there is no lock file for {wheel.package} {wheel.version}",
            hint="There are lock files for "
            f"{', '.join(sorted(lock.stem for lock in LOCKS.glob('*.txt')))}",
        )
    python = parse_python_tag(wheel.python_tag)
    return filter_requirements(path.read_text(encoding="utf-8"), python, wheel.platform)


def filter_requirements(lock: str, python: str, machine: str) -> str:
    """Return the lines of a lock for CPython "3.11" on a kind of machine, without markers."""
    return "".join(_filter_lines(lock, describe_environment(python, machine)))


def describe_environment(python: str, machine: str) -> dict[str, str]:
    """Return the values of markers (PEP 508) for CPython "3.11" on Linux."""
    return {
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": f"{python}{_LATE_PATCH}",
        "python_version": python,
        "sys_platform": "linux",
    }


def _filter_lines(lock: str, place: Mapping[str, str]) -> Iterator[str]:
    """Yield NAME==VERSION and the hashes of every requirement whose marker holds there."""
    for match in re.finditer(r"(?m)^(\w[^\\\n]*?)((?: \\\n +--hash=\S+)+)$", lock):
        requirement = Requirement(match[1])
        if requirement.marker is None or requirement.marker.evaluate(dict(place)):
            yield f"{requirement.name}{requirement.specifier}{match[2]}\n"
