"""How a comparison was measured, and what it does not say: prose, from a template."""

from __future__ import annotations

from pathlib import Path

from tfbench.inside.workloads import WORKLOADS
from tfbench.measuring import gates
from tfbench.measuring.statistics import LIKELY
from tfbench.reports import wording
from tfbench.reports.document import BulletList, Section, split_paragraphs
from tfbench.reports.templating import render_template
from tfbuild.console import format_duration
from tfbuild.measured.comparison import Comparison

TEMPLATE = "method.txt.j2"
LIMITS = (
    (
        "It holds for this CPU, these numbers of vCPUs and these models. Another machine, or "
        "this one with other neighbours, needs a run of its own."
    ),
    (
        "Equal losses and predictions show that the arms compute the same for these models, not "
        "for every operation."
    ),
    (
        "The interval of a geometric mean says how well the mean of these models is known, not how "
        "another model would do."
    ),
)


_TRAINING = "It is about training. Inference, saving and reading data from disk were not timed."
_REQUESTS = (
    "Requests came from the process that answered them. A server's network, queues and batching "
    "were not timed."
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
        most_dropped=f"{gates.MOST_DROPPED:.0%}",
        looks=wording.join_words([str(look) for look in effort.looks]),
        blocks=effort.blocks,
        precision=wording.format_share(effort.precision),
        budget="" if effort.budget_s is None else format_duration(effort.budget_s),
        seed=comparison.seed,
        six=all(cell.workload.partition(":")[0] in WORKLOADS for cell in comparison.cells),
        trained=not all(cell.is_inference for cell in comparison.cells),
        asked=any(cell.is_inference for cell in comparison.cells),
    )
    return Section(key="method", heading="How it was measured", blocks=split_paragraphs(text))


def build_limits(comparison: Comparison) -> Section:
    kinds = dict.fromkeys(
        _REQUESTS if cell.is_inference else _TRAINING for cell in comparison.cells
    )
    items = (LIMITS[0], *kinds, *LIMITS[1:])
    return Section(
        key="limits", heading="What this does not say", blocks=(BulletList(items=items),)
    )
