from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.prices import price

from tfbench.costs.cost import get_value, invert
from tfbench.costs.runs import (
    Runs,
    TrainingRun,
    collect_runs,
    find_cheapest,
    find_fastest,
    is_dominated,
)
from tfcore.errors import SampleError, UsageError


def run(arm: str, vcpus: int | None, seconds: float = 1.0, workload: str = "w") -> TrainingRun:
    return TrainingRun(workload=workload, vcpus=vcpus, arm=arm, seconds=seconds, price=price())


RUNS = collect_runs([run("gpu", None), run("pip", 2), run("pip", 8), run("tuned", 8, 0.5)], "pip")


@pytest.mark.parametrize(
    ("text", "name"),
    [("gpu", "gpu"), ("pip@2", "pip@2"), ("pip", "pip@8"), ("tuned", "tuned@8")],
)
def test_a_baseline_is_a_run_or_an_arm_at_most_vcpus(text: str, name: str) -> None:
    assert RUNS.find_baseline(text).name == name


@pytest.mark.parametrize("text", ["", "gpu@8", "pip@4", "pip@8 "])
def test_another_baseline_is_told(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        RUNS.find_baseline(text)
    assert caught.value.hint == "Use one of gpu, pip@2, pip@8, tuned@8"


def test_beside_a_run_is_the_references_of_its_size() -> None:
    assert RUNS.find_reference_run(run("tuned", 8)) == run("pip", 8)
    assert RUNS.find_reference_run(run("tuned", 4)) is None
    assert RUNS.find_reference_run(run("gpu", None)) is None
    assert RUNS.find_reference_run(run("tuned", 8, workload="v")) is None


def test_a_run_stands_once() -> None:
    with pytest.raises(SampleError, match="w has two runs named pip@8"):
        collect_runs([run("pip", 8), run("pip", 8)], "pip")
    assert len(collect_runs([run("pip", 8), run("pip", 8, workload="v")], "pip").all) == 2


# --- time and cost relative to another run, and the best --------------------------------------


amounts = st.floats(1e-3, 1e6)
places = st.integers(1, 6)


def costing(name: str, seconds: float, usd_hour: float = 0.5) -> TrainingRun:
    paid = price(usd_hour=usd_hour)
    return TrainingRun(workload="w", vcpus=None, arm=name, seconds=seconds, price=paid)


def together(*runs: TrainingRun) -> Runs:
    return collect_runs(runs, "stock")


def test_a_baseline_is_exactly_itself() -> None:
    only = costing("a", 100.0)
    same = together(only).compute_relative(only, only)
    assert (same.time, same.usd) == (1.0, 1.0)


def test_relative_time_and_cost_differ_by_the_prices() -> None:
    gpu, cpu = costing("gpu", 100.0, 2.0), costing("cpu", 150.0, 0.5)
    relative = together(gpu, cpu).compute_relative(cpu, gpu)
    assert math.isclose(get_value(relative.time), 1.5)
    assert math.isclose(get_value(relative.usd), 0.375)


@given(slow=amounts, fast=amounts)
def test_at_the_inverse_of_the_relative_time_in_price_both_runs_cost_the_same(
    slow: float, fast: float
) -> None:
    baseline, candidate = costing("a", slow, 1.0), costing("b", fast, 1.0)
    dearer = get_value(
        invert(together(baseline, candidate).compute_relative(candidate, baseline).time)
    )
    assert math.isclose(get_value(costing("b", fast, dearer).usd), get_value(baseline.usd))


def runs_at(points: list[tuple[int, int]]) -> list[TrainingRun]:
    """By seconds and USD."""
    return [
        costing(str(number), float(seconds), 3600 * usd / seconds)
        for number, (seconds, usd) in enumerate(points)
    ]


def test_the_front_leaves_out_what_is_beaten_in_both() -> None:
    runs = runs_at([(5, 1), (1, 5), (3, 3), (4, 3), (3, 4), (6, 6), (3, 3)])
    assert [training_run.name for training_run in runs if not is_dominated(training_run, runs)] == [
        "0",
        "1",
        "2",
        "6",
    ]
    assert find_cheapest(runs).name == "0"
    assert find_fastest(runs).name == "1"


@given(points=st.lists(st.tuples(places, places), min_size=1, max_size=8))
def test_a_front_holds_the_cheapest_the_fastest_and_no_rival_of_its_own(
    points: list[tuple[int, int]],
) -> None:
    runs = runs_at(points)
    front = [training_run for training_run in runs if not is_dominated(training_run, runs)]
    assert find_cheapest(runs) in front
    assert find_fastest(runs) in front
    where = sorted(training_run.place for training_run in front)
    assert [usd for _, usd in where] == sorted((usd for _, usd in where), reverse=True)
    for seconds, usd in points:
        assert any(s <= seconds and u <= usd for s, u in where)
