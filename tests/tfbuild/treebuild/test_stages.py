from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbuild.treebuild.stages import run_stage


def maker(folder: Path, text: str = "made", calls: list[str] | None = None) -> Callable[[], Path]:
    def make() -> Path:
        if calls is not None:
            calls.append(text)
        path = folder / "result"
        path.write_text(text)
        return path

    return make


def test_a_stage_is_done_once_for_its_inputs(tmp_path: Path) -> None:
    calls: list[str] = []
    for inputs in (1, 1, 2, 2, 1):
        assert run_stage(tmp_path, "link", inputs, maker(tmp_path, str(inputs), calls)).exists()
    assert calls == ["1", "2", "1"]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.unlink(),
        lambda path: path.write_text("other"),
        lambda path: path.with_name("link.done.json").write_text("{"),
        lambda path: path.with_name("link.done.json").write_text('{"schema": 1, "key": 3}'),
        lambda path: path.with_name("link.done.json").write_bytes(b"\xff"),
    ],
    ids=["gone", "changed", "torn", "other fields", "no text"],
)
def test_a_spoilt_result_is_made_again(tmp_path: Path, spoil: Callable[[Path], object]) -> None:
    calls: list[str] = []
    make = maker(tmp_path, "made", calls)
    spoil(run_stage(tmp_path, "link", 1, make))
    assert run_stage(tmp_path, "link", 1, make).read_text() == "made"
    assert len(calls) == 2


def test_a_stage_that_fails_is_not_done(tmp_path: Path) -> None:
    run_stage(tmp_path, "link", 1, maker(tmp_path))

    def fail() -> Path:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        run_stage(tmp_path, "link", 2, fail)
    calls: list[str] = []
    run_stage(tmp_path, "link", 1, maker(tmp_path, "made", calls))
    assert calls == ["made"]


def test_the_record_names_no_folder_of_this_machine(tmp_path: Path) -> None:
    run_stage(tmp_path, "link", 1, maker(tmp_path))
    record = json.loads((tmp_path / "link.done.json").read_text())
    assert record["file"] == "result"


@given(st.lists(st.text(), max_size=3), st.lists(st.text(), max_size=3))
def test_inputs_are_told_apart(
    tmp_path_factory: pytest.TempPathFactory, first: list[str], second: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("stages")
    calls: list[str] = []
    run_stage(folder, "link", first, maker(folder, "1", calls))
    run_stage(folder, "link", second, maker(folder, "2", calls))
    assert (len(calls) == 1) == (first == second)
