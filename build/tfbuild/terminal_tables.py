"""Tables for a person: targets and releases."""

from __future__ import annotations

import io
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from tfbuild.cpus.cpu import read_cpu
from tfbuild.cpus.features import ARCHITECTURES
from tfbuild.cpus.targets import all_targets, missing
from tfbuild.errors import CpuError, UsageError
from tfbuild.records import pretty
from tfbuild.upstream import releases as table

_WIDEST = 1000


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
    return grid(("--arch", "family", "vendor", "runs here"), rows)


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
    return grid(("--release", "Python", "Bazel", "compiler", "scopes", "verified"), rows)


def grid(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Columns as wide as they need: a narrow terminal wraps lines itself, and a pipe gets whole
    ones."""
    made = Table(box=None, pad_edge=False)
    for name in head:
        made.add_column(name, no_wrap=True)
    for row in rows:
        made.add_row(*row)
    text = io.StringIO()
    Console(
        file=text,
        width=_WIDEST,
        force_terminal=False,
        no_color=True,
        markup=False,
        emoji=False,
    ).print(made)
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())
