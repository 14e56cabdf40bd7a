"""Which folder a run goes on in, and which it leaves alone."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tfbench.engine import folder
from tfbench.engine.folder import RunKind
from tfcore import records
from tfcore.errors import HostError, RecordError, UsageError
from tfcore.settings import Paths

KIND = RunKind(name="sizing", prefix="sizing", result="sizing.json")


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    cpu: str = "a CPU"
    affinity: tuple[int, ...] = (0, 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Spec:
    schema: int = 3
    host: Machine = dataclasses.field(default_factory=Machine)
    seed: int = 1
    budget_s: float | None = None


def begun(out: Path, spec: Spec | None = None, age_s: int = 0) -> Path:
    folder.begin(KIND, spec or Spec(), out)
    os.utime(out / KIND.spec, (1_000_000 - age_s,) * 2)
    return out


def finished(out: Path, *, complete: bool = True) -> Path:
    records.save(out / KIND.result, {"schema": 1, "complete": complete})
    return out


# --- begun, or found begun ------------------------------------------------------------------------


def test_an_equal_run_goes_on_and_its_file_stays(tmp_path: Path) -> None:
    begun(tmp_path)
    before = (tmp_path / KIND.spec).stat()
    folder.begin(KIND, Spec(), tmp_path)
    assert (tmp_path / KIND.spec).stat().st_mtime_ns == before.st_mtime_ns


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"seed": 2}, r"seed \(1, now 2\)"),
        ({"budget_s": 9.0}, r"budget_s \(null, now 9\.0\)"),
        ({"seed": 2, "host": Machine(cpu="another")}, r"host\.cpu .*; seed"),
    ],
)
def test_a_run_that_asked_something_else_is_refused_and_left_alone(
    changed: dict[str, Any], named: str, tmp_path: Path
) -> None:
    begun(tmp_path)
    before = (tmp_path / KIND.spec).read_bytes()
    with pytest.raises(UsageError, match=rf"another sizing; different: {named}") as caught:
        folder.begin(KIND, dataclasses.replace(Spec(), **changed), tmp_path)
    assert "--out" in caught.value.hint
    assert (tmp_path / KIND.spec).read_bytes() == before


def test_a_run_of_another_machine_is_refused_as_such(tmp_path: Path) -> None:
    begun(tmp_path)
    with pytest.raises(HostError, match=r'host\.cpu \("a CPU", now "another"\)'):
        folder.begin(KIND, Spec(host=Machine(cpu="another")), tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "5", '{"schema": 2}', "\x00"])
def test_a_damaged_or_an_older_run_is_an_error_with_its_file(text: str, tmp_path: Path) -> None:
    begun(tmp_path)
    (tmp_path / KIND.spec).write_text(text, encoding="utf-8")
    with pytest.raises(RecordError, match=KIND.spec):
        folder.begin(KIND, Spec(), tmp_path)


def test_a_journal_of_nobody_knows_what_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / KIND.journal).write_text("{}\n", encoding="utf-8")
    with pytest.raises(UsageError, match="unknown run"):
        folder.begin(KIND, Spec(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [KIND.journal]


# --- finished -------------------------------------------------------------------------------------


def test_a_run_is_finished_with_its_result_unless_that_is_a_part(tmp_path: Path) -> None:
    begun(tmp_path)
    folder.require_unfinished(KIND, tmp_path)
    finished(tmp_path, complete=False)
    folder.require_unfinished(KIND, tmp_path)
    finished(tmp_path)
    with pytest.raises(UsageError, match="finished sizing"):
        folder.require_unfinished(KIND, tmp_path)
    records.save(tmp_path / KIND.result, {"schema": 1})
    assert folder.is_finished(KIND, tmp_path)


def test_a_torn_result_is_an_error_with_its_file(tmp_path: Path) -> None:
    (begun(tmp_path) / KIND.result).write_text('{"complete": tr', encoding="utf-8")
    with pytest.raises(RecordError, match=KIND.result):
        folder.require_unfinished(KIND, tmp_path)


# --- found ----------------------------------------------------------------------------------------


def paths(root: Path) -> Paths:
    return Paths(root=root, cache=root / "cache", pool=root / "wheels")


def test_the_newest_stopped_run_that_asked_the_same_is_found(tmp_path: Path) -> None:
    older, newer = begun(tmp_path / "a", age_s=30), begun(tmp_path / "b", age_s=20)
    other_path = begun(tmp_path / "c", Spec(seed=2), age_s=10)
    done = finished(begun(tmp_path / "d"))
    damaged = begun(tmp_path / "e")
    (damaged / KIND.spec).write_text("{", encoding="utf-8")
    torn = begun(tmp_path / "f")
    (torn / KIND.result).write_text("{", encoding="utf-8")
    (tmp_path / "g").mkdir()
    folders = [*tmp_path.iterdir(), tmp_path / "none"]
    assert folder.find_unfinished(KIND, Spec(), folders) == newer
    assert folder.find_unfinished(KIND, Spec(), [older, done, damaged, torn]) == older
    assert folder.find_unfinished(KIND, Spec(seed=2), folders) == other_path
    assert folder.find_unfinished(KIND, Spec(seed=3), folders) is None


def test_a_folder_that_was_named_is_taken_and_else_the_stopped_runs_or_a_new_one(
    tmp_path: Path,
) -> None:
    own_paths = paths(tmp_path)
    new = folder.choose_folder(KIND, Spec(), "", own_paths)
    assert new.parent == own_paths.reports
    assert new.name.startswith("sizing-")
    assert not new.exists()
    stopped = begun(own_paths.reports / "sizing-20260101-000000")
    assert folder.choose_folder(KIND, Spec(), "", own_paths) == stopped
    assert (
        folder.choose_folder(KIND, Spec(), str(tmp_path / "named"), own_paths) == tmp_path / "named"
    )
    assert folder.choose_folder(KIND, Spec(seed=2), "", own_paths) != stopped


def test_the_newest_result_is_that_of_any_run(tmp_path: Path) -> None:
    own_paths = paths(tmp_path)
    assert folder.find_newest(KIND, own_paths) is None
    for number, name in enumerate(("b", "a")):
        out = finished(begun(own_paths.reports / name), complete=False)
        os.utime(out / KIND.result, (1_000_000 + number,) * 2)
    assert folder.find_newest(KIND, own_paths) == own_paths.reports / "a" / KIND.result
