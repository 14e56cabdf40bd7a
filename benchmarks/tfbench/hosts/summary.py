"""The hosts of a fleet, grouped by their CPUs: the best wheel of each kind, and its cost. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tfbench.costs.prices import HOURS_PER_MONTH, Price, PriceBook
from tfbench.hosts.bundle import FleetWheel
from tfbench.hosts.results import HostResult, HostSpeedup
from tfbench.measuring.statistics import combine_intervals
from tfcore.comparisons.interval import Interval, Verdict

STOCK = "stock"
SCHEMA = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class KindSpeedup:
    """A wheel's mean speedup over the hosts of one kind, and whether these agree on it.

    `verdict` is that of the hosts; INCONCLUSIVE if they have different ones. None if the wheel
    failed on one of them, or computes something else there.
    """

    vcpus: int
    arm: str
    interval: Interval
    hosts: int
    verdict: Verdict | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """The best wheel at a number of vCPUs, or STOCK; `speedup` is None for STOCK."""

    vcpus: int
    arm: str
    speedup: Interval | None


@dataclass(frozen=True, kw_only=True, slots=True)
class MonthlyCost:
    """US dollars per month for a machine's hosts, and for the same work with the best wheel, `arm`.

    `run_usd` and `best_run_usd` are for one training run of each workload; None without
    --thorough.
    """

    machine: str
    arm: str
    usd: float
    best_usd: Interval
    run_usd: float | None
    best_run_usd: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class CpuKind:
    """Hosts with the same CPU and target. `count` is their number in the fleet."""

    cpu: str
    target: str
    hosts: tuple[str, ...]
    count: int
    speedups: tuple[KindSpeedup, ...]
    choices: tuple[Choice, ...]
    costs: tuple[MonthlyCost, ...] = ()
    """One for each machine of the price book."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetResult:
    """The result of `invoke fleet`. `missing` are hosts without a result, with reasons."""

    schema: int = SCHEMA
    made: str
    wheels: tuple[FleetWheel, ...]
    compare: tuple[str, ...]
    hosts: tuple[HostResult, ...]
    missing: tuple[tuple[str, str], ...]
    kinds: tuple[CpuKind, ...]
    complete: bool
    book: str = ""


def group_hosts(hosts: Sequence[HostResult], book: PriceBook | None) -> tuple[CpuKind, ...]:
    """Group hosts that are done. Raises UsageError for a machine that has no price."""
    groups: dict[tuple[str, str], list[HostResult]] = defaultdict(list)
    for host in hosts:
        groups[host.outcome.cpu, host.outcome.target].append(host)
    return tuple(
        _build_kind(cpu, target, members, book) for (cpu, target), members in sorted(groups.items())
    )


def _build_kind(
    cpu: str, target: str, hosts: Sequence[HostResult], book: PriceBook | None
) -> CpuKind:
    speedups = tuple(_combine(hosts))
    return CpuKind(
        cpu=cpu,
        target=target,
        hosts=tuple(host.name for host in hosts),
        count=sum(host.count for host in hosts),
        speedups=speedups,
        choices=choose_all(hosts),
        costs=tuple(_price(hosts, book)) if book else (),
    )


def _combine(hosts: Sequence[HostResult]) -> Iterator[KindSpeedup]:
    rows: dict[tuple[int, str], list[HostSpeedup]] = defaultdict(list)
    for host in hosts:
        for row in host.speedups:
            rows[row.vcpus, row.arm].append(row)
    for (vcpus, arm), same in sorted(rows.items()):
        intervals = [row.interval for row in same]
        verdicts = {row.verdict for row in same}
        yield KindSpeedup(
            vcpus=vcpus,
            arm=arm,
            interval=intervals[0]
            if len(same) == 1
            else combine_intervals(intervals, [1] * len(same)).interval,
            hosts=len(same),
            verdict=None
            if None in verdicts
            else verdicts.pop()
            if len(verdicts) == 1
            else Verdict.INCONCLUSIVE,
        )


def choose_all(hosts: Sequence[HostResult]) -> tuple[Choice, ...]:
    """Choose the best wheel at each number of vCPUs.

    It is the fastest wheel that is faster on every host that measured this number. On a host
    without any speedup no wheel is faster.
    """
    speedups = tuple(_combine(hosts))
    choices: list[Choice] = []
    for vcpus in sorted({row.vcpus for row in speedups}):
        present = sum(
            not host.speedups or any(row.vcpus == vcpus for row in host.speedups) for host in hosts
        )
        rows = [row for row in speedups if row.vcpus == vcpus and row.hosts == present]
        choices.append(choose_best(vcpus, rows))
    return tuple(choices)


def choose_best(vcpus: int, rows: Sequence[KindSpeedup]) -> Choice:
    faster = [row for row in rows if row.verdict is Verdict.FASTER]
    if not faster:
        return Choice(vcpus=vcpus, arm=STOCK, speedup=None)
    best = max(faster, key=lambda row: row.interval.value)
    return Choice(vcpus=vcpus, arm=best.arm, speedup=best.interval)


def _price(hosts: Sequence[HostResult], book: PriceBook) -> Iterator[MonthlyCost]:
    """Price each machine at its own largest number of vCPUs, which is what it is paid for."""
    machines: dict[str, list[HostResult]] = defaultdict(list)
    for host in hosts:
        if host.machine:
            machines[host.machine].append(host)
    for name, members in machines.items():
        price = book.find_price(name)
        usd = price.usd_hour * HOURS_PER_MONTH * sum(host.count for host in members)
        choice = next(reversed(choose_all(members)), None)
        gain = choice.speedup if choice and choice.speedup else Interval(value=1, low=1, high=1)
        yield MonthlyCost(
            machine=str(price),
            arm=choice.arm if choice else STOCK,
            usd=usd,
            best_usd=Interval(value=usd / gain.value, low=usd / gain.high, high=usd / gain.low),
            run_usd=_price_run(members, choice, STOCK, price),
            best_run_usd=_price_run(members, choice, choice.arm if choice else STOCK, price),
        )


def _price_run(
    hosts: Sequence[HostResult], choice: Choice | None, arm: str, price: Price
) -> float | None:
    """Return the mean cost of one training run of each workload; None if a host has none."""
    seconds = [
        run.seconds
        for host in hosts
        for run in host.runs
        if choice and (run.vcpus, run.arm) == (choice.vcpus, arm)
    ]
    if not seconds or len(seconds) < len(hosts):
        return None
    return sum(seconds) / len(seconds) / 3600 * price.usd_hour


def list_targets(kinds: Sequence[CpuKind]) -> tuple[str, ...]:
    """Return the targets of a wheel for the whole fleet."""
    return tuple(dict.fromkeys(kind.target for kind in kinds if kind.target))
