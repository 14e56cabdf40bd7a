"""Format a comparison or a bill: a table or a line for the terminal, a Markdown page. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rich.text import Text

from tfbench import result_table
from tfbench.costs.bill import Bill
from tfbench.costs.cost import get_value
from tfbench.reports import columns, findings, wording
from tfbench.reports import cost_section as costs
from tfbench.reports.document import Document, read_rows
from tfbench.reports.templating import render_template
from tfcore import console
from tfcore.comparisons.comparison import Comparison
from tfcore.comparisons.deciding import find_mean_decision
from tfcore.comparisons.decision import Reason
from tfcore.comparisons.interval import Verdict

TEMPLATE = "report.md.j2"
NOTES = 3
"""The most lines of warnings on a terminal."""
STYLES: dict[str, str] = {
    Verdict.FASTER: "green",
    Verdict.SLOWER: "red",
    Verdict.INCONCLUSIVE: "yellow",
    Reason.FAILED: "bold red",
    Reason.DIFFERENT: "bold red",
    Reason.NOT_TIMED: "bold red",
}
_MARKDOWN = re.compile(r"([\\`*\[\]|<>]|(?<!\w)_|_(?!\w)|^[#+-](?=\s))")


def format_table(comparison: Comparison, *, colour: bool) -> str:
    """Format the results, the conclusion and the warnings as a table. Set `colour` only for a
    terminal.
    """
    headings = columns.format_headings(columns.TERMINAL, comparison)
    rows = (
        [
            Text(cell, style=STYLES.get(cell, "yellow")) if heading.startswith("!") else cell
            for heading, cell in zip(headings, cells, strict=True)
        ]
        for cells in read_rows(columns.TERMINAL, findings.list_rows(comparison))
    )
    names = [heading.removeprefix("!") for heading in headings]
    text = (findings.format_title(comparison), names, rows, _list_notes(comparison))
    return result_table.format_table(*text, colour=colour, unbroken=("verdict",))


def _list_notes(comparison: Comparison) -> Iterator[str]:
    """Yield the lines below the table; the conclusion comes last, where a terminal shows it.
    Warnings beyond NOTES lines, and the measurement of each cell, are only in the report.
    """
    doubts = [f"warning: {warning}" for warning in findings.list_warnings(comparison)]
    if len(doubts) > NOTES:
        doubts[NOTES - 1 :] = [f"warning: {len(doubts) - NOTES + 1} more in the report"]
    notes = [*map(_shorten_failure, findings.list_failures(comparison)), *doubts]
    yield from notes
    yield from [""] if notes else ()
    yield from findings.list_headlines(comparison)


def _shorten_failure(failure: str) -> str:
    """Reduce a failure to one line with its worker's last message. Continuation lines of a
    message are indented.
    """
    first, *output = [line for line in failure.splitlines() if line.strip()]
    begins = [number for number, line in enumerate(output) if not line[0].isspace()]
    return " ".join([first, *map(str.strip, output[begins[-1] if begins else -1 :])])


def format_line(comparison: Comparison) -> str:
    """Format the result as one line for a log: the geometric means and the counts of verdicts."""
    counts = Counter(row.decision.outcome for row in findings.list_rows(comparison))
    results = ", ".join(f"{number} {verdict}" for verdict, number in sorted(counts.items()))
    part = "" if comparison.complete else ", incomplete"
    means = "; ".join(_list_means(comparison)) or "no result"
    return f"against {comparison.baseline}: {means} (verdicts: {results}{part})"


def _list_means(comparison: Comparison) -> Iterator[str]:
    for vcpus in dict.fromkeys(overall.vcpus for overall in comparison.overall):
        arms = [
            f"{overall.speedup.arm} {find_mean_decision(comparison, overall).outcome}, "
            f"{wording.format_factor_span(overall.speedup.interval)}"
            for overall in comparison.overall
            if overall.vcpus == vcpus
        ]
        yield f"{console.format_vcpus(vcpus)}: {', '.join(arms)}"


def format_bill(bill: Bill, *, colour: bool) -> str:
    """Format all runs with their costs, and name the best ones."""
    title = f"training runs, prices of {bill.book} as of {bill.as_of}, relative to {bill.baseline}"
    headings = (
        *("workload", "#vCPUs", "arm", "machine", "#run s", "#USD", "#time", "#cost"),
        "best in",
    )
    rows = (
        (
            *(row.workload, costs.format_vcpus(row), row.arm, row.machine),
            *(wording.format_seconds(get_value(row.run_s)), wording.format_usd(get_value(row.usd))),
            wording.format_relative(row.relative_time),
            *(wording.format_relative(get_value(row.relative_cost)), costs.format_marks(row)),
        )
        for row in bill.rows
    )
    return result_table.format_table(title, headings, rows, costs.list_lines(bill), colour=colour)


def escape_markdown(text: str) -> str:
    """Escape Markdown characters and join the text into one line."""
    return _MARKDOWN.sub(r"\\\1", " ".join(text.split()))


def render_markdown(page: Document, templates: Path) -> str:
    """Render a document as Markdown, escaped by `escape_markdown`."""
    return render_template(templates, TEMPLATE, page=page, plain=escape_markdown).rstrip() + "\n"
