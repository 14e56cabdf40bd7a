"""The findings of the machine checks: one line each, and the verdict on all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tfcore import console
from tfcore.errors import PreflightError


class CheckVerdict(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FATAL = "fatal"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """The result of one check of the machine. `advice` is empty if the check passed."""

    name: str
    seen: str
    wanted: str
    verdict: CheckVerdict
    advice: str = ""


def build_finding(
    name: str, actual: str, expected: str, bad: CheckVerdict | None, advice: str
) -> Finding:
    """Build a finding; `bad` is None if the check passed; only a failed check needs advice."""
    return Finding(
        name=name,
        seen=actual,
        wanted=expected,
        verdict=bad or CheckVerdict.OK,
        advice=advice if bad else "",
    )


def build_unknown(name: str, actual: str, expected: str) -> Finding:
    """Build a finding for a check that could not run. It does not stop the build."""
    return Finding(name=name, seen=actual, wanted=expected, verdict=CheckVerdict.UNKNOWN)


def require_no_fatal(findings: Iterable[Finding]) -> None:
    """Raise PreflightError that names every fatal finding and what to do about it."""
    fatal = [entry for entry in findings if entry.verdict is CheckVerdict.FATAL]
    if not fatal:
        return
    count = console.format_count(len(fatal), "reason")
    raise PreflightError(
        f"the build would fail on this machine for {count}:{_format_fatal(fatal)}\n",
        hint="Correct them, or pass --no-preflight to build anyway",
    )


def _format_fatal(fatal: Iterable[Finding]) -> str:
    return "".join(f"\n  - {entry.name}: {_format_finding(entry)}" for entry in fatal)


def _format_finding(finding: Finding) -> str:
    return f"{finding.seen}; required: {finding.wanted}. {finding.advice}"


def render_table(findings: Sequence[Finding]) -> str:
    """Render the findings as an aligned table, with advice below the lines that need it."""
    rows = [(entry.verdict.value, entry.name, entry.seen, entry.wanted) for entry in findings]
    widths = [max((len(cell) for cell in column), default=0) for column in zip(*rows, strict=True)]
    lines: list[str] = []
    for row, item in zip(rows, findings, strict=True):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join(cells).rstrip())
        if item.advice:
            lines.append(f"{' ' * (widths[0] + 2)}{item.advice}")
    return "\n".join(lines)
