"""What a release's stock wheels depend on, pinned: a file in `locks` for each release.

A line says by a marker (PEP 508) for which Python it is, where not for all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from packaging.requirements import Requirement

from tfbuild.errors import WheelError
from tfbuild.upstream.releases import StockWheel, python_of

LOCKS = Path(__file__).with_name("locks")
_LATE_PATCH = ".99"
"""Of a bare 3.9 the oldest patch would be taken, and some packages exclude just that."""


def requirements_of(wheel: StockWheel) -> str:
    """The hashed requirements of the wheel's Python and machine, without the wheel itself. Raises
    WheelError if none are kept of its release."""
    path = LOCKS / f"{wheel.version}.txt"
    if not path.is_file():
        raise WheelError(
            f"no locked dependencies for {wheel.package} {wheel.version}",
            hint=f"There are: {', '.join(sorted(each.stem for each in LOCKS.glob('*.txt')))}",
        )
    python = python_of(wheel.python_tag)
    return requirements_for(path.read_text(encoding="utf-8"), python, wheel.platform)


def requirements_for(lock: str, python: str, machine: str) -> str:
    """The lines of a lock that are for CPython "3.11" on a kind of machine, without markers."""
    place = {
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": f"{python}{_LATE_PATCH}",
        "python_version": python,
        "sys_platform": "linux",
    }
    return "".join(_lines(lock, place))


def _lines(lock: str, place: Mapping[str, str]) -> Iterator[str]:
    """Of every requirement that holds there: NAME==VERSION, and the hashes as they stand."""
    for found in re.finditer(r"(?m)^(\w[^\\\n]*?)((?: \\\n +--hash=\S+)+)$", lock):
        wanted = Requirement(found[1])
        if wanted.marker is None or wanted.marker.evaluate(dict(place)):
            yield f"{wanted.name}{wanted.specifier}{found[2]}\n"
