from __future__ import annotations

import csv
import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.comparisons import BASELINE, arm, cell, comparison, speedup, spread
from tests.builders.prices import price

from tfbench.costs import article, catalog, cost
from tfbench.costs.bill import (
    COMPOSED,
    TIMED,
    Bill,
    BillRow,
    Build,
    compute_bill,
    compute_bill_from_totals,
)
from tfbench.costs.cost import get_value
from tfbench.costs.prices import PriceBook, create_book
from tfcore.comparisons.comparison import ArmFailure, ComparedCell, Comparison
from tfcore.comparisons.interval import Interval
from tfcore.errors import SampleError, UsageError
from tfcore.records import format_canonical

GCE = catalog.find_book(article.PRICES)
TOTALS = article.read_totals(GCE)
ARTICLE = compute_bill_from_totals(TOTALS, GCE)
seconds = st.floats(0.1, 1e6)
shares = st.floats(1e-4, 0.5)


def book(**fields: object) -> PriceBook:
    """2 vCPUs at 0.001 USD a second, 4 at twice as much."""
    return create_book(
        "mine",
        [price("m2", 3.6, vcpus=2, **fields), price("m4", 7.2, vcpus=4, **fields)],
    )


def billed(
    measured_comparison: Comparison, prices: PriceBook | None = None, **options: object
) -> Bill:
    prices = prices or book()
    machines = {2: prices.find_price("m2"), 4: prices.find_price("m4")}
    return compute_bill(measured_comparison, prices, machines, **options)  # type: ignore[arg-type]


def row(of: Bill, arm: str, vcpus: int | None, workload: str = "mnist_mlp") -> BillRow:
    rows = [
        bill_row
        for bill_row in of.rows
        if (bill_row.workload, bill_row.arm, bill_row.vcpus) == (workload, arm, vcpus)
    ]
    assert len(rows) == 1
    return rows[0]


def interval(amount: cost.Amount | None) -> Interval:
    assert isinstance(amount, Interval)
    return amount


def whole(amount: cost.Amount) -> tuple[float, float, float]:
    bounds = interval(amount)
    return bounds.value, bounds.low, bounds.high


# --- the article ----------------------------------------------------------------------------------


def test_every_relative_time_and_cost_of_the_article_comes_out() -> None:
    with article.TOTALS.open(encoding="utf-8", newline="") as file:
        recorded = list(csv.DictReader(file))
    assert len(recorded) == len(ARTICLE.rows) == 54
    for record in recorded:
        vcpus = int(record["vcpus"]) if record["vcpus"] else None
        bill_row = row(ARTICLE, record["build"], vcpus, record["benchmark"])
        assert bill_row.machine == record["platform"]
        assert get_value(bill_row.run_s) == float(record["total_s"])
        assert math.isclose(get_value(bill_row.usd), float(record["cost_usd"]), abs_tol=5.1e-7)
        assert math.isclose(
            get_value(bill_row.relative_time), float(record["rel_time_gpu"]), abs_tol=5.1e-5
        )
        assert math.isclose(
            get_value(bill_row.relative_cost), float(record["rel_cost_gpu"]), abs_tol=5.1e-5
        )


def test_the_gain_of_compiling_comes_out() -> None:
    means = {(vcpus, arm): get_value(value) for vcpus, arm, value in ARTICLE.speedups}
    assert list(means) == [(8, "compiled"), (16, "compiled"), (32, "compiled"), (64, "compiled")]
    assert [f"{means[vcpus, 'compiled']:.2f}" for vcpus in (8, 16, 64)] == ["1.43", "1.28", "1.04"]
    assert f"{means[32, 'compiled']:.3f}" == "0.975"


def test_8_vcpus_compiled_is_the_cheapest_for_every_model() -> None:
    cheapest = [
        (bill_row.workload, bill_row.arm, bill_row.vcpus)
        for bill_row in ARTICLE.rows
        if bill_row.cheapest
    ]
    models = dict.fromkeys(total.workload for total in TOTALS)
    assert cheapest == [(model, "compiled", 8) for model in models]
    assert len(cheapest) == 6


def test_only_the_bidirectional_lstm_is_faster_without_the_gpu() -> None:
    fastest = {bill_row.workload: bill_row.arm for bill_row in ARTICLE.rows if bill_row.fastest}
    assert {model for model, arm in fastest.items() if arm != "gpu"} == {"imdb_bidirectional_lstm"}
    assert all(
        bill_row.on_front for bill_row in ARTICLE.rows if bill_row.cheapest or bill_row.fastest
    )


