"""Tables for a person: this CPU, targets, releases, and what this machine lacks."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tfbuild.cpus import detect
from tfbuild.cpus.cpu import read_cpu
from tfbuild.cpus.features import ARCHITECTURES
from tfbuild.cpus.targets import all_targets, missing
from tfbuild.errors import CpuError, UsageError
from tfbuild.planning.defaults import of_cpu
from tfbuild.planning.request import Request
from tfbuild.records import plain, pretty
from tfbuild.settings import Places
from tfbuild.tools import doctor, installed
from tfbuild.tools.installed import Installed
from tfbuild.upstream import releases as table

_WIDEST = 1000


def detected(*, as_json: bool) -> str:
    """What this CPU is, and what TensorFlow's run-time defaults are on it."""
    found = detect.detect()
    defaults = of_cpu(found.cpu, found.vcpus, table.find_release(Request().release).version)
    if as_json:
        return pretty(plain(found) | {"defaults": defaults})
    return f"{detect.describe(found, defaults)}\n"


def targets(family: str | None, *, as_json: bool) -> str:
    """Every target, and whether this CPU can run what is built for it. Raises UsageError."""
    if family is not None and family not in ARCHITECTURES:
        raise UsageError(f"--family {family} is unknown", hint=f"Use {' or '.join(ARCHITECTURES)}")
    found = all_targets(family)
    if as_json:
        return pretty(found)
    try:
        here = read_cpu()
    except CpuError:
        here = None
    rows = [
        (
            target.name,
            target.family,
            target.vendor,
            "" if here is None else ("yes" if not missing(target, here) else "no"),
        )
        for target in found
    ]
    return _table(("--arch", "family", "vendor", "runs here"), rows)


def releases(*, as_json: bool) -> str:
    found = table.load_releases()
    if as_json:
        return pretty(found)
    rows = [
        (
            release.version,
            f"{release.pythons[0]}-{release.pythons[-1]}",
            release.bazel,
            release.compiler,
            "kernels, full" if release.kernels else "full",
            release.verified,
        )
        for release in found
    ]
    return _table(("--release", "Python", "Bazel", "compiler", "scopes", "verified"), rows)


def needs(places: Places, *, tests: bool, as_json: bool) -> tuple[str, bool]:
    """The text, and whether nothing is missing."""
    found = doctor.needs(places, tests=tests)
    missing_needs = [need for need in found if not need.present]
    lines = doctor.commands(missing_needs)
    if as_json:
        return pretty({"needs": found, "commands": lines}), not missing_needs
    rows = [(need.name, need.present or "missing", need.purpose) for need in found]
    text = _table(("need", "found", "what for"), rows)
    if lines:
        text += "\nTo mend it, run:\n" + "".join(f"  {line}\n" for line in lines)
    return text, not missing_needs


def kernels_of(place: str, *, as_json: bool) -> tuple[Installed, str]:
    """Which kernels run where a tuned wheel is installed. Raises UsageError, HostError."""
    found = installed.look(Path(place).expanduser())
    if not as_json:
        return found, installed.describe(found)
    targets = found.facts.targets if found.facts else ()
    rows = {name: getattr(found, name) for name in ("file", "version", "loaded", "reason")}
    return found, pretty({**rows, "targets": targets})


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Columns as wide as they need: a narrow terminal wraps lines itself, and a pipe gets whole
    ones."""
    grid = Table(box=None, pad_edge=False)
    for name in head:
        grid.add_column(name, no_wrap=True)
    for row in rows:
        grid.add_row(*row)
    text = io.StringIO()
    Console(file=text, width=_WIDEST, force_terminal=False, no_color=True).print(grid)
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())
