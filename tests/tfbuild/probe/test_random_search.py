"""The search for wrong results finds what is wrong, and only that."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbuild.kernelbuild import random_trials
from tfbuild.kernelbuild.random_trials import (
    FamilyCount,
    ResultSearch,
    SearchRequest,
    WrongProgram,
    require_right,
    search_results,
)
from tfbuild.probe import random_programs, random_search
from tfbuild.probe.choices import Choices
from tfbuild.probe.fusing import SWITCH, Tensor
from tfbuild.probe.random_programs import FAMILIES, ProgramFamily, RandomProgram
from tfbuild.probe.random_search import SearchTask, compare, is_close, search
from tfbuild.probe.registry import Library
from tfcore.errors import AgreementError, WorkerError

TF = cast(ModuleType, None)  # (a stand-in program needs none)


def states(*values: Any) -> list[list[Any]]:
    return [[np.asarray(value, "float64")] for value in values]


@pytest.mark.parametrize(
    ("exact", "nudged", "stock", "fused", "is_right"),
    [
        ([1.0, 2.0], [1.0, 2.0], [1.0, 2.0], [1.0, 2.0], True),
        ([1.0, 2.0], [1.0, 2.0], [1.0, 2.0], [1.0, 2.0 + 1e-6], True),
        ([1.0, 2.0], [1.0, 2.0], [1.0, 2.0], [1.0, 2.0 + 1e-5], False),
        ([1.0, 2.0], [1.0, 2.0], [1.0, 2.0 + 1e-5], [1.0, 2.0 - 3e-5], True),
        ([1.0, 2.0], [1.0, 2.0 + 1e-5], [1.0, 2.0], [1.0, 2.0 - 3e-5], True),
        ([1.0, 2.0], [1.0, 2.0], [1.0, 2.0], [1.0, np.nan], False),
        ([1.0, np.nan], [1.0, np.nan], [1.0, np.nan], [1.0, np.nan], True),
        ([1.0, np.nan], [1.0, np.nan], [1.0, np.nan], [1.0, 2.0], False),
        ([1.0, np.inf], [1.0, np.inf], [1.0, np.inf], [1.0, -np.inf], False),
        ([1.0, 1e60], [1.0, 1e60], [1.0, np.inf], [1.0, np.inf], True),
        ([1.0, 2.0], [1.0, 2.0], [1.0, 2.0], [[1.0, 2.0]], False),
        ([], [], [], [], True),
    ],
)
def test_a_result_may_be_as_far_as_rounding_explains(
    exact: Any, nudged: Any, stock: Any, fused: Any, is_right: bool
) -> None:
    assert (compare(*states(exact, nudged, stock, fused)) == "") is is_right


@given(
    exact=st.lists(st.floats(-1e30, 1e30), min_size=1, max_size=5),
    errors=st.lists(st.tuples(st.floats(-4, 4), st.floats(-4, 4)), min_size=5, max_size=5),
    scale=st.sampled_from([2.0**-24, 2.0**-20, 1.0]),
)
def test_close_results_need_no_float64(
    exact: list[float], errors: list[tuple[float, float]], scale: float
) -> None:
    right = np.asarray(exact)
    apart = np.asarray(errors[: len(exact)]).T * scale * np.max(np.abs(right), initial=0)
    stock, fused = [right + apart[0]], [right + apart[0] + apart[1] / 4]
    if is_close(stock, fused):
        assert compare([right], [right], stock, fused) == ""
    assert is_close(stock, stock)


@pytest.mark.parametrize(
    ("stock", "fused", "closes"),
    [
        ([1.0, 2.0], [1.0, 2.0], True),
        ([1.0, 2.0], [1.0, 2.0 + 9e-7], True),
        ([1.0, 2.0], [1.0, 2.0 + 1e-6], False),
        ([1.0, np.nan], [1.0, np.nan], True),
        ([1.0, np.nan], [1.0, 2.0], False),
        ([1.0, 2.0], [1.0, np.nan], False),
        ([1.0, np.inf], [1.0, -np.inf], False),
        ([1.0, 2.0], [[1.0, 2.0]], False),
        ([], [], True),
    ],
)
def test_results_that_are_close(stock: Any, fused: Any, closes: bool) -> None:
    assert is_close(*states(stock, fused)) is closes


def test_other_runs_of_stock_show_how_large_its_error_may_be() -> None:
    exact, nudged, stock, fused = states([1.0, 2.0], [1.0, 2.0], [1.0, 2.0], [1.0, 2.0 + 1e-5])
    assert "stock kernels 0," in compare(exact, nudged, stock, fused)
    assert "stock kernels 2e-06" in compare(exact, nudged, stock, fused, [2e-6])
    assert compare(exact, nudged, stock, fused, [3e-6]) == ""


def made(choices: Choices, *, fault: bool) -> RandomProgram:
    """A program of one number, which is wrong with fused ops if it is above 40."""
    number, _ = choices.draw_below(1000), choices.draw_below(5)

    def run(_: ModuleType, dtype: str, nudge: float) -> list[Tensor]:
        wrong = fault and os.environ[SWITCH] == "chains" and number > 40
        return [np.asarray([number * (1 + nudge), 1.0 + wrong], dtype)]

    return run


class Counted:
    """A library that counts an execution whenever it is asked."""

    executions = 0

    def count_fused_events(self) -> dict[str, int]:
        self.executions += 1
        return {"chain executions": self.executions, "chains": 7}


@pytest.mark.parametrize("fault", [True, False])
def test_a_fault_is_found_and_shrunk(
    fault: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = ProgramFamily(parts=("chains",), make=lambda choices: made(choices, fault=fault))
    monkeypatch.setattr(random_search, "FAMILIES", {"chains": family})
    out = tmp_path / "out.json"
    task = SearchTask(out=str(out), threads=1, seed=1, families=("chains",), last=20)
    search(TF, task, [cast(Library, Counted())])
    result = json.loads(out.read_text())["chains"]
    assert (result["programs"], result["fused"], result["refused"]) == (20, 20, 0)
    assert not out.with_suffix(".running").exists()
    assert bool(result["found"]) is fault
    assert all(found["numbers"] in ([41], [41, 0]) for found in result["found"])
    assert all(
        "value 0 of shape (2,): 1 from float64" in row["difference"] for row in result["found"]
    )


def test_the_families_are_those_that_can_be_asked_for() -> None:
    assert tuple(FAMILIES) == random_trials.FAMILIES


@pytest.mark.parametrize("name", FAMILIES)
def test_any_numbers_make_a_program_of_a_family(name: str) -> None:
    for numbers in ((), (99,) * 40, tuple(range(60))):
        assert callable(random_programs.FAMILIES[name].make(Choices(replay=numbers)))


PROGRAM = """
import json, os, pathlib, sys
task = json.loads(pathlib.Path(sys.argv[1]).read_text())
out = pathlib.Path(task["out"])
if "replay" in task:
    sys.exit(task["replay"][1] == [4])