def test_the_articles_bill_says_what_it_is() -> None:
    assert (ARTICLE.baseline, ARTICLE.composed, ARTICLE.skipped) == ("gpu", TIMED, ())
    assert (ARTICLE.book, ARTICLE.as_of) == ("2017-07-gce", "2017-07-04")
    assert [machine.name for machine in ARTICLE.machines] == [
        "gpu",
        "cpu8",
        "cpu16",
        "cpu32",
        "cpu64",
    ]
    assert all(bill_row.amortisation is None for bill_row in ARTICLE.rows)


def test_another_baseline_of_the_article_may_be_named() -> None:
    bill = compute_bill_from_totals(TOTALS, GCE, baseline="pip@8")
    bill_row = row(bill, "compiled", 8)
    assert math.isclose(get_value(bill_row.relative_time), 87.8 / 138.5, rel_tol=1e-3)
    assert math.isclose(get_value(bill_row.relative_time), get_value(bill_row.relative_cost))
    assert compute_bill_from_totals(TOTALS, GCE, baseline="pip").baseline == "pip@64"


def test_the_articles_builds_pay_against_pip_on_the_same_machine() -> None:
    bill = compute_bill_from_totals(TOTALS, GCE, build=Build(usd=1.0, runs_per_day=100.0))
    paid = row(bill, "compiled", 8).amortisation
    assert paid is not None
    saved = (138.457 - get_value(row(bill, "compiled", 8).run_s)) * 0.063642 / 3600
    assert math.isclose(get_value(paid.saving_usd), saved)
    assert paid.runs == math.ceil(1.0 / saved)
    assert row(bill, "compiled", 32).amortisation is not None
    assert [
        bill_row
        for bill_row in bill.rows
        if bill_row.arm in {"pip", "gpu"} and bill_row.amortisation is not None
    ] == []


def test_a_run_that_is_there_twice_is_refused() -> None:
    with pytest.raises(SampleError, match="mnist_mlp has two runs named pip@8"):
        compute_bill_from_totals([*TOTALS, TOTALS[1]], GCE)


def test_logs_of_epochs_make_a_bill(tmp_path: Path) -> None:
    for name, elapsed in (("gpu", 10.0), ("cpu8", 20.0)):
        (tmp_path / name).write_text(f"epoch,elapsed\n1,{elapsed}\n2,{elapsed}\n", encoding="utf-8")
    names = (f"mnist_mlp/gpu={tmp_path}/gpu", f"mnist_mlp/tuned/cpu8={tmp_path}/cpu8")
    bill = compute_bill_from_totals([article.read_log(name, GCE) for name in names], GCE)
    tuned = row(bill, "tuned", 8)
    assert (get_value(tuned.run_s), get_value(tuned.relative_time)) == (40.0, 2.0)
    assert math.isclose(get_value(tuned.usd), 40 * 0.063642 / 3600)
    assert (bill.baseline, bill.speedups) == ("gpu", ())


@pytest.mark.parametrize("baseline", ["gpu", "", "pip@7", "pip@"])
def test_a_baseline_that_has_no_run_is_told(baseline: str) -> None:
    with pytest.raises(UsageError) as caught:
        compute_bill_from_totals([TOTALS[1]], GCE, baseline=baseline)
    assert f"'{baseline}'" in caught.value.message
    assert "pip@8" in caught.value.hint


# --- a comparison ---------------------------------------------------------------------------------


def sweep() -> Comparison:
    """One workload at 2 and 4 vCPUs, measured in pairs."""
    return comparison(
        cell(
            vcpus=2,
            runs={BASELINE: spread(100.0, 0.1), "tuned": spread(80.0, 0.1)},
            speedups=[speedup("tuned", spread(1.3), run=spread(1.25, 0.01))],
        ),
        cell(
            vcpus=4,
            runs={BASELINE: spread(60.0, 0.1), "tuned": spread(50.0, 0.1)},
            speedups=[speedup("tuned", spread(1.3), run=spread(1.2, 0.01))],
        ),
    )


def test_a_run_costs_its_seconds_on_the_machine_of_its_vcpus() -> None:
    bill = billed(sweep())
    assert [(bill_row.arm, bill_row.vcpus, bill_row.machine) for bill_row in bill.rows] == [
        ("stock", 2, "m2"),
        ("tuned", 2, "m2"),
        ("stock", 4, "m4"),
        ("tuned", 4, "m4"),
    ]
    assert whole(row(bill, "tuned", 2).run_s) == whole(spread(80.0, 0.1))
    assert whole(row(bill, "tuned", 2).usd) == pytest.approx(whole(spread(0.08, 0.1)))
    assert whole(row(bill, "tuned", 4).usd) == pytest.approx(whole(spread(0.1, 0.1)))
    assert (bill.book, bill.as_of, bill.composed) == ("mine", "2020-02-29", COMPOSED)


