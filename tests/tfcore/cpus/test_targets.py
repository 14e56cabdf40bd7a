from __future__ import annotations

import dataclasses

import archspec.cpu
import pytest
from archspec.cpu import TARGETS
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version
from tests.builders.comparisons import host
from tests.builders.recorded_cpus import COMPLETE, HONEST, cpu_of

from tfcore.cpus.cpu import Cpu, compute_x86_64_level, read_cpu
from tfcore.cpus.features import STOCK_BASELINE, load_features
from tfcore.cpus.models import find_model, load_models
from tfcore.cpus.targets import (
    STOCK_FLAGS,
    STOCK_SPECS,
    create_stock_target,
    find_missing_features,
    list_targets,
    match_cpu,
    parse_target,
)
from tfcore.errors import TargetError

X86_64 = sorted(load_features("x86_64"))


def made(features: frozenset[str], vendor: str = "GenuineIntel") -> Cpu:
    return dataclasses.replace(host().cpu, vendor=vendor, family=0, model=0, features=features)


@pytest.mark.parametrize("name", COMPLETE)
def test_recorded_cpus_match_the_target_in_their_name(name: str) -> None:
    match = match_cpu(cpu_of(name))
    assert match.best.spec == name.partition("-")[0]
    assert match.best.features <= match.native.features <= cpu_of(name).features


@pytest.mark.parametrize("name", HONEST)
def test_honest_cpus_are_their_own_native_and_have_no_notes(name: str) -> None:
    match = match_cpu(cpu_of(name))
    assert match.native == match.best
    assert match.notes == ()


def test_a_masked_zen4_keeps_its_vector_units() -> None:
    match = match_cpu(cpu_of("x86_64_v4-masked-zen4"))
    assert [(miss.name, miss.missing) for miss in match.near] == [("zen4", ("flush_l1d", "pku"))]
    assert match.native.name == "x86_64_v4"
    assert match.native.tune == "zen4"
    expected = {"avx512_bf16", "avx512_vnni", "avx512ifma", "avx512vbmi", "avx512_vbmi2"}
    expected |= {"avx512_bitalg", "avx512_vpopcntdq", "gfni", "vaes", "vpclmulqdq"}
    assert expected <= set(match.native.extras)
    assert not {"clzero", "clwb", "fsgsbase"} & set(match.native.extras)
    assert "lacks flush_l1d, pku" in match.notes[0]


def test_a_lying_model_number_is_told() -> None:
    match = match_cpu(cpu_of("icelake-lying-model-167"))
    assert [(miss.name, miss.missing) for miss in match.near] == [("sapphirerapids", ("waitpkg",))]
    assert match.native.spec == "icelake+avx512_bf16/sapphirerapids"
    assert "model 167 is Rocket Lake" in match.notes[0]
    assert "the flags match sapphirerapids: amx_bf16" in match.notes[0]


def test_a_true_model_167_is_told_from_the_lying_one() -> None:
    match = match_cpu(cpu_of("cannonlake-rocketlake-11900"))
    assert "lacks clwb" in match.notes[0]


def test_a_hidden_group_is_a_note_and_no_other_tuning() -> None:
    match = match_cpu(cpu_of("skylake-aws-8175m"))
    assert match.native.spec == "skylake+avx512cd+avx512f"
    assert match.near[0].missing == ("avx512bw", "avx512dq", "avx512vl")
    assert "hypervisor" in match.notes[0]


def test_this_machine_matches_as_archspec_says() -> None:
    cpu = read_cpu(env={})  # (archspec knows of no mask)
    assert match_cpu(cpu).best.name == archspec.cpu.host().name
    assert match_cpu(cpu).native.features <= cpu.features


@given(
    st.frozensets(st.sampled_from(X86_64)),
    st.frozensets(st.sampled_from(X86_64)),
    st.sampled_from(["GenuineIntel", "AuthenticAMD", "CentaurHauls"]),
)
def test_more_features_never_match_a_lesser_level(
    some: frozenset[str], more: frozenset[str], vendor: str
) -> None:
    lesser, greater = match_cpu(made(some, vendor)).best, match_cpu(made(some | more, vendor)).best
    assert compute_x86_64_level(lesser.features) <= compute_x86_64_level(greater.features)
    assert lesser.features <= some


@given(
    st.sampled_from(sorted(name for name in TARGETS if str(TARGETS[name].family) == "x86_64")),
    st.frozensets(st.sampled_from(X86_64), max_size=4),
)
def test_native_asks_only_for_what_is_there(name: str, hidden: frozenset[str]) -> None:
    uarch = TARGETS[name]
    cpu = made(frozenset(uarch.features) - hidden, uarch.vendor)
    match = match_cpu(cpu)
    assert match.best.features <= match.native.features <= cpu.features
    assert not any(load_features("x86_64")[extra].banned for extra in match.native.extras)
    for miss in match.near:
        assert miss.missing == tuple(sorted(TARGETS[miss.name].features - cpu.features))


@given(st.data())
def test_specs_read_back(data: st.DataObject) -> None:
    base = data.draw(st.sampled_from(list_targets()))
    rows = load_features(base.family).values()
    addable = sorted(row.name for row in rows if row.flag and not row.banned)
    extras = data.draw(st.frozensets(st.sampled_from(addable), max_size=5))
    tune = data.draw(st.sampled_from([target.name for target in list_targets(base.family)]))
    target = parse_target("+".join((base.name, *extras)) + f"/{tune}")
    assert parse_target(target.spec) == target
    assert target.features == base.features | extras
    assert not set(target.extras) & base.features
    assert Version(f"2.14.1+{target.local}").local == target.local


