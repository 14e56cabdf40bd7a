"""Costs of training runs, and the machine and wheel to choose by them. Pure.

An Interval gives an Interval: costs rise with time, so its ends give the ends of the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tfbench.costs.prices import Price
from tfbench.measuring.statistics import FEWEST_LAUNCHES, estimate_geometric_mean
from tfcore.comparisons.interval import Interval
from tfcore.errors import SampleError, UsageError

Amount: TypeAlias = Interval | float
"""A plain number was measured once, so its uncertainty is unknown."""

_HOUR_S = 3600
_SLACK = 1e-9
"""Relative. A quotient above a whole number by no more than this counts as that number."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Relative:
    """Time and cost relative to the baseline: below 1 is better."""

    time: Amount
    usd: Amount


@dataclass(frozen=True, kw_only=True, slots=True)
class Amortisation:
    """The number of runs after which a build has paid for itself; None means never.

    `soonest` and `latest` belong to the ends of the saving's interval, if it has one.
    """

    build_usd: float
    saving_usd: Amount
    runs: int | None
    soonest: int | None
    latest: int | None
    runs_per_day: float | None

    @property
    def days(self) -> float | None:
        """Return the days until the build is paid back; None without a rate, or if it never is."""
        if self.runs is None or self.runs_per_day is None:
            return None
        return self.runs / self.runs_per_day

    def __str__(self) -> str:
        if self.runs is None:
            return "never: a run saves nothing" + (
                f" (at best after {self.soonest} runs)" if self.soonest is not None else ""
            )
        text = f"after {self.runs} runs"
        if isinstance(self.saving_usd, Interval):
            latest = "never" if self.latest is None else f"{self.latest}"
            text += f" ({self.soonest} to {latest})"
        if self.days is not None:
            text += f", {self.days:.3g} days at {self.runs_per_day:g} runs per day"
        return text


def get_value(amount: Amount) -> float:
    return amount.value if isinstance(amount, Interval) else amount


def get_ends(amount: Amount) -> tuple[float, float, float]:
    """Return the low end, the value and the high end."""
    if isinstance(amount, Interval):
        return amount.low, amount.value, amount.high
    return amount, amount, amount


def average_launches(values: Sequence[float]) -> Amount:
    """Compute the geometric mean of one positive number per launch, with Student's t interval.

    Return a plain number for a single launch.
    """
    if len(values) < FEWEST_LAUNCHES:
        return values[0]
    return estimate_geometric_mean([[math.log(value)] for value in values])


def apply_monotone(amount: Amount, function: Callable[[float], float]) -> Amount:
    """Apply a monotone function to an amount; a falling one swaps the interval's ends."""
    if not isinstance(amount, Interval):
        return function(amount)
    low, high = sorted((function(amount.low), function(amount.high)))
    return Interval(value=function(amount.value), low=low, high=high)


def invert(amount: Amount) -> Amount:
    return apply_monotone(amount, lambda value: 1 / value)


def compute_ratio(above: Amount, below: Amount) -> Amount:
    """Compute the ratio of two positive amounts that were measured separately.

    The interval combines both on the logarithmic scale, as if they were independent (MOVER:
    Zou and Donner, Statistics in Medicine 2008). If the two were measured in pairs, their own
    interval is the narrower and better one: see `compute_relative`.
    """
    value = get_value(above) / get_value(below)
    if not (isinstance(above, Interval) or isinstance(below, Interval)):
        return value
    (down, up), (other_down, other_up) = (
        _compute_log_distances(above),
        _compute_log_distances(below),
    )
    return Interval(
        value=value,
        low=value * math.exp(-math.hypot(down, other_up)),
        high=value * math.exp(math.hypot(up, other_down)),
    )


def compute_billed_s(seconds: float, price: Price) -> float:
    """Compute the seconds that are billed."""
    increment = price.billing_increment_s
    rounded_s = _round_up(seconds / increment) * increment if increment else seconds
    return max(rounded_s, price.minimum_s)


def compute_run_cost(seconds: Amount, price: Price) -> Amount:
    """Compute the cost in USD of a run of that many seconds.

    Raises SampleError if the time is not positive.
    """
    _check_positive(seconds, "s", "time")
    return apply_monotone(
        seconds, lambda duration_s: compute_billed_s(duration_s, price) * price.usd_hour / _HOUR_S
    )


