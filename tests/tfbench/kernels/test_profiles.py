from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.kernel_call_sites import FLOAT, INT32, call_site
from tests.builders.profiles import profile, program

from tfbench.inside.call_sites import CallSite, CallSiteInput
from tfbench.kernels.profiles import (
    ProfiledCallSite,
    adjust_row_variables,
    merge_varying_sizes,
    rank_call_sites,
    read_profile,
)
from tfcore.errors import RecordError
from tfcore.records import save

EMBEDDING = CallSiteInput(dtype="float", shape=(1000, 50), variable=True)


def test_programs_weigh_the_same_however_long_they_take() -> None:
    big, small = call_site("Tanh", 1000), call_site("Tanh", 10)
    sites = rank_call_sites(
        profile(
            program("long", (big, 2, 90.0), (small, 10, 10.0)),
            program("short", (small, 1000, 2.0)),
        )
    )
    assert [(site.place, round(site.share, 6)) for site in sites] == [(small, 0.55), (big, 0.45)]
    assert [site.most for site in sites] == [1.0, 0.9]


def test_a_call_takes_what_it_takes_where_there_are_most() -> None:
    small = call_site("Tanh", 10)
    both = profile(program("a", (small, 1, 5.0)), program("b", (small, 1000, 2.0)))
    (site,) = rank_call_sites(both)
    assert site.call_s == pytest.approx(0.002)


def rows_of(count: int) -> CallSite:
    """An update of some rows of an embedding."""
    return CallSite(
        op="ResourceScatterAdd",
        types={"dtype": (FLOAT,), "Tindices": (INT32,)},
        inputs=(
            EMBEDDING,
            CallSiteInput(dtype="int32", shape=(count,)),
            CallSiteInput(dtype="float", shape=(count, 50)),
        ),
    )


def test_what_varies_from_step_to_step_is_one_place_of_the_middle_size() -> None:
    rows = [
        ProfiledCallSite(place=rows_of(count), calls=0.5, seconds=0.5) for count in (70, 90, 80)
    ]
    steady = ProfiledCallSite(place=call_site("Tanh", 10), calls=1, seconds=1)
    assert list(merge_varying_sizes([*rows, steady])) == [
        steady,
        ProfiledCallSite(place=rows_of(80), calls=1.5, seconds=1.5),
    ]


def test_what_varies_in_more_than_its_sizes_stays_apart() -> None:
    other_site = dataclasses.replace(rows_of(70), types={"dtype": (FLOAT,), "Tindices": (9,)})
    small = dataclasses.replace(EMBEDDING, shape=(10, 50))
    places = [rows_of(70), other_site, dataclasses.replace(rows_of(70), inputs=(small,))]
    rows = [ProfiledCallSite(place=place, calls=0.5, seconds=0.5) for place in places]
    assert list(merge_varying_sizes(rows)) == rows


@given(st.lists(st.tuples(st.integers(1, 99), st.floats(0.1, 3)), max_size=9))
def test_no_time_is_lost_when_places_are_gathered(rows: list[tuple[int, float]]) -> None:
    sites = [
        ProfiledCallSite(place=rows_of(size), calls=calls, seconds=calls) for size, calls in rows
    ]
    assert sum(row.seconds for row in merge_varying_sizes(sites)) == pytest.approx(
        sum(row.seconds for row in sites)
    )


def test_reads_of_a_variable_count_for_what_updates_its_rows() -> None:
    """Another variable's reads are its own."""
    read, other_site = (
        CallSite(op="ReadVariableOp", types={"dtype": (FLOAT,)}, inputs=(call_site_input,))
        for call_site_input in (EMBEDDING, dataclasses.replace(EMBEDDING, shape=(7,)))
    )
    half = ProfiledCallSite(place=rows_of(80), calls=1, seconds=0.1)
    again = ProfiledCallSite(place=rows_of(90), calls=3, seconds=0.3)
    alone = ProfiledCallSite(place=other_site, calls=1, seconds=1)
    sites = list(
        adjust_row_variables([half, ProfiledCallSite(place=read, calls=4, seconds=8), again, alone])
    )
    assert [row.place for row in sites] == [half.place, again.place, other_site]
    assert [row.seconds for row in sites] == pytest.approx([2.1, 6.3, 1])


@pytest.mark.parametrize("op", ["AssignAddVariableOp", "AssignSubVariableOp"])
def test_updates_of_a_variable_whose_rows_are_read_are_marked(op: str) -> None:
    """And no others: stock does not copy those."""
    other_input = dataclasses.replace(EMBEDDING, shape=(7,))
    gather, whole, alone = (
        CallSite(op=name, types={"dtype": (FLOAT,)}, inputs=(call_site_input,))
        for name, call_site_input in (
            ("ResourceGather", EMBEDDING),
            (op, EMBEDDING),
            (op, other_input),
        )
    )
    sites = adjust_row_variables(
        [ProfiledCallSite(place=site, calls=1, seconds=1) for site in (gather, whole, alone)]
    )
    marked = dataclasses.replace(whole, attributes={"_by_rows": "b: true"})
    assert [row.place for row in sites] == [gather, marked, alone]


def test_variables_that_the_trace_does_not_tell_apart_stay_as_they_are() -> None:
    opaque = CallSiteInput(dtype="opaque")
    rows = [
        ProfiledCallSite(place=CallSite(op=op, inputs=inputs), calls=1, seconds=1)
        for op in ("ResourceGather", "ResourceScatterAdd", "AssignAddVariableOp", "ReadVariableOp")
        for inputs in ((opaque,), ())
    ]
    assert list(adjust_row_variables(rows)) == rows


def test_a_profile_is_read_as_it_was_saved(tmp_path: Path) -> None:
    written = profile(program("a", (call_site("Tanh", 2, 3), 1, 5.0)))
    save(tmp_path / "profile.json", written)
    assert read_profile(tmp_path / "profile.json") == written


@pytest.mark.parametrize("text", ["", "{}", '{"schema": 1}', '{"schema": 1, "programs": 3}'])
def test_what_is_no_profile_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "profile.json").write_text(text, encoding="utf-8")
    with pytest.raises(RecordError):
        read_profile(tmp_path / "profile.json")
