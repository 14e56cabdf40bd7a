"""A wheel for a CPU that the building one is not: built where AVX-512 is masked, admitted where it
is there."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from pathlib import Path

import pytest
from tests.builders.installed_wheel import Tried
from tests.builders.invoke_calls import Tasks
from tests.builders.own_cpu import own_cpu
from tests.builders.plans import fleet_for
from tests.builders.rint_kernels import REGISTER, RIGHT, WRONG, library, rint

from tfbench.arms import wheel_conformance
from tfbuild import handlers
from tfbuild.commands import Request
from tfbuild.kernelbuild import admission, finished_wheels
from tfbuild.kernelbuild import build as builder
from tfbuild.kernelbuild.pool import BuiltWheel
from tfbuild.packing import conformance, tuned
from tfbuild.packing.repack import repack
from tfbuild.packing.tuned import UnitConformance
from tfbuild.tools.environment import Environment
from tfbuild.upstream.download import hash_file
from tfcore.comparisons.kernels import TypedOp
from tfcore.cpus.cpu import MASK
from tfcore.cpus.features import load_features
from tfcore.cpus.targets import parse_target
from tfcore.errors import HostError, KernelError
from tfcore.settings import Paths

pytestmark = [pytest.mark.toolchain, pytest.mark.slow, pytest.mark.kernels]

OLDER, TARGET = "haswell", "skylake_avx512"
HIDDEN = ",".join(name for name in load_features("x86_64") if name.startswith("avx512"))


@pytest.fixture(scope="module")
def elsewhere(paths: Paths, tmp_path_factory: pytest.TempPathFactory) -> Paths:
    """A pool of its own: the same plan's wheel in another is the same wheel."""
    return dataclasses.replace(paths, pool=tmp_path_factory.mktemp("foreign"))


@pytest.fixture(scope="module")
def foreign(elsewhere: Paths) -> BuiltWheel:
    """A wheel of the two quick kernels for a fleet with AVX-512 in it, made as on a CPU without.
    What stands in for that is the fleet's own older target, which other tests have compiled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MASK, HIDDEN)
        fleet, compiler = fleet_for(Request(arch=f"{OLDER},{TARGET}", kernels="mini"))
        jobs = handlers.choose_jobs(fleet.first, "")
        return builder.build_wheel(fleet, compiler=compiler, jobs=jobs, paths=elsewhere)


@pytest.fixture(scope="module")
def invoke(elsewhere: Paths, tmp_path_factory: pytest.TempPathFactory) -> Tasks:
    tasks = Tasks(tmp_path_factory.mktemp("invoked"))
    tasks.env["TENSORWRIGHT_CACHE"] = str(elsewhere.cache)
    return tasks


def published(invoke: Tasks, built: BuiltWheel, *options: str) -> subprocess.CompletedProcess[str]:
    words = ("--to", "index", "--wheels", str(built.wheel), "--only-tuned", "--dry-run")
    return invoke("publish", *words, *options)


def need_avx512() -> None:
    if set(parse_target(TARGET).features) - own_cpu().cpu.features:
        pytest.skip(f"this CPU is no {TARGET}: its code cannot be run here")


def test_the_wheel_says_as_what_each_unit_ran(foreign: BuiltWheel) -> None:
    facts = tuned.read_tuned(foreign.wheel)
    assert facts is not None
    kernel_library, older = facts.libraries
    assert (kernel_library.target, older.target) == (TARGET, OLDER)
    for part in facts.libraries:
        assert {
            unit: unit_conformance.ran_as for unit, unit_conformance in part.admission.items()
        } == {
            "cwise_op_sigmoid": OLDER,
            "cwise_op_tanh": OLDER,
        }
    assert kernel_library.admission["cwise_op_tanh"].ops == ("Tanh", "TanhGrad")
    assert kernel_library.census["avx512f"] > 0
    assert [part.ran_as for part in foreign.parts] == [OLDER, OLDER]


def test_the_build_says_what_finishes_it(foreign: BuiltWheel) -> None:
    lines = handlers.describe_built([foreign], as_json=False).splitlines()
    assert f"invoke admit {foreign.wheel} on a CPU that runs {TARGET}" in lines[-1]


def test_publish_refuses_it_whatever_was_compared(foreign: BuiltWheel, invoke: Tasks) -> None:
    done = published(invoke, foreign, "--no-gate")
    assert done.returncode == 41
    assert "were not tested on their own target" in done.stderr
    assert f"invoke admit {foreign.wheel}" in done.stderr


def test_a_cpu_without_the_features_cannot_admit_it(
    foreign: BuiltWheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MASK, f"{HIDDEN},avx2")
    with pytest.raises(HostError, match="this CPU lacks avx2"):
        handlers.admit_wheel(str(foreign.wheel), as_json=False, dry_run=True)


def test_on_a_cpu_with_the_features_it_is_admitted_and_may_go_on(
    foreign: BuiltWheel, invoke: Tasks
) -> None:
    need_avx512()
    done = invoke("admit", str(foreign.wheel), "--json")
    assert done.returncode == 0, done.stderr
    output = json.loads(done.stdout)
    assert output["record"] == str(conformance.get_record_path(foreign.wheel))
    assert {
        unit: verdict["reason"] for unit, verdict in output["targets"][TARGET]["units"].items()
    } == {
        "cwise_op_sigmoid": "",
        "cwise_op_tanh": "",
    }
    conformance_status = wheel_conformance.find_status(foreign.wheel, own_cpu().cpu)
    assert conformance_status is not None
    assert conformance_status.proven
    assert published(invoke, foreign).returncode == 35  # (no comparison is about it)


# ---- kernels that must not be admitted ----


FLOOR = WRONG.replace("Off", "Down").replace("BODY", "std::floor(from(i))")
FLOORS = "".join(
    REGISTER.replace("Off", "Down").format(op="Floor", type=word) for word in ("float", "double")
)


def wheel_of(path: Path, native: Tried, folder: Path, stock: Path, *kernels: str) -> Path:
    """A wheel with this library for the target of the native one, which says that these kernels
    (OP T=1), each op's in a unit of its own, were run as compiled for x86_64."""
    facts = tuned.read_tuned(native.built.wheel)
    assert facts is not None
    registrations = tuple(TypedOp(op=op, types=name) for op, name in map(str.split, kernels))
    ops = sorted({registration.op for registration in registrations})
    claim = dataclasses.replace(
        facts.libraries[0],
        size=path.stat().st_size,
        sha256=hash_file(path),
        kernels=tuple(op.lower() for op in ops),
        admission={op.lower(): UnitConformance(ran_as="x86_64", ops=(op,)) for op in ops},
        registrations=registrations,
    )
    tuned_facts = dataclasses.replace(facts, libraries=(claim,))
    return repack(
        stock,
        local="doctored",
        add={claim.file: path},
        pinned=True,
        out_dir=folder,
        dist_info_files={tuned.FILE: tuned_facts.to_bytes()},
    )


