from __future__ import annotations

import csv
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbuild.planning.plan import read_native_files
from tfbuild.upstream.fused_ops import WORKSPACE_FOLDER
from tfbuild.upstream.kernels import (
    FOLDER,
    RELEASE,
    KernelUnit,
    SourceOutcome,
    SurveyRow,
    _list_units,
    _load_table,
    _resolve_word,
    estimate_cost,
    format_survey,
    load_survey,
    parse_survey,
    select,
)
from tfcore.errors import UsageError

SETS: dict[str, list[str]] = _load_table()["set"]
UNITS: dict[str, list[str]] = _load_table()["unit"]
NOT_SURVEYED = "0.0.0"
COSTS: dict[str, dict[str, int]] = _load_table()["cost"]


def names(choice: str) -> list[str]:
    return [unit.name for unit in select(choice)]


def test_sets_are_spelled_out_in_one_order() -> None:
    for name, members in SETS.items():
        assert names(name) == sorted(members)
    assert set(names("mini")) <= set(names("hot"))


def test_names_may_be_mixed_repeated_and_carry_a_suffix() -> None:
    assert names(" cwise_op_log.cc,mini,cwise_op_tanh , cwise_op_log") == [
        "cwise_op_log",
        "cwise_op_sigmoid",
        "cwise_op_tanh",
    ]


def test_a_name_that_is_not_in_the_table_means_its_one_source() -> None:
    (unit,) = select("cwise_op_log")
    assert unit.sources == (f"{FOLDER}/cwise_op_log.cc",)
    (unit,) = select("image/colorspace_op")
    assert unit.sources == (f"{FOLDER}/image/colorspace_op.cc",)
    assert unit.label == "image__colorspace_op"


def test_our_units_have_all_sources_of_their_folder_and_are_in_no_set() -> None:
    units = select("fused/updates,fused/loops,fused/products,fused/grouped,fused/chains")
    ours = {
        f"{WORKSPACE_FOLDER}/{name}"
        for name in read_native_files()
        if name.startswith("ops/") and name.endswith(".cc")
    }
    taken = {source for unit in units for source in unit.sources}
    assert taken - ours == {f"{FOLDER}/tensor_list.cc"}
    assert taken & ours == ours
    labels = [
        "fused__chains",
        "fused__grouped",
        "fused__loops",
        "fused__products",
        "fused__updates",
    ]
    assert [unit.label for unit in units] == labels
    assert all(unit.name not in names(choice) for unit in units for choice in (*SETS, "all"))


@pytest.mark.parametrize("name", UNITS)
def test_the_survey_finds_the_units_that_were_found_by_hand(name: str) -> None:
    """From the symbols that sources want of each other; one source it showed to be needless."""
    needless = {"cwise_ops_common.cc"} if name == "relu_op" else set()
    (unit,) = select(name)
    assert {*unit.sources} == {f"{FOLDER}/{file}" for file in {*UNITS[name]} - needless}


def test_a_source_brings_the_unit_that_it_belongs_to() -> None:
    for row in load_survey().values():
        if row.ops and row.unit:
            assert names(row.source) == [row.unit]


def test_every_source_of_the_release_was_looked_at() -> None:
    rows = load_survey().values()
    assert len(rows) == 766
    assert not any(row.outcome is SourceOutcome.UNKNOWN for row in rows)
    assert all(
        row.reason for row in rows if row.outcome in (SourceOutcome.REFUSED, SourceOutcome.BROKEN)
    )


@pytest.mark.parametrize(
    "choice",
    [
        "",
        "hot,",
        "a b",
        "../evil",
        "/etc/passwd",
        "relu-op",
        "a//b",
        "a/",
        "x;y",
        "--",
        "ü",
    ],
)
def test_odd_names_are_refused_with_what_is_known(choice: str) -> None:
    with pytest.raises(UsageError) as caught:
        select(choice)
    assert all(name in caught.value.hint for name in (*SETS, "all"))


ROWS = {
    row.source: row
    for row in (
        SurveyRow(source="add_1.cc", ops=("Add",), unit="add", sources=("add_1.cc", "common.cc")),
        SurveyRow(source="common.cc", ops=(), outcome=SourceOutcome.HELPER),
        SurveyRow(source="late.cc", ops=("Late", "_Arg")),
        SurveyRow(
            source="xent_op.cc", ops=("Xent",), outcome=SourceOutcome.BROKEN, reason='a, "b"\n'
        ),
    )
}


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("Add", ["add"]),
        ("add", ["add"]),
        ("add_1", ["add"]),
        ("common", ["add"]),
        ("Late", ["late"]),
        ("_Arg", ["late"]),
        ("Xent", ["xent_op"]),
        ("all", ["add", "late"]),
        ("training_op_helpers", ["training_ops"]),
        ("mini", ["cwise_op_tanh", "cwise_op_sigmoid"]),
    ],
)
def test_sets_ops_units_and_sources_are_understood(word: str, expected: list[str]) -> None:
    assert _resolve_word(word, _list_units(ROWS), ROWS) == expected


