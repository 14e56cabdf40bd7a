"""What a run decides before and after its measuring; no worker ever starts here."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.builders.journals import (
    HOST,
    LOSSES,
    REPEAT,
    STOCK,
    TUNED,
    comparison,
    entries,
    fault,
    measured,
    paces,
    start,
)

from tfbench.arms.arm import Arm
from tfbench.engine.journal import open_journal, read_entries
from tfbench.measuring.comparing import (
    KIND,
    QUICK,
    THOROUGH,
    ComparisonSetting,
    check_cells,
    check_comparison,
    compare,
    make_setting,
)
from tfbench.measuring.samples import KINDS, Entry, Fault
from tfcore import records
from tfcore.comparisons.comparison import Comparison, load
from tfcore.comparisons.effort import Effort
from tfcore.comparisons.host import read_host
from tfcore.comparisons.interval import Verdict
from tfcore.errors import (
    AgreementError,
    DiskError,
    HostError,
    InconclusiveError,
    RecordError,
    RegressionError,
    TensorwrightError,
    UsageError,
    WorkerError,
)

EFFORT = Effort(looks=(3,), blocks=4)


def setting(**changed: Any) -> ComparisonSetting:
    whole: dict[str, Any] = {
        "host": HOST,
        "arms": (STOCK, TUNED),
        "workloads": ("mnist_mlp",),
        "vcpus": (2,),
        "effort": EFFORT,
        "threshold": 0.0,
        "seed": 1,
    }
    return ComparisonSetting(**whole | changed)


def stopped(out: Path, comparison_setting: ComparisonSetting, actual: Sequence[Entry] = ()) -> Path:
    """A folder as a run leaves it that was killed after these entries."""
    records.save(out / KIND.spec, comparison_setting)
    with open_journal(out / KIND.journal, KINDS) as (_, keep):
        for entry in actual:
            keep(entry)
    return out


# --- what is asked --------------------------------------------------------------------------------


def test_every_workload_is_asked_at_every_number_of_vcpus() -> None:
    specs = setting(workloads=("mnist_mlp", "lstm_text"), vcpus=(1, 2), seed=7).specs
    assert [(spec.workload, spec.vcpus) for spec in specs] == [
        ("mnist_mlp", (0,)),
        ("lstm_text", (0,)),
        ("mnist_mlp", (0, 1)),
        ("lstm_text", (0, 1)),
    ]
    assert {spec.seed for spec in specs} == {7}


def test_the_baseline_is_asked_twice_and_the_arms_in_their_order() -> None:
    control = dataclasses.replace(TUNED, name="control", tolerance=0.01)
    (spec,) = setting(arms=(STOCK, control, TUNED)).specs
    assert [arm.name for arm in spec.arms] == [STOCK.name, REPEAT, "control", TUNED.name]
    assert spec.tolerances["control"] == 0.01


@pytest.mark.parametrize(
    ("workloads", "vcpus", "words"),
    [
        (("mnist_mlp",), (3,), "3 vCPUs: only 2"),
        (("mnist_mlp",), (1, 0), "0 vCPUs"),
        (("mnist_mlp",), (-1,), "-1 vCPUs"),
        (("mnist_mlp",), (), "nothing"),
        ((), (1,), "nothing"),
        (("mnist_mlp", "mnist"), (1,), "workload mnist"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    workloads: tuple[str, ...], vcpus: tuple[int, ...], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        check_cells(workloads, vcpus, usable=2)
    check_cells(("mnist_mlp",), (1, 2), usable=2)


def test_a_thorough_run_has_more_launches_each_as_long_as_suits_its_start() -> None:
    assert all(more > few for few, more in zip(QUICK.looks, THOROUGH.looks, strict=True))
    assert QUICK.blocks == THOROUGH.blocks == 0
    assert THOROUGH.phase_blocks
    assert THOROUGH.precision < QUICK.precision


def made(arms: Sequence[Arm] = (STOCK, TUNED), vcpus: Sequence[int] = (1, 1)) -> ComparisonSetting:
    workloads = ("lstm_text", "mnist_mlp", "lstm_text")
    return make_setting(arms, workloads, vcpus, effort=EFFORT, threshold=0.01, seed=3)


def test_a_setting_is_of_this_machine_and_asks_nothing_twice() -> None:
    comparison_setting = made()
    assert comparison_setting.host == read_host()
    assert (comparison_setting.workloads, comparison_setting.vcpus) == (
        ("lstm_text", "mnist_mlp"),
        (1,),
    )


@pytest.mark.parametrize(
    "arms",
    [(STOCK,), (STOCK, STOCK), (STOCK, TUNED, dataclasses.replace(TUNED, name=REPEAT))],
)
def test_arms_that_could_be_mistaken_for_each_other_are_refused(arms: Sequence[Arm]) -> None:
    """Also one that is called like the baseline's second worker."""
    with pytest.raises(UsageError):
        made(arms)


