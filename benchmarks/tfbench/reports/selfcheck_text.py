"""A self-check for people: what was tried, how often the harness was right. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from tfbench.measuring.selfcheck import MOST_FALSE, Rate, SelfCheck, TrialRow
from tfbench.sheet import ResultTable
from tfbuild.console import format_duration

HEADINGS = (
    *("trials", "of", "#truth", "#seconds", "#samples", "#half-width", "#leaves out 1"),
    *("#verdict says so", "#holds the truth", "#medians do"),
)
NOTES = (
    (
        "Where the true speedup is 1, an interval that leaves out 1 is a false positive: 5% are "
        "nominal. Elsewhere it is the power. In brackets, exact 95% binomial intervals."
    ),
    (
        "A trial is a cell by the code that `invoke compare` runs: mnist_mlp on one vCPU, stock, "
        "stock again and the arm, in a minute, of which the share under `samples` is measured. A "
        "slower arm is stock that takes some steps more in each sample, so its true speedup is "
        "known. A verdict needs a difference beyond the trial's own noise floor, too. Beside the "
        "interval that is used stands that of the medians of blocks."
    ),
)
FEW_TRIALS = 100


def build_table(check: SelfCheck) -> ResultTable:
    return ResultTable(
        title=format_title(check),
        headings=HEADINGS,
        rows=tuple(map(format_row, check.rows)),
        lines=(*NOTES, *list_widths(check), format_conclusion(check)),
        width=140,
    )


def render_markdown(check: SelfCheck) -> str:
    duration = format_duration(check.seconds)
    lines = [
        f"# {format_title(check)}",
        "",
        format_conclusion(check),
        "",
        *build_table(check).format_markdown(),
        "",
        *(line for note in NOTES for line in (note, "")),
        *list_widths(check),
        "",
        f"{check.arm}, {check.host.vcpus.usable} vCPUs, {check.made}, {duration}.",
    ]
    return "\n".join(lines) + "\n"


def format_title(check: SelfCheck) -> str:
    return f"The harness checked on {check.host.cpu.name}"


def format_row(row: TrialRow) -> tuple[str, ...]:
    return (
        row.part,
        row.arm,
        f"{row.truth:.3f}",
        f"{row.seconds:.1f}",
        f"{row.measuring:.0%}",
        f"{row.half_width:.1%}",
        _format_rate(row.found),
        _format_rate(row.said),
        _format_rate(row.covered),
        _format_rate(row.covered_by_medians),
    )


def list_widths(check: SelfCheck) -> Iterator[str]:
    if check.widths:
        yield "Half-width against the time spent, in the trials of the most launches:"
    for launches, minutes, half_width in check.widths:
        yield f"  {launches:2d} launches, {minutes:4.1f} min: {half_width:.2%}"


def format_conclusion(check: SelfCheck) -> str:
    rate = check.same
    if not rate.trials:
        return "No trial of stock against stock was made."
    figures = f"{_format_rate(rate)} false positives, {rate.hits} in {rate.trials} trials"
    if rate.trials < FEW_TRIALS:
        return f"{figures}: too few to tell. Without --quick there are enough."
    verdict = "The harness may be trusted here" if check.passed else "Do not trust the harness here"
    return f"{verdict}: {figures} (at most {MOST_FALSE:.0%} are let pass)."


def _format_rate(rate: Rate) -> str:
    return f"{rate.value:.1%} ({100 * rate.low:.0f}-{100 * rate.high:.0f})"
