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


def sheet(check: SelfCheck) -> ResultTable:
    return ResultTable(
        title=title(check),
        headings=HEADINGS,
        rows=tuple(map(cells, check.rows)),
        lines=(*NOTES, *width_lines(check), conclusion(check)),
        width=140,
    )


def markdown(check: SelfCheck) -> str:
    lines = [
        f"# {title(check)}",
        "",
        conclusion(check),
        "",
        *sheet(check).format_markdown(),
        "",
        *(line for note in NOTES for line in (note, "")),
        *width_lines(check),
        "",
        f"{check.arm}, {check.host.vcpus.usable} vCPUs, {check.made}, {format_duration(check.seconds)}.",
    ]
    return "\n".join(lines) + "\n"


def title(check: SelfCheck) -> str:
    return f"The harness checked on {check.host.cpu.name}"


def cells(row: TrialRow) -> tuple[str, ...]:
    return (
        row.part,
        row.arm,
        f"{row.truth:.3f}",
        f"{row.seconds:.1f}",
        f"{row.measuring:.0%}",
        f"{row.half_width:.1%}",
        _rate(row.found),
        _rate(row.said),
        _rate(row.covered),
        _rate(row.covered_by_medians),
    )


def width_lines(check: SelfCheck) -> Iterator[str]:
    if check.widths:
        yield "Half-width against the time spent, in the trials of the most launches:"
    for launches, minutes, half_width in check.widths:
        yield f"  {launches:2d} launches, {minutes:4.1f} min: {half_width:.2%}"


def conclusion(check: SelfCheck) -> str:
    found = check.same
    if not found.trials:
        return "No trial of stock against stock was made."
    said = f"{_rate(found)} false positives, {found.hits} in {found.trials} trials"
    if found.trials < FEW_TRIALS:
        return f"{said}: too few to tell. Without --quick there are enough."
    verdict = "The harness may be trusted here" if check.passed else "Do not trust the harness here"
    return f"{verdict}: {said} (at most {MOST_FALSE:.0%} are let pass)."


def _rate(rate: Rate) -> str:
    return f"{rate.value:.1%} ({100 * rate.low:.0f}-{100 * rate.high:.0f})"
