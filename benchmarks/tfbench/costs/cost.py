"""What a training run costs, and which machine and wheel to choose for it. Pure.

An Interval is carried through: costs rise with time, so its ends become the answer's ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tfbench.costs.prices import Price
from tfbench.measuring.statistics import FEWEST_LAUNCHES, estimate
from tfbuild.errors import SampleError, UsageError
from tfbuild.measured.interval import Interval

Amount: TypeAlias = Interval | float
"""A plain number was seen once: how well it is known is not known."""

_HOUR_S = 3600
_SLACK = 1e-9
"""Relative. A quotient that is this little above a whole number was meant to be that number."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Relative:
    """Time and cost over the baseline's: below 1 is better."""

    time: Amount
    usd: Amount


@dataclass(frozen=True, kw_only=True, slots=True)
class Amortisation:
    """After how many runs a build has paid for itself; None: never.

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
        """None without a rate, and when the build never pays."""
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
            text += f", {self.days:.3g} days at {self.runs_per_day:g} runs a day"
        return text


def point(amount: Amount) -> float:
    return amount.value if isinstance(amount, Interval) else amount


def ends(amount: Amount) -> tuple[float, float, float]:
    """Low end, value, high end."""
    if isinstance(amount, Interval):
        return amount.low, amount.value, amount.high
    return amount, amount, amount


def over_launches(values: Sequence[float]) -> Amount:
    """The geometric mean of a positive number per launch, with Student's t interval; of a single
    launch a plain number."""
    if len(values) < FEWEST_LAUNCHES:
        return values[0]
    return estimate([[math.log(each)] for each in values])


def carry(amount: Amount, function: Callable[[float], float]) -> Amount:
    """A monotone function of an amount; a falling one swaps the interval's ends."""
    if not isinstance(amount, Interval):
        return function(amount)
    low, high = sorted((function(amount.low), function(amount.high)))
    return Interval(value=function(amount.value), low=low, high=high)


def inverse(amount: Amount) -> Amount:
    return carry(amount, lambda each: 1 / each)


def ratio(above: Amount, below: Amount) -> Amount:
    """Of two positive amounts that were measured apart.

    The interval is put together from both on the logarithmic scale, as if they were independent
    (MOVER: Zou and Donner, Statistics in Medicine 2008). Where the two were measured in pairs,
    their own interval is the narrower and better one: see `paired`.
    """
    value = point(above) / point(below)
    if not (isinstance(above, Interval) or isinstance(below, Interval)):
        return value
    (down, up), (other_down, other_up) = _log_arms(above), _log_arms(below)
    return Interval(
        value=value,
        low=value * math.exp(-math.hypot(down, other_up)),
        high=value * math.exp(math.hypot(up, other_down)),
    )


def billed_s(seconds: float, price: Price) -> float:
    """The seconds that are paid for."""
    increment = price.billing_increment_s
    whole = _ceil(seconds / increment) * increment if increment else seconds
    return max(whole, price.minimum_s)


def usd(seconds: Amount, price: Price) -> Amount:
    """What a run of that many seconds costs at that price. Raises SampleError."""
    _check_positive(seconds, "s", "a time")
    return carry(seconds, lambda each: billed_s(each, price) * price.usd_hour / _HOUR_S)


def paired(speedup: Amount, price: Price, baseline_price: Price, *, baseline_s: float) -> Relative:
    """Time and cost relative to the baseline from a speedup (baseline time over this time) that was
    measured as such. `baseline_s` is how long the baseline's run takes, for prices with increments
    or a minimum. Raises SampleError."""
    _check_positive(speedup, "x", "a speedup")
    dearer = price.usd_hour / baseline_price.usd_hour
    baseline_paid = billed_s(baseline_s, baseline_price)

    def cost(faster: float) -> float:
        return dearer * billed_s(baseline_s / faster, price) / baseline_paid

    return Relative(time=inverse(speedup), usd=carry(speedup, cost))


def geometric_mean(amounts: Sequence[Amount]) -> Amount:
    """Of positive amounts that were measured apart; its interval is put together as that of a
    `ratio`, if all of them have one. Raises SampleError for none."""
    if not amounts:
        raise SampleError("there is nothing to take a mean of")
    value = math.exp(math.fsum(math.log(point(each)) for each in amounts) / len(amounts))
    if not all(isinstance(each, Interval) for each in amounts):
        return value
    downs, ups = zip(*map(_log_arms, amounts), strict=True)
    return Interval(
        value=value,
        low=value * math.exp(-math.hypot(*downs) / len(amounts)),
        high=value * math.exp(math.hypot(*ups) / len(amounts)),
    )


def saving(baseline_usd: float, relative_usd: Amount) -> Amount:
    """USD per run, from what the baseline's run costs and the relative cost; may be negative."""
    return carry(relative_usd, lambda each: baseline_usd * (1 - each))


def amortise(
    build_usd: float, saving_usd: Amount, *, runs_per_day: float | None = None
) -> Amortisation:
    """The build's cost over the saving per run. Raises UsageError for a cost or a rate that is
    none, SampleError for a saving that is not a number."""
    if not (math.isfinite(build_usd) and build_usd >= 0):
        raise UsageError(f"a build that costs {build_usd:g} USD cannot be paid back")
    if runs_per_day is not None and not (math.isfinite(runs_per_day) and runs_per_day > 0):
        raise UsageError(f"{runs_per_day:g} runs a day is not a rate")
    low, middle, high = ends(saving_usd)
    if not all(map(math.isfinite, (low, middle, high))):
        raise SampleError(f"a run saves {middle:g} USD, which is not an amount")
    spread = isinstance(saving_usd, Interval)
    return Amortisation(
        build_usd=build_usd,
        saving_usd=saving_usd,
        runs=_runs(build_usd, middle),
        soonest=_runs(build_usd, high) if spread else None,
        latest=_runs(build_usd, low) if spread else None,
        runs_per_day=runs_per_day,
    )


def seconds_to_accuracy(*, epochs: float, images: int, images_s: Amount) -> Amount:
    """Training time until the epoch that reached the accuracy. Evaluation and start-up are not in
    it. Raises SampleError."""
    _check_positive(images_s, "images/s", "a rate")
    _check_positive(epochs * images, "images", "an amount of training")
    return carry(images_s, lambda each: epochs * images / each)


def images_per_usd(images_s: Amount, price: Price) -> Amount:
    """Images/s for each USD/h, the 2018 article's measure of value. Raises SampleError."""
    _check_positive(images_s, "images/s", "a rate")
    return carry(images_s, lambda each: each / price.usd_hour)


def _log_arms(amount: Amount) -> tuple[float, float]:
    """How far the interval reaches down and up, in logarithms."""
    low, value, high = ends(amount)
    return math.log(value / low), math.log(high / value)


def _check_positive(amount: Amount, unit: str, what: str) -> None:
    low, value, high = ends(amount)
    if not (0 < low <= value <= high < math.inf):
        shown = f"{value:g}" if low == high else f"{value:g} ({low:g} to {high:g})"
        raise SampleError(f"{shown} {unit} is not {what}")


def _runs(build_usd: float, saving_usd: float) -> int | None:
    if saving_usd <= 0 or not math.isfinite(build_usd / saving_usd):
        return None
    return _ceil(build_usd / saving_usd)


def _ceil(quotient: float) -> int:
    return math.ceil(quotient * (1 - _SLACK))
