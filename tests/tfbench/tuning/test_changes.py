"""What may be changed, and the arm that a set of changes makes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tests.builders.journals import STOCK, TUNED

from tfbench.arms import levers
from tfbench.arms.levers import BFLOAT16_TOLERANCE, LEVERS, XLA_TOLERANCE
from tfbench.inside.worker import JIT, TOGETHER
from tfbench.tuning.changes import (
    BATCHES,
    COMPILED,
    KINDS,
    SCRIPT,
    STEPS,
    WHEEL,
    Change,
    Setup,
    create_arm,
    format_arm_name,
    list_advice,
    list_settings,
    list_variables,
)

PLAIN = dataclasses.replace(TUNED, env=())
WHEELS = {"stock": STOCK, "tuned": PLAIN}
SETTINGS = ("intra=1", "onednn=off")
OWN = (("TENSORWRIGHT_PROGRAM", "/home/me/model.py"),)


def setup(*words: str) -> Setup:
    return tuple(
        Change(lever=left, value=right) for left, _, right in (w.partition("=") for w in words)
    )


def names(vcpus: int, *, onednn: bool | None = True) -> list[str]:
    return [str(setting) for setting in list_settings(vcpus, onednn=onednn)]


def test_every_kind_is_a_lever_a_wheel_or_advice() -> None:
    assert {*KINDS} == {"wheel", *SCRIPT} | ({*LEVERS} - {"contraction", "isa", "xla"})


def test_a_default_is_not_tried() -> None:
    assert "onednn=on" not in names(2, onednn=True)
    assert "onednn=off" not in names(2, onednn=False)
    assert {"onednn=on", "onednn=off"} <= {*names(2, onednn=None)}


@pytest.mark.parametrize(
    ("vcpus", "intra", "inter"),
    [(1, [], []), (2, ["1"], ["1"]), (3, ["1"], ["1"]), (8, ["1", "4"], ["1"])],
)
def test_fewer_threads_are_tried_where_there_are_fewer(
    vcpus: int, intra: list[str], inter: list[str]
) -> None:
    changes = list(list_settings(vcpus, onednn=True))
    assert [change.value for change in changes if change.lever == "intra"] == intra
    assert [change.value for change in changes if change.lever == "inter"] == inter


def test_an_allocator_that_is_not_here_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levers, "malloc_among", lambda *_: None)
    assert not [name for name in names(2) if name.startswith("malloc")]
    monkeypatch.setattr(levers, "malloc_among", lambda *_: Path("/lib/malloc.so"))
    assert len([name for name in names(2) if name.startswith("malloc")]) == len(levers.MALLOCS)


def test_many_batches_in_one_execution_are_tried_where_a_sample_holds_them() -> None:
    assert [change.lever for change in list_advice(0.001)] == [STEPS, COMPILED]
    assert [change.lever for change in list_advice(0.1)] == [COMPILED]
    assert [change.lever for change in list_advice(None)] == [STEPS, COMPILED]


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


def test_advice_reaches_the_worker_and_no_environment_of_the_users() -> None:
    advised = setup("inter=1", f"{STEPS}={BATCHES}", f"{COMPILED}=True")
    fields = dict(create_arm(advised, WHEELS, ()).env)
    assert (fields[TOGETHER], fields[JIT]) == (str(BATCHES), "True")
    assert list_variables(advised) == (("TF_NUM_INTEROP_THREADS", "1"),)


@pytest.mark.parametrize(
    ("words", "tolerance"),
    [
        (["intra=1"], STOCK.tolerance),
        (["bf16=on"], BFLOAT16_TOLERANCE),
        ([f"{COMPILED}=True"], XLA_TOLERANCE),
        (["bf16=on", f"{COMPILED}=True"], XLA_TOLERANCE),
    ],
)
def test_an_arm_has_the_widest_tolerance_that_its_changes_need(
    words: list[str], tolerance: float
) -> None:
    assert create_arm(setup(*words), WHEELS, ()).tolerance == tolerance


def test_a_wheel_is_told_by_its_name(tmp_path: Path) -> None:
    other_arm = dataclasses.replace(PLAIN, name="old", python=tmp_path / "bin/python")
    assert create_arm(setup(f"{WHEEL}=old"), WHEELS | {"old": other_arm}, ()).name == "old"
