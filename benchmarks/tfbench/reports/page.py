"""Write a report as Markdown, as one HTML file, and its main figures as SVG files. The files load
no scripts, fonts or images from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from tfbench.costs.bill import Bill
from tfbench.measuring.samples import Sample
from tfbench.reports import cost_section, details, plots, report, scaling
from tfbench.reports.canvas import PALETTE, WIDE_IN, Drawing, render_standalone
from tfbench.reports.document import COST, LADDER, SCALING, SPEEDUPS, Document
from tfbench.reports.ladder import find_ladder
from tfbench.reports.templating import render_template
from tfcore.comparisons.comparison import Comparison
from tfcore.records import write_atomic

MARKDOWN, HTML = "report.md", "report.html"
TEMPLATE = "report.html.j2"

Figures = Mapping[str, Iterable[Drawing]]
"""Figures by the key of their section."""


def write_page(folder: Path, page: Document, figures: Figures, templates: Path) -> Path:
    """Write a document as Markdown and HTML and return the path of the HTML file. Raises
    DiskError.
    """
    write_atomic(folder / MARKDOWN, report.render_markdown(page, templates))
    write_atomic(folder / HTML, render_html(page, figures, templates))
    return folder / HTML


def render_html(page: Document, figures: Figures, templates: Path) -> str:
    """Render a document as one HTML file."""
    drawings = {key: tuple(section_figures) for key, section_figures in figures.items()}
    return render_template(templates, TEMPLATE, page=page, figures=drawings, palette=PALETTE)


def draw_comparison_figures(
    comparison: Comparison, bill: Bill | None = None, samples: Iterable[Sample] = ()
) -> Figures:
    """Draw the figures of a comparison by section. Without samples there are no
    figures over time.
    """
    ladder = find_ladder([arm.name for arm in comparison.arms])
    return {
        # A ladder shows the same speedups, in the order of its rungs.
        SPEEDUPS: () if ladder else plots.draw_speedups(comparison),
        SCALING: plots.draw_scaling(comparison),
        scaling.KEY: plots.draw_throughput(comparison),
        LADDER: plots.draw_ladder(comparison, ladder) if ladder else (),
        COST: plots.draw_bill_figures(bill) if bill else (),
        details.SAMPLES: plots.draw_samples(comparison, samples),
    }


def draw_bill_figures(bill: Bill) -> Figures:
    """Draw the figures of a bill of whole training runs, by section."""
    return {
        SCALING: plots.draw_bill_scaling(bill, cost_section.SPEEDUP),
        COST: plots.draw_bill_figures(bill),
    }


def render_speedup_files(comparison: Comparison) -> dict[str, str]:
    """Render the speedups as SVG files by name, one per number of vCPUs, for use on other pages."""
    drawings = plots.draw_speedups(comparison, WIDE_IN)
    return {f"{drawing.key}.svg": render_standalone(drawing) for drawing in drawings}
