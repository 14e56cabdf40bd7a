"""What a look at a machine found: one line for each thing, and what all of them together mean."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tfbuild import console
from tfbuild.errors import PreflightError


class CheckVerdict(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FATAL = "fatal"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """The result of one check of the machine. `advice` is empty if all is well."""

    name: str
    seen: str
    wanted: str
    verdict: CheckVerdict
    advice: str = ""


def build_finding(
    name: str, seen: str, wanted: str, bad: CheckVerdict | None, advice: str
) -> Finding:
    """Build a finding; `bad` is None if all is well, and only a bad one needs advice."""
    return Finding(
        name=name,
        seen=seen,
        wanted=wanted,
        verdict=bad or CheckVerdict.OK,
        advice=advice if bad else "",
    )


def build_unknown(name: str, seen: str, wanted: str) -> Finding:
    """Build a finding of something that could not be checked.

    It is no reason to stop, and none to be sure.
    """
    return Finding(name=name, seen=seen, wanted=wanted, verdict=CheckVerdict.UNKNOWN)


def require_no_fatal(findings: Iterable[Finding]) -> None:
    """Raise PreflightError that names every fatal finding and what to do about it."""
    fatal = [entry for entry in findings if entry.verdict is CheckVerdict.FATAL]
    if not fatal:
        return
    count = console.format_count(len(fatal), "thing")
    raise PreflightError(
        f"the build would fail here for {count}:{_format_fatal(fatal)}\n",
        hint="Mend this, or pass --no-preflight to try all the same",
    )


def _format_fatal(fatal: Iterable[Finding]) -> str:
    return "".join(f"\n  - {entry.name}: {_format_finding(entry)}" for entry in fatal)


def _format_finding(found: Finding) -> str:
    return f"{found.seen}; wanted: {found.wanted}. {found.advice}"


def render_table(findings: Sequence[Finding]) -> str:
    """Render the findings as an aligned table, with advice below the lines that have some."""
    rows = [(entry.verdict.value, entry.name, entry.seen, entry.wanted) for entry in findings]
    widths = [max((len(cell) for cell in column), default=0) for column in zip(*rows, strict=True)]
    lines: list[str] = []
    for row, item in zip(rows, findings, strict=True):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join(cells).rstrip())
        if item.advice:
            lines.append(f"{' ' * (widths[0] + 2)}{item.advice}")
    return "\n".join(lines)
