"""The decisions of a comparison, from its records. Pure.

A comparison stores its decisions. Older ones do not have them: their decisions are derived here
when they are read, by the same rules.
"""

from __future__ import annotations

import dataclasses
import math

from tfcore.comparisons.comparison import ComparedCell, Comparison, Overall, Speedup
from tfcore.comparisons.decision import LIKELY, Decision, Reason, compute_floor, compute_limit
from tfcore.comparisons.interval import Interval, Verdict


def decide(comparison: Comparison) -> Comparison:
    """Return the comparison with the decisions on its cells and means."""
    return dataclasses.replace(
        comparison,
        cells=tuple(
            dataclasses.replace(cell, decisions=list_decisions(comparison, cell))
            for cell in comparison.cells
        ),
        overall=tuple(
            dataclasses.replace(overall, decision=_decide_mean(comparison, overall))
            for overall in comparison.overall
        ),
    )


def list_decisions(comparison: Comparison, cell: ComparedCell) -> tuple[Decision, ...]:
    """List the decisions on all candidates, and on the baseline and its repeat if they failed."""
    failed = (failure.arm for failure in cell.failures)
    arms = dict.fromkeys([*comparison.candidates, *failed])
    return tuple(find_decision(comparison, cell, arm) for arm in arms)


def find_decision(comparison: Comparison, cell: ComparedCell, arm: str) -> Decision:
    """Return the decision on an arm in a cell."""
    stored = (decision for decision in cell.decisions if decision.arm == arm)
    return next(stored, None) or _decide_cell(comparison, cell, arm)


def find_mean_decision(comparison: Comparison, overall: Overall) -> Decision:
    """Return the decision on an arm over all workloads."""
    return overall.decision or _decide_mean(comparison, overall)


def _decide_cell(comparison: Comparison, cell: ComparedCell, arm: str) -> Decision:
    result = cell.get_result(arm)
    if result.failure:
        reason = Reason.FAILED
    elif result.agreement and not result.agreement.agrees:
        reason = Reason.DIFFERENT
    elif result.speedup is None:
        reason = Reason.NOT_TIMED
    else:
        reason = _find_reason(
            result.speedup, cell.noise, comparison.threshold, over_gated=cell.is_over_gated
        )
    return Decision(
        arm=arm,
        verdict=result.speedup.verdict if result.speedup else None,
        reason=reason,
        noise_floor=None if cell.noise is None else math.expm1(compute_floor(cell.noise)),
    )


def _decide_mean(comparison: Comparison, overall: Overall) -> Decision:
    """Decide on a mean. An arm that computes something else in any cell does so in the mean."""
    speedup = overall.speedup
    results = [(cell, cell.get_result(speedup.arm)) for cell in comparison.cells]
    if any(result.agreement and not result.agreement.agrees for _, result in results):
        reason = Reason.DIFFERENT
    else:
        over_gated = any(
            cell.is_over_gated
            for cell, result in results
            if cell.vcpus == overall.vcpus and result.speedup
        )
        reason = _find_reason(speedup, overall.noise, comparison.threshold, over_gated=over_gated)
    return Decision(
        arm=speedup.arm,
        verdict=speedup.verdict,
        reason=reason,
        noise_floor=math.expm1(compute_floor(overall.noise)),
    )


def _find_reason(
    speedup: Speedup, noise: Interval | None, threshold: float, *, over_gated: bool
) -> Reason:
    """Find the rule that gave the verdict (`statistics.choose_verdict`), or, if the verdict is
    inconclusive, the rule that did not.
    """
    outside = speedup.interval.excludes_1
    match speedup.verdict:
        case Verdict.FASTER | Verdict.SLOWER:
            return Reason.BEYOND_LIMIT
        case Verdict.EQUIVALENT:
            return Reason.WITHIN_LIMIT if outside else Reason.WITHIN_MARGIN
        case _ if over_gated:
            return Reason.OVER_GATED
        case _ if outside:
            return Reason.HIGH_LIMIT
    limit = math.inf if noise is None else compute_limit(compute_floor(noise), threshold)
    difference = math.log(speedup.interval.value)
    if abs(difference) <= limit or speedup.confidence < LIKELY:
        return Reason.WIDE
    return Reason.LIKELY_FASTER if difference > 0 else Reason.LIKELY_SLOWER
