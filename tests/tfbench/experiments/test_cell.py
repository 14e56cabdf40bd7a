"""Cells: which are run, in which order, what is kept, and what the end of a process is called."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tfbench.arms.arm import Arm
from tfbench.engine.journal import JOURNAL
from tfbench.experiments import cell_schedule, limits
from tfbench.experiments.cell import Cell, LaunchResult, Outcome, group_results
from tfcore.errors import RecordError, UsageError

Make = Callable[..., Path]
ARMS = {"here": Arm(name="here", python=Path(sys.executable), label="this Python")}
WORKER = """
import json, os, sys

answers = os.fdopen(os.dup(1), "w")
request = json.loads(sys.stdin.readline())
with open(request["log"], "a") as log:
    log.write(str(request["value"]) + "\\n")
{then}
own = {{"tensorflow_file": {file!r} or sys.prefix, "vcpus": request["vcpus"]}}
own |= {{"kernel_library": None, "value": request["value"]}}
answers.write(json.dumps({{"outcome": "ok", "reason": "", **own}}) + "\\n")
"""


def cell(value: int, launch: int = 0, **request: object) -> Cell:
    return Cell(
        arm="here",
        place=(("value", value),),
        launch=launch,
        module="stand_in",
        request={"value": value, **request},
        vcpus=(0,),
    )


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes a real process of a module that answers as a worker does; `then` runs before it, and
    `file` is where its TensorFlow would come from, if not from the arm."""

    def make(then: str = "", file: str = "") -> Path:
        folder = tmp_path / "workers"
        folder.mkdir(exist_ok=True)
        (folder / "stand_in.py").write_text(WORKER.format(then=then, file=file), "utf-8")
        monkeypatch.setattr("tfbench.engine.workers.PACKAGE", folder / "tfbench")
        return folder / "asked"

    return make


def asked(log: Path) -> list[int]:
    return [int(line) for line in log.read_text("utf-8").split()] if log.exists() else []


def measured(cells: list[Cell], out: Path, **options: float) -> dict[str, LaunchResult]:
    return cell_schedule.run_cells(cells, ARMS, out, seed=1, **options)


def outcomes(cells: list[Cell], results: Mapping[str, LaunchResult]) -> list[Outcome]:
    return [results[tested_cell.key].outcome for tested_cell in cells]


def test_launches_come_one_after_the_other_and_cells_in_an_order_of_chance() -> None:
    cells = [cell(value, launch) for value in range(8) for launch in range(3)]
    order = list(cell_schedule.shuffle_cells(cells, seed=1))
    assert [tested_cell.launch for tested_cell in order] == [0] * 8 + [1] * 8 + [2] * 8
    values = [
        [tested_cell.request["value"] for tested_cell in order[at : at + 8]] for at in (0, 8, 16)
    ]
    assert all(sorted(value) == list(range(8)) for value in values)
    assert values[0] != values[1]
    assert list(cell_schedule.shuffle_cells(cells, seed=1)) == order


def test_a_cell_is_called_what_it_has_and_not_what_is_off() -> None:
    place = (("arm", "stock"), ("batch", 8), ("augmented", True), ("memory", 0.0))
    named = dataclasses.replace(cell(1), place=place)
    assert named.name == "stock batch 8 augmented"
    assert dataclasses.replace(named, place=(("augmented", False), ("vcpus", 2))).name == "vcpus 2"


def test_what_is_known_is_not_asked_again(tmp_path: Path, worker: Make) -> None:
    log = worker()
    cells = [cell(value, log=str(log)) for value in range(3)]
    first = measured(cells[:2], tmp_path / "out")
    assert sorted(asked(log)) == [0, 1]
    second = measured(cells, tmp_path / "out")
    assert sorted(asked(log)) == [0, 1, 2]
    assert outcomes(cells, second) == [Outcome.OK] * 3
    assert second[cells[0].key] == first[cells[0].key]


def test_half_a_line_of_a_killed_run_is_asked_again(tmp_path: Path, worker: Make) -> None:
    log = worker()
    cells = [cell(value, log=str(log)) for value in range(2)]
    measured(cells, tmp_path)
    journal = tmp_path / JOURNAL
    journal.write_bytes(journal.read_bytes()[:-9])
    assert outcomes(cells, measured(cells, tmp_path)) == [Outcome.OK] * 2
    assert len(asked(log)) == 3


def test_a_marked_place_gets_no_further_launch(tmp_path: Path, worker: Make) -> None:
    log = worker("if request['value'] == 1: sys.exit('it broke')")
    cells = [cell(value, launch, log=str(log)) for value in range(2) for launch in range(3)]
    cell_results = group_results(cells, measured(cells, tmp_path))
    assert [cell_result.outcome for cell_result in cell_results] == [Outcome.OK, Outcome.FAILED]
    assert cell_results[1].reason == "it broke"
    assert sorted(asked(log)) == [0, 0, 0, 1]
    assert len(cell_results[0].answers) == 3
    assert cell_results[1].answers == ()


