"""The fastest flags of each kernel group, from timings of one wheel per set of flags. Pure.

Every wheel was timed beside the stock kernels in separate launches. So the savings of two wheels
are compared by Welch's t (Biometrika 1947), and the false discovery rate is controlled over all
pairs.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy import stats

from tfbench.kernels.keep_rules import TimedCallSite, find_discoveries
from tfbuild.comparisons.kernels import TypedOp


@dataclass(frozen=True, kw_only=True, slots=True)
class FlagSet:
    """A set of compiler flags, with its savings.

    `saved` has, by kernel group, the share of all op time that its kernels save in each launch,
    negative if they are slower; the mean over the numbers of threads. An empty `compiler` is the
    best one on this machine.
    """

    compiler: str = ""
    flags: tuple[str, ...]
    saved: Mapping[str, tuple[float, ...]]


def compute_savings(
    timed: Sequence[TimedCallSite], units: Mapping[TypedOp, str]
) -> dict[str, tuple[float, ...]]:
    """Compute the savings by kernel group, for as many launches as all of its call sites have.

    Raises SampleError if a call site has too few launches.
    """
    rows: dict[str, list[list[float]]] = defaultdict(list)
    threads = len({call_site.threads for call_site in timed})
    for call_site in timed:
        share = call_site.site.share / threads
        rows[units[call_site.choice]].append(
            [share * (1 - math.exp(-ln)) for ln in call_site.series.ratios]
        )
    return {
        unit: tuple(sum(launch) for launch in zip(*shares, strict=False))
        for unit, shares in rows.items()
    }


def choose_best(tried: Sequence[FlagSet], rate: float) -> FlagSet:
    """Choose the set for a whole wheel, which has one compiler.

    It is the first, unless others save significantly more over the kernel groups of both;
    then the one of these that saves most.
    """
    plain, *others = tried
    others = [other for other in others if other.saved.keys() & plain.saved.keys()]
    pairs = [_sum_common_groups(other, plain) for other in others]
    better = find_discoveries([_compute_p_value(*pair) for pair in pairs], rate)
    gains = {
        number: _compute_mean(pairs[number][0]) - _compute_mean(pairs[number][1])
        for number in better
    }
    return others[max(gains, key=gains.__getitem__)] if gains else plain


def _sum_common_groups(one: FlagSet, other: FlagSet) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Sum what both sets save with the kernel groups that both have, a share for each launch."""
    units = sorted(one.saved.keys() & other.saved.keys())
    first, second = (
        tuple(map(math.fsum, zip(*(flag_set.saved[unit] for unit in units), strict=False)))
        for flag_set in (one, other)
    )
    return first, second


def choose_fastest(tried: Sequence[FlagSet], rate: float) -> dict[str, FlagSet]:
    """Choose the flags of each kernel group.

    They are those of the first set, unless others save significantly more; then those of the
    one that saves most. A kernel group that the first set lacks is excluded.
    """
    plain, *others = tried
    pairs = [(unit, other) for other in others for unit in plain.saved if unit in other.saved]
    probabilities = [
        _compute_p_value(other.saved[unit], plain.saved[unit]) for unit, other in pairs
    ]
    chosen = dict.fromkeys(plain.saved, plain)
    for number in sorted(find_discoveries(probabilities, rate)):
        unit, other = pairs[number]
        if _compute_mean(other.saved[unit]) > _compute_mean(chosen[unit].saved[unit]):
            chosen[unit] = other
    return chosen


def _compute_p_value(candidate: Sequence[float], plain: Sequence[float]) -> float:
    """Compute the probability of so large a gain if there is none.

    By Welch's t with Satterthwaite's degrees of freedom.
    """
    gain = _compute_mean(candidate) - _compute_mean(plain)
    spreads = [statistics.variance(values) / len(values) for values in (candidate, plain)]
    total = math.fsum(spreads)
    if total == 0:
        return 0.0 if gain > 0 else 1.0
    parts = zip(spreads, (candidate, plain), strict=True)
    freedom = 1 / sum((spread / total) ** 2 / (len(values) - 1) for spread, values in parts)
    return float(stats.t.sf(gain / math.sqrt(total), freedom))


def _compute_mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
