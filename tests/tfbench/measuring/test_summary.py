"""From journals with a known truth to the figures of a cell and of a comparison."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.examples import at_most
from tests.builders.journals import (
    LOSSES,
    REPEAT,
    SHARES,
    STEPS,
    STOCK,
    TUNED,
    criteria,
    end,
    entries,
    fault,
    measured,
    paces,
    start,
)

from tfbench.arms.arm import TOLERANCE
from tfbench.inside.bins import WIDTH, find_bin
from tfbench.inside.phases import AUGMENT, INFER, TRAIN, VALIDATE
from tfbench.inside.workloads import WORKLOADS
from tfbench.measuring.observations import ObservedCell
from tfbench.measuring.samples import End, Entry, Sample, Start
from tfbench.measuring.summary import (
    Criteria,
    collect_arm_facts,
    compute_coverage,
    summarise_cell,
    summarise_overall,
)
from tfcore.comparisons.comparison import ArmTimes, ComparedCell, Coverage, OpShare
from tfcore.comparisons.effort import Effort, Stop
from tfcore.comparisons.interval import Verdict
from tfcore.comparisons.kernels import KernelTable
from tfcore.errors import SampleError

ALL_PHASES = tuple(SHARES)
PACES = paces(1.25)
PROFILE = {
    "steps": 5,
    "op_s": {"Tanh": 0.2, "MatMul": 0.7, "Mul": 0.1},
    "executions": {"Tanh": 400, "ResourceApplyAdam": 10},
    "fused": {"updates": 6, "update executions": 300, "left: alone": 2},
}


def noisy(
    speedup: float = 1.25, *, launches: int = 6, phases: Sequence[str] = (TRAIN,), seed: int = 0
) -> list[Entry]:
    """Launches and samples differ by 0.4 %."""
    return entries(
        paces(speedup), launches=launches, phases=phases, spread=0.004, jitter=0.004, seed=seed
    )


def summed(actual: Sequence[Entry], by: Criteria | None = None) -> ComparedCell:
    return summarise_cell(measured(actual), by or criteria())


def times(cell: ComparedCell, arm: str) -> ArmTimes:
    (arm_times,) = (candidate for candidate in cell.arms if candidate.arm == arm)
    return arm_times


def off(factor: float) -> tuple[float, ...]:
    return tuple(loss * factor for loss in LOSSES)


# --- a cell ---------------------------------------------------------------------------------------


@given(speedup=st.floats(0.5, 2), pace=st.floats(1e-4, 0.5))
@at_most(20)
def test_the_speedup_is_the_one_that_was_put_in(speedup: float, pace: float) -> None:
    cell = summed(entries(paces(speedup, pace)))
    (arm_speedup,) = cell.speedups
    assert arm_speedup.arm == TUNED.name
    assert arm_speedup.medians is not None
    for interval in (arm_speedup.interval, arm_speedup.medians):
        assert interval.value == pytest.approx(speedup)
        assert interval.low == pytest.approx(speedup)
        assert interval.high == pytest.approx(speedup)
    assert cell.noise is not None
    assert cell.noise.value == pytest.approx(1)
    for arm, truth in ((STOCK.name, pace), (TUNED.name, pace / speedup)):
        step_ms = times(cell, arm).step_ms
        assert step_ms is not None
        assert step_ms.value == pytest.approx(1000 * truth)


def test_in_noise_the_interval_holds_the_truth_and_the_verdict_follows() -> None:
    for truth, expected in ((1.25, Verdict.FASTER), (0.8, Verdict.SLOWER)):
        cell = summed(noisy(truth))
        (speedup,) = cell.speedups
        assert speedup.interval.low < truth < speedup.interval.high
        assert speedup.verdict is expected
        assert speedup.medians is not None
        assert speedup.medians.low < truth < speedup.medians.high
        assert 0.999 < speedup.confidence <= 1
        assert cell.noise is not None
        assert cell.noise.low < 1 < cell.noise.high


def test_arms_that_take_the_same_time_are_neither_faster_nor_slower() -> None:
    speedups = [summed(noisy(1.0, seed=seed)).speedups[0] for seed in range(20)]
    assert sum(speedup.verdict in (Verdict.FASTER, Verdict.SLOWER) for speedup in speedups) <= 1
    assert sum(speedup.confidence > 0.5 for speedup in speedups) < 18, "as often as not"


def test_a_gain_must_pass_the_noise_of_the_baseline_and_the_threshold() -> None:
    journal = entries(paces(1.05), launches=6)
    assert summed(journal).speedups[0].verdict is Verdict.FASTER
    assert summed(journal, criteria(0.04)).speedups[0].verdict is Verdict.FASTER
    assert summed(journal, criteria(0.06)).speedups[0].verdict is Verdict.EQUIVALENT
    for factor in (1.12, 1 / 1.04):
        unlike = paces(1.05) | {REPEAT: paces()[STOCK.name] * factor}
        assert summed(entries(unlike, launches=6)).speedups[0].verdict is Verdict.INCONCLUSIVE


def test_a_cell_says_how_it_was_measured() -> None:
    cell = summed(entries(paces(), launches=3, blocks=4))
    assert (cell.workload, cell.vcpus, cell.batch) == ("mnist_mlp", 2, 128)
    assert (cell.steps, cell.launches, cell.blocks, cell.seconds) == (STEPS, 3, 12, 60.0)
    assert (cell.unsteady, cell.failures, cell.agrees) == (0, (), True)
    assert [arm.arm for arm in cell.arms] == [STOCK.name, TUNED.name]
    assert [agreement.arm for agreement in cell.agreements] == [TUNED.name]
    assert (cell.gates.dropped, cell.gates.reasons, cell.others) == (0, (), 0.0)


def test_launches_that_never_became_steady_are_counted() -> None:
    journal = [
        dataclasses.replace(entry, steady=False)
        if isinstance(entry, End) and entry.launch
        else entry
        for entry in entries(paces())
    ]
    assert summed(journal).unsteady == 2


@pytest.mark.parametrize(
    ("effort", "stopped_by"),
    [
        (Effort(looks=(3, 6), precision=0.1), Stop.PRECISION),
        (Effort(looks=(3,)), Stop.LAUNCHES),
        (Effort(looks=(6,), budget_s=70.0), Stop.BUDGET),
        (Effort(looks=(6,)), ""),  # (it was stopped by hand)
    ],
)
def test_a_cell_says_what_ended_it(effort: Effort, stopped_by: str) -> None:
    assert summed(noisy(launches=3), criteria(effort=effort)).stopped_by == stopped_by


def test_intervals_are_looked_at_after_each_launch_from_the_third() -> None:
    cell = summed(noisy())
    assert [
        (interim_analysis.launches, interim_analysis.seconds) for interim_analysis in cell.looks
    ] == [
        (3, 60.0),
        (4, 80.0),
        (5, 100.0),
        (6, 120.0),
    ]
    widths = [cell.speedups[0].interval.half_width]
    assert cell.noise is not None
    assert cell.looks[-1].half_width == max(*widths, cell.noise.half_width)


# --- an arm ---------------------------------------------------------------------------------------


def test_what_an_arm_took_besides_time() -> None:
    journal = [
        dataclasses.replace(
            entry,
            cpu_s=0.1 * (1 + entry.launch) * (1 if entry.arm == STOCK.name else 2),
            idle_s=0.5,
            idle_cpu_s=0.05 if entry.arm == TUNED.name else 0.0,
        )
        if isinstance(entry, Sample)
        else entry
        for entry in entries(paces(), launches=3)
    ]
    cell = summed(journal)
    stock, tuned = times(cell, STOCK.name), times(cell, TUNED.name)
    assert [stock.cpu_ms, tuned.cpu_ms] == pytest.approx([20.0, 40.0])
    assert [stock.idle_share, tuned.idle_share] == pytest.approx([0.0, 0.1])
    assert (stock.peak_mb, tuned.peak_mb) == (500.0, 522.0)
    assert stock.environment == (("TF_NUM_INTRAOP_THREADS", "2"),)


def test_start_up_is_the_median_over_launches() -> None:
    journal = [
        dataclasses.replace(entry, facts={**entry.facts, "import_s": (9.0, 1.0, 2.0)[entry.launch]})
        if isinstance(entry, Start)
        else entry
        for entry in entries(paces(), launches=3)
    ]
    stock = times(summed(journal), STOCK.name)
    assert (stock.import_s, stock.build_s, stock.first_steps_s) == (2.0, 0.2, 0.4)


@pytest.mark.parametrize("launch", [0, 2])
def test_op_times_come_from_the_launch_that_has_them(launch: int) -> None:
    journal = [
        end(entry.launch, profiles={TUNED.name: PROFILE})
        if isinstance(entry, End) and entry.launch == launch
        else entry
        for entry in entries(paces(), launches=3)
    ]
    cell = summed(journal)
    assert times(cell, STOCK.name).coverage is None
    covered = times(cell, TUNED.name).coverage
    assert covered is not None
    assert covered == compute_coverage(PROFILE)


def test_an_op_counts_as_covered_when_its_tuned_kernels_ran() -> None:
    seconds = {"Tanh": 0.25, "MatMul": 0.5, "Mul": 0.25}
    assert compute_coverage(PROFILE | {"op_s": seconds}) == Coverage(
        share=0.25,
        ops=(
            OpShare(op="Tanh", share=0.25, runs_per_step=80.0),
            OpShare(op="ResourceApplyAdam", share=0.0, runs_per_step=2.0),
        ),
        fused=(("updates", 6), ("update executions", 300), ("left: alone", 2)),
    )
    assert compute_coverage(None) is None
    with pytest.raises(SampleError):
        compute_coverage({"steps": 5, "op_s": {}, "executions": {}})


# --- the article's run ----------------------------------------------------------------------------


# epochs * (training steps * 0.025 s + validation steps * 0.010 s + augmented steps * 0.0025 s)
RUNS = {
    "mnist_mlp": 20 * (469 * 0.025 + 79 * 0.010),
    "mnist_cnn": 12 * (469 * 0.025 + 79 * 0.010),
    "cifar10_cnn": 20 * (1562 * 0.025 + 313 * 0.010 + 1562 * 0.0025),
    "imdb_fasttext": 5 * (782 * 0.025 + 782 * 0.010),
    "imdb_bilstm": 4 * (782 * 0.025 + 782 * 0.010),
    "lstm_text": 10 * 1565 * 0.025,
}


def test_every_workload_has_its_run_worked_out_by_hand() -> None:
    assert list(RUNS) == list(WORKLOADS)


@pytest.mark.parametrize(("workload", "seconds"), RUNS.items())
def test_a_run_is_composed_of_its_phases_as_by_hand(workload: str, seconds: float) -> None:
    journal = entries(paces(1.25, 0.025), workload=workload, phases=ALL_PHASES)
    cell = summed(journal)
    stock, tuned = times(cell, STOCK.name), times(cell, TUNED.name)
    assert [phase.phase for phase in stock.phases] == [TRAIN, VALIDATE, AUGMENT]
    assert stock.run_s is not None
    assert tuned.run_s is not None
    assert stock.run_s.value == pytest.approx(seconds)
    assert tuned.run_s.value == pytest.approx(seconds / 1.25)
    run = cell.speedups[0].run
    assert run is not None
    assert run.value == pytest.approx(1.25)


@pytest.mark.parametrize(
    ("workload", "phases", "composed"),
    [
        ("mnist_mlp", (TRAIN,), False),
        ("mnist_mlp", (TRAIN, VALIDATE), True),
        ("cifar10_cnn", (TRAIN, VALIDATE), False),
        ("cifar10_cnn", (TRAIN, AUGMENT), False),
        ("cifar10_cnn", ALL_PHASES, True),
        ("lstm_text", (TRAIN,), True),
    ],
)
def test_a_run_is_composed_only_where_all_its_phases_were_timed(
    workload: str, phases: Sequence[str], composed: bool
) -> None:
    cell = summed(entries(paces(), workload=workload, phases=phases))
    assert all((arm.run_s is not None) is composed for arm in cell.arms)
    assert (cell.speedups[0].run is not None) is composed


def test_a_run_weighs_phases_that_gain_differently() -> None:
    """Training 2x faster, validation not at all."""
    journal = entries(paces(1.0, 0.02), phases=(TRAIN, VALIDATE))
    journal = [
        dataclasses.replace(entry, wall_s=entry.wall_s / 2)
        if isinstance(entry, Sample) and (entry.arm, entry.phase) == (TUNED.name, TRAIN)
        else entry
        for entry in journal
    ]
    run = summed(journal).speedups[0].run
    assert run is not None
    assert run.value == pytest.approx((469 * 0.02 + 79 * 0.008) / (469 * 0.01 + 79 * 0.008))


def test_a_runs_interval_is_as_wide_as_its_launches_differ() -> None:
    cell = summed(noisy(phases=(TRAIN, VALIDATE)))
    run, speedup = cell.speedups[0].run, cell.speedups[0].interval
    assert run is not None
    assert run.low < 1.25 < run.high
    assert run.half_width < 3 * speedup.half_width


# --- requests -------------------------------------------------------------------------------------


def requested(count: int) -> list[Entry]:
    """A journal of requests. Of a hundred of an arm 98 take its pace and two ten times as long."""
    slow = count // 50
    return [
        dataclasses.replace(
            entry,
            phase=INFER,
            answered={
                str(find_bin(PACES[entry.arm])): count - slow,
                str(find_bin(10 * PACES[entry.arm])): slow,
            },
        )
        if isinstance(entry, Sample)
        else entry
        for entry in entries(PACES, workload="mnist_mlp:batch=1:clients=1", launches=3, blocks=4)
    ]


def test_requests_are_judged_and_have_quantiles() -> None:
    cell = summed(requested(100))
    assert cell.speedups[0].interval.value == pytest.approx(1.25)
    assert (cell.batch, cell.steps) == (1, STEPS)
    for arm in (STOCK.name, TUNED.name):
        arm_times = times(cell, arm)
        assert [phase.phase for phase in arm_times.phases] == [INFER]
        assert arm_times.run_s is None
        assert arm_times.latency is not None
        assert arm_times.latency.median_ms.value == pytest.approx(1000 * PACES[arm], rel=WIDTH)
        assert arm_times.latency.p99_ms is not None
        assert arm_times.latency.p99_ms.value == pytest.approx(10_000 * PACES[arm], rel=WIDTH)


def test_few_requests_have_no_99th_of_a_hundred() -> None:
    """A launch has eight samples of an arm."""
    latency = times(summed(requested(24)), TUNED.name).latency
    assert latency is not None
    assert latency.p99_ms is None


def test_training_has_no_requests() -> None:
    assert times(summed(noisy()), TUNED.name).latency is None


# --- gates ----------------------------------------------------------------------------------------


def longer(sample: Sample, factor: float) -> dict[str, Any]:
    """By both clocks."""
    return {"wall_s": sample.wall_s * factor, "elapsed_s": sample.elapsed_s * factor}


def slowed(
    journal: Sequence[Entry],
    blocks: Sequence[tuple[int, int]],
    **options: Any,
) -> list[Entry]:
    """In these blocks, by launch and number, the tuned arm took thrice as long; and what meters
    saw of it."""
    return [
        dataclasses.replace(entry, **longer(entry, 3 if entry.arm == TUNED.name else 1), **options)
        if isinstance(entry, Sample) and (entry.launch, entry.block) in blocks
        else entry
        for entry in journal
    ]


def test_blocks_that_a_quota_stopped_do_not_count_and_are_told_of() -> None:
    """Three of four in one launch."""
    journal, hit = entries(paces(), launches=3, blocks=4), [(1, 0), (1, 1), (1, 3)]
    cell = summed(slowed(journal, hit, throttled_s=0.1))
    (speedup,) = cell.speedups
    assert (cell.gates.dropped, cell.gates.reasons) == (3, (("throttled", 3),))
    assert speedup.interval.value == pytest.approx(1.25)
    assert speedup.medians is not None
    assert speedup.medians.value == pytest.approx(1.25)
    assert speedup.verdict is Verdict.FASTER
    assert (cell.blocks, cell.gates.counting) == (12, 9)
    (unseen,) = summed(slowed(journal, hit)).speedups
    assert unseen.interval.value < 1.1


def test_a_launch_half_of_which_others_disturbed_counts_by_its_other_half() -> None:
    journal = entries(paces(), launches=3, blocks=4)
    cell = summed(slowed(journal, [(1, 0), (1, 3)], busy_s=1.0, cpu_s=0.5))
    (speedup,) = cell.speedups
    assert cell.gates.dropped == 0
    assert speedup.interval.value == pytest.approx(1.25)
    assert speedup.medians is not None
    assert speedup.medians.value < 1.1


def test_a_cell_says_what_others_took_of_it() -> None:
    """Of two vCPUs, in one block of twelve."""
    journal = entries(paces(1.0, 0.025), launches=3, blocks=4)
    cell = summed(
        [
            dataclasses.replace(entry, steal_s=0.3 * entry.wall_s)
            if isinstance(entry, Sample) and (entry.launch, entry.block) == (1, 2)
            else entry
            for entry in journal
        ]
    )
    assert cell.others == pytest.approx(0.3 / 2 / 12)


def test_where_too_much_was_disturbed_there_is_no_verdict() -> None:
    journal, hit = entries(paces(5.0), launches=3, blocks=4), [(i, i) for i in range(3)]
    journal = slowed(journal, hit, throttled_s=0.1)
    assert summed(journal).speedups[0].verdict is Verdict.FASTER
    journal = slowed(journal, [(1, 0)], throttled_s=0.1)
    assert summed(journal).speedups[0].verdict is Verdict.INCONCLUSIVE
    (mean,) = summarise_overall([measured(journal)], criteria())
    assert mean.speedup.verdict is Verdict.INCONCLUSIVE


# --- what fails -----------------------------------------------------------------------------------


OTHER = "other"


def three(journal: Sequence[Entry], arms: Sequence[str] = (TUNED.name, OTHER)) -> ObservedCell:
    """With a second candidate."""
    return dataclasses.replace(measured(journal), arms=(STOCK.name, *arms))


def test_an_arm_that_failed_is_marked_and_the_others_survive() -> None:
    journal = entries(paces() | {OTHER: 0.01})
    journal.append(fault(TUNED.name, 3))
    cell = summarise_cell(three(journal, [OTHER]), criteria())
    assert [failure.arm for failure in cell.failures] == [TUNED.name]
    assert "SIGKILL" in cell.failures[0].reason
    assert [speedup.arm for speedup in cell.speedups] == [OTHER]
    assert cell.speedups[0].interval.value == pytest.approx(2.5)
    assert [arm.arm for arm in cell.arms] == [STOCK.name, OTHER]


@pytest.mark.parametrize("failing", [STOCK.name, REPEAT])
@pytest.mark.parametrize("launches", [0, 1, 3])
def test_without_its_baseline_a_cell_is_marked_and_empty(failing: str, launches: int) -> None:
    journal = [*entries(paces(), launches=launches), fault(failing, launches)]
    cell = summed(journal)
    assert [failure.arm for failure in cell.failures] == [failing]
    assert (cell.noise, cell.speedups, cell.arms) == (None, (), ())
    assert (cell.steps, cell.stopped_by) == (0, "")
    assert summarise_overall([measured(journal)], criteria()) == ()


def test_an_arm_that_computes_something_else_is_told_of_and_not_timed() -> None:
    """What a launch leaves in which the only candidate disagreed: the baseline's samples."""
    journal = entries({STOCK.name: 0.025, REPEAT: 0.025}, launches=1)
    journal.insert(0, start(TUNED.name, losses=off(1.1)))
    cell = summed(journal)
    assert not cell.agrees
    assert (cell.speedups, cell.noise, cell.stopped_by) == ((), None, "")
    tuned = times(cell, TUNED.name)
    assert tuned.losses == off(1.1)
    assert (tuned.phases, tuned.step_ms, tuned.run_s, tuned.cpu_ms) == ((), None, None, None)
    assert times(cell, STOCK.name).losses == LOSSES