@pytest.mark.parametrize(
    ("then", "outcome", "message"),
    [
        ("raise MemoryError", Outcome.OUT_OF_MEMORY, "MemoryError"),
        ("os.kill(os.getpid(), 9)", Outcome.OUT_OF_MEMORY, "Linux"),
        ("print('std::bad_alloc', file=sys.stderr); os.abort()", Outcome.OUT_OF_MEMORY, "bad_all"),
        ("raise RuntimeError('no such op')", Outcome.FAILED, "RuntimeError: no such op"),
        ("import time; time.sleep(60)", Outcome.LATE, "within 2 s"),
    ],
)
def test_the_end_of_a_process_is_a_mark(
    tmp_path: Path, worker: Make, then: str, outcome: Outcome, message: str
) -> None:
    tested_cell = cell(1, log=str(worker(then)))
    results = measured([tested_cell], tmp_path, limit_s=2.0)[tested_cell.key]
    assert results.outcome is outcome
    assert message in results.reason
    assert results.answer == {}


@pytest.mark.parametrize(
    ("file", "tuned", "message"),
    [("/elsewhere/tensorflow.py", False, "not from its"), ("", True, "ran stock kernels")],
)
def test_an_answer_of_something_else_than_the_arm_is_a_mark(
    tmp_path: Path, worker: Make, file: str, tuned: bool, message: str
) -> None:
    tested_cell = cell(1, log=str(worker(file=file)))
    arms = {"here": dataclasses.replace(ARMS["here"], tuned=tuned)}
    results = cell_schedule.run_cells([tested_cell], arms, tmp_path, seed=1)[tested_cell.key]
    assert results.outcome is Outcome.FAILED
    assert message in results.reason
    assert str(tmp_path) not in results.reason
    assert results.answer == {}


def test_what_failed_is_tried_again_and_what_was_refused_is_not(
    tmp_path: Path, worker: Make
) -> None:
    ends = {1: "sys.exit('it broke')", 2: "os.kill(os.getpid(), 9)"}
    log = worker("".join(f"if request['value'] == {n}: {end}\n" for n, end in ends.items()))
    cells = [cell(value, log=str(log)) for value in range(3)]
    first = measured(cells, tmp_path)
    assert outcomes(cells, first) == [Outcome.OK, Outcome.FAILED, Outcome.OUT_OF_MEMORY]
    worker()
    again = measured(cells, tmp_path)
    assert outcomes(cells, again) == [Outcome.OK, Outcome.OK, Outcome.OUT_OF_MEMORY]
    assert sorted(asked(log)) == [0, 1, 1, 2]


def test_a_journal_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / JOURNAL).write_text('{"is": "sample"}\n', "utf-8")
    with pytest.raises(RecordError, match="line 1 "):
        measured([], tmp_path)


def test_the_same_question_has_the_same_key() -> None:
    assert cell(1).key == cell(1).key
    other_cells = [cell(2), cell(1, launch=1), dataclasses.replace(cell(1), memory_mb=500.0)]
    assert len({cell(1).key, *(tested_cell.key for tested_cell in other_cells)}) == 4


# --- memory ---------------------------------------------------------------------------------------

HUNGRY = """
import json, sys
from tfbench.inside.steps import limit_memory
request = json.loads(sys.argv[1])
limit_memory(request["memory_mb"], request["cgroup"])
kept = []
for _ in range(int(sys.argv[2])):
    kept.append(bytearray(b"x" * 50_000_000))
print("done")
"""


@pytest.mark.parametrize("group", [True, False])
@pytest.mark.parametrize(("pieces", "fits"), [(2, True), (40, False)])
def test_a_limit_holds(tmp_path: Path, group: bool, pieces: int, fits: bool) -> None:
    # Without a group: in a tree where none can be made.
    with limits.limit_memory(400, Path("/") if group else tmp_path) as limit:
        assert group or limit.means == limits.RLIMIT
        done = subprocess.run(
            [sys.executable, "-c", HUNGRY, json.dumps(limit.request), str(pieces)],
            capture_output=True,
            text=True,
            check=False,
            env={"PYTHONPATH": str(cell_schedule.__file__).rpartition("/tfbench/")[0]},
        )
    assert (done.stdout == "done\n") is fits, done.stderr
    assert limit.folder is None or not limit.folder.exists()


def test_less_memory_than_tensorflow_needs_is_refused() -> None:
    limits.check_memory(limits.LEAST_MB)
    with pytest.raises(UsageError, match="TensorFlow"):
        limits.check_memory(limits.LEAST_MB - 1)
