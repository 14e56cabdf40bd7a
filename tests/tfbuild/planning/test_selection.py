"""A measured selection: the file, what becomes of it in a plan, and what is rendered for it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tests.builders.plans import plan_for, planned
from tests.builders.selections import ROW, SELECTION, TANH
from tests.tools.needed_sources import needed

from tfbuild.commands import Request
from tfbuild.kernelbuild.admission import UnitVerdict, select_registrations
from tfbuild.kernelbuild.closure import Symbols
from tfbuild.planning.render import render, render_selected
from tfbuild.planning.selection import (
    Selection,
    find_fused_ops,
    find_recorded_selection,
    load_recorded_selections,
    read_selection,
)
from tfbuild.upstream.kernels import RELEASE, find_fused_registrations, select
from tfcore.comparisons.kernels import TypedOp
from tfcore.cpus.targets import parse_target
from tfcore.errors import RecordError, UsageError
from tfcore.records import save
from tfcore.settings import TEMPLATES

FUSED = tuple(f"fused/{name}" for name in ("chains", "grouped", "loops", "products", "updates"))


def saved(folder: Path, **changes: object) -> str:
    path = folder / "selection.json"
    save(path, dataclasses.replace(SELECTION, **changes))  # type: ignore[arg-type]
    return str(path)


def test_a_selection_is_what_was_saved(tmp_path: Path) -> None:
    assert read_selection(Path(saved(tmp_path))) == SELECTION


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "selection.json"
    path.write_text('{"schema": 1, "kept": 3}', encoding="utf-8")
    with pytest.raises(RecordError, match=r"selection\.json"):
        read_selection(path)


def test_a_plan_takes_its_units_flags_and_kernels_from_the_selection(tmp_path: Path) -> None:
    plan = planned(selection=saved(tmp_path))
    assert [unit.name for unit in plan.kernels] == ["cwise_op_tanh"]
    assert plan.source_flags == SELECTION.flags
    assert plan.selection == (TANH,)
    assert plan.measured == (ROW,)
    assert plan.key != planned(kernels="cwise_op_tanh").key


@pytest.mark.parametrize("changes", [{"target": "haswell"}, {"release": "2.15.1"}])
def test_a_selection_of_another_target_or_release_is_refused(
    changes: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=r"0 .*2\.14\.1 .*skylake"):
        planned(selection=saved(tmp_path, **changes))


def test_only_the_source_that_it_names_gets_its_flags(tmp_path: Path) -> None:
    files = render(planned(selection=saved(tmp_path)), TEMPLATES)
    assert files["BUILD.bazel"].count('"-O3"') == 1


def test_with_sources_nothing_is_compiled_but_what_is_selected(tmp_path: Path) -> None:
    unit, needed = "cwise_op_add", "tensorflow/core/kernels/cwise_op_add_1.cc"
    changes = {"kernels": (unit,), "flags": {needed: ("-O3",)}}
    whole = planned(selection=saved(tmp_path, **changes))
    assert len(whole.sources_compiled) > 1
    assert not whole.only_selected
    plan = planned(selection=saved(tmp_path, **changes, sources=(needed,)))
    assert plan.only_selected
    assert plan.sources_compiled == (needed,)
    assert plan.key != whole.key
    files = render(plan, TEMPLATES)
    assert '{"Tanh", "T=1"}' in files["tensorwright/compiled.inc"]
    assert "-DTENSORWRIGHT_ONLY_SELECTED" in files["BUILD.bazel"]
    files = render(whole, TEMPLATES)
    assert "tensorwright/compiled.inc" not in files
    assert "-DTENSORWRIGHT_ONLY_SELECTED" not in files["BUILD.bazel"]


def test_flags_of_sources_that_are_not_compiled_are_left_out(tmp_path: Path) -> None:
    first, second = (f"tensorflow/core/kernels/cwise_op_add_{number}.cc" for number in (1, 2))
    flags = {first: ("-O3",), second: ("-O1",)}
    chosen = saved(tmp_path, kernels=("cwise_op_add",), flags=flags, sources=(first,))
    assert planned(selection=chosen).source_flags == {first: ("-O3",)}


def test_sources_are_needed_that_register_or_define_what_others_lack() -> None:
    def symbols(taken: str, strong: str) -> Symbols:
        return Symbols(taken=frozenset(taken), strong=frozenset(strong), weak=frozenset())

    actual = {
        "a": symbols("x", ""),
        "b": symbols("y", "x"),
        "c": symbols("", "y"),
        "d": symbols("", "z"),
    }
    assert needed(actual, frozenset("a")) == ("a", "b", "c")


def test_the_table_is_sorted_as_the_library_looks_it_up() -> None:
    log = TypedOp(op="Log", types="T=1")
    (text,) = render_selected((TANH, log, TypedOp(op="Tanh")), TEMPLATES).values()
    rows = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    assert rows == ['{"Log", "T=1"},', '{"Tanh", ""},', '{"Tanh", "T=1"},']


def test_nothing_selected_is_still_a_table() -> None:
    (text,) = render_selected((), TEMPLATES).values()
    assert '{"", ""}' in text


def test_a_selection_leaves_out_what_was_not_admitted() -> None:
    admitted = UnitVerdict(unit="cwise_op_tanh", registrations=(TANH,), cases=3)
    refused = UnitVerdict(unit="cwise_op_log", reason="it crashed")
    other_typed_op = TypedOp(op="Log", types="T=1")
    assert select_registrations([admitted, refused], None) == (TANH,)
    assert select_registrations([admitted, refused], [other_typed_op, TANH]) == (TANH,)
    assert select_registrations([admitted, refused], [other_typed_op]) == ()


# ---- what this project measured itself ----


@pytest.mark.parametrize(
    "selection",
    load_recorded_selections(),
    ids=lambda selection: f"{selection.release}-{selection.target}",
)
def test_a_recorded_selection_can_be_built(selection: Selection) -> None:
    units = select(",".join(selection.kernels), selection.release)
    assert {unit.name for unit in units} == set(selection.kernels)
    assert parse_target(selection.target).spec == selection.target
    sources = {
        source
        for unit in select(",".join(selection.kernels), selection.release)
        for source in unit.sources
    }
    assert set(selection.flags) <= sources
    assert set(selection.sources) <= sources
    assert all(set(unit.sources) & set(selection.sources) for unit in units)
    assert not selection.own, "op.toml has the targets of fused ops"


@pytest.mark.parametrize(
    "selection",
    load_recorded_selections(),
    ids=lambda selection: f"{selection.release}-{selection.target}",
)
def test_a_recorded_selection_keeps_what_won_and_was_confirmed(selection: Selection) -> None:
    assert selection.kept
    assert {row.choice for row in selection.rows if row.kept} == set(selection.kept)
    for choice in selection.kept:
        rows = [row for row in selection.rows if row.choice == choice]
        assert all(row.confirmed for row in rows)
        assert any(row.confirmed and row.confirmed[1] > 1 for row in rows)


@pytest.mark.parametrize(
    ("target", "measured"),
    [
        ("skylake_avx512", "skylake_avx512"),
        ("icelake+avx512_bf16/sapphirerapids", "skylake_avx512"),
        ("zen4", "skylake_avx512"),
        ("haswell", "haswell"),
        ("zen3", "haswell"),
        ("x86_64_v2", None),
        ("neoverse_v1", None),
    ],
)
def test_hot_kernels_are_those_of_the_nearest_kind_of_cpu(
    target: str, measured: str | None
) -> None:
    selection = find_recorded_selection(RELEASE, parse_target(target))
    assert (selection.target if selection else None) == measured
    assert find_recorded_selection("2.8.4", parse_target(target)) is None


def test_hot_kernels_are_registered_as_they_were_selected() -> None:
    plan, _ = plan_for(Request(arch="skylake_avx512", compiler="clang@16.0.6"))
    selection = find_recorded_selection(RELEASE, plan.target)
    assert selection is not None
    fused = find_fused_ops(plan.target)
    assert fused == FUSED
    assert plan.selection == tuple(sorted((*selection.kept, *registrations_of(*fused))))
    assert plan.selection == tuple(sorted(plan.selection)), "a wheel names them in this order"
    assert plan.only_selected
    assert plan.measured == selection.rows
    assert plan.measured_on == f"{selection.cpu}, code for skylake_avx512"
    assert {unit.name for unit in plan.kernels} == {*selection.kernels, *fused}


def registrations_of(*units: str) -> tuple[TypedOp, ...]:
    registrations = (
        fused_registration
        for name in units
        for fused_registration in find_fused_registrations(name)
    )
    return tuple(sorted(TypedOp(op=op, types=types) for op, types in registrations))


def test_units_of_ours_are_left_out_of_the_hot_kernels_by_name() -> None:
    request = Request(arch="skylake_avx512", compiler="clang@16.0.6")
    both, _ = plan_for(request)
    assert both.selection is not None
    less, _ = plan_for(dataclasses.replace(request, without="fused/updates"))
    ours = registrations_of("fused/updates")
    assert len(ours) == 8
    assert less.selection == tuple(typed_op for typed_op in both.selection if typed_op not in ours)
    excluded = {*both.sources_compiled} - {*less.sources_compiled}
    assert excluded == {"tensorwright/ops/updates/updates.cc"}
    assert both.measured == less.measured


def test_a_selection_of_the_users_has_the_units_of_ours_that_it_says(tmp_path: Path) -> None:
    fused = ("fused/loops", "fused/updates")
    chosen = saved(tmp_path, own=fused)
    plan = planned(selection=chosen)
    assert plan.selection == (TANH, *registrations_of(*fused))
    assert [unit.name for unit in plan.kernels] == ["cwise_op_tanh", *fused]
    assert planned(selection=chosen, without=",".join(fused)).selection == (TANH,)
    wheel_plan = planned(selection=saved(tmp_path), kernels="hot,fused/loops")
    assert wheel_plan.selection == (TANH, *registrations_of("fused/loops"))


def test_units_of_ours_go_with_what_is_selected_where_they_were_measured() -> None:
    targets = ("zen4", "zen3", "x86_64_v2", "neoverse_v1")
    measured = [target for target in targets if find_fused_ops(parse_target(target))]
    assert measured == ["zen4", "zen3"]


def test_units_of_ours_are_there_where_others_are_named_beside_the_hot_kernels() -> None:
    """Then nothing is selected, and the units come as a set."""
    plan = planned(kernels="hot,Tanh")
    assert plan.selection is None
    names = {unit.name for unit in plan.kernels}
    assert {"cwise_op_tanh", *find_fused_ops(plan.target)} <= names


@pytest.mark.parametrize(
    ("target", "ours"),
    [
        (
            "zen4",
            {"fused/chains", "fused/grouped", "fused/loops", "fused/products", "fused/updates"},
        ),
        (
            "zen3",
            {"fused/chains", "fused/grouped", "fused/loops", "fused/products", "fused/updates"},
        ),
        ("x86_64_v2", set()),
        ("neoverse_v1", set()),
    ],
)
def test_hot_kernels_that_were_never_measured_have_the_units_of_ours_that_were(
    target: str, ours: set[str]
) -> None:
    """Of a release without a recorded selection."""
    plan = planned(target, release="2.17.1")
    assert plan.selection is None
    names = {unit.name for unit in plan.kernels}
    assert {name for name in names if name.startswith("fused/")} == ours
    assert "cwise_op_select" in names
    if ours:
        less = planned(target, release="2.17.1", without="fused/loops")
        assert names - {unit.name for unit in less.kernels} == {"fused/loops"}


def test_named_kernels_are_all_registered() -> None:
    plan, _ = plan_for(
        Request(arch="skylake_avx512", compiler="clang@16.0.6", kernels="cwise_op_tanh")
    )
    assert plan.selection is None


def test_flags_of_a_request_are_those_of_every_source() -> None:
    plan, _ = plan_for(Request(arch="haswell", compiler="clang@16.0.6", flags="-O3"))
    sources = {source for unit in plan.kernels for source in unit.sources}
    assert plan.source_flags == dict.fromkeys(sources, ("-O3",))
    assert (plan.measured, plan.measured_on) == ((), "")  # that was other code


def test_a_search_for_flags_is_no_evidence(tmp_path: Path) -> None:
    plan = planned(selection=saved(tmp_path, rows=()))
    assert (plan.measured, plan.measured_on) == ((), "")
