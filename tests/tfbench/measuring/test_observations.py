"""What a cell's journal amounts to, wherever it was cut."""

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
    STEPS,
    STOCK,
    TUNED,
    criteria,
    end,
    entries,
    fault,
    measured,
    paces,
    sample,
    start,
)

from tfbench.arms.arm import create_repeat
from tfbench.inside.phases import AUGMENT, TRAIN, VALIDATE
from tfbench.measuring.measurement import CellSpec, create_observed_cell
from tfbench.measuring.observations import (
    ObservedCell,
    choose_next_block_count,
    compute_arm_contrast,
    compute_half_width,
    compute_launch_cost,
    compute_log_ms,
    estimate_median_ratio,
    filter_starts,
    group_launches,
    list_failures,
    select_blocks,
)
from tfbench.measuring.samples import End, Entry, Sample
from tfbench.measuring.summary import summarise_cell
from tfcore.comparisons.comparison import ArmFailure
from tfcore.comparisons.effort import FEWEST_BLOCKS, Effort
from tfcore.errors import SampleError

PER_BLOCK = 2 * len(paces())


def samples_of(actual: Sequence[Entry]) -> list[Sample]:
    return [entry for entry in actual if isinstance(entry, Sample)]


def disturbed(actual: Sequence[Entry], launch: int, block: int) -> list[Entry]:
    """The journal with one sample of a block that a gate drops."""
    hit = next(s for s in samples_of(actual) if (s.launch, s.block) == (launch, block))
    return [dataclasses.replace(hit, throttled_s=0.1) if e is hit else e for e in actual]


# --- launches and blocks --------------------------------------------------------------------------


def test_a_whole_journal_has_all_its_launches_and_blocks() -> None:
    observed_cell = measured(entries(paces(), launches=3, blocks=4, phases=(TRAIN, VALIDATE)))
    assert [launch.number for launch in observed_cell.launches] == [0, 1, 2]
    assert len(observed_cell.blocks) == 12
    for launch in observed_cell.launches:
        assert {phase: len(blocks) for phase, blocks in launch.blocks.items()} == {
            TRAIN: 4,
            VALIDATE: 4,
        }
        assert sorted(launch.starts) == sorted(paces())
        assert launch.get_steps(TRAIN) == STEPS
        assert launch.get_steps(AUGMENT) == 0
        assert (launch.seconds, launch.steady) == (20.0, True)
        assert launch.get_peak_mb(TUNED.name) == 520.0 + launch.number
        assert launch.get_peak_mb("nobody") == 0
    assert observed_cell.seconds == 60.0


@given(cut=st.integers(0, 5 * PER_BLOCK), blocks=st.integers(FEWEST_BLOCKS, 5))
def test_of_a_killed_launch_only_whole_blocks_count(cut: int, blocks: int) -> None:
    whole = entries(paces(), launches=1, blocks=blocks)
    timed = samples_of(whole)[:cut]
    killed: list[Entry] = [*filter_starts(whole), *timed]
    expected = len(timed) // PER_BLOCK
    launches = group_launches(killed)
    assert [len(observed.blocks[TRAIN]) for observed in launches] == [expected] * (
        expected >= FEWEST_BLOCKS
    )
    for launch in launches:
        assert launch.end is None
        assert launch.steady
        assert launch.get_peak_mb(STOCK.name) == 0
        assert [s for block in launch.blocks[TRAIN] for s in block] == timed[: expected * PER_BLOCK]


@given(cut=st.integers(0, 3 * PER_BLOCK))
def test_a_phase_that_was_cut_leaves_training_whole(cut: int) -> None:
    whole = entries(paces(), launches=1, blocks=3, phases=(TRAIN, AUGMENT))
    (launch,) = group_launches(samples_of(whole)[: 3 * PER_BLOCK + cut])
    assert len(launch.blocks[TRAIN]) == 3
    assert len(launch.blocks.get(AUGMENT, ())) == cut // PER_BLOCK


