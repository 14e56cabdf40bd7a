"""Results of a fleet's hosts, made up."""

from __future__ import annotations

from typing import Any

from tfbench.hosts.results import HostOutcome, HostResult, HostSpeedup, HostStatus
from tfcore.comparisons.interval import Interval, Verdict


def interval(value: float) -> Interval:
    """An estimate that is known to 2 %."""
    return Interval(value=value, low=value * 0.98, high=value * 1.02)


def row(
    arm: str, value: float, verdict: Verdict | None = Verdict.FASTER, vcpus: int = 1
) -> HostSpeedup:
    return HostSpeedup(vcpus=vcpus, arm=arm, interval=interval(value), verdict=verdict)


def fleet_host(
    name: str, *speedups: HostSpeedup, target: str = "haswell", **fields: Any
) -> HostResult:
    outcome = HostOutcome(
        schema=1, status=HostStatus.DONE, seconds=60.0, cpu=f"CPU of {target}", target=target
    )
    whole: dict[str, Any] = {"machine": "", "count": 1, "outcome": outcome} | fields
    return HostResult(name=name, speedups=speedups, **whole)