def test_a_disagreement_in_a_launch_too_short_to_count_is_not_forgotten() -> None:
    """The harness was killed, or another arm's worker failed, before there was a block."""
    disagreed: list[Entry] = [start(STOCK.name), start(REPEAT), start(TUNED.name, losses=off(1.1))]
    alone = summed(disagreed)
    assert not alone.agrees
    assert alone.launches == 0
    later = entries({STOCK.name: 1.0, REPEAT: 1.0, OTHER: 1.0}, launches=4)
    cell = summarise_cell(
        three([*disagreed, *(entry for entry in later if entry.launch)]), criteria()
    )
    assert not cell.agrees
    assert [speedup.arm for speedup in cell.speedups] == [OTHER]


def test_losses_that_are_no_numbers_do_not_agree_and_can_be_shown() -> None:
    journal = entries(paces(), launches=2)
    nothing = (2.3, *(None,) * 4)
    journal.append(start(TUNED.name, 1, losses=nothing))
    cell = summed(journal)
    assert not cell.agrees
    assert cell.agreements[0].losses is None


def test_an_arm_that_disagrees_later_on_does_not_hold_up_the_others() -> None:
    """It was timed in one launch, which gives no interval."""
    journal: list[Entry] = [
        entry
        for entry in entries(paces() | {OTHER: 0.01}, launches=3)
        if not (isinstance(entry, Start | Sample) and entry.arm == TUNED.name and entry.launch)
    ]
    journal.append(start(TUNED.name, 1, losses=off(1.1)))
    cell = summarise_cell(three(journal), criteria())
    assert [speedup.arm for speedup in cell.speedups] == [OTHER]
    assert not cell.agrees
    (mean,) = summarise_overall([three(journal)], criteria())
    assert mean.speedup.arm == OTHER


