"""The kit's file, and what it brought read again. That it runs is in
integration/test_experiments.py."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.builders.kit_lines import line
from tests.builders.report_comparisons import sound

from tfbench.costs import bill, catalog, kit_runs
from tfbench.costs.cost import get_value
from tfbench.costs.kit_runs import KitLaunch, compose_runs, read_launches
from tfbench.inside import kit as inside
from tfbench.inside.workloads import SETS, find_workload
from tfbench.kit import archive, handler
from tfbench.kit.phases import group_launches
from tfcore.comparisons.interval import Interval
from tfcore.errors import RecordError, UsageError


def written(path: Path, *lines: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in lines), "utf-8")
    return path


# --- the file -------------------------------------------------------------------------------------


def test_the_same_sources_give_the_same_bytes() -> None:
    assert archive.build_archive() == archive.build_archive()


def test_the_file_holds_what_runs_and_nothing_of_this_machine() -> None:
    packed = archive.build_archive()
    with zipfile.ZipFile(io.BytesIO(packed)) as opened:
        names = opened.namelist()
        content = b"".join(opened.read(name) for name in names)
    assert {"__main__.py", "tfbench/__init__.py", "tfbench/inside/iris.csv"} <= {*names}
    assert all(name.startswith(("tfbench/", "__main__.py")) for name in names)
    assert str(Path.home()).encode() not in content
    assert len(packed) < 200_000, "it is to be pasted and mailed"


def test_what_is_planned_goes_launch_by_launch() -> None:
    planned = list(inside.plan_launches("mnist_mlp,lstm_text", "run", 2))
    assert [(row["launch"], row["workload"], row["phase"]) for row in planned] == [
        (0, "mnist_mlp", "train"),
        (0, "mnist_mlp", "validate"),
        (0, "lstm_text", "train"),
        (1, "mnist_mlp", "train"),
        (1, "mnist_mlp", "validate"),
        (1, "lstm_text", "train"),
    ]


def test_the_kit_knows_the_sets() -> None:
    planned = inside.plan_launches("modern,neumf,mnist_mlp", "train", 1)
    assert tuple(row["workload"] for row in planned) == (*SETS["modern"], "mnist_mlp")


@pytest.mark.parametrize(
    ("workloads", "phases_", "message"),
    [("resnet", "run", "unknown workload resnet"), ("six", "trian", "unknown phase 'trian'")],
)
def test_what_there_is_not_ends_with_a_line(workloads: str, phases_: str, message: str) -> None:
    with pytest.raises(SystemExit) as caught:
        list(inside.plan_launches(workloads, phases_, 1))
    assert message in str(caught.value)


@pytest.mark.parametrize("content", ["x\n", "[]\n", '{"schema": 99}\n'])
def test_the_kit_does_not_write_into_something_else(tmp_path: Path, content: str) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_text(content, "utf-8")
    with pytest.raises(SystemExit, match=r"samples\.jsonl"):
        inside.read_launches(path)
    assert path.read_text("utf-8") == content


def test_a_kit_whose_launches_all_fail_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program, out = tmp_path / "kit.py", tmp_path / "samples.jsonl"
    program.write_text("raise SystemExit('no TensorFlow here')", encoding="utf-8")
    monkeypatch.setattr("sys.argv", [str(program)])
    words = ["--workloads", "mnist_mlp", "--phases", "train", "--launches", "2", "--out", str(out)]
    for _ in ("run", "found again"):
        with pytest.raises(SystemExit, match=r"all 2 launches failed.*no TensorFlow here.* --out"):
            inside.main(words)
    assert len(out.read_text("utf-8").splitlines()) == 2
    assert "2 of 2  mnist_mlp train: failed" in capsys.readouterr().err


def test_the_launches_of_another_arm_are_measured_and_those_of_other_options_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    requests: list[dict[str, Any]] = []

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        requests.append(request)
        return {"outcome": "ok", "reason": "", "step_s": [0.01], "device": "CPU"}

    monkeypatch.setattr(inside, "run_launch", answer)
    out = written(tmp_path / "samples.jsonl", line(arm="a"))  # of an older kit
    words = ["--workloads", "mnist_mlp", "--phases", "train", "--out", str(out), "--launches"]
    inside.main([*words, "2", "--arm", "a"])
    inside.main([*words, "1", "--arm", "b"])
    assert [(row["arm"], row["launch"]) for row in requests] == [("a", 1), ("b", 0)]
    assert "1 of 1  mnist_mlp train: 10.00 ms per step on CPU  about 0 s left" in (
        capsys.readouterr().err
    )
    for other in (["--seconds", "7"], ["--seed", "2"]):
        with pytest.raises(SystemExit, match=f"launches with {other[0]} .* another --out"):
            inside.main([*words, "3", "--arm", "a", *other])
    assert len(requests) == 2
    assert {launch.arm for launch in read_launches(out)} == {"a", "b"}


# --- what it brought ------------------------------------------------------------------------------


def test_launches_are_read_with_the_mean_of_their_steps(tmp_path: Path) -> None:
    lost = line(launch=1, outcome="out of memory", reason="OOM when allocating")
    del lost["step_s"]
    first, second = read_launches(written(tmp_path / "s.jsonl", line(), lost))
    assert (first.arm, first.device, first.batch) == ("K80", "Tesla K80", 128)
    assert first.step_s == pytest.approx(0.02)
    assert second.step_s is None


def test_without_a_name_the_device_is_the_arm(tmp_path: Path) -> None:
    (kit_launch,) = read_launches(written(tmp_path / "s.jsonl", line(arm="")))
    assert kit_launch.arm == "Tesla K80"


@pytest.mark.parametrize(
    "wrong",
    [
        line(schema=99),
        line(workload="resnet"),
        line(step_s=[0.0]),
        line(step_s=[float("nan")]),
        line(step_s=[]),
        {"is": "sample"},
    ],
)
def test_a_line_that_makes_no_sense_is_named(tmp_path: Path, wrong: dict[str, Any]) -> None:
    path = written(tmp_path / "s.jsonl", line(), wrong)
    with pytest.raises(RecordError, match="line 2"):
        read_launches(path)


def test_a_file_without_a_launch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="no launch"):
        read_launches(written(tmp_path / "s.jsonl"))


def launches(*step_s: float, phase: str = "train", workload: str = "mnist_mlp") -> list[KitLaunch]:
    return [
        KitLaunch(
            arm="K80",
            workload=workload,
            phase=phase,
            launch=number,
            outcome="ok",
            reason="",
            device="Tesla K80",
            backend="tensorflow",
            step_s=seconds,
            batch=find_workload(workload).batch,
        )
        for number, seconds in enumerate(step_s)
    ]


PRICE = catalog.find_book("2017-07-gce").find_price("gpu")


def test_a_run_is_composed_of_its_phases() -> None:
    both = launches(0.01, 0.01, 0.012) + launches(0.002, 0.002, 0.002, phase="validate")
    (run,) = compose_runs(both, PRICE)
    schedule = find_workload("mnist_mlp").schedule
    single_value = schedule.epochs * (schedule.steps * 0.01 + schedule.validation * 0.002)
    assert isinstance(run.seconds, Interval)
    assert run.seconds.low < single_value < run.seconds.high
    assert (run.vcpus, run.arm) == (None, "K80")
    (once,) = compose_runs(both[:1] + both[3:4], PRICE)
    assert once.seconds == pytest.approx(single_value)


def test_half_a_run_is_no_run() -> None:
    with pytest.raises(UsageError, match="training run"):
        compose_runs(launches(0.01, 0.01), PRICE)


def test_a_gpu_elsewhere_can_be_what_costs_are_relative_to() -> None:
    measured = sound()
    workload = measured.cells[0].workload
    own_kit_launches = launches(0.001, 0.001) + launches(0.0005, 0.0005, phase="validate")
    book = catalog.find_book("2017-07-gce")
    machines = {cell.vcpus: book.find_price("cpu8") for cell in measured.cells}
    actual = bill.compute_bill(
        measured,
        book,
        machines,
        baseline="K80",
        extra_runs=compose_runs(own_kit_launches, book.find_price("gpu")),
    )
    rows = [row for row in actual.rows if row.workload == workload]
    gpu = next(row for row in rows if row.arm == "K80")
    assert (get_value(gpu.relative_time), get_value(gpu.relative_cost)) == pytest.approx((1.0, 1.0))
    other_rows = [row for row in rows if row.arm != "K80"]
    assert other_rows
    assert all(get_value(row.relative_time) > 1 for row in other_rows)


def test_phases_are_over_launches_and_keep_their_marks() -> None:
    whole = launches(0.01, 0.02)
    lost = kit_runs.KitLaunch(
        **{name: getattr(whole[0], name) for name in KitLaunch.__dataclass_fields__}
        | {"launch": 2, "outcome": "out of memory", "reason": "no room", "step_s": None}
    )
    (phase,) = group_launches([*whole, lost])
    assert phase.launches == 2
    assert phase.speed is not None
    assert get_value(phase.speed) == pytest.approx(128 / (0.01 * 0.02) ** 0.5)
    assert phase.reason == "out of memory: no room"
    assert "out of memory: no room" in handler.build_table((phase,)).format_text(colour=False)


def test_a_file_that_is_not_there_is_said() -> None:
    with pytest.raises(UsageError, match=r"/nowhere\.jsonl"):
        handler.read_kit("/nowhere.jsonl", as_json=False)