def test_an_unknown_op_is_told_with_what_is_near() -> None:
    with pytest.raises(UsageError, match="has the op Ad") as caught:
        _resolve_word("Ad", _list_units(ROWS), ROWS)
    assert "Add" in caught.value.hint


def test_all_of_a_release_that_was_not_surveyed_is_refused() -> None:
    with pytest.raises(UsageError, match="--kernels all"):
        select("all", "0.0.0")
    assert load_survey("0.0.0") == {}


def test_what_sources_register_is_borrowed_where_a_release_was_not_surveyed() -> None:
    assert select("Tanh,Mul", NOT_SURVEYED) == select("Tanh,Mul")
    assert select("resource_variable_ops", NOT_SURVEYED) == select("resource_variable_ops")


def test_a_survey_reads_back_as_it_was_written() -> None:
    assert parse_survey(format_survey(ROWS.values())) == tuple(ROWS.values())


@pytest.mark.parametrize("text", ["source,ops\na,b\n", format_survey(ROWS.values())[:-30]])
def test_a_torn_survey_is_no_survey(text: str) -> None:
    with pytest.raises((KeyError, ValueError, TypeError, csv.Error)):
        parse_survey(text)


OPS = ("Tanh", "AddV2")


def test_the_table_in_the_repository_says_what_ops_are_made_of() -> None:
    registering = {
        op: {row.source for row in load_survey().values() if op in row.ops} for op in OPS
    }
    assert registering == {
        "Tanh": {"cwise_op_tanh.cc"},
        "AddV2": {"cwise_op_add_1.cc", "cwise_op_add_2.cc"},
    }
    assert names("Tanh,Sigmoid") == names("mini")
    everything = {source for unit in select("all") for source in unit.sources}
    for row in load_survey().values():
        assert row.source in row.sources or not row.unit
        assert (f"{FOLDER}/{row.source}" in everything) >= (
            bool(row.ops) and row.outcome is SourceOutcome.ADMITTED
        )


@given(st.text(max_size=20))
def test_whatever_is_chosen_stays_below_the_kernel_folder(choice: str) -> None:
    try:
        units = select(choice)
    except UsageError:
        return
    for unit in units:
        assert ".." not in unit.name
        assert all(source.startswith(f"{FOLDER}/") for source in unit.sources)
        assert "/" not in unit.label


@pytest.mark.parametrize(
    ("words", "release", "meant"),
    [
        ("hotter", RELEASE, "hot?"),
        ("hot,cwise_op_tahn", RELEASE, "cwise_op_tanh"),
        ("hot,fused/update", RELEASE, "fused/updates"),
        ("fused/loop", NOT_SURVEYED, "fused/loops"),
    ],
)
def test_a_name_of_no_source_is_refused_with_what_is_meant(
    words: str, release: str, meant: str
) -> None:
    with pytest.raises(UsageError) as caught:
        select(words, release)
    assert f"unknown kernel source or set {words.rpartition(',')[2]}" in str(caught.value)
    assert meant in str(caught.value.hint)


def test_labels_stay_apart() -> None:
    units = select("hot,mini,cwise_op_log,linalg/determinant_op,sparse/add_op,add_op", NOT_SURVEYED)
    assert len({unit.label for unit in units}) == len(units)


def test_the_cost_of_measured_sources_is_their_sum() -> None:
    file = "training_ops.cc"
    unit = KernelUnit(name="x", sources=(f"{FOLDER}/{file}", f"{FOLDER}/xent_op.cc"))
    compile_cost = estimate_cost((unit,))
    assert compile_cost.seconds == COSTS[file]["seconds"] + COSTS["xent_op.cc"]["seconds"]
    assert compile_cost.megabytes == max(COSTS[file]["megabytes"], COSTS["xent_op.cc"]["megabytes"])
    assert (compile_cost.measured, compile_cost.sources) == (2, 2)


def test_what_is_selected_of_a_source_costs_less_than_the_whole() -> None:
    units = select("cwise_op_add,cwise_op_div")
    some, all_ = estimate_cost(units, only_selected=True), estimate_cost(units)
    assert some.sources == all_.sources
    assert some.seconds < all_.seconds
    assert some.megabytes < all_.megabytes


def test_an_unmeasured_source_costs_the_median_and_the_most_memory() -> None:
    compile_cost = estimate_cost(select("no_such_kernel_op", NOT_SURVEYED))
    assert compile_cost.seconds == statistics.median(row["seconds"] for row in COSTS.values())
    assert compile_cost.megabytes == max(row["megabytes"] for row in COSTS.values())
    assert (compile_cost.measured, compile_cost.sources) == (0, 1)


def test_a_source_of_two_units_is_compiled_once() -> None:
    sources = (f"{FOLDER}/xent_op.cc",)
    twice = (KernelUnit(name="a", sources=sources), KernelUnit(name="b", sources=sources))
    assert estimate_cost(twice) == estimate_cost(twice[:1])


def test_nothing_costs_nothing() -> None:
    compile_cost = estimate_cost(())
    assert (compile_cost.seconds, compile_cost.megabytes, compile_cost.sources) == (0, 0, 0)
