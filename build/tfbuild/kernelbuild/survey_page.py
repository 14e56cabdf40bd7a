"""A survey as files of the checkout: the table that kernels are selected by, and a page to read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tfbuild.kernelbuild.survey import BatchResult, Survey, rows
from tfbuild.records import write_atomic
from tfbuild.settings import Paths
from tfbuild.upstream import kernels
from tfbuild.upstream.kernels import SourceOutcome, SurveyRow

_KINDS = (
    ("is compiled with others that do not compile", r" does not compile$"),
    ("does not link", r"^it does not link"),
    ("takes kernel code from the stock library", r"^it takes "),
    ("would share state with the stock library", r"^it would share "),
    (
        "registers something else than the stock sources",
        r"^it lacks|^it registers|^no stock kernel|disappeared$",
    ),
    ("has an op without test inputs", r"no inputs were found"),
    ("computes something else", r"ULPs"),
    ("is not run by its op", r"TensorFlow did not run"),
    ("ends or holds up the process", r"^loading it alone|the probe ended|s did not|SIG[A-Z]+"),
)


def kind(reason: str) -> str:
    """The kind of a reason, for counting."""
    return next((name for name, words in _KINDS if re.search(words, reason)), "another reason")


def page(found: Survey) -> str:
    """The survey as a Markdown page."""
    every = rows(found)
    plan = found.plan
    lines = [
        f"# CPU kernel sources of TensorFlow {plan.release}",
        "",
        f"Written by `invoke survey` for {plan.target.spec}, compiled by {plan.compiler}",
        f"{plan.compiler_version}.",
        f"The whole table is `build/tfbuild/upstream/survey-{plan.release}.csv`.",
        *([] if found.finished else ["", "**Not finished**: some were not looked at yet."]),
        "",
        *_table(("sources", "number"), _counted(row.outcome for row in every)),
        "",
        "## Units",
        "",
        "A unit is one source or several that must be compiled together.",
        "",
        *_table(("units", "number"), _counted(_state(result) for result in found.results.values())),
        "",
        "## Sources that do not compile",
        "",
        *_table(("source", "reason"), sorted(found.broken.items())),
        "",
        "## Units that stay stock",
        "",
        *_table(("unit", "reason"), _reasons(found.results)),
        "",
        "## Admitted units",
        "",
        *_table(("unit", "registrations", "cases", "ops"), _admissions(every)),
    ]
    return "\n".join(lines) + "\n"


def _state(result: BatchResult) -> str:
    return kind(result.reason) if result.reason else "admitted"


def _reasons(results: Mapping[str, BatchResult]) -> list[tuple[str, str]]:
    return sorted((unit, each.reason) for unit, each in results.items() if each.reason)


def _admissions(every: Iterable[SurveyRow]) -> list[tuple[object, ...]]:
    units: dict[str, list[SurveyRow]] = {}
    for row in every:
        if row.outcome is SourceOutcome.ADMITTED:
            units.setdefault(row.unit, []).append(row)
    return [
        (unit, rows[0].registrations, rows[0].cases, " ".join(_ops(rows)))
        for unit, rows in sorted(units.items())
    ]


def _ops(rows: Iterable[SurveyRow]) -> list[str]:
    return sorted({op for row in rows for op in row.ops})


def _counted(names: Iterable[str]) -> list[tuple[str, int]]:
    return Counter(names).most_common()


def _table(head: Sequence[str], body: Iterable[Sequence[object]]) -> list[str]:
    return [_line(head), "|" + "---|" * len(head), *map(_line, body)]


def _line(cells: Sequence[object]) -> str:
    return "| " + " | ".join(str(cell).replace("|", r"\|") for cell in cells) + " |"


def write(found: Survey, paths: Paths) -> tuple[Path, ...]:
    """The page into the checkout, and once all was looked at the table: kernels are selected by it.
    Returns what was written."""
    paper = paths.root / f"build/kernels-{found.plan.release}.md"
    write_atomic(paper, page(found))
    if not found.finished:
        return (paper,)
    table = paths.root / f"build/tfbuild/upstream/survey-{found.plan.release}.csv"
    write_atomic(table, kernels.format_survey(rows(found)))
    return table, paper