def test_nothing_measured_is_a_cell_without_figures() -> None:
    cell = summed([])
    assert (cell.launches, cell.blocks, cell.seconds, cell.arms) == (0, 0, 0, ())
    assert (cell.noise, cell.speedups, cell.looks) == (None, (), ())


# --- all cells ------------------------------------------------------------------------------------


def test_the_overall_figure_is_the_geometric_mean_at_each_number_of_vcpus() -> None:
    cells = [
        measured(entries(paces(1.5), workload="mnist_mlp", vcpus=2)),
        measured(entries(paces(1.1), workload="lstm_text", vcpus=2)),
        measured(entries(paces(0.9), workload="mnist_mlp", vcpus=1)),
    ]
    two, overall = summarise_overall(cells, criteria())
    assert (two.vcpus, two.workloads, overall.vcpus, overall.workloads) == (2, 2, 1, 1)
    assert two.speedup.interval.value == pytest.approx(math.sqrt(1.5 * 1.1))
    assert overall.speedup.interval.value == pytest.approx(0.9)
    assert (two.speedup.verdict, overall.speedup.verdict) == (Verdict.FASTER, Verdict.SLOWER)
    assert two.noise.value == overall.noise.value == pytest.approx(1)
    assert (two.speedup.run, two.speedup.medians) == (None, None)


