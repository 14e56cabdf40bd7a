from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version
from tests.builders.plans import fleet_for, planned

from tfbuild.commands import Request
from tfbuild.planning.dispatcher import DispatchTarget
from tfbuild.planning.fleet import Fleet, build_fleet
from tfbuild.planning.plan import KernelsPlan, make_plan
from tfbuild.planning.render import build_dispatch_target
from tfbuild.planning.request import resolve_fleet
from tfcore.errors import UsageError

NAMES = ("x86_64_v3", "haswell", "skylake", "skylake_avx512", "zen3", "zen4", "sapphirerapids")
PLANS = {name: planned(name) for name in NAMES}


def fleet(*names: str) -> Fleet[KernelsPlan]:
    return build_fleet(PLANS[name] for name in names)


def test_a_wheel_for_one_target_is_a_fleet_of_one() -> None:
    plan = PLANS["skylake"]
    alone = fleet("skylake")
    assert (alone.key, alone.version) == (plan.key, plan.version)


@given(st.permutations(NAMES))
def test_the_order_in_which_targets_are_named_does_not_matter(names: list[str]) -> None:
    assert fleet(*names) == fleet(*NAMES)


def test_wider_vectors_come_first_then_more_features() -> None:
    order = fleet("haswell", "zen4", "skylake_avx512", "sapphirerapids", "zen3").targets
    assert order == ("zen4", "sapphirerapids", "skylake_avx512", "zen3", "haswell")


@given(st.sets(st.sampled_from(NAMES), min_size=2))
def test_no_library_hides_a_better_one(names: set[str]) -> None:
    """Where the features of one are among another's, the other is asked first."""
    plans = fleet(*names).plans
    for place, plan in enumerate(plans):
        assert not any(set(plan.required) < set(later.required) for later in plans[place + 1 :])


def test_the_local_version_stands_for_the_set_and_is_no_number() -> None:
    wheel_fleet, second = fleet("haswell", "zen4"), fleet("haswell", "zen3")
    assert wheel_fleet.version != second.version
    assert str(Version(wheel_fleet.version)) == wheel_fleet.version
    assert wheel_fleet.key != second.key


def test_the_libraries_of_a_fleet_have_names_of_their_own() -> None:
    rows = [build_dispatch_target(plan) for plan in fleet(*NAMES).plans]
    assert all(isinstance(row, DispatchTarget) for row in rows)
    assert len({row.library for row in rows}) == len({row.name for row in rows}) == len(NAMES)


@pytest.mark.parametrize(
    ("arch", "message"),
    [
        ("haswell,haswell", "haswell twice"),
        ("haswell,stock", "stock cannot"),
        ("haswell,neoverse_v1", "aarch64 and x86_64"),
        (" , ", "no target"),
    ],
)
def test_sets_that_make_no_wheel_are_refused(arch: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        fleet_for(Request(arch=arch, compiler="clang@16.0.6", python="3.11"))


def test_a_full_build_is_for_one_target() -> None:
    with pytest.raises(UsageError, match="one target"):
        resolve_fleet(
            Request(arch="haswell,zen4", scope="full", compiler="clang@16.0.6"), make_plan
        )