def test_a_kernel_that_fails_is_named_and_nothing_is_measured(
    native: Tried, staged: Path, paths: Paths, stock_arm: Environment, tmp_path: Path
) -> None:
    """Of two units in one library the one that computes something else."""
    text = rint("static_cast<T>(from(i) + 1)") + FLOOR.replace("TYPES", FLOORS)
    path = library("doctored", text, tmp_path, native, staged, paths)
    ops = ("Floor T=1", "Floor T=2", "Rint T=1", "Rint T=2")
    wheel = wheel_of(path, native, tmp_path / "wheel", stock_arm.wheel, *ops)
    with pytest.raises(
        KernelError, match=r"doctored.*: rint failed the conformance test"
    ) as caught:
        wheel_conformance.require_conformance(wheel, own_cpu().cpu, paths)
    assert "--without rint" in caught.value.hint
    record = conformance.read_record(wheel, hash_file(wheel))
    assert record is not None
    (trial,) = record.targets.values()
    assert trial.units["floor"].reason == ""
    assert trial.units["floor"].cases > 0
    assert "ULPs from the stock kernel" in trial.units["rint"].reason
    with pytest.raises(KernelError, match="rint failed the conformance test"):  # (by the record)
        wheel_conformance.require_conformance(wheel, own_cpu().cpu, paths)
    other_values = ("Ceil T=1", "Floor T=1", "Rint T=1", "Rint T=2")
    false = wheel_of(path, native, tmp_path / "false", stock_arm.wheel, *other_values)
    reasons = [line.partition("): ")[2] for line in failed(false, paths)]
    beyond = "its library registers Floor T=2, which is not in tuned.json"
    assert reasons == ["it does not register Ceil T=1", beyond, beyond]


def failed(wheel: Path, paths: Paths) -> list[str]:
    """What is said of each unit of a wheel that is not admitted here."""
    cpu = own_cpu().cpu
    record = finished_wheels.retest_kernels(
        finished_wheels.load_finished_wheel(wheel, cpu), cpu, paths
    )
    return list(conformance.describe_failures(record.targets))


def test_a_registration_that_only_one_target_has_is_seen_without_running_it(
    native: Tried, staged: Path, paths: Paths, tmp_path: Path
) -> None:
    lost = REGISTER.format(op="Rint", type="double")
    text = rint(RIGHT).replace(lost, f"#ifndef __AVX512F__\n{lost}#endif\n")
    ran, wide = (
        library(name, text, tmp_path, native, staged, paths, *flags)
        for name, flags in (("ran", ()), ("wide", ("-march=skylake-avx512",)))
    )
    assert admission.find_registration_difference(ran, ran) == ""
    message = "the library for its own target does not register Rint with Off<double>"
    assert admission.find_registration_difference(wide, ran) == message
    (verdict,) = admission.transfer_verdicts(
        [admission.UnitVerdict(unit="rint", cases=9)],
        {"rint": wide},
        {"rint": ran},
        staged=staged,
        stock_libraries=[],
    )
    assert verdict.reason == message