def test_an_arms_overall_figure_leaves_out_the_cells_in_which_it_failed() -> None:
    """Also one in which it had been timed before."""
    good = entries(paces(1.5), workload="mnist_mlp")
    bad = [*entries(paces(3.0), workload="lstm_text"), fault(TUNED.name, 3, workload="lstm_text")]
    (mean,) = summarise_overall([measured(good), measured(bad)], criteria())
    assert mean.workloads == 1
    assert mean.speedup.interval.value == pytest.approx(1.5)


def test_a_cell_without_a_baseline_does_not_count_overall() -> None:
    good = entries(paces(1.5), workload="mnist_mlp")
    bad = [*entries(paces(3.0), workload="lstm_text"), fault(REPEAT, 3, workload="lstm_text")]
    (mean,) = summarise_overall([measured(good), measured(bad)], criteria())
    assert mean.workloads == 1
    assert mean.speedup.interval.value == pytest.approx(1.5)


def test_arms_are_described_by_their_first_workers() -> None:
    journal = entries(paces(), launches=2)
    first = start(STOCK.name, facts={"threading": "OpenMP"})
    arms = collect_arm_facts([STOCK, TUNED], [measured([]), measured([first, *journal])])
    assert [arm.name for arm in arms] == [STOCK.name, TUNED.name]
    stock, tuned = arms
    assert (stock.threading, tuned.threading) == ("OpenMP", "Eigen")
    assert (tuned.wheel_sha256, tuned.env) == (TUNED.wheel_sha256, TUNED.env)
    assert (stock.kernel_library, tuned.kernel_library) == (None, "/k/skylake.so")
    assert tuned.raised_kernels == 4
    assert tuned.tolerance == TOLERANCE
    assert collect_arm_facts([STOCK, TUNED], [measured([])]) == ()


@pytest.mark.parametrize(("library", "known"), [("skylake.so", True), ("haswell.so", False)])
def test_the_table_of_kernels_is_that_of_the_library_that_was_loaded(
    library: str, known: bool
) -> None:
    kernel_table = KernelTable(library=library, measured_on="a CPU", rows=())
    journal = entries(paces(), launches=2)
    arms = [STOCK, dataclasses.replace(TUNED, kernel_table=kernel_table)]
    stock, tuned = collect_arm_facts(arms, [measured(journal)])
    assert tuned.kernel_table == (kernel_table if known else None)
    assert stock.kernel_table is None