def test_more_vcpus_than_the_machine_has_are_refused() -> None:
    more = read_host().vcpus.usable + 1
    with pytest.raises(UsageError, match=f"{more} vCPUs"):
        made(vcpus=[more])


# --- going on -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"seed": 2}, r"seed \(1, now 2\)"),
        ({"threshold": 0.01}, r"threshold \(0\.0, now 0\.01\)"),
        ({"vcpus": (1, 2)}, r"vcpus \(\[2\], now \[1, 2\]\)"),
        ({"workloads": ("mnist_cnn",)}, "workloads"),
        ({"effort": dataclasses.replace(EFFORT, blocks=5)}, r"effort\.blocks \(4, now 5\)"),
        ({"effort": dataclasses.replace(EFFORT, budget_s=9.0)}, r"effort\.budget_s \(null, now 9"),
        ({"arms": (STOCK, dataclasses.replace(TUNED, env=(("A", "b"),)))}, "arms"),
        ({"arms": (STOCK, dataclasses.replace(TUNED, wheel_sha256="cd" * 32))}, "arms"),
        ({"arms": (STOCK, dataclasses.replace(TUNED, tolerance=0.5))}, "arms"),
    ],
)
def test_a_run_that_asked_something_else_is_refused_by_name(
    changed: dict[str, Any], named: str, tmp_path: Path
) -> None:
    stopped(tmp_path, setting(), entries(paces(), launches=1))
    with pytest.raises(UsageError, match=rf"different: {named}") as caught:
        compare(setting(**changed), tmp_path)
    assert "--out" in caught.value.hint


@pytest.mark.parametrize(
    ("field", "value"),
    [("kernel", "6.2.0"), ("hugepages", "never"), ("affinity", (0, 1)), ("governor", "powersave")],
)
def test_a_run_of_another_machine_is_refused_as_such(
    field: str,
    value: Any,
    tmp_path: Path,
) -> None:
    stopped(tmp_path, setting(), entries(paces(), launches=1))
    other_host = dataclasses.replace(HOST, **{field: value})
    with pytest.raises(HostError, match=rf"host\.{field}"):
        compare(setting(host=other_host), tmp_path)
    with pytest.raises(UsageError, match=rf"host\.{field}.*; seed"):
        compare(setting(host=other_host, seed=2), tmp_path)


def test_a_difference_deep_in_the_host_is_named(tmp_path: Path) -> None:
    stopped(tmp_path, setting())
    cpu = dataclasses.replace(HOST.cpu, microcode="0x2")
    with pytest.raises(HostError, match=r'host\.cpu\.microcode \("0x1", now "0x2"\)'):
        compare(setting(host=dataclasses.replace(HOST, cpu=cpu)), tmp_path)


def test_a_finished_run_is_not_measured_again(tmp_path: Path) -> None:
    stopped(tmp_path, setting(), entries(paces(), launches=3))
    compare(setting(), tmp_path)
    with pytest.raises(UsageError, match="finished"):
        compare(setting(), tmp_path)


def test_samples_of_nobody_knows_what_are_left_alone(tmp_path: Path) -> None:
    stopped(tmp_path, setting(), entries(paces(), launches=1))
    (tmp_path / KIND.spec).unlink()
    before = (tmp_path / KIND.journal).read_bytes()
    with pytest.raises(UsageError, match="unknown run"):
        compare(setting(), tmp_path)
    assert (tmp_path / KIND.journal).read_bytes() == before


@pytest.mark.parametrize("file", [KIND.spec, KIND.journal, KIND.result])
def test_a_damaged_folder_is_an_error(file: str, tmp_path: Path) -> None:
    stopped(tmp_path, setting(), entries(paces(), launches=1))
    (tmp_path / file).write_text('{"schema": 2, "cells": tru\n', encoding="utf-8")
    with pytest.raises(RecordError, match=file):
        compare(setting(), tmp_path)


# --- a run from its journal alone -----------------------------------------------------------------


def test_a_run_that_was_killed_after_its_last_launch_only_sums_up(tmp_path: Path) -> None:
    """The arms' pythons do not exist: nothing could be measured any more."""
    actual = entries(paces(1.25), launches=3)
    stopped(tmp_path, setting(), actual)
    result = compare(setting(), tmp_path)
    assert read_entries(tmp_path / KIND.journal, KINDS) == tuple(actual)
    assert load(tmp_path / KIND.result) == result
    assert (result.complete, result.seed, result.host) == (True, 1, HOST)
    (cell,) = result.cells
    assert cell.speedups[0].interval.value == pytest.approx(1.25)
    assert [arm.name for arm in result.arms] == [STOCK.name, TUNED.name]
    assert [overall.speedup.arm for overall in result.overall] == [TUNED.name]
    check_comparison(result, gate=True)