def test_a_killed_launch_took_as_long_as_its_last_whole_block() -> None:
    whole = samples_of(entries(paces(), launches=1, blocks=3))
    timed = [
        dataclasses.replace(timed_sample, at_s=5.0 + place)
        for place, timed_sample in enumerate(whole)
    ]
    (launch,) = group_launches(timed[: 2 * PER_BLOCK + 1])
    assert launch.seconds == 5.0 + 2 * PER_BLOCK - 1


def test_a_launch_with_one_block_does_not_count_and_the_others_do() -> None:
    whole = entries(paces(), launches=3, blocks=4)
    short = [e for e in whole if not (isinstance(e, Sample) and e.launch == 1 and e.block > 0)]
    assert [launch.number for launch in group_launches(short)] == [0, 2]


def test_launches_are_in_their_order_however_the_journal_is() -> None:
    whole = entries(paces(), launches=3)
    first, remainder = [e for e in whole if e.launch == 0], [e for e in whole if e.launch > 0]
    assert group_launches(remainder + first) == group_launches(whole)


def test_samples_with_unequal_steps_are_refused() -> None:
    whole = entries(paces(), launches=2)
    whole[5] = dataclasses.replace(samples_of(whole)[2], steps=STEPS + 1)
    with pytest.raises(SampleError, match="steps"):
        group_launches(whole)


def test_phases_and_launches_may_have_steps_of_their_own() -> None:
    whole = [
        dataclasses.replace(
            timed_sample, steps=7 + timed_sample.launch + (timed_sample.phase == VALIDATE)
        )
        for timed_sample in samples_of(entries(paces(), launches=2, phases=(TRAIN, VALIDATE)))
    ]
    launches = group_launches(whole)
    assert [(launch.get_steps(TRAIN), launch.get_steps(VALIDATE)) for launch in launches] == [
        (7, 8),
        (8, 9),
    ]


# --- who was timed --------------------------------------------------------------------------------


def without(actual: Sequence[Entry], arm: str, launches: Sequence[int]) -> list[Entry]:
    return [
        e for e in actual if not (isinstance(e, Sample) and e.arm == arm and e.launch in launches)
    ]


def test_an_arm_counts_in_the_launches_in_which_it_was_timed() -> None:
    observed_cell = measured(without(entries(paces(), launches=4), TUNED.name, [1, 3]))
    assert [launch.number for launch in observed_cell.list_timed_launches(TUNED.name)] == [0, 2]
    assert len(observed_cell.list_timed_launches(STOCK.name)) == 4
    assert compute_arm_contrast(observed_cell, TUNED.name).freedom == 2, (
        "three arms in two launches"
    )
    assert compute_arm_contrast(observed_cell, REPEAT).freedom == 3, "two arms in four"


@pytest.mark.parametrize(
    ("launches", "failed", "answered"),
    [
        (2, (), True),
        (1, (), False),
        (0, (), False),
        (3, (TUNED.name,), True),
        (3, (STOCK.name,), False),
        (3, (REPEAT,), False),
    ],
)
def test_a_cell_is_answered_by_the_baseline_and_its_twin(
    launches: int, failed: Sequence[str], answered: bool
) -> None:
    observed_cell = measured(entries(paces(), launches=launches) + [fault(arm) for arm in failed])
    assert observed_cell.answered is answered
    assert observed_cell.has_baseline is {STOCK.name, REPEAT}.isdisjoint(failed)
    assert observed_cell.can_compare(REPEAT) is answered
    assert observed_cell.can_compare(TUNED.name) is (answered and TUNED.name not in failed)
    assert (TUNED.name in observed_cell.arms) is (TUNED.name not in failed)


# --- numbers --------------------------------------------------------------------------------------


