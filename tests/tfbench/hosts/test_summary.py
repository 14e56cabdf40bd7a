"""Hosts are grouped by CPU and target; the best wheel is faster on every host of a kind."""

from __future__ import annotations

import pytest
from tests.builders.fleet_results import fleet_host, interval, row
from tests.builders.prices import price

from tfbench.costs.prices import HOURS_PER_MONTH, create_book
from tfbench.hosts.results import HostSpeedup, RunTime
from tfbench.hosts.summary import Choice, group_hosts, list_targets
from tfcore.comparisons.interval import Verdict
from tfcore.errors import UsageError

SLOWER = Verdict.SLOWER


def test_hosts_of_one_kind_are_combined() -> None:
    (kind,) = group_hosts(
        [fleet_host("a", row("tuned", 1.2)), fleet_host("b", row("tuned", 1.8))], None
    )
    (speedup,) = kind.speedups
    assert (kind.hosts, kind.count, speedup.hosts) == (("a", "b"), 2, 2)
    assert speedup.interval.value == pytest.approx((1.2 * 1.8) ** 0.5)
    assert speedup.interval.half_width == pytest.approx(interval(1.2).half_width / 2**0.5)
    assert kind.choices == (Choice(vcpus=1, arm="tuned", speedup=speedup.interval),)


def test_one_host_keeps_its_interval() -> None:
    (kind,) = group_hosts([fleet_host("a", row("tuned", 1.2))], None)
    assert kind.speedups[0].interval == interval(1.2)


def test_kinds_differ_by_cpu_or_target() -> None:
    hosts = [fleet_host("a", row("tuned", 1.2)), fleet_host("b", row("tuned", 1.3), target="zen4")]
    kinds = group_hosts(hosts, None)
    assert [kind.target for kind in kinds] == ["haswell", "zen4"]
    assert list_targets(kinds) == ("haswell", "zen4")


@pytest.mark.parametrize(
    ("rows", "best"),
    [
        ([row("a", 1.2), row("b", 1.4)], "b"),
        ([row("a", 1.2), row("b", 1.4, None)], "a"),
        ([row("a", 0.9, SLOWER), row("b", 1.01, Verdict.EQUIVALENT)], "stock"),
    ],
)
def test_the_best_is_the_fastest_that_counts(rows: list[HostSpeedup], best: str) -> None:
    (kind,) = group_hosts([fleet_host("one", *rows)], None)
    assert kind.choices[0].arm == best


def test_a_wheel_that_is_slower_on_one_host_is_not_the_best() -> None:
    hosts = [fleet_host("a", row("tuned", 1.5)), fleet_host("b", row("tuned", 0.9, SLOWER))]
    (kind,) = group_hosts(hosts, None)
    assert kind.speedups[0].verdict is Verdict.INCONCLUSIVE
    assert kind.choices[0] == Choice(vcpus=1, arm="stock", speedup=None)


def test_a_wheel_that_a_host_of_the_kind_cannot_run_is_not_the_best() -> None:
    both = fleet_host("a", row("wheel-1", 1.5), row("wheel-2", 1.1))
    (kind,) = group_hosts([both, fleet_host("b", row("wheel-2", 1.1))], None)
    assert [choice.arm for choice in kind.choices] == ["wheel-2"]
    (kind,) = group_hosts([both, fleet_host("b")], None)  # (it runs none)
    assert [choice.arm for choice in kind.choices] == ["stock"]


def test_hosts_with_fewer_vcpus_do_not_count_at_more() -> None:
    small = fleet_host("a", row("tuned", 1.5))
    large = fleet_host("b", row("tuned", 1.4), row("tuned", 1.3, vcpus=8))
    (kind,) = group_hosts([small, large], None)
    assert [(choice.vcpus, choice.arm) for choice in kind.choices] == [(1, "tuned"), (8, "tuned")]


def test_each_machine_is_priced_at_its_own_most_vcpus() -> None:
    book = create_book("a book", [price("m2"), price("m16")])
    small = fleet_host("a", row("tuned", 1.5, vcpus=2), machine="m2")
    large = fleet_host("b", row("tuned", 0.9, SLOWER, vcpus=16), machine="m16")
    (kind,) = group_hosts([small, large], book)
    saved = {cost.arm: cost.best_usd.value / cost.usd for cost in kind.costs}
    assert saved == {"tuned": pytest.approx(1 / 1.5), "stock": 1.0}


def test_a_month_is_paid_for_all_hosts_at_the_most_vcpus() -> None:
    book = create_book("a book", [price("m8", usd_hour=0.5)])
    runs = (
        RunTime(vcpus=2, arm="stock", seconds=3600.0),
        RunTime(vcpus=2, arm="tuned", seconds=1800.0),
    )
    speedups = (row("tuned", 9.0, vcpus=1), row("tuned", 2.0, vcpus=2))
    (kind,) = group_hosts([fleet_host("a", *speedups, machine="m8", count=3, runs=runs)], book)
    (cost,) = kind.costs
    assert cost.usd == pytest.approx(0.5 * HOURS_PER_MONTH * 3)
    assert cost.best_usd.value == pytest.approx(cost.usd / 2)
    assert cost.best_usd.low < cost.best_usd.value < cost.best_usd.high
    assert (cost.run_usd, cost.best_run_usd) == (0.5, 0.25)


def test_stock_saves_nothing_and_an_unknown_machine_is_an_error() -> None:
    book = create_book("a book", [price("m8")])
    (kind,) = group_hosts([fleet_host("a", row("tuned", 0.9, SLOWER), machine="m8")], book)
    assert kind.costs[0].best_usd.value == kind.costs[0].usd
    with pytest.raises(UsageError, match="no prices for 'm9'"):
        group_hosts([fleet_host("a", row("tuned", 1.2), machine="m9")], book)


def test_a_kind_that_runs_no_wheel_has_no_choice() -> None:
    (kind,) = group_hosts([fleet_host("a")], None)
    assert (kind.choices, kind.speedups) == ((), ())