def test_an_arm_that_had_failed_before_the_run_was_stopped_stays_out(tmp_path: Path) -> None:
    other_arm = dataclasses.replace(TUNED, name="other")
    comparison_setting = setting(arms=(STOCK, TUNED, other_arm))
    remainder = entries({STOCK.name: 0.02, REPEAT: 0.02, "other": 0.01}, launches=3)
    stopped(tmp_path, comparison_setting, [fault(TUNED.name, 0), *remainder])
    (cell,) = compare(comparison_setting, tmp_path).cells
    assert [failure.arm for failure in cell.failures] == [TUNED.name]
    assert [speedup.arm for speedup in cell.speedups] == ["other"]
    assert read_entries(tmp_path / KIND.journal, KINDS)[0] == fault(TUNED.name, 0)


def test_cells_that_cannot_be_measured_are_marked_and_the_others_survive(tmp_path: Path) -> None:
    """The first and the last cell are in the journal, the second has an arm that is not there."""
    comparison_setting = setting(workloads=("mnist_mlp", "mnist_cnn", "lstm_text"))
    known = [*entries(paces(), launches=3), *entries(paces(), launches=3, workload="lstm_text")]
    stopped(tmp_path, comparison_setting, known)
    progress: list[tuple[int, int, str]] = []
    between: list[Comparison] = []

    def listen(done: int, total: int, detail: str) -> None:
        progress.append((done, total, detail))
        if (tmp_path / KIND.result).exists():
            between.append(load(tmp_path / KIND.result))

    result = compare(comparison_setting, tmp_path, listen)
    first, second, third = result.cells
    assert first.speedups
    assert third.speedups
    assert not second.arms
    assert not second.speedups
    (failure,) = second.failures
    assert "did not start" in failure.reason
    assert result.complete
    assert result.overall[0].workloads == 2
    assert not any(measured_comparison.complete for measured_comparison in between)
    assert len(between[-1].cells) == 2, "what is finished is on disk before the next begins"
    assert all(0 <= done <= total for done, total, _ in progress)
    assert progress[0][2] == "mnist_mlp on 2 vCPUs"
    faults = [
        entry for entry in read_entries(tmp_path / KIND.journal, KINDS) if isinstance(entry, Fault)
    ]
    assert [(entry.workload, entry.arm) for entry in faults] == [("mnist_cnn", failure.arm)]
    with pytest.raises(WorkerError, match=r"1 arm .*mnist_cnn on 2 vCPUs"):
        check_comparison(result, gate=False)


def test_no_cell_is_expected_to_have_fewer_launches_than_give_an_interval(tmp_path: Path) -> None:
    """One launch took longer than the budget."""
    effort = dataclasses.replace(EFFORT, looks=(6,), budget_s=1.0)
    comparison_setting = setting(workloads=("mnist_mlp", "mnist_cnn"), effort=effort)
    stopped(tmp_path, comparison_setting, entries(paces(), launches=1))
    progress: list[tuple[int, int]] = []
    compare(comparison_setting, tmp_path, lambda done, total, _: progress.append((done, total)))
    assert progress[0] == (1, 6)


def test_a_run_in_which_nothing_starts_ends_with_marked_cells(tmp_path: Path) -> None:
    result = compare(setting(vcpus=(1, 2)), tmp_path)
    assert [len(cell.failures) for cell in result.cells] == [1, 1]
    assert (result.arms, result.overall, result.complete) == ((), (), True)
    with pytest.raises(WorkerError, match=r"2 arms"):
        check_comparison(result, gate=True)


