"""A wheel for aarch64, cross-compiled: admitted, and tried whole, under QEMU."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.builders.near_trees import NEAR, tree_of
from tests.builders.plans import fleet_for

from tfbuild import handlers
from tfbuild.auditing import audit
from tfbuild.commands import AuditOptions, Request
from tfbuild.kernelbuild import assemble
from tfbuild.kernelbuild import build as builder
from tfbuild.kernelbuild.build_setup import create_environment
from tfbuild.kernelbuild.pool import BuiltWheel
from tfbuild.kernelbuild.proof import Proof
from tfbuild.packing import conformance, tuned
from tfbuild.planning.fleet import Fleet
from tfbuild.planning.jobs import Jobs
from tfbuild.planning.plan import KernelsPlan
from tfbuild.tools.emulation import find_emulator
from tfbuild.upstream.download import hash_file
from tfcore.errors import AdmissionError, ToolError
from tfcore.settings import Paths

pytestmark = [pytest.mark.toolchain, pytest.mark.slow, pytest.mark.kernels]

RELEASE = "2.20.0"
TARGETS = ("neoverse_v1", "neoverse_n1")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tree_of(NEAR[RELEASE], tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="module")
def fleet_and_wheel(
    tree: Path, paths: Paths, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Fleet[KernelsPlan], BuiltWheel]:
    return made(",".join(TARGETS), RELEASE, tree, paths, tmp_path_factory.mktemp("pool"))


def made(
    arch: str, release: str, tree: Path, paths: Paths, pool: Path
) -> tuple[Fleet[KernelsPlan], BuiltWheel]:
    """A wheel with tanh, built from a tree."""
    request = Request(
        arch=arch, release=release, kernels="cwise_op_tanh", python="3.11", source=str(tree)
    )
    fleet, compiler = fleet_for(request)
    built = builder.build_wheel(
        fleet,
        compiler=compiler,
        jobs=handlers.choose_jobs(fleet.first, ""),
        paths=dataclasses.replace(paths, pool=pool),
        given_source=tree,
    )
    return fleet, built


@pytest.fixture(scope="module")
def seen_on(
    fleet_and_wheel: tuple[Fleet[KernelsPlan], BuiltWheel],
    paths: Paths,
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], dict[str, Any]]:
    """What the wheel does on a model of QEMU's."""
    fleet, built = fleet_and_wheel
    emulator = find_emulator("aarch64", paths)
    arm = create_environment(fleet.first, built.wheel, emulator, paths)

    def seen(model: str) -> dict[str, Any]:
        launcher = (str(emulator.program), "-L", str(emulator.sysroot), "-cpu", model)
        own_environment = dataclasses.replace(arm, launcher=launcher)
        return assemble.run_smoke_test(
            own_environment, tmp_path_factory.mktemp(model.replace("-", "_"))
        )

    return seen


def test_what_ran_under_an_emulator_is_not_published_before_it_ran_on_a_cpu(
    fleet_and_wheel: tuple[Fleet[KernelsPlan], BuiltWheel],
) -> None:
    wheel = fleet_and_wheel[1].wheel
    facts = tuned.read_tuned(wheel)
    assert facts is not None
    assert facts.targets == TARGETS
    for library in facts.libraries:
        (ran_as,) = library.ran_as
        assert ran_as.startswith(f"{library.target} under qemu-aarch64 ")
        assert len(library.registrations) == 12
    conformance_statuses = conformance.read_statuses(wheel, facts, hash_file(wheel))
    with pytest.raises(AdmissionError, match="under qemu-aarch64") as caught:
        conformance.check_proven(wheel, conformance_statuses)
    assert "invoke admit" in caught.value.hint


def test_another_cross_compiler_than_clang_is_refused(paths: Paths) -> None:
    fleet, compiler = fleet_for(
        Request(arch="neoverse_v1", kernels="mini", compiler="aarch64-linux-gnu-g++")
    )
    with pytest.raises(ToolError, match="cannot link kernels for aarch64") as caught:
        builder.build_wheel(
            fleet, compiler=compiler, jobs=Jobs(count=1, limited_by=""), paths=paths
        )
    assert "--compiler clang-16" in caught.value.hint


def test_the_wheel_asks_for_no_later_system_than_stock(
    fleet_and_wheel: tuple[Fleet[KernelsPlan], BuiltWheel], paths: Paths
) -> None:
    wheel_audit = audit.audit(fleet_and_wheel[1].wheel, paths=paths, stock=None)
    assert not wheel_audit.problems


def test_the_wheel_is_made_again_of_the_sources_that_were_given(
    fleet_and_wheel: tuple[Fleet[KernelsPlan], BuiltWheel], tree: Path
) -> None:
    """For CPUs that this machine has not: its kernels are compiled and not run."""
    wheel = str(fleet_and_wheel[1].wheel)
    rebuild_result = handlers.rebuild_wheel(AuditOptions(wheel=wheel, source=str(tree)))
    assert rebuild_result.proof is Proof.SAME, rebuild_result
    assert "--source" in handlers.rebuild_wheel(AuditOptions(wheel=wheel)).reasons[0]


def test_up_to_2_15_it_is_amazons_wheel(
    paths: Paths, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tree = tree_of(NEAR["2.15.1"], tmp_path_factory.mktemp("older"))
    _, built = made("neoverse_v1", "2.15.1", tree, paths, tmp_path_factory.mktemp("pool"))
    assert built.wheel.name.startswith("tensorflow_cpu_aws-2.15.1+neoverse.v1-cp311-")
    facts = tuned.read_tuned(built.wheel)
    assert facts is not None
    assert len(facts.libraries[0].registrations) == 12
    assert not audit.audit(built.wheel, paths=paths, stock=None).problems


@pytest.mark.parametrize(
    ("model", "loaded"),
    [("cortex-a57", None), ("neoverse-n1", "neoverse.n1"), ("neoverse-v1", "neoverse.v1")],
)
def test_each_core_runs_what_it_can(
    seen_on: Callable[[str], dict[str, Any]], model: str, loaded: str | None
) -> None:
    record = seen_on(model)
    assert record["computes"]
    assert record["loaded"] == loaded
    for mode in ("eager", "function"):
        assert bool(sum(record.get(mode, {}).values())) == (loaded is not None)
