"""The plans that a wheel was made by are found again from what it says of itself."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.builders.examples import at_most
from tests.builders.index_wheels import full_build_for
from tests.builders.origins import CLANG, FLEET, made_of, request
from tests.builders.plans import fleet_for
from tests.builders.selections import ROW, SELECTION, TANH

from tfbuild.kernelbuild.origin import Origin, require_kernels, resolve_origin, select_compiler
from tfbuild.packing.tuned import KernelLibrary, Tuned
from tfbuild.packing.wheel import WheelIdentity
from tfbuild.planning.defaults import LeverMeasurement, LeverRatio, MeasurementSource, load_levers
from tfbuild.planning.fleet import Fleet
from tfbuild.planning.plan import KernelsPlan
from tfbuild.planning.target_compiler import parse_compiler
from tfcore.comparisons.kernels import TypedOp
from tfcore.cpus.targets import STOCK_FLAGS
from tfcore.errors import RebuildError
from tfcore.records import save

LEVER = load_levers()[0]
EMULATED = LeverMeasurement(
    lever=LEVER.name,
    source=MeasurementSource.EMULATED,
    isa="",
    cpu="another CPU",
    release="2.20.0",
    vcpus=1,
    ratios={"mnist_mlp": LeverRatio(value=1.2, low=1.1, high=1.3)},
)


def found(fleet: Fleet[KernelsPlan], tuned_facts: Tuned, *, compiler: str = CLANG) -> Origin:
    plan = fleet.first
    tag = f"cp{plan.python.replace('.', '')}"
    identity = WheelIdentity(
        name=plan.package,
        version=fleet.version,
        tags=(f"{tag}-{tag}-manylinux_2_17_{plan.target.family}",),
    )
    chosen_compiler = parse_compiler(compiler, plan.target.family)
    return resolve_origin(tuned_facts, identity, chosen_compiler)


X86 = ("skylake", "haswell", "zen4,haswell", STOCK_FLAGS, "x86_64_v4+avx512_bf16/zen4")


@settings(at_most(60), suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_the_plans_of_any_wheel_are_found_again(data: st.DataObject) -> None:
    arch = data.draw(st.sampled_from((*X86, "neoverse_v1")), label="arch")
    wide = arch not in {"neoverse_v1", STOCK_FLAGS}
    wheel_request = request(
        arch=arch,
        release=data.draw(st.sampled_from(("2.14.1", "2.20.0")), label="release"),
        compiler=data.draw(st.sampled_from((CLANG, "gcc@13.2.0")), label="compiler"),
        python=data.draw(st.sampled_from(("3.10", "3.11")), label="python"),
        kernels=data.draw(st.sampled_from(("hot", "mini", "cwise_op_log,Tanh,bias_op"))),
        flags=data.draw(st.sampled_from(("", "-O3 -mprefer-vector-width=256")), label="flags"),
        bf16=wide and data.draw(st.booleans(), label="bf16"),
        trust_emulated=data.draw(st.booleans(), label="trust"),
    )
    fleet, _ = fleet_for(wheel_request)
    stock_units = data.draw(
        st.integers(0, len(fleet.first.kernels) - 1), label="units that stay stock"
    )
    origin = found(fleet, made_of(fleet, stock_units), compiler=wheel_request.compiler)
    assert origin.fleet == fleet
    assert origin.unknown == ()


@pytest.mark.parametrize("flags", ["", "-O3"])
@pytest.mark.parametrize("refused", [(), (TypedOp(op="Tanh", types="T=14"),)])
@pytest.mark.parametrize("own_lines", [(), ("fused/loops", "fused/updates")])
def test_what_was_selected_is_found_again(
    own_lines: tuple[str, ...], flags: str, refused: tuple[TypedOp, ...], tmp_path: Path
) -> None:
    """Also where admission has refused some of it, as long as it was measured."""
    rows = tuple(dataclasses.replace(ROW, types=typed_op.types) for typed_op in (TANH, *refused))
    typed_ops = tuple(sorted((TANH, *refused)))
    save(
        tmp_path / "s.json",
        dataclasses.replace(SELECTION, kept=typed_ops, rows=rows, own=own_lines),
    )
    fleet, _ = fleet_for(request(selection=str(tmp_path / "s.json"), flags=flags))
    facts = made_of(fleet)
    (library,) = facts.libraries
    less = tuple(
        registration for registration in library.registrations if registration not in refused
    )
    facts = with_library(facts, registrations=less)
    origin = found(fleet, facts)
    if flags and refused:  # then tuned.json has neither what was measured nor all that was asked
        assert origin.unknown == ("skylake",)
    else:
        assert origin.fleet == fleet


def test_part_of_the_recorded_selection_is_found_again() -> None:
    """With flags of which nothing was measured, and a unit that admission has refused."""
    whole, _ = fleet_for(request(flags="-O3"))
    fleet, _ = fleet_for(request(flags="-O3", without=whole.first.kernels[0].name))
    assert fleet.first.selection != whole.first.selection
    facts = made_of(fleet, 1)
    assert len(facts.libraries[0].registrations) < len(fleet.first.selection or ())
    assert found(fleet, facts).fleet == fleet


@pytest.mark.parametrize("trust", [False, True])
def test_evidence_and_whether_it_was_trusted_are_found_again(trust: bool) -> None:
    with patch("tfbuild.planning.request.read_measurements", return_value=(EMULATED,)):
        wheel_request = request(
            arch="skylake_avx512", release="2.20.0", evidence="c.json", trust_emulated=trust
        )
        fleet, _ = fleet_for(wheel_request)
    (default,) = (
        target_default for target_default in fleet.first.defaults if target_default.lever == LEVER
    )
    assert default.on is trust
    assert found(fleet, made_of(fleet)).fleet == fleet


def test_sources_that_were_given_are_found_by_their_name(tmp_path: Path) -> None:
    (tmp_path / "mine.tar").write_bytes(b"sources")
    fleet, _ = fleet_for(request(source=str(tmp_path / "mine.tar")))
    facts = made_of(fleet)
    assert found(fleet, facts).fleet == fleet
    renamed = dataclasses.replace(facts, source_file="renamed.tar")
    assert found(fleet, renamed).unknown == ("skylake",)


@pytest.mark.parametrize("name", ["", "../x.tar", "a\nb"])
def test_sources_by_a_name_that_is_no_files_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "mine.tar").write_bytes(b"sources")
    fleet, _ = fleet_for(request(source=str(tmp_path / "mine.tar")))
    with pytest.raises(RebuildError, match="invalid name of its sources"):
        found(fleet, dataclasses.replace(made_of(fleet), source_file=name))


SAID = made_of(FLEET)


def with_library(tuned_facts: Tuned, **changes: object) -> Tuned:
    (library,) = tuned_facts.libraries
    changed: KernelLibrary = dataclasses.replace(library, **changes)  # type: ignore[arg-type]
    return dataclasses.replace(tuned_facts, libraries=(changed,))


def test_flags_and_features_are_decided_and_not_believed() -> None:
    """With the key that such a plan would have, too."""
    wrong = dataclasses.replace(FLEET.first, flags=("-march=native",), required=("avx",))
    facts = with_library(
        SAID, flags=wrong.flags, required_features=wrong.required, plan_key=wrong.key
    )
    origin = found(FLEET, facts)
    assert origin.unknown == ()
    assert origin.fleet == FLEET


def test_a_plan_of_another_tensorwright_is_unknown() -> None:
    origin = found(FLEET, with_library(SAID, plan_key="0" * 64))
    assert origin.unknown == ("skylake",)
    assert origin.fleet.first.flags == FLEET.first.flags


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"registrations": (TypedOp(op='T"}};int evil', types="T=1"),)}, "evil"),
        ({"registrations": (TypedOp(op="Tanh", types='T=1"},};\n#include "/x'),)}, "include"),
        ({"source_flags": {"a.cc": ("-fplugin=/tmp/evil.so",)}}, "evil"),
        ({"source_flags": {"a.cc": ("-O3 -O2",)}}, "-O3 -O2"),
        ({"kernels": ("../evil",)}, "evil"),
        ({"target": "no_cpu"}, "no_cpu"),
    ],
)
def test_what_is_no_name_is_refused_before_anything_is_compiled(
    changes: dict[str, object], message: str
) -> None:
    with pytest.raises(RebuildError, match=message) as caught:
        found(FLEET, with_library(SAID, **changes))
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stock_sha256": "3" * 64}, "stock wheel"),
        ({"source_sha256": "3" * 64}, "3333"),
        ({"release": "1.0.0"}, "1.0.0"),
    ],
)
def test_what_is_not_known_here_is_named(changes: dict[str, object], message: str) -> None:
    wrong: Tuned = dataclasses.replace(SAID, **changes)  # type: ignore[arg-type]
    with pytest.raises(RebuildError, match=message):
        found(FLEET, wrong)


def test_a_full_build_is_not_made_again_and_how_to_is_said() -> None:
    with pytest.raises(RebuildError, match="core-hours") as caught:
        require_kernels(full_build_for("haswell"))
    assert "--scope full" in caught.value.hint
    with pytest.raises(RebuildError, match="not a tuned wheel"):
        require_kernels(None)


def test_a_compiler_that_is_not_here_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RebuildError, match=r"clang 16\.0\.6") as caught:
        select_compiler(SAID, "x86_64")
    assert "clang 16" in caught.value.hint
