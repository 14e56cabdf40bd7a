"""The choice of kernels from their timings. Pure: numbers in, rows out.

Among many call sites some look faster by chance. The false discovery rate is controlled over all of
them (Benjamini and Hochberg, J. R. Statist. Soc. B 1995). The winners are timed again in fresh
launches, whose intervals have no selection bias. Losses have no such correction: with it, a kernel
could be the slower at one call site, the more others were timed.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy import stats

from tfbench.kernels.profiles import RankedCallSite
from tfbench.measuring.statistics import Contrast, compute_contrast, compute_level
from tfcore.comparisons.interval import Interval
from tfcore.comparisons.kernels import KernelRow, TypedOp
from tfcore.console import format_count

RATE = 0.05
LEAST_LOSS = 0.01
"""A kernel is slower at a call site if that is significant there, and the loss is at least this."""
QUIET = 0.05
"""Timings are kept for later selections if stock differs from itself by at most this much."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """The timings of one call site with one number of threads.

    `stock_s` and `tuned_s` are medians, in seconds per execution; `stock`, `again` (stock
    once more) and `tuned` are the levels of each launch, ln(seconds), see
    `statistics.compute_level`.
    """

    stock_s: float
    tuned_s: float
    stock: tuple[float, ...]
    again: tuple[float, ...]
    tuned: tuple[float, ...]

    @property
    def gain(self) -> Contrast:
        """Return ln(stock / tuned). Raises SampleError if there are fewer than two launches."""
        return compute_contrast(self._levels, "tuned", ("stock", "again"))

    @property
    def same(self) -> Contrast:
        """Return stock against itself. Raises SampleError if there are fewer than two launches."""
        return compute_contrast(self._levels, "again", ("stock",))

    @property
    def ratios(self) -> tuple[float, ...]:
        """Return ln(stock / tuned) of each launch."""
        levels = zip(self.stock, self.again, self.tuned, strict=True)
        return tuple((stock + again) / 2 - tuned for stock, again, tuned in levels)

    @property
    def _levels(self) -> dict[str, tuple[float, ...]]:
        return {"stock": self.stock, "again": self.again, "tuned": self.tuned}


@dataclass(frozen=True, kw_only=True, slots=True)
class TimedCallSite:
    """A call site that a kernel of the wheel serves, with its timings."""

    site: RankedCallSite
    choice: TypedOp
    threads: int
    series: Series


@dataclass(frozen=True, kw_only=True, slots=True)
class Control:
    """The A/A control: stock against stock under the same rules.

    `won` and `lost` count the cells (call sites times numbers of threads) that look faster and
    slower. `won` should be near 0, `lost` at most the rate of all cells, because each is tested by
    itself. 19 of 20 intervals stay within `reach`, a share.
    """

    cells: int
    won: int
    lost: int
    reach: float


def is_quiet(series: Series) -> bool:
    """Return whether a later selection may rely on it: other processes disturbed it little."""
    return series.same.interval.reach <= QUIET


def create_rows(timed: Sequence[TimedCallSite]) -> tuple[KernelRow, ...]:
    """Create a row for each call site, with its own p.

    Raises SampleError if there are fewer than two launches.
    """
    return tuple(_create_row(call_site) for call_site in timed)


def _create_row(timed: TimedCallSite) -> KernelRow:
    gain, site = timed.series.gain, timed.site.place
    return KernelRow(
        op=site.op,
        types=timed.choice.types,
        attributes=site.details,
        shapes=site.shapes,
        threads=timed.threads,
        share=timed.site.share,
        stock_s=timed.series.stock_s,
        tuned_s=timed.series.tuned_s,
        ratio=gain.interval.value,
        low=gain.interval.low,
        high=gain.interval.high,
        p=gain.p_faster,
    )


def find_winners(rows: Sequence[KernelRow], rate: float) -> frozenset[int]:
    """Return the numbers of the rows that are faster at this false discovery rate."""
    return find_discoveries([row.p for row in rows], rate)


def find_losers(
    probabilities: Sequence[float], ratios: Sequence[float], rate: float
) -> frozenset[int]:
    """Return the numbers of the rows that are slower by LEAST_LOSS or more, each tested by itself.

    A row without loss looks slower with a probability of at most `rate`. The probabilities are
    those of at least that much gain, see `Contrast.p_faster`.
    """
    slower = (number for number, p_value in enumerate(probabilities) if 1 - p_value <= rate)
    return frozenset(number for number in slower if ratios[number] <= 1 - LEAST_LOSS)


def find_discoveries(probabilities: Sequence[float], rate: float) -> frozenset[int]:
    """Return the numbers of the hypotheses that Benjamini and Hochberg reject at this rate."""
    if not probabilities:
        return frozenset()
    adjusted = stats.false_discovery_control(probabilities, method="bh")
    return frozenset(number for number, p_value in enumerate(adjusted) if p_value <= rate)


def reject_candidates(
    rows: Sequence[KernelRow], rate: float, untimed: Mapping[TypedOp, str]
) -> tuple[dict[TypedOp, str], frozenset[int]]:
    """Return why each registration is not worth confirming, empty for a candidate, and the
    winning rows.

    A candidate wins somewhere, loses nowhere, gains over all its call sites, and was timed at
    each of them: `untimed` has a call site of the others.
    """
    winners = find_winners(rows, rate)
    losers = find_losers([row.p for row in rows], [row.ratio for row in rows], rate)
    ratios = {number: row.ratio for number, row in enumerate(rows)}
    reasons = _list_reasons(dict(enumerate(rows)), winners, losers, ratios)
    missing = {choice: f"not timed at {untimed[choice]}" for choice in reasons if choice in untimed}
    return reasons | missing, winners


def confirm_candidates(
    rows: Sequence[KernelRow],
    again: Mapping[int, Series],
    rate: float,
    untimed: Mapping[TypedOp, str],
) -> tuple[tuple[KernelRow, ...], tuple[TypedOp, ...]]:
    """Return all rows with their outcome, and the registrations that are kept.

    `again` has fresh measurements of the candidates' rows, by number. A candidate is kept if
    its fresh intervals confirm the first ones.
    """
    reasons, winners = reject_candidates(rows, rate, untimed)
    fresh = {number: series.gain.interval for number, series in again.items()}
    still_winning = frozenset(number for number in winners & fresh.keys() if fresh[number].low > 1)
    timed = sorted(fresh)
    slower = find_losers(
        [again[number].gain.p_faster for number in timed],
        [fresh[number].value for number in timed],
        rate,
    )
    late_reasons = _list_reasons(
        {number: row for number, row in enumerate(rows) if not reasons[row.choice]},
        still_winning,
        frozenset(timed[index] for index in slower),
        {number: interval.value for number, interval in fresh.items()},
    )
    outcome = reasons | {
        choice: f"not confirmed: {reason}" if reason else ""
        for choice, reason in late_reasons.items()
    }
    choices = tuple(sorted(choice for choice, reason in outcome.items() if not reason))
    outcome_rows = tuple(
        dataclasses.replace(
            row,
            confirmed=_convert_interval(fresh.get(number)),
            kept=not outcome[row.choice],
            reason=outcome[row.choice],
        )
        for number, row in enumerate(rows)
    )
    return outcome_rows, choices


def compute_control(timed: Sequence[TimedCallSite], rate: float) -> Control:
    """Apply the rules to stock against stock.

    Raises SampleError if a call site has fewer than two launches.
    """
    contrasts = [site.series.same for site in timed]
    reaches = sorted(contrast.interval.reach for contrast in contrasts)
    within = reaches[math.ceil(0.95 * len(reaches)) - 1] if reaches else 0.0
    probabilities = [contrast.p_faster for contrast in contrasts]
    return Control(
        cells=len(timed),
        won=len(find_discoveries(probabilities, rate)),
        lost=len(
            find_losers(probabilities, [contrast.interval.value for contrast in contrasts], rate)
        ),
        reach=math.expm1(within),
    )


def create_series(launches: Sequence[Mapping[str, Sequence[float]]]) -> Series:
    """Create a series from the seconds per execution of each launch's samples of stock, again
    and tuned.
    """

    def compute_levels(arm: str) -> tuple[float, ...]:
        return tuple(compute_level(launch[arm]) for launch in launches)

    def compute_median(arm: str) -> float:
        return statistics.median(seconds for launch in launches for seconds in launch[arm])

    return Series(
        stock_s=compute_median("stock"),
        tuned_s=compute_median("tuned"),
        stock=compute_levels("stock"),
        again=compute_levels("again"),
        tuned=compute_levels("tuned"),
    )


def _list_reasons(
    rows: Mapping[int, KernelRow],
    winners: frozenset[int],
    losers: frozenset[int],
    ratios: Mapping[int, float],
) -> dict[TypedOp, str]:
    """Return why each registration is not kept, empty if it is. All go by the rows' numbers."""
    numbers: dict[TypedOp, list[int]] = defaultdict(list)
    for number, row in rows.items():
        numbers[row.choice].append(number)
    return {
        choice: _find_reason({n: rows[n] for n in row_numbers}, winners, losers, ratios)
        for choice, row_numbers in numbers.items()
    }


def _find_reason(
    rows: Mapping[int, KernelRow],
    winners: frozenset[int],
    losers: frozenset[int],
    ratios: Mapping[int, float],
) -> str:
    for number, row in rows.items():
        where = f"{row.shapes}, {format_count(row.threads, 'thread')}"
        if number not in ratios:
            return f"not timed at {where}"
        if number in losers:
            return f"{ratios[number]:.3f}x at {where}"
    if not winners & rows.keys():
        return "no gain beyond noise"
    if sum(row.share * (1 - 1 / ratios[number]) for number, row in rows.items()) <= 0:
        return "no gain over all its call sites"
    return ""


def _convert_interval(interval: Interval | None) -> tuple[float, float, float] | None:
    return None if interval is None else (interval.value, interval.low, interval.high)
