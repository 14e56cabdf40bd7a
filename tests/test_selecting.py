"""Which run goes on where; whole selections are made in tests/integration."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tests.measured import STOCK, TUNED

from tfbench.kernels.selecting import RESULT, SETTING, Setting, begin, unfinished
from tfbuild.errors import UsageError
from tfbuild.records import save

ASKED = Setting(
    cpu="a CPU",
    arms=(STOCK, TUNED),
    spots=("a", "b"),
    threads=(1, 2),
    launches=6,
    rate=0.05,
    seed=1,
    budget_s=None,
)


def test_a_stopped_run_of_the_same_goes_on(tmp_path: Path) -> None:
    save(tmp_path / "other" / SETTING, dataclasses.replace(ASKED, seed=2))
    save(tmp_path / "same" / SETTING, ASKED)
    assert unfinished(ASKED, tuple(tmp_path.iterdir())) == tmp_path / "same"


def test_a_finished_or_damaged_run_does_not(tmp_path: Path) -> None:
    save(tmp_path / "whole" / SETTING, ASKED)
    save(tmp_path / "whole" / RESULT, {})
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / SETTING).write_text('{"schema": 1', encoding="utf-8")
    (tmp_path / "empty").mkdir()
    assert unfinished(ASKED, tuple(tmp_path.iterdir())) is None


def test_a_folder_of_another_selection_is_refused(tmp_path: Path) -> None:
    begin(ASKED, tmp_path)
    begin(ASKED, tmp_path)
    with pytest.raises(UsageError, match=r"differs in launches \(6, now 8\)"):
        begin(dataclasses.replace(ASKED, launches=8), tmp_path)


def test_a_journal_without_its_setting_is_refused(tmp_path: Path) -> None:
    (tmp_path / "timings.jsonl").write_text("", encoding="utf-8")
    with pytest.raises(UsageError, match="unknown run"):
        begin(ASKED, tmp_path)