def test_figures_are_relative_to_the_baseline_at_most_vcpus() -> None:
    bill = billed(sweep())
    assert bill.baseline == "stock@4"
    base = row(bill, "stock", 4)
    assert (base.relative_time, base.relative_cost) == (1.0, 1.0)
    assert base.break_even_price_ratio is None
    assert get_value(row(bill, "stock", 2).relative_time) == pytest.approx(100 / 60)
    assert get_value(row(bill, "stock", 2).relative_cost) == pytest.approx(100 / 120)


def test_what_was_measured_in_pairs_keeps_its_own_interval() -> None:
    bill = billed(sweep())
    beside = row(bill, "tuned", 4)
    assert whole(beside.relative_time) == pytest.approx(whole(spread(1 / 1.2, 0.01)))
    assert whole(beside.relative_cost) == pytest.approx(whole(spread(1 / 1.2, 0.01)))
    assert whole(beside.break_even_price_ratio or 0) == pytest.approx(whole(spread(1.2, 0.01)))
    apart = row(bill, "tuned", 2)
    assert get_value(apart.relative_time) == pytest.approx(80 / 60)
    assert interval(apart.relative_time).half_width > 0.13


def test_a_pair_counts_in_both_directions() -> None:
    bill = billed(sweep(), baseline="tuned@2")
    assert bill.baseline == "tuned@2"
    assert whole(row(bill, "stock", 2).relative_time) == pytest.approx(whole(spread(1.25, 0.01)))
    assert row(bill, "tuned", 2).relative_time == 1.0
    assert row(bill, "tuned", 4).break_even_price_ratio is None
    assert row(bill, "stock", 4).break_even_price_ratio is not None


def test_two_candidates_were_not_measured_in_pairs_with_each_other() -> None:
    runs: dict[str, Interval | None] = {
        name: spread(seconds, 0.1) for name, seconds in (("stock", 100), ("a", 80), ("b", 60))
    }
    pairs = [speedup(name, spread(2), run=spread(2, 0.001)) for name in ("a", "b")]
    bill = billed(comparison(cell(runs=runs, speedups=pairs)), baseline="a@2")
    assert get_value(row(bill, "b", 2).relative_time) == pytest.approx(60 / 80)


def test_without_a_ratio_of_runs_times_are_compared() -> None:
    bill = billed(comparison(cell()))
    assert get_value(row(bill, "tuned", 2).relative_time) == pytest.approx(0.8)
    assert interval(row(bill, "tuned", 2).relative_time).half_width > spread(1).half_width


def test_increments_are_billed_in_relative_costs_too() -> None:
    by_the_minute = book(billing_increment_s=60.0)
    bill = billed(sweep(), by_the_minute)
    assert get_value(row(bill, "tuned", 2).usd) == pytest.approx(0.12)
    assert row(bill, "tuned", 4).relative_cost == Interval(value=1.0, low=1.0, high=1.0)
    assert get_value(row(bill, "tuned", 4).relative_time) == pytest.approx(1 / 1.2)


def test_the_cheapest_and_the_fastest_are_of_all_machines() -> None:
    bill = billed(sweep())
    marks = {
        f"{bill_row.arm}@{bill_row.vcpus}": (bill_row.cheapest, bill_row.fastest, bill_row.on_front)
        for bill_row in bill.rows
    }
    assert marks == {
        "stock@2": (False, False, False),
        "tuned@2": (True, False, True),
        "stock@4": (False, False, False),
        "tuned@4": (False, True, True),
    }


def test_a_build_pays_against_the_baseline_on_the_same_machine() -> None:
    bill = billed(sweep(), build=Build(usd=2.0, runs_per_day=10.0))
    paid = row(bill, "tuned", 2).amortisation
    assert paid is not None
    assert get_value(paid.saving_usd) == pytest.approx(0.1 * (1 - 1 / 1.25))
    assert (paid.runs, paid.days) == (100, 10.0)
    assert paid.soonest is not None
    assert paid.latest is not None
    assert paid.soonest < 100 < paid.latest
    assert row(bill, "stock", 2).amortisation is None
    assert row(bill, "stock", 4).amortisation is None
    assert billed(sweep()).rows[1].amortisation is None


def test_a_build_that_saves_no_whole_increment_never_pays() -> None:
    bill = billed(sweep(), book(billing_increment_s=60.0), build=Build(usd=2.0))
    paid = row(bill, "tuned", 2).amortisation
    assert paid is not None
    assert (get_value(paid.saving_usd), paid.runs) == (0.0, None)


