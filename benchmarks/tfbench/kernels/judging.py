"""Which kernels are kept, from what was timed. Pure: numbers in, rows out.

Many places are looked at, so some look faster by chance. The false discovery rate is controlled
over all of them (Benjamini and Hochberg, J. R. Statist. Soc. B 1995), and what seems to win is
timed again in fresh launches, whose intervals no selection has touched.
"""

from __future__ import annotations

import dataclasses
import math
import statistics as middle
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy import stats

from tfbench.kernels.profiles import Spot
from tfbench.measuring.statistics import Interval, estimate, locations
from tfbuild.planning.selection import Choice, Row
from tfbuild.talk import count

RATE = 0.05
LEAST_LOSS = 0.01
"""A kernel is slower somewhere when the whole interval lies below 1 and the loss is no smaller."""


QUIET = 0.05
"""Times are worth keeping for later selections where stock differs no more from itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """What was timed of one place with so many threads. Times are seconds per execution; `launches`
    holds ln(stock / tuned) for each block of each launch, `again` stock against itself."""

    stock_s: float
    tuned_s: float
    launches: tuple[tuple[float, ...], ...]
    again: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Timed:
    """A place that a kernel of the wheel serves, and what was timed of it."""

    spot: Spot
    choice: Choice
    threads: int
    series: Series


@dataclass(frozen=True, kw_only=True, slots=True)
class Control:
    """Stock against stock, judged by the same rule: `won` of `places`, which should be about none,
    and the reach of the intervals that 19 of 20 stay within, as a share."""

    places: int
    won: int
    reach: float


def one_sided(launches: Sequence[Sequence[float]]) -> float:
    """The probability of launches so much faster where there is no gain: Student's t over the
    launches' medians. Raises SampleError."""
    found = locations(launches)
    if float(found.var()) == 0:
        return 1.0 if found[0] <= 0 else 0.0
    return float(stats.ttest_1samp(found, 0.0, alternative="greater").pvalue)


def quiet(series: Series) -> bool:
    """Whether a later selection may rely on it: another process did not get in the way of much."""
    return estimate(series.again).reach <= QUIET


def rows(timed: Sequence[Timed]) -> tuple[Row, ...]:
    """A row for each, with its own p. Raises SampleError for fewer than two launches."""
    return tuple(_row(each) for each in timed)


def _row(timed: Timed) -> Row:
    found, place = estimate(timed.series.launches), timed.spot.place
    return Row(
        op=place.op,
        types=timed.choice.types,
        attributes=place.details,
        shapes=place.shapes,
        threads=timed.threads,
        share=timed.spot.share,
        stock_s=timed.series.stock_s,
        tuned_s=timed.series.tuned_s,
        ratio=found.value,
        low=found.low,
        high=found.high,
        p=one_sided(timed.series.launches),
    )


def winning(found: Sequence[Row], rate: float) -> frozenset[int]:
    """The numbers of the rows that are faster, at that false discovery rate."""
    return discovered([row.p for row in found], rate)


def discovered(probabilities: Sequence[float], rate: float) -> frozenset[int]:
    """Those that Benjamini and Hochberg's procedure rejects at that rate."""
    if not probabilities:
        return frozenset()
    adjusted = stats.false_discovery_control(probabilities, method="bh")
    return frozenset(number for number, each in enumerate(adjusted) if each <= rate)


def candidates(found: Sequence[Row], rate: float) -> tuple[dict[Choice, str], frozenset[int]]:
    """Why each registration is not worth confirming, empty for one that is, and the winning rows.

    One that is wins somewhere, loses nowhere, and gains over all its places.
    """
    winners = winning(found, rate)
    measured = {number: _interval(row) for number, row in enumerate(found)}
    return _reasons(found, winners, measured), winners


def confirmed(
    found: Sequence[Row], again: Mapping[int, Series], rate: float
) -> tuple[tuple[Row, ...], tuple[Choice, ...]]:
    """All rows with what became of them, and the registrations that are kept.

    `again` are fresh measurements of the candidates' rows, by number. One stays whose fresh
    intervals say what the first ones said.
    """
    reasons, winners = candidates(found, rate)
    fresh = {number: estimate(series.launches) for number, series in again.items()}
    still = frozenset(number for number in winners & fresh.keys() if fresh[number].low > 1)
    checked = [number for number, row in enumerate(found) if not reasons[row.choice]]
    late = _reasons(
        [found[number] for number in checked],
        frozenset(place for place, number in enumerate(checked) if number in still),
        {place: fresh[number] for place, number in enumerate(checked) if number in fresh},
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


def control(timed: Sequence[Timed], rate: float) -> Control:
    """The rule applied to stock against stock. Raises SampleError."""
    reaches = sorted(estimate(each.series.again).reach for each in timed)
    within = reaches[math.ceil(0.95 * len(reaches)) - 1] if reaches else 0.0
    found = discovered([one_sided(each.series.again) for each in timed], rate)
    return Control(places=len(timed), won=len(found), reach=math.expm1(within))


def series_of(
    blocks: Sequence[tuple[Sequence[float], Sequence[float]]],
    stock_s: Sequence[float],
    tuned_s: Sequence[float],
) -> Series:
    """One from each launch's logarithms, tuned's and the twin's, and all times per execution."""
    return Series(
        stock_s=middle.median(stock_s),
        tuned_s=middle.median(tuned_s),
        launches=tuple(tuple(ours) for ours, _ in blocks),
        again=tuple(tuple(theirs) for _, theirs in blocks),
    )


def _reasons(
    found: Sequence[Row], winners: frozenset[int], measured: Mapping[int, Interval]
) -> dict[Choice, str]:
    """Why a registration is not kept, empty for one that is. `winners` and `measured` go by the
    rows' numbers."""
    numbers: dict[Choice, list[int]] = defaultdict(list)
    for number, row in enumerate(found):
        numbers[row.choice].append(number)
    return {
        choice: _reason([(found[n], measured.get(n)) for n in own], won=bool(winners & {*own}))
        for choice, own in numbers.items()
    }


def _reason(own: Sequence[tuple[Row, Interval | None]], *, won: bool) -> str:
    absent = [row for row, interval in own if interval is None]
    if absent:
        return f"not timed at {absent[0].shapes}"
    pairs = [(row, interval) for row, interval in own if interval is not None]
    for row, interval in pairs:
        if interval.high < 1 and interval.value <= 1 - LEAST_LOSS:
            where = f"{row.shapes}, {count(row.threads, 'thread')}"
            return f"{interval.value:.3f}x at {where}"
    if not won:
        return "no gain beyond noise"
    if sum(row.share * (1 - 1 / interval.value) for row, interval in pairs) <= 0:
        return "no gain over all its places"
    return ""


def _interval(row: Row) -> Interval:
    return Interval(value=row.ratio, low=row.low, high=row.high)


def _triple(interval: Interval | None) -> tuple[float, float, float] | None:
    return None if interval is None else (interval.value, interval.low, interval.high)
