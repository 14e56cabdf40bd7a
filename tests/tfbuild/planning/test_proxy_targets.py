"""What runs in the place of kernels that a CPU cannot run, over recorded CPUs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.plans import planned
from tests.builders.recorded_cpus import HONEST, cpu_of

from tfbuild.commands import Request
from tfbuild.planning.fleet import build_fleet
from tfbuild.planning.plan import KernelsPlan
from tfbuild.planning.proxy_targets import (
    choose_proxy_plan,
    list_missing_features,
    list_nearest_targets,
)
from tfbuild.planning.target_compiler import parse_compiler
from tfcore.cpus.compilers import Compiler
from tfcore.cpus.cpu import apply_mask, compute_x86_64_level
from tfcore.cpus.targets import list_targets, parse_target
from tfcore.errors import KernelError

CLANG: Compiler = parse_compiler("clang@16.0.6", "x86_64")
NAMES = ("haswell", "skylake", "cascadelake", "sapphirerapids", "zen3", "zen4", "x86_64_v4")
PLANS = {name: planned(name, kernels="mini") for name in (*NAMES, "skylake_avx512", "x86_64")}
X86 = tuple(target.spec for target in list_targets("x86_64"))


def ran_as(target: str, cpu: str, *beside: str) -> str:
    plans = build_fleet(PLANS[name] for name in {target, *beside}).plans
    return choose_proxy_plan(PLANS[target], plans, cpu_of(cpu), CLANG).target.spec


@pytest.mark.parametrize(
    ("target", "cpu", "expected"),
    [
        ("skylake_avx512", "haswell", "haswell"),
        ("skylake_avx512", "zen3", "skylake"),
        ("cascadelake", "skylake_avx512", "skylake_avx512"),
        ("sapphirerapids", "icelake", "icelake"),
        ("zen4", "zen3", "zen3"),
        ("zen4", "skylake", "skylake"),
        ("x86_64_v4", "haswell", "x86_64_v3"),
    ],
)
def test_the_nearest_target_of_both_stands_in(target: str, cpu: str, expected: str) -> None:
    assert ran_as(target, cpu) == expected


@pytest.mark.parametrize("cpu", ["skylake_avx512", "zen4", "sapphirerapids"])
def test_what_this_cpu_runs_is_run_as_it_is(cpu: str) -> None:
    plan = PLANS["skylake_avx512"]
    assert choose_proxy_plan(plan, (), cpu_of(cpu), CLANG) is plan


def test_a_plan_of_the_fleet_stands_in_for_others_for_it_is_compiled_anyway() -> None:
    assert ran_as("skylake_avx512", "skylake", "haswell") == "haswell"
    assert ran_as("skylake_avx512", "skylake", "haswell", "skylake") == "skylake"


def test_a_plan_of_the_fleet_with_narrower_vectors_does_not() -> None:
    assert ran_as("skylake_avx512", "haswell", "x86_64") == "haswell"


def test_the_stand_in_has_the_plans_sources_and_the_fleets_flags() -> None:
    plan = planned("skylake_avx512", kernels="mini", flags="-O3")
    proxy_plan = choose_proxy_plan(plan, (PLANS["haswell"],), cpu_of("haswell"), CLANG)
    assert (proxy_plan.kernels, proxy_plan.source_flags) == (plan.kernels, plan.source_flags)
    assert proxy_plan.kernel_recipe == plan.kernel_recipe
    assert proxy_plan.flags == PLANS["haswell"].flags
    assert proxy_plan.key != PLANS["haswell"].key


def test_of_the_same_sources_it_is_the_fleets_own_plan() -> None:
    haswell = PLANS["haswell"]
    plan = choose_proxy_plan(PLANS["skylake_avx512"], (haswell,), cpu_of("haswell"), CLANG)
    assert plan.key == haswell.key


def test_nothing_stands_in_on_another_architecture() -> None:
    with pytest.raises(KernelError, match="cannot test kernels for haswell") as caught:
        choose_proxy_plan(PLANS["haswell"], (), cpu_of("neoverse_v1"), CLANG)
    assert caught.value.hint == "Build on a CPU of the x86_64 family"


@given(st.sampled_from(X86), st.sampled_from([name for name in HONEST if "neo" not in name]))
def test_the_nearest_asks_nothing_that_either_lacks(target: str, cpu: str) -> None:
    host_cpu, expected = cpu_of(cpu), parse_target(target)
    if host_cpu.architecture != "x86_64":
        return
    targets = list_nearest_targets(expected, host_cpu)
    assert targets
    assert "x86_64" in {named_target.name for named_target in targets}
    levels = [compute_x86_64_level(named_target.features) for named_target in targets]
    assert levels == sorted(levels, reverse=True)


def test_a_mask_makes_a_machine_without_the_features() -> None:
    wide = cpu_of("zen4")
    hidden = ",".join(name for name in wide.features if name.startswith("avx512"))
    plan: KernelsPlan = PLANS["skylake_avx512"]
    assert list_missing_features(plan, wide) == ()
    assert "avx512f" in list_missing_features(plan, apply_mask(wide, hidden))


def test_the_request_of_a_stand_in_is_no_other_wheel() -> None:
    """As what kernels are admitted is said in the wheel, and is no part of its plan."""
    assert planned("skylake_avx512", kernels="mini").key == PLANS["skylake_avx512"].key
    assert Request().without == ""
