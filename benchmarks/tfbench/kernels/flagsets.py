"""With which flags each kernel unit is fastest, from timings of a wheel per set of flags. Pure.

Every wheel was timed beside the stock kernels in launches of its own, so what two of them save is
compared with both their spreads (Welch, Biometrika 1947), and over all pairs the false discovery
rate is held.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy import stats

from tfbench.kernels.judging import TimedCallSite, discovered
from tfbuild.measured.kernels import TypedOp


@dataclass(frozen=True, kw_only=True, slots=True)
class FlagSet:
    """`saved` has what the kernels of each unit save of all op time, a share for each launch,
    negative where they lose; the mean over the numbers of threads. An empty `compiler` is the best
    of this machine."""

    compiler: str = ""
    flags: tuple[str, ...]
    saved: Mapping[str, tuple[float, ...]]


def saved(
    timed: Sequence[TimedCallSite], units: Mapping[TypedOp, str]
) -> dict[str, tuple[float, ...]]:
    """By unit, for as many launches as all of its call sites have. Raises SampleError."""
    rows: dict[str, list[list[float]]] = defaultdict(list)
    threads = len({each.threads for each in timed})
    for each in timed:
        share = each.site.share / threads
        rows[units[each.choice]].append([share * (1 - math.exp(-ln)) for ln in each.series.ratios])
    return {
        unit: tuple(sum(launch) for launch in zip(*own, strict=False)) for unit, own in rows.items()
    }


def best(tried: Sequence[FlagSet], rate: float) -> FlagSet:
    """For a whole wheel, which has one compiler: the first, or of those that save more than it over
    the units of both the one that saves most."""
    plain, *others = tried
    others = [other for other in others if other.saved.keys() & plain.saved.keys()]
    pairs = [_over_all(other, plain) for other in others]
    found = discovered([_more(*pair) for pair in pairs], rate)
    gains = {number: _mean(pairs[number][0]) - _mean(pairs[number][1]) for number in found}
    return others[max(gains, key=gains.__getitem__)] if gains else plain


def _over_all(one: FlagSet, other: FlagSet) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """What both save with the units that both have, a share for each launch."""
    units = sorted(one.saved.keys() & other.saved.keys())
    first, second = (
        tuple(map(math.fsum, zip(*(each.saved[unit] for unit in units), strict=False)))
        for each in (one, other)
    )
    return first, second


def fastest(tried: Sequence[FlagSet], rate: float) -> dict[str, FlagSet]:
    """The flags of each unit: the first, or of those that save more than it the one that saves
    most. A unit that the first has not is left out."""
    plain, *others = tried
    pairs = [(unit, other) for other in others for unit in plain.saved if unit in other.saved]
    probabilities = [_more(other.saved[unit], plain.saved[unit]) for unit, other in pairs]
    chosen = dict.fromkeys(plain.saved, plain)
    for number in sorted(discovered(probabilities, rate)):
        unit, other = pairs[number]
        if _mean(other.saved[unit]) > _mean(chosen[unit].saved[unit]):
            chosen[unit] = other
    return chosen


def _more(candidate: Sequence[float], plain: Sequence[float]) -> float:
    """The probability of so much more saved where nothing is, by Welch's t with Satterthwaite's
    degrees of freedom."""
    gain = _mean(candidate) - _mean(plain)
    spreads = [statistics.variance(each) / len(each) for each in (candidate, plain)]
    total = math.fsum(spreads)
    if total == 0:
        return 0.0 if gain > 0 else 1.0
    parts = zip(spreads, (candidate, plain), strict=True)
    freedom = 1 / sum((spread / total) ** 2 / (len(each) - 1) for spread, each in parts)
    return float(stats.t.sf(gain / math.sqrt(total), freedom))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