rows = {"chains": {"programs": 0, "fused": 0, "refused": 0, "found": []}}
for number in range(task["first"], task["last"]):
    out.with_suffix(".running").write_text(
        json.dumps({"family": "chains", "number": number, "numbers": [number]}))
    if number in (2, 4):
        os.abort()
    rows["chains"]["programs"] += 1
    rows["chains"]["fused"] += 1
    if number == 6:
        rows["chains"]["found"].append({"numbers": [6], "difference": "far"})
    out.write_text(json.dumps(rows))
"""


@pytest.fixture
def request_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., SearchRequest]:
    """A search in this Python, where a program of the test runs instead of random_search.py."""

    def make(program: str, **fields: Any) -> SearchRequest:
        (tmp_path / "stand_in.py").write_text(program, "utf-8")
        monkeypatch.setattr(random_trials, "_MODULE", "stand_in")
        monkeypatch.setattr("tfcore.settings.prepare_import_root", lambda _: tmp_path)
        here = Path(sys.executable)
        return SearchRequest(
            python=here, folder=tmp_path, env=os.environ, seed=1, seconds=3600, **fields
        )

    return make


def test_a_crash_is_counted_and_the_search_goes_on(
    request_for: Callable[..., SearchRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Program 2 crashes with fused ops only, program 4 with stock kernels, too."""
    monkeypatch.setattr(random_trials, "_EACH", 2)
    request = request_for(PROGRAM, programs=8, families=("chains",))
    told: list[Mapping[str, FamilyCount]] = []
    counts = search_results(request, on_progress=lambda found, _: told.append(found))
    assert counts == {
        "chains": FamilyCount(
            programs=8,
            fused=6,
            refused=1,
            found=(WrongProgram(numbers=(6,), difference="far"),),
            crashed=((2,),),
        )
    }
    assert told[-1] == counts
    result = ResultSearch(seed=1, seconds=60, families=counts)
    with pytest.raises(AgreementError, match="2 random programs"):
        require_right(result)
    require_right(ResultSearch(seed=1, seconds=60, families={"chains": FamilyCount(programs=8)}))


def test_an_environment_without_tensorflow_is_an_error(tmp_path: Path) -> None:
    request = SearchRequest(
        python=Path(sys.executable), folder=tmp_path, env=os.environ, seed=1, seconds=60
    )
    with pytest.raises(WorkerError, match="tensorflow"):
        search_results(request)


WAITS = """
import os, pathlib, sys, time
task = pathlib.Path(sys.argv[1])
(task.parent / f"begun-{task.name}").touch()
while len(list(task.parent.glob("begun-*"))) < 2:
    time.sleep(0.01)
if task.name == "results-0.task":
    sys.exit(3)
(task.parent / "process").write_text(str(os.getpid()))
time.sleep(600)
"""


def test_a_failed_process_ends_the_others(
    request_for: Callable[..., SearchRequest], tmp_path: Path
) -> None:
    with pytest.raises(WorkerError, match="ended with 3"):
        search_results(request_for(WAITS, processes=2))
    running = tmp_path / "process"
    assert not running.exists() or not Path(f"/proc/{running.read_text()}").exists()


SLOW = """
import json, pathlib, sys, time
out = pathlib.Path(json.loads(pathlib.Path(sys.argv[1]).read_text())["out"])
row = {"programs": 5, "fused": 4, "refused": 0, "found": []}
out.with_suffix(".part").write_text(json.dumps({"chains": row}))
out.with_suffix(".part").replace(out)
time.sleep(600)
"""


def test_a_stopped_search_tells_what_it_has_found(
    request_for: Callable[..., SearchRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes run 5 programs each, then Ctrl-C ends both."""
    monkeypatch.setattr(random_trials, "_TICK_S", 0.05)

    def stop(families: Mapping[str, FamilyCount], _: int) -> None:
        if families["chains"].programs == 10:
            assert families["chains"].fused == 8
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search_results(request_for(SLOW, processes=2, families=("chains",)), on_progress=stop)