@given(speedup=st.floats(0.2, 5), pace=st.floats(1e-4, 1), launches=st.integers(2, 4))
@at_most(25)
def test_each_launch_has_the_level_that_was_put_in(
    speedup: float, pace: float, launches: int
) -> None:
    observed_cell = measured(entries(paces(speedup, pace), launches=launches, blocks=3))
    given_in = {TUNED.name: speedup, REPEAT: 1.0, STOCK.name: 1.0}
    for arm, truth in given_in.items():
        assert compute_arm_contrast(observed_cell, arm).mean == pytest.approx(
            math.log(truth), abs=1e-9
        )
        assert estimate_median_ratio(observed_cell, arm).value == pytest.approx(truth)
        milliseconds = [math.exp(value) for value in compute_log_ms(observed_cell, arm, TRAIN)]
        assert milliseconds == pytest.approx([1000 * pace / truth] * launches)


def test_a_phase_that_was_not_timed_has_no_times() -> None:
    observed_cell = measured(entries(paces(), launches=2, phases=(TRAIN, VALIDATE)))
    assert compute_log_ms(observed_cell, STOCK.name, AUGMENT) == []
    ms = compute_log_ms(observed_cell, STOCK.name, VALIDATE, launches=observed_cell.launches[:1])
    assert ms == pytest.approx([math.log(1000 * 0.025 * 0.4)])


def test_the_baseline_is_the_mean_of_it_and_its_twin() -> None:
    unlike = paces(1.25) | {REPEAT: paces()[STOCK.name] * 1.21}
    observed_cell = measured(entries(unlike, launches=3))
    assert compute_arm_contrast(observed_cell, TUNED.name).interval.value == pytest.approx(
        1.25 * 1.1
    )
    assert compute_arm_contrast(observed_cell, REPEAT).interval.value == pytest.approx(1 / 1.21)
    assert estimate_median_ratio(observed_cell, TUNED.name).value == pytest.approx(1.25)


def slower(actual: Sequence[Entry], arm: str, **meters: Any) -> list[Entry]:
    """The journal with every sample of the arm taking twice as long."""
    return [
        dataclasses.replace(entry, wall_s=2 * entry.wall_s, elapsed_s=2 * entry.elapsed_s, **meters)
        if isinstance(entry, Sample) and entry.arm == arm
        else entry
        for entry in actual
    ]


@pytest.mark.parametrize(("vcpus", "speedup"), [(1, 1.0), (2, 0.5)])
def test_on_one_cpu_what_others_took_of_it_is_no_time_of_the_arm(
    vcpus: int, speedup: float
) -> None:
    """Each sample had 0.25 s of its CPU and another process as much; on two CPUs nobody knows."""
    shared = entries(paces(1.0), launches=2, vcpus=vcpus)
    observed_cell = measured(slower(shared, TUNED.name, cpu_s=0.25, busy_s=0.5))
    assert compute_arm_contrast(observed_cell, TUNED.name).interval.value == pytest.approx(speedup)
    assert estimate_median_ratio(observed_cell, TUNED.name).value == pytest.approx(0.5), (
        "wall against wall"
    )


def test_a_launchs_worst_blocks_do_not_move_its_level_nor_their_median() -> None:
    journal = entries(paces(), launches=3, blocks=5)
    wild = [
        dataclasses.replace(entry, wall_s=9 * entry.wall_s, elapsed_s=9 * entry.elapsed_s)
        if isinstance(entry, Sample) and entry.arm == TUNED.name and entry.block in (1, 4)
        else entry
        for entry in journal
    ]
    for arm in (REPEAT, TUNED.name):
        assert compute_arm_contrast(measured(wild), arm) == compute_arm_contrast(
            measured(journal), arm
        )
        assert estimate_median_ratio(measured(wild), arm) == estimate_median_ratio(
            measured(journal), arm
        )


# --- what counts ----------------------------------------------------------------------------------


def counted(observed_cell: ObservedCell) -> list[int]:
    return [len(blocks) for blocks in select_blocks(observed_cell)]


