"""A comparison, or a bill, for people: a table and a line for a terminal, a Markdown page. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rich.text import Text

from tfbench import sheet
from tfbench.costs.bill import Bill
from tfbench.costs.cost import get_value
from tfbench.reports import findings, wording
from tfbench.reports import spending as costs
from tfbench.reports.document import Document
from tfbench.reports.templating import filled
from tfbuild import console
from tfbuild.measured.comparison import Comparison
from tfbuild.measured.interval import Verdict

TEMPLATE = "report.md.j2"
NOTES = 3
"""Lines of warnings on a terminal."""
_SHORT = 12  # characters of a name in a heading: a longer one leaves no room for the rows
STYLES = {
    Verdict.FASTER: "green",
    Verdict.SLOWER: "red",
    Verdict.INCONCLUSIVE: "yellow",
    findings.FAILED: "bold red",
    findings.DIFFERENT: "bold red",
    findings.NOT_TIMED: "bold red",
}
_MARKDOWN = re.compile(r"([\\`*\[\]|<>]|(?<!\w)_|_(?!\w)|^[#+-](?=\s))")


def table(comparison: Comparison, *, colour: bool) -> str:
    """The figures, the answer and what to know about it. `colour` only for a terminal."""
    base = comparison.baseline if len(comparison.baseline) <= _SHORT else "baseline"
    slow = "\n(p99)" if any(cell.is_inference for cell in comparison.cells) else ""
    headings = (
        *("workload", "#vCPUs", "arm", f"#{base} ms{slow}", f"#arm ms{slow}", "#speedup"),
        *(f"#{comparison.level:.0%} interval", f"#{base} again", "verdict"),
    )
    rows = (
        (
            *(row.workload, row.vcpus, row.arm, row.baseline_ms, row.arm_ms, row.speedup),
            *(row.interval, row.noise),
            Text(row.verdict, style=STYLES.get(row.verdict, "yellow")),
        )
        for row in findings.rows(comparison)
    )
    text = (findings.title(comparison), headings, rows, _below(comparison))
    return sheet.format_table(*text, colour=colour, unbroken=("verdict",))


def _below(comparison: Comparison) -> Iterator[str]:
    """What stands under the table; the answer comes last, where a terminal shows it. What does not
    fit in a few lines, and how every cell was measured, is in the report."""
    doubts = [f"warning: {each}" for each in findings.warnings(comparison)]
    if len(doubts) > NOTES:
        doubts[NOTES - 1 :] = [f"warning: {len(doubts) - NOTES + 1} more in the report"]
    notes = [*map(_in_a_line, findings.failed(comparison)), *doubts]
    yield from notes
    yield from [""] if notes else ()
    yield from findings.headlines(comparison)


def _in_a_line(failure: str) -> str:
    """With its worker's last message alone. Lines that go on with a message are indented."""
    first, *output = [each for each in failure.splitlines() if each.strip()]
    begins = [number for number, each in enumerate(output) if not each[0].isspace()]
    return " ".join([first, *map(str.strip, output[begins[-1] if begins else -1 :])])


def line(comparison: Comparison) -> str:
    """Everything in one line, for a log: the geometric means, and how the single results went."""
    counts = Counter(row.verdict for row in findings.rows(comparison))
    results = ", ".join(f"{number} {verdict}" for verdict, number in sorted(counts.items()))
    part = "" if comparison.complete else ", not complete"
    means = "; ".join(_means(comparison)) or "no answer"
    return f"against {comparison.baseline}: {means} ({results}{part})"


def _means(comparison: Comparison) -> Iterator[str]:
    for vcpus in dict.fromkeys(each.vcpus for each in comparison.overall):
        arms = [
            f"{each.speedup.arm} {wording.factor_span(each.speedup.interval)} "
            f"{findings.outcome(comparison, each)}"
            for each in comparison.overall
            if each.vcpus == vcpus
        ]
        yield f"{console.format_vcpus(vcpus)}: {', '.join(arms)}"


def bill_table(bill: Bill, *, colour: bool) -> str:
    """Every run with its cost, and which are the best."""
    title = f"training runs, prices of {bill.book} as of {bill.as_of}, relative to {bill.baseline}"
    headings = (
        *("workload", "#vCPUs", "arm", "machine", "#run s", "#USD", "#time", "#cost"),
        "best in",
    )
    rows = (
        (
            *(row.workload, costs.vcpus(row), row.arm, row.machine),
            *(wording.seconds(get_value(row.run_s)), wording.usd(get_value(row.usd))),
            wording.relative(row.relative_time),
            *(wording.relative(get_value(row.relative_cost)), costs.marks(row)),
        )
        for row in bill.rows
    )
    return sheet.format_table(title, headings, rows, costs.lines(bill), colour=colour)


def plain(text: str) -> str:
    """Text that Markdown shows as it is, in one line."""
    return _MARKDOWN.sub(r"\\\1", " ".join(text.split()))


def rendered(page: Document, templates: Path) -> str:
    """A document as Markdown, escaped by `plain`."""
    return filled(templates, TEMPLATE, page=page, plain=plain).rstrip() + "\n"