@pytest.mark.parametrize(
    ("spec", "local"),
    [("zen4", "zen4"), ("skylake_avx512", "skylake.avx512"), ("x86-64-v3", "x86.64.v3")],
)
def test_plain_targets_have_readable_local_versions(spec: str, local: str) -> None:
    assert parse_target(spec).local == local


def test_extras_and_tuning_change_the_local_version() -> None:
    specs = ["x86_64_v4", "x86_64_v4/zen4", "x86_64_v4+avx512_bf16", "x86_64_v4+avx512_bf16/zen4"]
    locals_ = {parse_target(spec).local for spec in specs}
    assert len(locals_) == len(specs)
    assert all(local.startswith("x86.64.v4") for local in locals_)


@pytest.mark.parametrize("spec", ["Skylake-AVX512", " skylake_avx512 "])
def test_spelling_is_forgiven(spec: str) -> None:
    assert parse_target(spec).spec == "skylake_avx512"


def test_features_that_the_target_has_are_no_extras() -> None:
    assert parse_target("zen4+avx2").spec == "zen4"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("skylak", r"Did you mean skylake or skylake_avx512\?"),
        ("neoverse_n", r"Did you mean neoverse_n1 or neoverse_n2\?"),
        ("znver3", r"Did you mean zen3\?"),
        ("emeraldrapids", r"Did you mean sapphirerapids\?"),
        ("graniterapids", r"Did you mean sapphirerapids\?"),
        ("znver1", r"Did you mean zen\?"),
        ("icelake-client", r"Did you mean icelake\?"),
        ("znver", "Did you mean zen, zen2, zen3, zen4"),
        ("", r"\(nothing\)"),
        ("power9le", "power9le"),
        ("skylake+avx512vnni", "Did you mean avx512_vnni"),
        ("skylake+", "not a CPU feature"),
        ("skylake+flush_l1d", "flush_l1d is not"),
        ("sapphirerapids+avx512_fp16", "_Float16"),
        ("skylake/zen9", "zen9"),
        ("skylake/neoverse_v1", "neoverse_v1"),
    ],
)
def test_what_cannot_be_is_refused(spec: str, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        parse_target(spec)


def test_targets_of_both_families_are_listed_once() -> None:
    names = [target.name for target in list_targets()]
    assert len(names) == len(set(names))
    assert {"x86_64", "skylake", "zen3", "aarch64", "neoverse_v1"} <= set(names)
    assert "power9le" not in names
    assert {target.family for target in list_targets("aarch64")} == {"aarch64"}


def test_native_is_a_name_and_features() -> None:
    cpu = cpu_of("x86_64_v4-masked-zen4")
    assert match_cpu(cpu).native.spec.startswith("x86_64_v4+")


def test_missing_names_the_features_or_the_family() -> None:
    cpu = cpu_of("haswell")
    lacking = ("avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
    assert find_missing_features(parse_target("x86_64_v4"), cpu) == lacking
    assert find_missing_features(parse_target("haswell"), cpu) == ()
    assert find_missing_features(parse_target("armv8.4a"), cpu) == ("aarch64",)


def test_what_no_compiler_uses_by_itself_is_not_missing() -> None:
    assert not parse_target("broadwell").features <= cpu_of("haswell").features
    assert find_missing_features(parse_target("broadwell"), cpu_of("haswell")) == ()
    assert (
        find_missing_features(parse_target("sapphirerapids"), cpu_of("icelake-lying-model-167"))
        == ()
    )
    assert find_missing_features(parse_target("zen4"), cpu_of("x86_64_v4-masked-zen4")) == ()


def test_model_numbers_name_one_line_each() -> None:
    for model in load_models():
        assert model.target in TARGETS
        assert TARGETS[model.target].vendor == model.vendor
        for first, last in model.models:
            for number in range(first, last + 1):
                cpu = dataclasses.replace(
                    made(frozenset(), model.vendor),
                    family=model.family,
                    model=number,
                    stepping=model.steppings[0],
                )
                assert [
                    other_model.name for other_model in load_models() if other_model.has_cpu(cpu)
                ] == [model.name]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("skylake_avx512", "Skylake-SP"),
        ("cascadelake", "Cascade Lake"),
        ("zen2", "Zen 2"),
        ("zen3", "Zen 3"),
        ("zen4", "Zen 4"),
        ("neoverse_v1", "neoverse_v1"),
    ],
)
def test_model_numbers_of_recorded_cpus(name: str, line: str) -> None:
    model = find_model(cpu_of(name))
    assert model is not None
    assert model.name == line


def test_stock_flags_are_a_target_with_a_name_of_its_own() -> None:
    target = create_stock_target("x86_64")
    assert target == parse_target(STOCK_FLAGS)
    assert target.features == STOCK_BASELINE
    assert (target.family, target.tune) == ("x86_64", "x86_64")
    assert target.local == "stock.flags"
    assert Version(f"2.14.1+{target.local}").local == target.local


@pytest.mark.parametrize("spec", [f"{STOCK_FLAGS}+aes", f"{STOCK_FLAGS}/zen4", "x86_64+avx"])
def test_nothing_else_has_the_name_of_the_stock_flags(spec: str) -> None:
    assert parse_target(spec).local.startswith("x86.64.plus")


def test_the_stock_flags_of_aarch64_are_the_first_version_of_it() -> None:
    target = create_stock_target("aarch64")
    assert (target.spec, target.local) == ("aarch64", "aarch64")
    assert target.spec in STOCK_SPECS


@pytest.mark.parametrize("machine", ["riscv64", "arm64"])
def test_stock_flags_that_are_not_known_are_an_error(machine: str) -> None:
    with pytest.raises(TargetError, match=f"{machine} wheels") as caught:
        create_stock_target(machine)
    assert "--arch stock supports x86_64 and aarch64" in caught.value.hint