def compute_relative(
    speedup: Amount, price: Price, baseline_price: Price, *, baseline_s: float
) -> Relative:
    """Compute time and cost relative to the baseline from a speedup measured in pairs.

    The speedup is baseline time over this time. `baseline_s` is the time of the baseline's
    run, for prices with increments or a minimum. Raises SampleError if the speedup is not
    positive.
    """
    _check_positive(speedup, "x", "speedup")
    dearer = price.usd_hour / baseline_price.usd_hour
    baseline_paid = compute_billed_s(baseline_s, baseline_price)

    def compute_cost_ratio(faster: float) -> float:
        return dearer * compute_billed_s(baseline_s / faster, price) / baseline_paid

    return Relative(time=invert(speedup), usd=apply_monotone(speedup, compute_cost_ratio))


def compute_geometric_mean(amounts: Sequence[Amount]) -> Amount:
    """Compute the geometric mean of positive amounts that were measured separately.

    Its interval is combined like that of `compute_ratio`, if all amounts have one. Raises
    SampleError if there are none.
    """
    if not amounts:
        raise SampleError("no amounts to average")
    value = math.exp(math.fsum(math.log(get_value(amount)) for amount in amounts) / len(amounts))
    if not all(isinstance(amount, Interval) for amount in amounts):
        return value
    downs, ups = zip(*map(_compute_log_distances, amounts), strict=True)
    return Interval(
        value=value,
        low=value * math.exp(-math.hypot(*downs) / len(amounts)),
        high=value * math.exp(math.hypot(*ups) / len(amounts)),
    )


def compute_saving(baseline_usd: float, relative_usd: Amount) -> Amount:
    """Compute the USD saved per run from the cost of the baseline's run and the relative cost;
    may be negative.
    """
    return apply_monotone(relative_usd, lambda relative: baseline_usd * (1 - relative))


def amortise(
    build_usd: float, saving_usd: Amount, *, runs_per_day: float | None = None
) -> Amortisation:
    """Compute the number of runs that pay for the build: its cost over the saving per run.

    Raises UsageError if the cost or the rate is invalid, and SampleError if the saving is not
    a finite number.
    """
    if not (math.isfinite(build_usd) and build_usd >= 0):
        raise UsageError(f"invalid cost of a build: {build_usd:g} USD")
    if runs_per_day is not None and not (math.isfinite(runs_per_day) and runs_per_day > 0):
        raise UsageError(f"invalid rate: {runs_per_day:g} runs per day")
    low, middle, high = get_ends(saving_usd)
    if not all(map(math.isfinite, (low, middle, high))):
        raise SampleError(f"invalid saving: {middle:g} USD per run")
    spread = isinstance(saving_usd, Interval)
    return Amortisation(
        build_usd=build_usd,
        saving_usd=saving_usd,
        runs=_count_runs(build_usd, middle),
        soonest=_count_runs(build_usd, high) if spread else None,
        latest=_count_runs(build_usd, low) if spread else None,
        runs_per_day=runs_per_day,
    )


def compute_seconds_to_accuracy(*, epochs: float, images: int, images_s: Amount) -> Amount:
    """Compute the training time until the epoch that reached the accuracy.

    Evaluation and start-up are excluded. Raises SampleError if the rate or the amount of
    training is not positive.
    """
    _check_positive(images_s, "images/s", "rate")
    _check_positive(epochs * images, "images", "amount of training")
    return apply_monotone(images_s, lambda rate: epochs * images / rate)


def compute_images_per_usd(images_s: Amount, price: Price) -> Amount:
    """Compute images/s for each USD/h, the 2018 article's measure of value.

    Raises SampleError if the rate is not positive.
    """
    _check_positive(images_s, "images/s", "rate")
    return apply_monotone(images_s, lambda rate: rate / price.usd_hour)


def _compute_log_distances(amount: Amount) -> tuple[float, float]:
    """Compute how far the interval extends below and above its value, in logarithms."""
    low, value, high = get_ends(amount)
    return math.log(value / low), math.log(high / value)


def _check_positive(amount: Amount, unit: str, quantity: str) -> None:
    low, value, high = get_ends(amount)
    if not (0 < low <= value <= high < math.inf):
        shown = f"{value:g}" if low == high else f"{value:g} ({low:g} to {high:g})"
        raise SampleError(f"invalid {quantity}: {shown} {unit}")


def _count_runs(build_usd: float, saving_usd: float) -> int | None:
    if saving_usd <= 0 or not math.isfinite(build_usd / saving_usd):
        return None
    return _round_up(build_usd / saving_usd)


def _round_up(quotient: float) -> int:
    return math.ceil(quotient * (1 - _SLACK))
