from __future__ import annotations

import csv
import dataclasses
import io

from hypothesis import given
from hypothesis import strategies as st
from tests.builders.comparisons import arm, cell, comparison, speedup, spread, times

from tfbench.reports.columns import CSV
from tfbench.reports.csv_table import format_csv, list_rows
from tfcore.comparisons.comparison import Agreement, ArmFailure, Comparison, Coverage, PhaseTime
from tfcore.comparisons.interval import Interval

# What other people's programs read: names may be added at the end of a group, never changed.
COLUMNS = """
made cpu workload vcpus batch steps launches blocks seconds stopped_by unsteady dropped others
arm baseline label wheel_sha256 tensorflow git_version compiler_version python numpy threading
raised_kernels kernel_library env
cpu_ms idle_share peak_mb import_s build_s first_steps_s losses coverage
loss_difference prediction_difference tolerance agrees verdict confidence failure
train_ms train_ms_low train_ms_high validate_ms validate_ms_low validate_ms_high
augment_ms augment_ms_low augment_ms_high infer_ms infer_ms_low infer_ms_high
fit_ms fit_ms_low fit_ms_high
median_ms median_ms_low median_ms_high p99_ms p99_ms_low p99_ms_high
run_s run_s_low run_s_high
speedup speedup_low speedup_high speedup_medians speedup_medians_low speedup_medians_high
speedup_run speedup_run_low speedup_run_high noise noise_low noise_high
"""
numbers = st.floats(1e-6, 1e6)
intervals = st.builds(Interval, value=numbers, low=numbers, high=numbers)


def parsed(measured_comparison: Comparison) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(format_csv(measured_comparison)), strict=True))


def test_the_header_is_always_the_same() -> None:
    assert COLUMNS.split() == [*CSV]
    assert format_csv(comparison()) == ",".join(CSV) + "\n"
    assert all([*row] == [*CSV] for row in list_rows(comparison(cell(), cell(vcpus=1))))


def test_there_is_a_row_for_every_arm_in_every_cell() -> None:
    actual = parsed(comparison(cell("mnist_mlp", 1), cell("mnist_mlp", 2), cell("lstm_text", 2)))
    assert [(row["workload"], row["vcpus"], row["arm"]) for row in actual] == [
        (workload, vcpus, arm)
        for workload, vcpus in (("mnist_mlp", "1"), ("mnist_mlp", "2"), ("lstm_text", "2"))
        for arm in ("stock", "tuned")
    ]


def test_a_row_has_all_that_was_found() -> None:
    arms = (arm("stock"), arm("tuned", env=(("A", "1"), ("B", "x,y")), kernel_library="/k.so"))
    gain = dataclasses.replace(
        speedup("tuned", spread(1.25), run=spread(1.2)), medians=spread(1.24)
    )
    compared_cell = cell(speedups=[gain])
    stock, tuned = parsed(comparison(compared_cell, arms=arms))
    assert (stock["speedup"], stock["verdict"], stock["agrees"]) == ("", "", "")
    assert (stock["run_s"], stock["train_ms"], stock["augment_ms"]) == ("100.0", "10.0", "")
    assert (tuned["verdict"], tuned["speedup"], tuned["speedup_run"]) == ("faster", "1.25", "1.2")
    assert (tuned["speedup_medians"], tuned["confidence"]) == ("1.24", "0.99")
    assert (tuned["env"], tuned["kernel_library"]) == ("A=1 B=x,y", "/k.so")
    assert (tuned["agrees"], tuned["loss_difference"]) == ("true", "1e-07")
    assert (tuned["stopped_by"], tuned["dropped"], tuned["others"]) == ("launches", "1", "0.02")
    assert tuned["losses"] == "2.3 2.2 2.1 2.0 1.9"
    assert tuned["noise_high"] == repr(1.02)
    assert (tuned["cpu"], tuned["baseline"]) == ("Example CPU @ 2.00GHz", "stock")


def test_an_arm_that_gave_no_answer_has_its_reason() -> None:
    died = ArmFailure(arm="tuned", reason='the worker of arm tuned died: "killed", by 9')
    measured_comparison = comparison(
        cell(runs={"stock": None}, failures=(died,)), arms=(arm("stock"), arm("tuned"))
    )
    stock, tuned = parsed(measured_comparison)
    assert tuned["failure"] == died.reason
    assert (tuned["train_ms"], tuned["peak_mb"], tuned["speedup"]) == ("", "", "")
    assert (stock["failure"], stock["train_ms"], stock["run_s"]) == ("", "10.0", "")


def test_an_arm_that_computes_something_else_was_not_timed() -> None:
    wrong = Agreement(arm="tuned", losses=None, predictions=0.5, tolerance=1e-3)
    untimed = tuple(
        dataclasses.replace(times(name, None), phases=()) for name in ("stock", "tuned")
    )
    compared_cell = dataclasses.replace(
        cell(), arms=untimed, agreements=(wrong,), speedups=(), noise=None
    )
    _, tuned = parsed(comparison(compared_cell))
    assert (tuned["agrees"], tuned["loss_difference"]) == ("false", "")
    assert (tuned["prediction_difference"], tuned["train_ms"], tuned["noise"]) == ("0.5", "", "")


@given(
    step_ms=intervals,
    gain=intervals,
    share=st.floats(0, 1),
    label=st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), max_size=20),
)
def test_figures_and_texts_read_back_as_they_were(
    step_ms: Interval, gain: Interval, share: float, label: str
) -> None:
    tuned = dataclasses.replace(
        times("tuned", gain),
        phases=(PhaseTime(phase="train", step_ms=step_ms),),
        coverage=Coverage(share=share, ops=()),
    )
    compared_cell = dataclasses.replace(
        cell(speedups=[speedup("tuned", gain)]), arms=(times("stock", None), tuned)
    )
    _, row = parsed(comparison(compared_cell, arms=(arm("stock"), arm("tuned", label=label))))
    for name, interval in (("train_ms", step_ms), ("run_s", gain), ("speedup", gain)):
        ends = (float(row[name]), float(row[f"{name}_low"]), float(row[f"{name}_high"]))
        assert ends == (interval.value, interval.low, interval.high)
    assert float(row["coverage"]) == share
    assert row["label"] == label
