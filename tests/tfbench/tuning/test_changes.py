"""What may be changed, and the arm that a set of changes makes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tests.builders.journals import STOCK, TUNED
from tests.builders.tuning_cells import setup

from tfbench.arms.lever_table import BFLOAT16_TOLERANCE, WHEEL, XLA_TOLERANCE
from tfbench.inside.compile_arguments import JIT, TOGETHER
from tfbench.tuning.changes import create_arm, format_arm_name

PLAIN = dataclasses.replace(TUNED, env=())
WHEELS = {"stock": STOCK, "tuned": PLAIN}
SETTINGS = ("intra=1", "onednn=off")
OWN = (("TENSORWRIGHT_PROGRAM", "/home/me/model.py"),)


def test_no_change_is_the_baseline() -> None:
    arm = create_arm((), WHEELS, ())
    assert arm == dataclasses.replace(STOCK, label=STOCK.label)


def test_a_name_that_is_cut_is_still_the_setups_own() -> None:
    wheels = WHEELS | {"tuned": dataclasses.replace(PLAIN, name="a-wheel" * 9)}
    first, second = (
        format_arm_name(setup("wheel=tuned", word), STOCK, wheels) for word in SETTINGS
    )
    assert first != second
    assert {len(first), len(second)} == {64}
    assert first[:55] == second[:55]


def test_changes_are_put_together_in_one_arm() -> None:
    arm = create_arm(setup("wheel=tuned", "intra=1", "onednn=off"), WHEELS, OWN)
    assert arm.name == "tuned+intra=1+onednn=off"
    assert arm.python == TUNED.python
    assert arm.tuned
    assert arm.label == f"{TUNED.label} intra=1 onednn=off"
    assert dict(arm.env) == {
        "TF_NUM_INTRAOP_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "TF_ENABLE_ONEDNN_OPTS": "0",
        "TF_DISABLE_MKL": "1",
        **dict(OWN),
    }


def test_advice_reaches_the_worker() -> None:
    advised = setup("inter=1", "steps_per_execution=8", "jit_compile=True")
    assert [change.is_advice for change in advised] == [False, True, True]
    assert create_arm(advised, WHEELS, OWN).env == (
        *(("TF_NUM_INTEROP_THREADS", "1"), (TOGETHER, "8"), (JIT, "True")),
        *OWN,
    )


@pytest.mark.parametrize(
    ("words", "tolerance"),
    [
        (["intra=1"], STOCK.tolerance),
        (["bf16=on"], BFLOAT16_TOLERANCE),
        (["jit_compile=True"], XLA_TOLERANCE),
        (["bf16=on", "jit_compile=True"], XLA_TOLERANCE),
    ],
)
def test_an_arm_has_the_widest_tolerance_that_its_changes_need(
    words: list[str], tolerance: float
) -> None:
    assert create_arm(setup(*words), WHEELS, ()).tolerance == tolerance


def test_a_wheel_is_told_by_its_name(tmp_path: Path) -> None:
    other_arm = dataclasses.replace(PLAIN, name="old", python=tmp_path / "bin/python")
    assert create_arm(setup(f"{WHEEL}=old"), WHEELS | {"old": other_arm}, ()).name == "old"
