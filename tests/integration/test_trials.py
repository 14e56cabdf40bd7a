"""Trials of a self-check with real workers: what was put in is found, beside a busy process too."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tfbench.arms.arm import Arm
from tfbench.measuring.selfcheck import ARM, REPEAT, Task, TrialPart, create_rows, run_trial
from tfcore.comparisons.effort import Effort

pytestmark = pytest.mark.toolchain
SLOWER = 0.5


@pytest.fixture
def one_cpu() -> Iterator[None]:
    """A trial takes the CPU of its process."""
    all_numbers = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(all_numbers)})
    yield
    os.sched_setaffinity(0, all_numbers)


@pytest.mark.slow
@pytest.mark.usefixtures("one_cpu")
@pytest.mark.parametrize("loaded", [False, True])
def test_a_slower_arm_is_found_and_named(stock_python: Path, tmp_path: Path, loaded: bool) -> None:
    """Half as many steps again, in three launches of two blocks: far beyond any machine's noise."""
    effort = Effort(looks=(3,), blocks=2)
    part = TrialPart(name="slower", trials=1, slowdown=SLOWER, loaded=loaded, effort=effort)
    arm = Arm(name="stock", python=stock_python, label="stock.whl")
    trial = run_trial(Task(arm=arm, part=part, number=0, seed=3, logs=tmp_path))
    repeat, slower = trial.findings
    assert slower.truth == pytest.approx(1 / (1 + SLOWER), abs=0.06), "whole steps only"
    assert slower.interval.value == pytest.approx(slower.truth, rel=0.15)
    assert slower.interval.high < 1
    assert repeat.interval.value == pytest.approx(1, rel=0.15)
    assert 0 < trial.measuring < 1
    assert [row.arm for row in create_rows([trial])] == [REPEAT, ARM]
