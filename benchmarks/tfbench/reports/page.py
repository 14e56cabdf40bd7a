"""A report as files: Markdown, one HTML file, and its main figures as files. No script, no font and
no picture in them is from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from tfbench.costs.bill import Bill
from tfbench.measuring.samples import Sample
from tfbench.reports import details, plots, report, spending
from tfbench.reports.canvas import PALETTE, WIDE_IN, Drawing, standalone
from tfbench.reports.document import COST, LADDER, SCALING, SPEEDUPS, Document
from tfbench.reports.ladder import find_ladder
from tfbench.reports.templating import filled
from tfbuild.measured.comparison import Comparison
from tfbuild.records import write_atomic

MARKDOWN, HTML = "report.md", "report.html"
TEMPLATE = "report.html.j2"

Figures = Mapping[str, Iterable[Drawing]]
"""By the key of the section that they stand in."""


def write(folder: Path, page: Document, figures: Figures, templates: Path) -> Path:
    """As Markdown and HTML; the HTML's path. Raises DiskError."""
    write_atomic(folder / MARKDOWN, report.rendered(page, templates))
    write_atomic(folder / HTML, rendered(page, figures, templates))
    return folder / HTML


def rendered(page: Document, figures: Figures, templates: Path) -> str:
    """A document as one HTML file."""
    drawn = {key: tuple(each) for key, each in figures.items()}
    return filled(templates, TEMPLATE, page=page, figures=drawn, palette=PALETTE)


def comparison_figures(
    comparison: Comparison, bill: Bill | None = None, samples: Iterable[Sample] = ()
) -> Figures:
    """Without samples none shows them over time."""
    found = find_ladder([arm.name for arm in comparison.arms])
    return {
        # A ladder shows the same speedups, in the order of its rungs.
        SPEEDUPS: () if found else plots.speedups(comparison),
        SCALING: plots.scaling(comparison),
        LADDER: plots.ladder(comparison, found) if found else (),
        COST: plots.bill_figures(bill) if bill else (),
        details.SAMPLES: plots.samples(comparison, samples),
    }


def bill_figures(bill: Bill) -> Figures:
    """Of whole runs."""
    return {
        SCALING: plots.bill_scaling(bill, spending.SPEEDUP),
        COST: plots.bill_figures(bill),
    }


def pictures(comparison: Comparison) -> dict[str, str]:
    """The speedups as SVG files, by name: one per number of vCPUs, for pages of others."""
    drawn = plots.speedups(comparison, WIDE_IN)
    return {f"{each.key}.svg": standalone(each) for each in drawn}
