"""Which kernels are kept, from what was timed. Pure: numbers in, rows out.

Many call sites are looked at, so some look faster by chance. The false discovery rate is controlled
over all of them (Benjamini and Hochberg, J. R. Statist. Soc. B 1995), and what seems to win is
timed again in fresh launches, whose intervals no selection has touched.
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
from tfbench.measuring.statistics import Contrast, contrast, level
from tfbuild.console import format_count
from tfbuild.measured.interval import Interval
from tfbuild.measured.kernels import KernelRow, TypedOp

RATE = 0.05
LEAST_LOSS = 0.01
"""A kernel is slower somewhere when that is found at the same rate and the loss is no smaller."""
QUIET = 0.05
"""Times are worth keeping for later selections where stock differs no more from itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """What was timed of one call site with so many threads. `stock_s` and `tuned_s` are medians, in
    seconds per execution; `stock`, `again` (stock once more) and `tuned` are the levels of each
    launch, ln(seconds), see `statistics.level`."""

    stock_s: float
    tuned_s: float
    stock: tuple[float, ...]
    again: tuple[float, ...]
    tuned: tuple[float, ...]

    @property
    def gain(self) -> Contrast:
        """ln(stock / tuned). Raises SampleError for fewer than two launches."""
        return contrast(self._levels, "tuned", ("stock", "again"))

    @property
    def same(self) -> Contrast:
        """Stock against itself. Raises SampleError for fewer than two launches."""
        return contrast(self._levels, "again", ("stock",))

    @property
    def ratios(self) -> tuple[float, ...]:
        """ln(stock / tuned) of each launch."""
        every = zip(self.stock, self.again, self.tuned, strict=True)
        return tuple((stock + again) / 2 - tuned for stock, again, tuned in every)

    @property
    def _levels(self) -> dict[str, tuple[float, ...]]:
        return {"stock": self.stock, "again": self.again, "tuned": self.tuned}


@dataclass(frozen=True, kw_only=True, slots=True)
class TimedCallSite:
    """A call site that a kernel of the wheel serves, and what was timed of it."""

    site: RankedCallSite
    choice: TypedOp
    threads: int
    series: Series


@dataclass(frozen=True, kw_only=True, slots=True)
class Control:
    """Stock against stock, judged by the same rules: `won` and `lost` of `cells` (a call site with
    a number of threads), which should be about none, and the reach of the intervals that 19 of 20
    stay within, as a share."""

    cells: int
    won: int
    lost: int
    reach: float


def quiet(series: Series) -> bool:
    """Whether a later selection may rely on it: another process did not get in the way of much."""
    return series.same.interval.reach <= QUIET


def rows(timed: Sequence[TimedCallSite]) -> tuple[KernelRow, ...]:
    """A row for each, with its own p. Raises SampleError for fewer than two launches."""
    return tuple(_row(each) for each in timed)


def _row(timed: TimedCallSite) -> KernelRow:
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


def winning(found: Sequence[KernelRow], rate: float) -> frozenset[int]:
    """The numbers of the rows that are faster, at that false discovery rate."""
    return discovered([row.p for row in found], rate)


def losing(probabilities: Sequence[float], ratios: Sequence[float], rate: float) -> frozenset[int]:
    """The numbers of those that are slower at that rate, and by LEAST_LOSS or more. The
    probabilities are those of so much gain, see `Contrast.p_faster`."""
    slower = discovered([1 - each for each in probabilities], rate)
    return frozenset(number for number in slower if ratios[number] <= 1 - LEAST_LOSS)


def discovered(probabilities: Sequence[float], rate: float) -> frozenset[int]:
    """Those that Benjamini and Hochberg's procedure rejects at that rate."""
    if not probabilities:
        return frozenset()
    adjusted = stats.false_discovery_control(probabilities, method="bh")
    return frozenset(number for number, each in enumerate(adjusted) if each <= rate)


def candidates(
    found: Sequence[KernelRow], rate: float, untimed: Mapping[TypedOp, str]
) -> tuple[dict[TypedOp, str], frozenset[int]]:
    """Why each registration is not worth confirming, empty for one that is, and the winning rows.

    One that is wins somewhere, loses nowhere, gains over all its call sites, and was timed at each
    of them: `untimed` has a call site of the others.
    """
    winners = winning(found, rate)
    losers = losing([row.p for row in found], [row.ratio for row in found], rate)
    ratios = {number: row.ratio for number, row in enumerate(found)}
    reasons = _reasons(dict(enumerate(found)), winners, losers, ratios)
    missing = {choice: f"not timed at {untimed[choice]}" for choice in reasons if choice in untimed}
    return reasons | missing, winners


