"""Throughput by number of vCPUs: its growth, the knee, and where more vCPUs are slower."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import pytest
from tests.builders import report_comparisons
from tests.builders.comparisons import host, spread

from tfbench.costs.cost import Amount, get_value
from tfbench.reports.scaling import (
    build_scaling,
    build_section,
    compute_scaling,
    describe_cpus,
    list_lines,
)
from tfcore.comparisons.interval import Interval


def near(value: float) -> Interval:
    return spread(value, 0.01)


def test_throughput_is_relative_to_the_fewest_vcpus() -> None:
    comparison = report_comparisons.sound()
    stock, *_ = compute_scaling(comparison)
    paces = report_comparisons.PACES.values()
    expected = math.prod(one / two for one, two in paces) ** (1 / len(paces))
    assert stock.arm == "stock"
    assert [get_value(point.throughput) for point in stock.points] == pytest.approx([1, expected])
    assert stock.points[1].efficiency == pytest.approx(expected / 2)
    assert stock.points[1].added == pytest.approx(expected - 1)
    assert isinstance(stock.points[1].throughput, Interval)


def test_one_number_of_vcpus_does_not_scale() -> None:
    comparison = report_comparisons.single(near(1.2))
    assert compute_scaling(comparison) == ()
    assert build_section(comparison).blocks == ()


def test_a_workload_that_ran_on_some_numbers_only_is_left_out() -> None:
    whole = report_comparisons.sound()
    part = dataclasses.replace(whole, cells=whole.cells[:-1])
    stock = compute_scaling(part)[0]
    (one, two), (other, another) = list(report_comparisons.PACES.values())[:2]
    assert get_value(stock.points[1].throughput) == pytest.approx(
        (one / two * other / another) ** 0.5
    )


@pytest.mark.parametrize(
    ("throughputs", "knee", "drop"),
    [
        ({1: 1.0, 2: near(1.9), 4: near(3.6)}, 4, None),
        ({1: 1.0, 2: near(1.9), 4: near(2.5), 8: near(2.6)}, 2, None),
        ({1: 1.0, 2: near(1.6), 4: near(2.8), 8: near(2.2), 16: near(1.5)}, 4, (8, 4)),
        ({2: 1.0, 4: near(1.4)}, 2, None),
        ({2: 1.0, 4: near(1.6)}, 4, None),
        ({1: 1.0, 2: near(0.995)}, 1, None),
        ({1: 1.0, 2: near(0.9)}, 1, (2, 1)),
        ({1: 1.0, 2: near(1.9), 4: near(1.6), 8: near(7.0)}, 2, None),
        ({2: 1.0, 4: near(0.995), 8: near(0.992), 16: near(0.975)}, 2, (16, 2)),
    ],
)
def test_the_knee_and_the_drop(
    throughputs: Mapping[int, Amount], knee: int, drop: tuple[int, int] | None
) -> None:
    """An added vCPU counts by what it adds, relative to one of the first."""
    scaling = build_scaling("stock", throughputs)
    assert (scaling.knee, scaling.drop) == (knee, drop)


def test_the_lines_name_both() -> None:
    falling = build_scaling("tuned", {1: 1.0, 2: near(1.9), 4: near(1.5)})
    assert list(list_lines(falling)) == [
        "tuned: from 2 vCPUs to 4, an added vCPU adds less than 50% of a first one",
        "tuned: slower on 4 vCPUs than on 2",
    ]
    rising = build_scaling("tuned", {1: 1.0, 2: near(1.9)})
    assert list(list_lines(rising)) == ["tuned: every added vCPU is worth it up to 2 vCPUs"]


def test_cpus_are_described_by_cores_and_nodes() -> None:
    machine = host(size=4, cores=(0, 0, 1, 1), nodes=(0, 0, 0, 1))
    assert describe_cpus(machine, 2) == "1 core"
    assert describe_cpus(machine, 3) == "2 cores"
    assert describe_cpus(machine, 4) == "2 cores, 2 NUMA nodes"
    assert describe_cpus(host(size=4), 2) == ""
