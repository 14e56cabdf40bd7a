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
    """One thing that was looked at. `advice` is empty where all is well."""

    name: str
    seen: str
    wanted: str
    verdict: CheckVerdict
    advice: str = ""


def finding(name: str, seen: str, wanted: str, bad: CheckVerdict | None, advice: str) -> Finding:
    """A finding that is well where `bad` is None; only a bad one needs advice."""
    return Finding(
        name=name,
        seen=seen,
        wanted=wanted,
        verdict=bad or CheckVerdict.OK,
        advice=advice if bad else "",
    )


def unknown(name: str, seen: str, wanted: str) -> Finding:
    """Something that could not be looked at: no reason to stop, and none to be sure."""
    return Finding(name=name, seen=seen, wanted=wanted, verdict=CheckVerdict.UNKNOWN)


def judge(findings: Iterable[Finding]) -> None:
    """Raises PreflightError that names every fatal finding and what to do about it."""
    fatal = [each for each in findings if each.verdict is CheckVerdict.FATAL]
    if not fatal:
        return
    count = console.format_count(len(fatal), "thing")
    raise PreflightError(
        f"the build would fail here for {count}:{_listed(fatal)}\n",
        hint="Mend this, or pass --no-preflight to try all the same",
    )


def _listed(fatal: Iterable[Finding]) -> str:
    return "".join(f"\n  - {each.name}: {_sentence(each)}" for each in fatal)


def _sentence(found: Finding) -> str:
    return f"{found.seen}; wanted: {found.wanted}. {found.advice}"


def describe(findings: Sequence[Finding]) -> str:
    """An aligned table, with advice below the lines that have some."""
    rows = [(each.verdict.value, each.name, each.seen, each.wanted) for each in findings]
    widths = [max((len(cell) for cell in column), default=0) for column in zip(*rows, strict=True)]
    lines: list[str] = []
    for row, found in zip(rows, findings, strict=True):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join(cells).rstrip())
        if found.advice:
            lines.append(f"{' ' * (widths[0] + 2)}{found.advice}")
    return "\n".join(lines)
