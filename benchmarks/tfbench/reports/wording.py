"""Figures as text, the same everywhere: how many digits, and which unit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from tfbench.costs.cost import Amount, get_ends
from tfbench.inside.workloads import format_label
from tfbuild import console
from tfbuild.measured.comparison import Comparison
from tfbuild.measured.interval import Interval

SIGNIFICANT = 3
_FEW = 4
"""So many times fewer are the others that they are named in place of the many."""


def known(value: float | None, form: str) -> str:
    """The figure in that form; empty where there is none."""
    return "" if value is None else format(value, form)


def factor(value: float) -> str:
    return f"{value:.3f}x"


def span(interval: Interval) -> str:
    return f"{interval.low:.3f} to {interval.high:.3f}"


def factor_span(amount: Amount) -> str:
    if isinstance(amount, Interval):
        return f"{factor(amount.value)} ({span(amount)})"
    return factor(amount)


def share(value: float, digits: int = 1) -> str:
    return f"{value:.{digits}%}"


def percent(value: float) -> str:
    """As it was asked for: 0.005 is 0.5%."""
    return f"{100 * value:g}%"


def level(confidence: float) -> str:
    """Of an interval. It is not rounded up, and never all."""
    return f"{min(math.floor(1000 * confidence), 999) / 10:g}%"


def step(comparison: Comparison) -> str:
    """What was timed, where all cells are of one kind."""
    kinds = {cell.is_inference for cell in comparison.cells}
    if len(kinds) != 1:
        return "a step"
    return "a request" if kinds == {True} else "a training step"


def model(comparison: Comparison) -> str:
    """What a workload is: a model that is trained, or one of several kinds of requests to it."""
    return "workload" if any(cell.is_inference for cell in comparison.cells) else "model"


def milliseconds(interval: Interval | None) -> str:
    return f"{interval.value:.2f}" if interval else ""


def spread(amount: Amount, shown: Callable[[float], str]) -> str:
    """The figure, with its interval if it has one."""
    low, value, high = map(shown, get_ends(amount))
    return f"{value} ({low} to {high})" if isinstance(amount, Interval) else value


def seconds(amount: Amount) -> str:
    """Seconds of a training run."""
    return spread(amount, "{:.1f}".format)


def relative(amount: Amount) -> str:
    """Time or cost over the baseline's. What was seen once is not known to three decimals."""
    digits = 3 if isinstance(amount, Interval) else 2
    return spread(amount, lambda value: f"{value:.{digits}f}")


def usd(amount: Amount) -> str:
    """US dollars to three significant digits: a run may cost a hundred or a ten-thousandth."""
    return spread(amount, _significant)


def rate(value: float) -> str:
    """Of something per second: three digits or four, and all that stand before the point."""
    return f"{value:.{2 if value < 10 else 1 if value < 1000 else 0}f}"  # noqa: PLR2004


def rates(amount: Amount) -> tuple[str, str]:
    """The figure and its interval."""
    if isinstance(amount, Interval):
        return rate(amount.value), f"{rate(amount.low)} to {rate(amount.high)}"
    return rate(amount), "one launch"


def place(name: str, number: int) -> str:
    return f"{format_label(name)} on {console.format_vcpus(number)}"


def places(cells: Sequence[tuple[str, int]], of: Sequence[tuple[str, int]] = ()) -> str:
    """Workloads with their numbers of vCPUs. `of` are all cells that there are: then several are
    counted, and where few are left these are named instead."""
    if 1 < len(cells) == len(of):
        return f"all {len(of)} cells"
    others = [each for each in of if each not in cells]
    if len(others) * _FEW <= len(of) and others:
        return f"all {len(of)} cells but {places(others)}"
    vcpus: dict[str, list[int]] = {}
    for name, number in cells:
        vcpus.setdefault(format_label(name), []).append(number)
    names: dict[tuple[int, ...], list[str]] = {}
    for name, numbers in vcpus.items():
        names.setdefault(tuple(numbers), []).append(name)
    named = (
        f"{listed(alike)} on {listed([*map(str, head), console.format_vcpus(last)])}"
        for (*head, last), alike in names.items()
    )
    counted = f"{len(cells)} of {len(of)} cells: " if of and len(cells) > 1 else ""
    return f"{counted}{'; '.join(named)}"


def moment(made: str) -> str:
    """A time in ISO 8601 to the minute, as it is where it cannot be read."""
    if not made:
        return "at a time that was not recorded"
    try:
        when = datetime.fromisoformat(made).astimezone(UTC)
    except ValueError:
        return made
    return f"{when:%Y-%m-%d %H:%M} UTC"


def listed(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *head, last = words
    return f"{', '.join(head)} and {last}" if head else last


def settings(pairs: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{name}={value}" for name, value in pairs)


def _significant(value: float) -> str:
    if value == 0:
        return "0"
    digits = max(0, SIGNIFICANT - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{digits}f}"
