"""Format a self-check: its trials, and how often the harness is right. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from tfbench.measuring.selfcheck import MOST_FALSE, REPEAT, Rate, SelfCheck, TrialRow
from tfbench.result_table import ResultTable
from tfcore.console import format_duration

HEADINGS = (
    *("trials", "arm", "#true speedup", "#seconds", "#samples", "#half-width", "#excludes 1"),
    *("#verdict", "#contains truth", "#medians contain"),
)
NOTES = (
    (
        "“excludes 1” is the share of trials whose interval excludes 1: the false positives if the "
        "true speedup is 1 (nominally 5%), else the power. Brackets contain exact 95% binomial "
        "intervals."
    ),
    (
        "A trial is a cell, measured with the code of `invoke compare`: mnist_mlp on one vCPU for "
        "one minute, with two workers of stock (A/A) and one of the arm. “samples” is the share of "
        "time in samples. A slower arm is stock with additional steps in each sample, so the true "
        "speedup is known. “verdict” is the share of trials with the verdict faster or slower, "
        "which also needs a difference beyond the noise floor. The last two columns are the shares "
        "of trials in which the interval, and the interval by medians of blocks, contains the true "
        "speedup."
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
        "A/A" if row.arm == REPEAT else row.arm,
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
        yield "Half-width by time, in the trials with the most launches:"
    for launches, minutes, half_width in check.widths:
        yield f"  {launches:2d} launches, {minutes:4.1f} min: {half_width:.2%}"


def format_conclusion(check: SelfCheck) -> str:
    rate = check.same
    if not rate.trials:
        return "There is no trial of stock against stock."
    figures = f"{_format_rate(rate)} false positives, {rate.hits} in {rate.trials} trials"
    if rate.trials < FEW_TRIALS:
        return f"{figures}: too few to prove anything. Run it without --quick."
    verdict = (
        "The harness passes" if check.passed else "The harness fails, do not trust its verdicts"
    )
    return f"{verdict}: {figures} (limit {MOST_FALSE:.0%})."


def _format_rate(rate: Rate) -> str:
    return f"{rate.value:.1%} ({100 * rate.low:.0f}-{100 * rate.high:.0f})"