@pytest.mark.parametrize(
    ("blocked", "error"),
    [
        (".", DiskError),
        (KIND.result, RecordError),
        (KIND.spec, RecordError),
        (KIND.journal, UsageError),
    ],
)
def test_a_folder_that_cannot_be_used_is_an_error(
    blocked: str, error: type[TensorwrightError], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    if blocked == ".":
        out.write_text("a file", encoding="utf-8")
    else:
        (out / blocked / "in the way").mkdir(parents=True)
    with pytest.raises(error):
        compare(setting(), out)


@pytest.mark.parametrize("blocked", ["logs", "logs/home"])
def test_logs_that_cannot_be_written_are_an_error(blocked: str, tmp_path: Path) -> None:
    (tmp_path / blocked).parent.mkdir(exist_ok=True)
    (tmp_path / blocked).write_text("a file", encoding="utf-8")
    with pytest.raises(DiskError, match="logs"):
        compare(setting(), tmp_path)


# --- the end --------------------------------------------------------------------------------------


WRONG = [start(STOCK.name), start(REPEAT), start(TUNED.name, losses=tuple(2 * x for x in LOSSES))]
FASTER = entries(paces(1.5))
SLOWER = entries(paces(0.8))
NOTHING = entries(paces(1.0))
UNCLEAR = entries(paces(1.0), spread=0.2, seed=3)


def journalled(*cells: Sequence[Entry]) -> Comparison:
    return comparison(*(measured(compared_cell) for compared_cell in cells))


def renamed(actual: Sequence[Entry], workload: str) -> list[Entry]:
    return [dataclasses.replace(entry, workload=workload) for entry in actual]


@pytest.mark.parametrize(
    ("actual", "verdict", "error"),
    [
        (FASTER, Verdict.FASTER, None),
        (NOTHING, Verdict.EQUIVALENT, None),
        (SLOWER, Verdict.SLOWER, RegressionError),
        (UNCLEAR, Verdict.INCONCLUSIVE, InconclusiveError),
    ],
)
def test_a_gate_lets_pass_what_is_not_slower_and_known(
    actual: Sequence[Entry], verdict: Verdict, error: type[TensorwrightError] | None
) -> None:
    result = journalled(actual)
    assert result.overall[0].speedup.verdict is verdict
    check_comparison(result, gate=False)
    if error is None:
        check_comparison(result, gate=True)
    else:
        with pytest.raises(error, match=r"tuned .*2 vCPUs"):
            check_comparison(result, gate=True)


def test_a_regression_is_told_before_what_is_unclear() -> None:
    unclear = [dataclasses.replace(entry, vcpus=1) for entry in UNCLEAR]
    with pytest.raises(RegressionError, match="tuned in mnist_mlp on 2 vCPUs"):
        check_comparison(journalled(unclear, SLOWER), gate=True)


def test_one_vcpu_is_told_as_one() -> None:
    slower = [dataclasses.replace(entry, vcpus=1) for entry in SLOWER]
    with pytest.raises(RegressionError, match=r"on 1 vCPU \(.*on 1 vCPU \("):
        check_comparison(journalled(slower), gate=True)
    failed = [*FASTER, fault(TUNED.name, 3)]
    broken = [dataclasses.replace(entry, vcpus=1) for entry in failed]
    with pytest.raises(WorkerError, match=r"1 arm .*mnist_mlp on 1 vCPU:"):
        check_comparison(journalled(broken), gate=False)


def test_a_gate_without_a_figure_is_not_passed() -> None:
    with pytest.raises(TensorwrightError):
        check_comparison(journalled([*FASTER, fault(REPEAT, 3)]), gate=True)


def test_a_wheel_that_computes_something_else_fails_with_both_losses() -> None:
    result = journalled(WRONG, renamed(FASTER, "lstm_text"))
    assert len(result.overall) == 1, "the other cell still counts"
    with pytest.raises(
        AgreementError, match=r"mnist_mlp, .* 2\.3 2\.25 .*\(stock\) .* 4\.6 4\.5 .*\(tuned\)"
    ):
        check_comparison(result, gate=False)


def test_losses_that_are_no_numbers_can_be_told() -> None:
    nothing = [start(STOCK.name), start(TUNED.name, losses=(2.3, *(None,) * 4))]
    with pytest.raises(AgreementError, match=r"2\.3 nan nan nan nan \(tuned\)"):
        check_comparison(journalled(nothing), gate=False)


def test_a_wrong_wheel_is_told_before_all_else() -> None:
    failed = [*renamed(FASTER, "lstm_text"), fault(TUNED.name, 3, workload="lstm_text")]
    result = journalled(WRONG, failed, renamed(SLOWER, "mnist_cnn"))
    with pytest.raises(AgreementError):
        check_comparison(result, gate=True)
    with pytest.raises(WorkerError):
        check_comparison(journalled(failed, renamed(SLOWER, "mnist_cnn")), gate=True)


def test_run_json_says_what_was_asked(tmp_path: Path) -> None:
    """A person may read it, so paths and numbers stand there plainly."""
    stopped(tmp_path, setting(), FASTER)
    document = json.loads((tmp_path / KIND.spec).read_text(encoding="utf-8"))
    assert document["arms"][1]["python"] == str(TUNED.python)
    assert document["workloads"] == ["mnist_mlp"]
    assert document["effort"]["looks"] == [3]