def confirmed(
    found: Sequence[KernelRow],
    again: Mapping[int, Series],
    rate: float,
    untimed: Mapping[TypedOp, str],
) -> tuple[tuple[KernelRow, ...], tuple[TypedOp, ...]]:
    """All rows with what became of them, and the registrations that are kept.

    `again` are fresh measurements of the candidates' rows, by number. One stays whose fresh
    intervals say what the first ones said.
    """
    reasons, winners = candidates(found, rate, untimed)
    fresh = {number: series.gain.interval for number, series in again.items()}
    still = frozenset(number for number in winners & fresh.keys() if fresh[number].low > 1)
    timed = sorted(fresh)
    slower = losing(
        [again[number].gain.p_faster for number in timed],
        [fresh[number].value for number in timed],
        rate,
    )
    late = _reasons(
        {number: row for number, row in enumerate(found) if not reasons[row.choice]},
        still,
        frozenset(timed[site] for site in slower),
        {number: interval.value for number, interval in fresh.items()},
    )
    outcome = reasons | {
        choice: f"not confirmed: {reason}" if reason else "" for choice, reason in late.items()
    }
    kept = tuple(sorted(choice for choice, reason in outcome.items() if not reason))
    judged = tuple(
        dataclasses.replace(
            row,
            confirmed=_triple(fresh.get(number)),
            kept=not outcome[row.choice],
            reason=outcome[row.choice],
        )
        for number, row in enumerate(found)
    )
    return judged, kept


def control(timed: Sequence[TimedCallSite], rate: float) -> Control:
    """The rules applied to stock against stock. Raises SampleError."""
    found = [each.series.same for each in timed]
    reaches = sorted(each.interval.reach for each in found)
    within = reaches[math.ceil(0.95 * len(reaches)) - 1] if reaches else 0.0
    probabilities = [each.p_faster for each in found]
    return Control(
        cells=len(timed),
        won=len(discovered(probabilities, rate)),
        lost=len(losing(probabilities, [each.interval.value for each in found], rate)),
        reach=math.expm1(within),
    )


def series_of(launches: Sequence[Mapping[str, Sequence[float]]]) -> Series:
    """From the seconds per execution of each launch's samples of stock, again and tuned."""

    def levels(arm: str) -> tuple[float, ...]:
        return tuple(level(launch[arm]) for launch in launches)

    def middle(arm: str) -> float:
        return statistics.median(each for launch in launches for each in launch[arm])

    return Series(
        stock_s=middle("stock"),
        tuned_s=middle("tuned"),
        stock=levels("stock"),
        again=levels("again"),
        tuned=levels("tuned"),
    )


def _reasons(
    found: Mapping[int, KernelRow],
    winners: frozenset[int],
    losers: frozenset[int],
    ratios: Mapping[int, float],
) -> dict[TypedOp, str]:
    """Why a registration is not kept, empty for one that is. All go by the rows' numbers."""
    numbers: dict[TypedOp, list[int]] = defaultdict(list)
    for number, row in found.items():
        numbers[row.choice].append(number)
    return {
        choice: _reason({n: found[n] for n in own}, winners, losers, ratios)
        for choice, own in numbers.items()
    }


def _reason(
    own: Mapping[int, KernelRow],
    winners: frozenset[int],
    losers: frozenset[int],
    ratios: Mapping[int, float],
) -> str:
    for number, row in own.items():
        where = f"{row.shapes}, {format_count(row.threads, 'thread')}"
        if number not in ratios:
            return f"not timed at {where}"
        if number in losers:
            return f"{ratios[number]:.3f}x at {where}"
    if not winners & own.keys():
        return "no gain beyond noise"
    if sum(row.share * (1 - 1 / ratios[number]) for number, row in own.items()) <= 0:
        return "no gain over all its call sites"
    return ""


def _triple(interval: Interval | None) -> tuple[float, float, float] | None:
    return None if interval is None else (interval.value, interval.low, interval.high)
