"""Describe how a comparison is measured, and its limits. The text is a template."""

from __future__ import annotations

from pathlib import Path

from tfbench.inside.workload_name import parse_name
from tfbench.inside.workloads import WORKLOADS
from tfbench.reports import wording
from tfbench.reports.document import BulletList, Section, split_paragraphs
from tfbench.reports.templating import render_template
from tfcore.comparisons.comparison import MOST_DROPPED, Comparison
from tfcore.comparisons.decision import LIKELY
from tfcore.console import format_duration

TEMPLATE = "method.txt.j2"
LIMITS = (
    (
        "The result is valid for this CPU, these numbers of vCPUs and these models. Measure other "
        "machines separately. On a shared host, measure again if its load changes."
    ),
    (
        "Equal losses and predictions show that the arms compute the same for these models, not "
        "for every operation."
    ),
    (
        "The interval of a geometric mean is the uncertainty of the mean over these models. It "
        "does not predict other models."
    ),
)


_TRAINING = "Only training was timed, not inference, saving or reading data from disk."
_REQUESTS = (
    "Requests came from the same process. A server's network, queues and batching were not timed."
)


def build_method(comparison: Comparison, templates: Path) -> Section:
    effort = comparison.effort
    text = render_template(
        templates,
        TEMPLATE,
        baseline=comparison.baseline,
        level=f"{comparison.level:.0%}",
        likely=f"{LIKELY:.0%}",
        margin=wording.format_percent(comparison.margin),
        margin_level=wording.format_percent(comparison.margin_level),
        one_sided=wording.format_percent(1 - comparison.level),
        threshold=wording.format_share(comparison.threshold),
        small=wording.format_share(max(comparison.margin, comparison.threshold)),
        most_dropped=f"{MOST_DROPPED:.0%}",
        looks=wording.join_words([str(look) for look in effort.looks]),
        blocks=effort.blocks,
        precision=wording.format_share(effort.precision),
        budget="" if effort.budget_s is None else format_duration(effort.budget_s),
        seed=comparison.seed,
        six=all(
            name.model in WORKLOADS and not name.own
            for name in (parse_name(cell.workload) for cell in comparison.cells)
        ),
        trained=not all(cell.is_inference for cell in comparison.cells),
        asked=any(cell.is_inference for cell in comparison.cells),
    )
    return Section(key="method", heading="How it was measured", blocks=split_paragraphs(text))


def build_limits(comparison: Comparison) -> Section:
    kinds = dict.fromkeys(
        _REQUESTS if cell.is_inference else _TRAINING for cell in comparison.cells
    )
    items = (LIMITS[0], *kinds, *LIMITS[1:])
    return Section(key="limits", heading="Limits", blocks=(BulletList(items=items),))