def test_a_gate_drops_the_block_for_every_arm_and_only_that() -> None:
    journal = entries(paces(), launches=3, blocks=4)
    observed_cell = measured(disturbed(journal, launch=1, block=2))
    assert observed_cell.fair
    assert counted(observed_cell) == [4, 3, 4]
    assert {sample.block for block in select_blocks(observed_cell)[1] for sample in block} == {
        0,
        1,
        3,
    }
    assert counted(measured(journal)) == [4, 4, 4]


def test_what_a_gate_dropped_moves_nothing() -> None:
    journal = entries(paces(), launches=3, blocks=2, jitter=0.01)
    hit = disturbed(journal, launch=1, block=1)
    wild = [
        dataclasses.replace(timed_sample, wall_s=timed_sample.wall_s / 9)
        if timed_sample.throttled_s
        else timed_sample
        for timed_sample in samples_of(hit)
    ]
    for arm in (REPEAT, TUNED.name):
        assert compute_arm_contrast(measured(wild), arm) == compute_arm_contrast(measured(hit), arm)
        assert estimate_median_ratio(measured(wild), arm) == estimate_median_ratio(
            measured(hit), arm
        )
        assert compute_arm_contrast(measured(hit), arm) != compute_arm_contrast(
            measured(journal), arm
        )


def test_a_launch_of_which_all_was_dropped_does_not_count() -> None:
    journal = entries(paces(), launches=4, blocks=2)
    for block in range(2):
        journal = disturbed(journal, launch=3, block=block)
    observed_cell = measured(journal)
    assert observed_cell.fair
    assert counted(observed_cell) == [2, 2, 2]
    assert compute_arm_contrast(observed_cell, TUNED.name).freedom == 4


@pytest.mark.parametrize(("hit", "fair"), [(3, True), (4, False)])
def test_where_gates_drop_too_much_all_blocks_count(hit: int, fair: bool) -> None:
    """Three of ten may be dropped."""
    journal = entries(paces(), launches=2, blocks=5)
    for block in range(hit):
        journal = disturbed(journal, launch=block % 2, block=block)
    observed_cell = measured(journal)
    assert observed_cell.fair is fair
    assert sum(counted(observed_cell)) == (10 - hit if fair else 10)


def test_where_gates_leave_one_launch_all_blocks_count_and_nothing_is_decided() -> None:
    """Two disturbed blocks of nine, both of the second launch, which has no more."""
    journal = entries(paces(), launches=1, blocks=7)
    journal += [e for e in entries(paces(), launches=2, blocks=2) if e.launch == 1]
    for block in range(2):
        journal = disturbed(journal, launch=1, block=block)
    observed_cell = measured(journal)
    assert not observed_cell.fair
    assert counted(observed_cell) == [7, 2]


def test_a_time_that_is_none_is_an_error_in_a_block() -> None:
    with pytest.raises(SampleError):
        sample(wall_s=-1.0, elapsed_s=0.1)


# --- how narrow -----------------------------------------------------------------------------------


def test_the_half_width_is_that_of_the_widest_interval() -> None:
    observed_cell = measured(entries(paces(), launches=5, spread=0.02, jitter=0.002))
    widths = [
        compute_arm_contrast(observed_cell, arm).interval.half_width for arm in (REPEAT, TUNED.name)
    ]
    assert compute_half_width(observed_cell, 5) == max(widths)
    assert min(widths) < max(widths)


def test_the_half_width_after_some_launches_does_not_know_of_later_ones() -> None:
    journal = entries(paces(), launches=6, spread=0.02)
    observed_cell = measured(journal)
    for count in range(2, 6):
        early = measured([e for e in journal if e.launch < count])
        assert compute_half_width(observed_cell, count) == compute_half_width(early, count)


def test_there_is_no_half_width_without_a_pair_of_launches() -> None:
    observed_cell = measured(entries(paces(), launches=3))
    assert compute_half_width(observed_cell, 0) == compute_half_width(observed_cell, 1) == math.inf
    assert compute_half_width(observed_cell, 2) == pytest.approx(0, abs=1e-9)


