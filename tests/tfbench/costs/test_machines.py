from __future__ import annotations

import pytest
from tests.builders.prices import price

from tfbench.costs import catalog
from tfbench.costs.machines import find_machines, parse_machines
from tfbench.costs.prices import Mode, PriceBook, create_book
from tfcore.errors import UsageError


def book() -> PriceBook:
    return create_book(
        "mine",
        [
            price("m1", vcpus=1, region="north"),
            price("m2", vcpus=2, region="north"),
            price("m2", vcpus=2, region="north", mode=Mode.SPOT),
            price("m2", vcpus=2, region="south"),
            price("c2", vcpus=2, region="south"),
            price("g2", vcpus=2, region="north", accelerator="K80"),
            price("m8", vcpus=8, region="north"),
            price("bare", region="north"),
        ],
    )


def test_machines_are_named_by_their_vcpus() -> None:
    assert parse_machines("1=n1-highcpu-2, 2 = n1-highcpu-2") == {
        1: "n1-highcpu-2",
        2: "n1-highcpu-2",
    }
    assert parse_machines("8=4x V100") == {8: "4x V100"}
    assert parse_machines(" ") == {}


@pytest.mark.parametrize("text", ["m2", "2=", "=m2", "two=m2", "0=m2", "-1=m2", "1=m1,", "1.5=m"])
def test_what_names_no_machine_is_told(text: str) -> None:
    with pytest.raises(UsageError, match="machine"):
        parse_machines(text)


def test_a_number_of_vcpus_has_one_machine() -> None:
    with pytest.raises(UsageError, match="2 vCPUs"):
        parse_machines("2=m2,2=c2")


def test_the_only_machine_that_fits_is_found() -> None:
    north = book().restrict(region="north", mode=Mode.ON_DEMAND)
    prices = find_machines(north, [1, 2, 8], {})
    assert {count: machine.name for count, machine in prices.items()} == {1: "m1", 2: "m2", 8: "m8"}
    assert prices[2] == north.find_price("m2")


def test_a_named_machine_may_have_more_vcpus_than_were_used() -> None:
    prices = find_machines(book(), [1], {1: "m8"})
    assert prices[1].name == "m8"
    assert find_machines(book(), [4], {4: "bare"})[4].name == "bare"


def test_a_machine_with_a_gpu_is_not_taken_for_one_without() -> None:
    gce = catalog.find_book("2017-07-gce")
    with pytest.raises(UsageError, match="1 vCPU"):
        find_machines(gce, [1], {})
    assert find_machines(gce, [1], {1: "gpu"})[1].name == "gpu"
    assert find_machines(gce, [8, 64], {})[64].name == "cpu64"


@pytest.mark.parametrize(
    ("counts", "names", "expected"),
    [
        ([2], {}, "4 machines with 2 vCPUs. Choose one with --machines 2=NAME: m2 (cloud/north"),
        ([16], {}, "--machines 16=NAME: m1"),
        ([2], {2: "m2"}, "has 3 prices for 'm2'"),
        ([2], {2: "m16"}, "has no prices for 'm16'"),
        ([2], {2: "m1"}, "m1 (cloud/north, on_demand) has 1 vCPU"),
        ([1, 8], {2: "m2"}, "m2 is given for 2 vCPUs, but only 1, 8 "),
    ],
)
def test_no_machine_is_guessed(counts: list[int], names: dict[int, str], expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_machines(book(), counts, names)
    assert expected in str(caught.value)