def test_settings_need_no_build() -> None:
    facts = (
        arm("stock", wheel_sha256="abc"),
        arm("onednn off", wheel_sha256="abc", env=(("TF_ENABLE_ONEDNN_OPTS", "0"),)),
        arm("tuned"),
    )
    runs: dict[str, Interval | None] = {fact.name: spread(100.0) for fact in facts}
    bill = billed(comparison(cell(runs=runs), arms=facts), build=Build(usd=2.0))
    assert [bill_row.arm for bill_row in bill.rows if bill_row.amortisation] == ["tuned"]


def test_speedups_are_means_over_workloads_by_vcpus() -> None:
    cells = [
        cell(name, speedups=[speedup("tuned", spread(2), run=spread(gain, 0.01))])
        for name, gain in (("mnist_mlp", 1.0), ("lstm_text", 1.21))
    ]
    ((vcpus, arm, mean),) = billed(comparison(*cells)).speedups
    assert (vcpus, arm) == (2, "tuned")
    assert get_value(mean) == pytest.approx(1.1)
    assert interval(mean).half_width == pytest.approx(spread(1, 0.01).half_width / math.sqrt(2))


def test_what_has_no_run_is_left_out_and_told() -> None:
    failed = ArmFailure(arm="tuned", reason="the worker of arm tuned died")
    bill = billed(
        comparison(
            cell("mnist_mlp"),
            cell("lstm_text", runs={"stock": spread(9.0)}, failures=(failed,)),
            cell("mnist_cnn", runs={"stock": spread(9.0), "tuned": None}),
            cell("cifar10_cnn", runs={"stock": None, "tuned": spread(9.0)}),
        )
    )
    assert bill.skipped == (
        "lstm_text tuned@2: the worker of arm tuned died",
        "mnist_cnn tuned@2: not all phases of a run were timed",
        "cifar10_cnn stock@2: not all phases of a run were timed",
        "cifar10_cnn: the baseline stock@2 has no run",
    )
    assert [(bill_row.workload, bill_row.arm) for bill_row in bill.rows] == [
        ("mnist_mlp", "stock"),
        ("mnist_mlp", "tuned"),
        ("lstm_text", "stock"),
        ("mnist_cnn", "stock"),
    ]


@pytest.mark.parametrize(
    "cells", [[], [cell(runs={"stock": None, "tuned": None})]], ids=["no cells", "no runs"]
)
def test_without_runs_there_is_no_bill(cells: Sequence[ComparedCell]) -> None:
    with pytest.raises(SampleError, match="training run"):
        billed(comparison(*cells))


def test_a_comparison_in_which_nothing_started_has_no_bill() -> None:
    with pytest.raises(SampleError, match="training run"):
        billed(dataclasses.replace(comparison(), arms=()))


def test_a_baseline_that_was_not_measured_is_told() -> None:
    with pytest.raises(UsageError, match="'stock@8'"):
        billed(sweep(), baseline="stock@8")


def test_a_bill_is_a_record_that_can_be_saved() -> None:
    assert '"baseline":"stock@4"' in format_canonical(billed(sweep(), build=Build(usd=1.0)))


@given(
    times=st.lists(st.tuples(seconds, seconds), min_size=1, max_size=4),
    share=shares,
    gain=st.floats(0.2, 5.0),
)
def test_the_baseline_is_itself_and_a_front_has_the_best(
    times: list[tuple[float, float]], share: float, gain: float
) -> None:
    cells = [
        cell(
            f"w{number}",
            vcpus=vcpus,
            runs={"stock": spread(slow, share), "tuned": spread(fast, share)},
            speedups=[speedup("tuned", spread(gain), run=spread(gain, share))],
        )
        for number, (slow, fast) in enumerate(times)
        for vcpus in (2, 4)
    ]
    bill = billed(comparison(*cells))
    for workload in {bill_row.workload for bill_row in bill.rows}:
        mine = [bill_row for bill_row in bill.rows if bill_row.workload == workload]
        assert len(mine) == 4
        base = row(bill, "stock", 4, workload)
        assert (base.relative_time, base.relative_cost) == (1.0, 1.0)
        assert [
            sum(marks) for marks in zip(*((e.cheapest, e.fastest) for e in mine), strict=True)
        ] == [
            1,
            1,
        ]
        assert all(bill_row.on_front for bill_row in mine if bill_row.cheapest or bill_row.fastest)
        for front_row in mine:
            if isinstance(front_row.relative_time, Interval):
                time = front_row.relative_time
                assert time.low <= time.value <= time.high
            if isinstance(front_row.break_even_price_ratio, Interval):
                product = front_row.break_even_price_ratio.value * get_value(
                    front_row.relative_time
                )
                assert math.isclose(product, 1.0)
