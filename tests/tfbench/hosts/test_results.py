"""What a host sends back becomes records; damaged files are errors."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from tests.builders import report_comparisons
from tests.builders.report_comparisons import cell, comparison, disagreeing, two_arms

from tfbench.hosts.results import HostStatus, RunTime, list_runs, list_speedups, read_result
from tfcore.comparisons.comparison import FILE, save
from tfcore.errors import RecordError


def write(folder: Path, **fields: Any) -> None:
    whole = {"schema": 1, "status": "done", "seconds": 1.5, "cpu": "A CPU", "target": "zen4"}
    (folder / "outcome.json").write_text(json.dumps(whole | fields))


def test_a_host_has_its_speedups_and_runs(tmp_path: Path) -> None:
    write(tmp_path, refused=[["wheel-2", "lacks avx512f"]])
    sound = report_comparisons.sound()
    save(tmp_path / FILE, sound)
    result = read_result(tmp_path, ["tuned", "wheel-2"], name="one", machine="m8", count=3)
    assert (result.outcome.cpu, result.outcome.refused) == (
        "A CPU",
        (("wheel-2", "lacks avx512f"),),
    )
    assert [(row.vcpus, row.arm, row.interval) for row in result.speedups] == [
        (row.vcpus, row.speedup.arm, row.speedup.interval) for row in sound.overall
    ]
    stock = [times.run_s for each in sound.cells for times in each.arms if times.arm == "stock"]
    seconds = [run.value for run in stock if run][3:]
    assert RunTime(vcpus=2, arm="stock", seconds=sum(seconds)) in result.runs


def test_an_arm_that_computes_something_else_has_no_verdict() -> None:
    wrong = disagreeing(cell("mnist_mlp", 1, {"tuned": 1.3}), "tuned", 0.5)
    rows = comparison(cell("mnist_cnn", 1, {"tuned": 1.3}), wrong, arms=two_arms())
    assert [row.verdict for row in list_speedups(rows)] == [None]


def test_a_run_that_was_not_measured_in_every_cell_is_left_out() -> None:
    whole = report_comparisons.sound()
    first, *others = whole.cells
    arms = tuple(dataclasses.replace(times, run_s=None) for times in first.arms)
    part = dataclasses.replace(whole, cells=(dataclasses.replace(first, arms=arms), *others))
    assert {row.vcpus for row in list_runs(whole)} == {1, 2}
    assert {row.vcpus for row in list_runs(part)} == {2}


def test_a_failed_host_has_its_reason(tmp_path: Path) -> None:
    write(tmp_path, status="failed", step="admit", code=20, reason="error: no")
    save(tmp_path / FILE, report_comparisons.sound())  # (of an earlier call)
    result = read_result(tmp_path, ["tuned", "wheel-2"], name="one", machine="", count=1)
    assert result.outcome.status is HostStatus.FAILED
    assert result.speedups == ()


@pytest.mark.parametrize(
    "content", ["", "[]", "{", '{"schema": 2}', '{"schema": 1, "status": "?"}']
)
def test_a_damaged_outcome_is_an_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "outcome.json").write_text(content)
    with pytest.raises(RecordError):
        read_result(tmp_path, ["tuned", "wheel-2"], name="one", machine="", count=1)


def test_without_a_comparison_a_host_is_done_only_if_it_runs_no_wheel(tmp_path: Path) -> None:
    write(tmp_path, refused=[["tuned", "no"]])
    assert read_result(tmp_path, ["tuned"], name="one", machine="", count=1).speedups == ()
    with pytest.raises(RecordError):
        read_result(tmp_path, ["tuned", "wheel-2"], name="one", machine="", count=1)
