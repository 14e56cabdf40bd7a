"""The tables of `invoke targets` and `invoke releases`."""

from __future__ import annotations

import io
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from tfbuild.upstream import releases as table
from tfcore.cpus.cpu import read_cpu
from tfcore.cpus.features import ARCHITECTURES
from tfcore.cpus.targets import find_missing_features, list_targets
from tfcore.errors import CpuError, UsageError
from tfcore.records import format_json

_WIDEST = 1000


def format_targets(family: str | None, *, as_json: bool) -> str:
    """Format a table of all targets, and whether this CPU can run a wheel for each.

    Raises UsageError.
    """
    if family is not None and family not in ARCHITECTURES:
        raise UsageError(f"--family {family} is unknown", hint=f"Use {' or '.join(ARCHITECTURES)}")
    selected = list_targets(family)
    if as_json:
        return format_json(selected)
    try:
        cpu = read_cpu()
    except CpuError:
        cpu = None
    rows = [
        (
            target.name,
            target.family,
            target.vendor,
            "" if cpu is None else ("yes" if not find_missing_features(target, cpu) else "no"),
        )
        for target in selected
    ]
    return format_grid(("--arch", "family", "vendor", "runs here"), rows)


def format_releases(*, as_json: bool) -> str:
    known = table.load_releases()
    if as_json:
        return format_json(known)
    rows = [
        (
            release.version,
            f"{release.pythons[0]}-{release.pythons[-1]}",
            release.bazel,
            release.compiler,
            "kernels, full" if release.kernels else "full",
            release.verified,
        )
        for release in known
    ]
    return format_grid(("--release", "Python", "Bazel", "compiler", "scopes", "verified"), rows)


def format_grid(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Format rows as columns that are as wide as they need to be.

    Lines are not wrapped: a narrow terminal wraps them itself, and a pipe gets whole lines.
    """
    table_view = Table(box=None, pad_edge=False)
    for name in head:
        table_view.add_column(name, no_wrap=True)
    for row in rows:
        table_view.add_row(*row)
    text = io.StringIO()
    Console(
        file=text,
        width=_WIDEST,
        force_terminal=False,
        no_color=True,
        markup=False,
        emoji=False,
    ).print(table_view)
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())
