"""The files of a survey in the checkout: the table for the choice of kernels, and a page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tfbuild.kernelbuild.survey import BatchResult, Survey, build_rows
from tfbuild.upstream import kernels
from tfbuild.upstream.kernels import SourceOutcome, SurveyRow
from tfcore.records import write_atomic
from tfcore.settings import Paths

_PASSED = "passed the conformance test"
_KINDS = (
    ("is compiled with others that do not compile", r" does not compile$"),
    ("does not link", r"^it does not link"),
    ("uses kernel code of the stock library", r"^it (takes|uses) "),
    ("would share state with the stock library", r"^it would share "),
    (
        "registers other kernels than stock",
        r"^it lacks|^it registers|^no stock kernel|disappeared$",
    ),
    ("has an op without test inputs", r"no (test )?inputs were found"),
    ("computes different results", r"ULPs"),
    ("has a kernel that TensorFlow did not run", r"TensorFlow did not run"),
    ("ends or blocks the process", r"^loading it alone|the probe ended|s did not|SIG[A-Z]+"),
)


def classify_reason(reason: str) -> str:
    """Return the kind of a reason, for counting."""
    return next((name for name, words in _KINDS if re.search(words, reason)), "another reason")


def render_page(survey: Survey) -> str:
    """Render the survey as a Markdown page."""
    surveyed = build_rows(survey)
    plan = survey.plan
    compiler = f"{plan.compiler} {plan.compiler_version}"
    lines = [
        f"# CPU kernel sources of TensorFlow {plan.release}",
        "",
        f"Written by `invoke survey` for {plan.target.spec}, compiled by {compiler}.",
        f"The full table is `build/tfbuild/upstream/survey-{plan.release}.csv`.",
        *([] if survey.finished else ["", "**Not finished**: some sources were not tested yet."]),
        "",
        *_render_table(
            ("sources", "number"), _count_names(_describe_outcome(row.outcome) for row in surveyed)
        ),
        "",
        "## Kernel groups",
        "",
        "A kernel group is one source, or several that must be compiled together.",
        "",
        *_render_table(
            ("kernel groups", "number"),
            _count_names(_describe_result(result) for result in survey.results.values()),
        ),
        "",
        "## Sources that do not compile",
        "",
        *_render_table(("source", "reason"), sorted(survey.broken.items())),
        "",
        "## Kernel groups that stay stock",
        "",
        *_render_table(("kernel group", "reason"), _list_reasons(survey.results)),
        "",
        "## Kernel groups that passed",
        "",
        *_render_table(
            ("kernel group", "registrations", "cases", "ops"), _list_passed_units(surveyed)
        ),
    ]
    return "\n".join(lines) + "\n"


def _describe_outcome(outcome: SourceOutcome) -> str:
    return _PASSED if outcome is SourceOutcome.ADMITTED else outcome


def _describe_result(result: BatchResult) -> str:
    return classify_reason(result.reason) if result.reason else _PASSED


def _list_reasons(results: Mapping[str, BatchResult]) -> list[tuple[str, str]]:
    return sorted((unit, result.reason) for unit, result in results.items() if result.reason)


def _list_passed_units(survey_rows: Iterable[SurveyRow]) -> list[tuple[object, ...]]:
    units: dict[str, list[SurveyRow]] = {}
    for row in survey_rows:
        if row.outcome is SourceOutcome.ADMITTED:
            units.setdefault(row.unit, []).append(row)
    return [
        (unit, rows[0].registrations, rows[0].cases, " ".join(_collect_ops(rows)))
        for unit, rows in sorted(units.items())
    ]


def _collect_ops(rows: Iterable[SurveyRow]) -> list[str]:
    return sorted({op for row in rows for op in row.ops})


def _count_names(names: Iterable[str]) -> list[tuple[str, int]]:
    return Counter(names).most_common()


def _render_table(head: Sequence[str], body: Iterable[Sequence[object]]) -> list[str]:
    return [_render_row(head), "|" + "---|" * len(head), *map(_render_row, body)]


def _render_row(cells: Sequence[object]) -> str:
    return "| " + " | ".join(str(cell).replace("|", r"\|") for cell in cells) + " |"


def write_survey(survey: Survey, paths: Paths) -> tuple[Path, ...]:
    """Write the page into the checkout and, once all sources were tested, the table.

    Kernels are selected by the table. Returns the files that were written.
    """
    page_path = paths.root / f"build/kernels-{survey.plan.release}.md"
    write_atomic(page_path, render_page(survey))
    if not survey.finished:
        return (page_path,)
    table_path = paths.root / f"build/tfbuild/upstream/survey-{survey.plan.release}.csv"
    write_atomic(table_path, kernels.format_survey(build_rows(survey)))
    return table_path, page_path
