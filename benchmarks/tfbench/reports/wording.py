"""Format numbers, intervals and names, the same way in all reports."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from tfbench.costs.cost import Amount, get_ends
from tfbench.inside.workloads import format_label
from tfcore import console
from tfcore.comparisons.comparison import Comparison
from tfcore.comparisons.interval import Interval

SIGNIFICANT = 3
_FEW = 4
"""If the other cells are this many times fewer than all cells, they are named instead."""


def format_optional(value: float | None, form: str) -> str:
    """Format the value; empty for None."""
    return "" if value is None else format(value, form)


def format_factor(value: float) -> str:
    return f"{value:.3f}x"


def format_span(interval: Interval) -> str:
    return f"{interval.low:.3f} to {interval.high:.3f}"


def format_factor_span(amount: Amount) -> str:
    if isinstance(amount, Interval):
        return f"{format_factor(amount.value)} ({format_span(amount)})"
    return format_factor(amount)


def format_share(value: float, digits: int = 1) -> str:
    return f"{value:.{digits}%}"


def format_percent(value: float) -> str:
    """Format a share as a percentage with the digits it was given with: 0.005 is 0.5%."""
    return f"{100 * value:g}%"


def format_level(confidence: float) -> str:
    """Format the confidence level of an interval. It is rounded down, and at most 99.9%."""
    return f"{min(math.floor(1000 * confidence), 999) / 10:g}%"


def describe_step(comparison: Comparison) -> str:
    """Describe what was timed: a request, a training step, or a step if cells differ."""
    kinds = {cell.is_inference for cell in comparison.cells}
    if len(kinds) != 1:
        return "a step"
    return "a request" if kinds == {True} else "a training step"


def describe_workload(comparison: Comparison) -> str:
    """Return `model` for training, or `workload` if any cell is inference."""
    return "workload" if any(cell.is_inference for cell in comparison.cells) else "model"


def format_milliseconds(interval: Interval | None) -> str:
    return f"{interval.value:.2f}" if interval else ""


def format_spread(amount: Amount, shown: Callable[[float], str]) -> str:
    """Format the value, with its interval if it has one."""
    low, value, high = map(shown, get_ends(amount))
    return f"{value} ({low} to {high})" if isinstance(amount, Interval) else value


def format_seconds(amount: Amount) -> str:
    """Format the seconds of a training run."""
    return format_spread(amount, "{:.1f}".format)


def format_relative(amount: Amount) -> str:
    """Format time or cost relative to the baseline: three decimals with an interval, two for a
    single measurement.
    """
    digits = 3 if isinstance(amount, Interval) else 2
    return format_spread(amount, lambda value: f"{value:.{digits}f}")


def format_usd(amount: Amount) -> str:
    """Format US dollars with three significant digits, since costs range from a ten-thousandth
    to hundreds.
    """
    return format_spread(amount, _format_significant)


def format_rate(value: float) -> str:
    """Format a rate per second: two decimals below 10, one below 1000, none above."""
    return f"{value:.{2 if value < 10 else 1 if value < 1000 else 0}f}"  # noqa: PLR2004


def format_rate_interval(amount: Amount) -> tuple[str, str]:
    """Format a rate and its interval."""
    if isinstance(amount, Interval):
        return format_rate(amount.value), f"{format_rate(amount.low)} to {format_rate(amount.high)}"
    return format_rate(amount), "one launch"


def format_cell(name: str, number: int) -> str:
    return f"{format_label(name)} on {console.format_vcpus(number)}"


def format_cells(cells: Sequence[tuple[str, int]], of: Sequence[tuple[str, int]] = ()) -> str:
    """Format workloads with their numbers of vCPUs. `of` lists all cells: then several cells are
    counted, and if few others remain, only those are named.
    """
    if 1 < len(cells) == len(of):
        return f"all {len(of)} cells"
    excluded = [cell for cell in of if cell not in cells]
    if len(excluded) * _FEW <= len(of) and excluded:
        return f"{len(cells)} of {len(of)} cells (all but {format_cells(excluded)})"
    vcpus: dict[str, list[int]] = {}
    for name, number in cells:
        vcpus.setdefault(format_label(name), []).append(number)
    names: dict[tuple[int, ...], list[str]] = {}
    for name, numbers in vcpus.items():
        names.setdefault(tuple(numbers), []).append(name)
    named = "; ".join(
        f"{join_words(group)} on {join_words([*map(str, head), console.format_vcpus(last)])}"
        for (*head, last), group in names.items()
    )
    return f"{len(cells)} of {len(of)} cells ({named})" if of and len(cells) > 1 else named


def format_time(timestamp: str) -> str:
    """Format a time in ISO 8601 to the minute in UTC; return it unchanged if it cannot be
    parsed.
    """
    if not timestamp:
        return "at an unknown time"
    try:
        when = datetime.fromisoformat(timestamp).astimezone(UTC)
    except ValueError:
        return timestamp
    return f"{when:%Y-%m-%d %H:%M} UTC"


def join_words(words: Sequence[str]) -> str:
    """Join words: `a`, `a and b`, `a, b and c`."""
    *head, last = words
    return f"{', '.join(head)} and {last}" if head else last


def format_settings(pairs: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{name}={value}" for name, value in pairs)


def _format_significant(value: float) -> str:
    if value == 0:
        return "0"
    digits = max(0, SIGNIFICANT - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{digits}f}"
