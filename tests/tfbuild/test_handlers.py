from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from tests.builders.plans import fleet_for, plan_for, planned_full

from tfbuild.commands import BuildOptions, Request
from tfbuild.handlers import build_wheel, choose_jobs, describe_built, describe_plan, estimate
from tfbuild.kernelbuild.admission import UnitVerdict
from tfbuild.kernelbuild.pool import BuiltWheel, WheelPart
from tfbuild.planning.fleet import build_fleet
from tfcore.comparisons.kernels import TypedOp
from tfcore.errors import CompilerError, ToolError, UsageError

REQUEST = Request(arch="skylake", compiler="clang@16.0.6", python="3.11")


def test_the_estimate_is_for_the_jobs_that_were_asked_for() -> None:
    fleet, _ = fleet_for(REQUEST)
    document = json.loads(describe_plan(REQUEST, "3", as_json=True))
    assert document["jobs"] == {"count": 3, "limited_by": "--jobs"}
    assert document["estimate"]["seconds"] == estimate(fleet, 3).seconds
    assert "3 in parallel, limited by --jobs" in describe_plan(REQUEST, "3", as_json=False)


def test_every_line_of_a_plan_has_its_name_or_is_set_under_one() -> None:
    lines = describe_plan(REQUEST, "1", as_json=False).splitlines()
    assert all(line[:1].isalpha() or line.startswith(" " * 10) for line in lines)
    sources = next(i for i, line in enumerate(lines) if line.startswith("sources"))
    other = "or tensorflow_2.14.1+dfsg.orig.tar.xz  (Debian source package sid/tensorflow)"
    assert lines[sources + 1].strip() == other


def test_jobs_are_bounded_by_the_machine_when_nobody_says_how_many() -> None:
    plan, _ = plan_for(REQUEST)
    assert choose_jobs(plan, "").count >= 1
    with pytest.raises(UsageError, match="--jobs -1"):
        choose_jobs(plan, "-1")


def built(folder: Path) -> BuiltWheel:
    wheel = folder / "tuned.whl"
    wheel.write_bytes(b"x" * 2_500_000)
    registrations = tuple(TypedOp(op="Tanh", types=f"T={number}") for number in range(6))
    verdicts = (
        UnitVerdict(unit="cwise_op_tanh", reason="", registrations=registrations, cases=120),
        UnitVerdict(unit="relu_op", reason="", registrations=registrations[:1], cases=45),
        UnitVerdict(unit="softmax_op", reason="it does not load alone:\nabort"),
    )
    parts = (WheelPart(target="skylake", size=900_000, verdicts=verdicts),)
    return BuiltWheel(wheel=wheel, manifest=folder / "tuned.json", parts=parts, reused=False)


def test_a_wheel_is_described_with_what_is_in_it_and_what_is_not(tmp_path: Path) -> None:
    lines = describe_built([built(tmp_path)], as_json=False).splitlines()
    assert lines[0] == f"{tmp_path / 'tuned.whl'} (2.5 MB)"
    assert lines[1:] == [
        "skylake: a kernel library of 900.0 kB",
        "  cwise_op_tanh: 6 kernels passed 120 cases",
        "  relu_op: 1 kernel passed 45 cases",
        "  softmax_op: stays stock: it does not load alone:",
    ]


def test_kernels_that_ran_as_others_are_told_with_what_finishes_them(tmp_path: Path) -> None:
    whole = built(tmp_path)
    part = dataclasses.replace(whole.parts[0], target="zen4", ran_as="zen3")
    lines = describe_built([dataclasses.replace(whole, parts=(part,))], as_json=False).splitlines()
    assert lines[1] == "zen4: a kernel library of 900.0 kB, tested as zen3"
    assert lines[-1] == (
        f"Before you publish it, run invoke admit {tmp_path / 'tuned.whl'} on a CPU that runs zen4"
    )


def test_the_libraries_of_a_full_build_are_no_kernel_library(tmp_path: Path) -> None:
    part = WheelPart(target="skylake", size=900_000)
    whole = dataclasses.replace(built(tmp_path), parts=(part,))
    assert (
        describe_built([whole], as_json=False).splitlines()[1] == "skylake: libraries of 900.0 kB"
    )


def test_a_wheel_is_described_to_machines(tmp_path: Path) -> None:
    document = json.loads(describe_built([built(tmp_path)], as_json=True))
    assert document["wheel"] == str(tmp_path / "tuned.whl")
    (part,) = document["parts"]
    units = [verdict["unit"] for verdict in part["verdicts"]]
    assert units == ["cwise_op_tanh", "relu_op", "softmax_op"]
    assert document["reused"] is False


@pytest.mark.parametrize("scope", ["kernels", "full"])
def test_what_is_missing_is_installed_before_a_compiler_is_looked_for(
    scope: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a bare machine there is none yet."""

    def install(*_: object, **options: object) -> None:
        raise ToolError(f"asked to install: {options['install']}")

    monkeypatch.setattr("tfbuild.tools.doctor.prepare", install)
    request = Request(arch="skylake", scope=scope, compiler="nonesuch-16")
    with pytest.raises(ToolError, match="asked to install: True"):
        build_wheel(request, BuildOptions(install=True))
    with pytest.raises(CompilerError, match="nonesuch-16"):
        build_wheel(request)


def test_a_build_that_learns_is_made_twice(tmp_path: Path) -> None:
    program = tmp_path / "training.py"
    program.touch()
    once, twice = (build_fleet([planned_full(pgo=pgo)]) for pgo in ("", str(program)))
    assert estimate(twice, 2).seconds == 2 * estimate(once, 2).seconds
