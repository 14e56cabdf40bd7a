"""Fused updates of variables in stock TensorFlow: the bits that its own kernels leave."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tfbuild import front, settings
from tfbuild.commands import AuditOptions, Request
from tfbuild.kernelbuild import build as builder
from tfbuild.kernelbuild import workspace as workspaces
from tfbuild.kernelbuild.ground import ground_for
from tfbuild.kernelbuild.proof import Proof
from tfbuild.packing import tuned
from tfbuild.planning.request import fleet_for, plan_for
from tfbuild.run import run
from tfbuild.settings import Places
from tfbuild.tools.environment import Environment

pytestmark = pytest.mark.toolchain

PROGRAM = Path(__file__).with_name("updates.py")
UNIT = "fused/updates"
FEW = ("adam float32", "scattered float32", "held", "in a loop")
ALONE = {"compiled", "legacy", "adagrad empty"}
"""The cases of which nothing may be fused: XLA compiles one, one has TensorFlow's own ops; and with
sparse gradients Adagrad touches no more than their rows."""


def ran(
    arm: Environment, library: Path, out: Path, threads: int, *cases: str
) -> dict[str, dict[str, Any]]:
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONPATH": str(settings.ROOT / "build")}
    run([arm.python, PROGRAM, out, str(threads), library, *cases], env=quiet, timeout_s=1800)
    answer: dict[str, dict[str, Any]] = json.loads(out.read_text("utf-8"))
    return answer


@pytest.fixture(scope="module")
def library(places: Places) -> Path:
    """The one that admission would see."""
    plan, compiler = plan_for(Request(kernels=UNIT))
    ground = ground_for(plan, places, None, None)
    workspace = workspaces.prepare(plan, compiler, front.jobs_for(plan, ""), ground, places)
    made = workspaces.compile_units(workspace, plan.kernels, keep_going=False).libraries
    return made[UNIT]


@pytest.fixture(scope="module", params=[1, 2, 4])
def every(
    stock_arm: Environment,
    library: Path,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> dict[str, dict[str, Any]]:
    """All cases, with this many threads."""
    out = tmp_path_factory.mktemp("updates") / "all.json"
    return ran(stock_arm, library, out, int(request.param))


def test_a_few_programs_leave_the_same_bits(
    stock_arm: Environment, library: Path, tmp_path: Path
) -> None:
    found = ran(stock_arm, library, tmp_path / "few.json", 2, *FEW)
    assert {name: each["unlike"] for name, each in found.items()} == dict.fromkeys(FEW, "")
    assert all(each["events"]["executions"] for each in found.values())


@pytest.mark.slow
def test_every_optimizer_type_and_graph_leaves_the_same_bits(
    every: dict[str, dict[str, Any]],
) -> None:
    assert {name: each["unlike"] for name, each in every.items() if each["unlike"]} == {}
    assert {name: each["error"] for name, each in every.items() if each["error"]} == {}


@pytest.mark.slow
def test_all_are_fused_but_what_xla_compiles_and_what_tensorflow_has_fused(
    every: dict[str, dict[str, Any]],
) -> None:
    fused = {name for name, each in every.items() if each["events"].get("executions")}
    assert {name for name in {*every} - fused if "adagrad sparse" not in name} == ALONE


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "event"),
    [
        ("of other shapes", "stock: other shapes"),
        ("failing", "stock: out of range"),
        ("sessions", "stock: no variable"),
    ],
)
def test_what_cannot_be_fused_runs_as_before_and_is_counted(
    every: dict[str, dict[str, Any]], case: str, event: str
) -> None:
    assert every[case]["events"][event]


@pytest.mark.slow
def test_the_unit_comes_beside_the_hot_kernels_and_is_made_again(
    places: Places, tmp_path: Path
) -> None:
    """Nothing of the hot kernels is compiled but what was selected, and the unit is whole."""
    fleet, compiler = fleet_for(Request(kernels=f"hot,{UNIT}"))
    built = builder.build(
        fleet,
        compiler=compiler,
        jobs=front.jobs_for(fleet.first, ""),
        places=dataclasses.replace(places, pool=tmp_path),
    )
    facts = tuned.read_tuned(built.wheel)
    assert facts is not None
    assert UNIT in facts.kernels
    (library,) = facts.libraries
    assert library.registrations == fleet.first.selection
    assert front.rebuild_wheel(AuditOptions(wheel=str(built.wheel))).proof is Proof.SAME
