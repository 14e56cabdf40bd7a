"""The report as one HTML file, and its main figures as files: no script, no font and no picture
from elsewhere. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tfbench.costs.bill import Bill
from tfbench.measuring.samples import Sample
from tfbench.reports import chapters, details, plots
from tfbench.reports import spending as costs
from tfbench.reports.canvas import PALETTE, WIDE_IN, Drawing, standalone
from tfbench.reports.document import Document
from tfbench.reports.ladder import find_ladder
from tfbench.reports.templating import filled
from tfbuild.measured.comparison import Comparison

TEMPLATE = "report.html.j2"

Figures = Mapping[str, Sequence[Drawing]]
"""By the key of the section that they stand in."""


def html(
    comparison: Comparison,
    templates: Path,
    *,
    bill: Bill | None = None,
    samples: Iterable[Sample] = (),
) -> str:
    """The whole report of a comparison; without samples it does not show them over time."""
    sections = (costs.costs(bill),) if bill else ()
    found = find_ladder([arm.name for arm in comparison.arms])
    figures = {
        # A ladder shows the same speedups, in the order of its rungs.
        chapters.SPEEDUPS: [] if found else list(plots.speedups(comparison)),
        chapters.SCALING: list(plots.scaling(comparison)),
        chapters.LADDER: list(plots.ladder(comparison, found)) if found else [],
        chapters.TIMES: list(plots.times(comparison)),
        chapters.COST: list(_bill_figures(bill)) if bill else [],
        details.VERDICTS: list(plots.looks(comparison)),
        details.SAMPLES: list(plots.samples(comparison, samples)),
    }
    return rendered(chapters.document(comparison, templates, sections), figures, templates)


def article_html(bill: Bill, templates: Path, *, shipped: bool = False) -> str:
    """The report of whole runs; `shipped` are those of the 2017 article itself."""
    figures = {
        chapters.SCALING: list(plots.bill_scaling(bill, costs.SPEEDUP)),
        chapters.COST: list(_bill_figures(bill)),
    }
    return rendered(costs.totals_document(bill, shipped=shipped), figures, templates)


def pictures(comparison: Comparison) -> dict[str, str]:
    """The speedups as SVG files, by name: one per number of vCPUs, for pages of others."""
    drawn = plots.speedups(comparison, WIDE_IN)
    return {f"{each.key}.svg": standalone(each) for each in drawn}


def _bill_figures(bill: Bill) -> Iterator[Drawing]:
    yield from plots.bill_times(bill)
    yield from plots.bill_costs(bill)


def rendered(page: Document, figures: Figures, templates: Path) -> str:
    """A document as one HTML file."""
    return filled(templates, TEMPLATE, page=page, figures=figures, palette=PALETTE)