def test_an_arm_that_was_timed_once_leaves_the_width_unknown() -> None:
    observed_cell = measured(without(entries(paces(), launches=3), TUNED.name, [0, 1]))
    assert compute_half_width(observed_cell, 3) == math.inf
    assert compute_half_width(observed_cell, 2) < math.inf, "before it was timed at all"


@pytest.mark.parametrize("timed", [1, 2])
def test_an_arm_that_is_not_timed_any_more_does_not_hold_up_the_others(timed: int) -> None:
    """It computed something else in a later launch."""
    journal = entries(paces(), launches=6, spread=0.02, seed=4)
    observed_cell = measured(without(journal, TUNED.name, range(timed, 6)))
    repeat = compute_arm_contrast(observed_cell, REPEAT).interval.half_width
    assert compute_half_width(observed_cell, 6) == repeat
    last = measured(without(journal, TUNED.name, range(5 - timed)))
    assert compute_half_width(last, 6) > repeat, "it is timed still"


def test_an_arm_that_failed_does_not_hold_up_the_others() -> None:
    journal = without(entries(paces(), launches=3), TUNED.name, [1, 2])
    assert compute_half_width(measured([*journal, fault(TUNED.name, 1)]), 3) < math.inf


# --- what a launch costs, and how long the next one is --------------------------------------------


def clocked(actual: Sequence[Entry], start_s: float, after_s: float = 0.0) -> list[Entry]:
    """The journal of launches whose samples came one after the other, some time after the start and
    some before the end; launch by launch a start takes a second longer."""
    clocks: dict[int, float] = {}
    journal: list[Entry] = []
    for entry in actual:
        if isinstance(entry, Sample):
            before = clocks.get(entry.launch, start_s + entry.launch)
            clocks[entry.launch] = before + entry.elapsed_s
            journal.append(dataclasses.replace(entry, at_s=clocks[entry.launch]))
        elif isinstance(entry, End):
            journal.append(dataclasses.replace(entry, seconds=clocks[entry.launch] + after_s))
        else:
            journal.append(entry)
    return journal


def test_a_launch_costs_its_start_and_its_end_and_a_block_the_samples_of_all_arms() -> None:
    journal = entries(paces(1.0), launches=3, blocks=5, jitter=0.3)
    observed_cell = measured(clocked(journal, start_s=7.0, after_s=2.0))
    blocks = [
        sum(timed_sample.elapsed_s for timed_sample in samples) / 5
        for samples in by_launch(journal)
    ]
    assert observed_cell.seconds == pytest.approx(27.0 + 3.0 + 5 * sum(blocks))
    cost = compute_launch_cost(observed_cell.launches)
    assert cost.start_s == pytest.approx(10.0)
    assert cost.block_s == pytest.approx(sorted(blocks)[1])


def by_launch(actual: Sequence[Entry]) -> list[list[Sample]]:
    launches = sorted({entry.launch for entry in actual})
    return [
        [timed_sample for timed_sample in samples_of(actual) if timed_sample.launch == launch]
        for launch in launches
    ]


def test_a_launch_that_was_cut_short_costs_what_it_took() -> None:
    journal = [entry for entry in entries(paces(1.0), launches=1) if not isinstance(entry, End)]
    observed_cell = measured(clocked(journal, start_s=7.0))
    assert compute_launch_cost(observed_cell.launches).start_s == pytest.approx(7.0)


def test_where_starts_differ_launches_are_short_and_where_blocks_do_they_are_long() -> None:
    starts = entries(paces(), launches=6, blocks=8, spread=0.05, jitter=0.005)
    blocks = entries(paces(), launches=6, blocks=8, spread=0.0, jitter=0.05)
    numbers = [
        choose_next_block_count(measured(clocked(journal, start_s=2.0)), Effort())
        for journal in (starts, blocks)
    ]
    assert FEWEST_BLOCKS <= numbers[0] < numbers[1]


def test_the_next_launch_is_as_long_as_asked_until_the_budget_is_spent() -> None:
    observed_cell = measured(clocked(entries(paces(1.0), launches=3, blocks=4), start_s=13.0))
    spent_s = observed_cell.seconds
    for blocks in (FEWEST_BLOCKS, 7):
        fixed = Effort(blocks=blocks)
        assert choose_next_block_count(observed_cell, fixed) == blocks
        assert (
            choose_next_block_count(observed_cell, dataclasses.replace(fixed, budget_s=2 * spent_s))
            == blocks
        )
        assert (
            choose_next_block_count(observed_cell, dataclasses.replace(fixed, budget_s=spent_s))
            == 0
        )
    assert choose_next_block_count(observed_cell, Effort(budget_s=spent_s)) == 0
    assert choose_next_block_count(observed_cell, Effort(budget_s=2 * spent_s)) >= FEWEST_BLOCKS


# --- who started, who failed ----------------------------------------------------------------------


def test_starts_and_failures_are_told_from_all_else() -> None:
    actual: list[Entry] = [
        *(start("stock"), sample(), end(), fault("tuned", reason="it died")),
        start("tuned", losses=LOSSES[:1]),
    ]
    assert [launch_start.arm for launch_start in filter_starts(actual)] == ["stock", "tuned"]
    arm = dataclasses.replace(TUNED, wheel_sha256="ab" * 32, env=(("OMP_NUM_THREADS", "1"),))
    (failure,) = list_failures(actual, [STOCK, arm])
    assert failure == ArmFailure(
        arm="tuned", reason="it died", wheel_sha256=arm.wheel_sha256, env=arm.env
    )
    (failure,) = list_failures(actual, [STOCK])
    assert failure == ArmFailure(arm="tuned", reason="it died")


def test_a_cell_names_the_wheel_of_an_arm_that_never_started() -> None:
    arm = dataclasses.replace(TUNED, wheel_sha256="ab" * 32)
    arms = (STOCK, create_repeat(STOCK), arm)
    spec = CellSpec(workload="mnist_mlp", vcpus=(0,), arms=arms, seed=1)
    (failure,) = create_observed_cell(spec, [fault("tuned")]).failures
    assert failure.wheel_sha256 == arm.wheel_sha256


def test_a_fault_makes_no_launch() -> None:
    assert group_launches([fault("tuned", 0), fault("other", 1)]) == ()


def test_an_arm_that_was_timed_once_is_not_compared() -> None:
    observed_cell = measured(without(entries(paces(), launches=3), TUNED.name, [1, 2]))
    assert observed_cell.answered
    assert not observed_cell.can_compare(TUNED.name)
    assert observed_cell.can_compare(REPEAT)


def test_an_arm_of_which_gates_leave_one_launch_is_not_compared() -> None:
    """It was timed in two launches of six, and one of these was throttled throughout."""
    journal = without(entries(paces(), launches=6, blocks=2), TUNED.name, range(2, 6))
    for block in range(2):
        journal = disturbed(journal, launch=1, block=block)
    observed_cell = measured(journal)
    assert observed_cell.fair
    assert len(observed_cell.list_timed_launches(TUNED.name)) == 2
    assert not observed_cell.can_compare(TUNED.name)
    assert observed_cell.can_compare(REPEAT)
    compared_cell = summarise_cell(observed_cell, criteria())
    assert (compared_cell.speedups, compared_cell.launches) == ((), 6)


def test_op_times_that_any_launch_brought_are_known() -> None:
    journal = entries(paces(), launches=2)
    assert not measured(journal).profiled
    profiles = {TUNED.name: {"steps": 5, "op_s": {"Tanh": 1.0}, "executions": {}}}
    journal[-1] = end(1, profiles=profiles)
    assert measured(journal).profiled
