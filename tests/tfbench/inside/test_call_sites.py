"""What a traced op and its graph say of a place; real graphs are in tests/integration."""

from __future__ import annotations

import json
from dataclasses import asdict
from types import SimpleNamespace

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from tfbench.inside.call_sites import (
    OPAQUE,
    CallSite,
    CallSiteInput,
    build_input,
    find_origin,
    merge_nodes,
    parse_call_site,
    summarise_call_sites,
)
from tfbench.inside.profiling import Execution


def node(op: str, *sources: str) -> SimpleNamespace:
    return SimpleNamespace(name=op.lower(), op=op, input=list(sources), attr={})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("float[32,512]", CallSiteInput(dtype="float", shape=(32, 512))),
        ("int64[]", CallSiteInput(dtype="int64")),
        ("bfloat16[0,3]", CallSiteInput(dtype="bfloat16", shape=(0, 3))),
        ("", CallSiteInput(dtype=OPAQUE)),
    ],
)
def test_an_input_is_read_as_the_executor_writes_it(text: str, expected: CallSiteInput) -> None:
    assert build_input(text, "nowhere", {}) == expected


def test_the_origin_of_a_tensor_is_looked_for_through_loops() -> None:
    graph = {
        "a": node("Identity", "b"),
        "b": node("Enter", "c:0"),
        "c": node("Merge", "d", "a"),
        "d": node("Const"),
    }
    assert find_origin("a", graph) is graph["d"]


def test_a_loop_hands_on_what_it_does_not_change_and_nothing_else() -> None:
    """A shape from outside keeps its values within; a counter has those of its start once."""
    graph = {
        "shape": node("Const"),
        "enter": node("Enter", "shape"),
        "merge": node("Merge", "enter", "next"),
        "switch": node("Switch", "merge", "condition"),
        "inside": node("Identity", "switch:1", "^merge"),
        "next": node("NextIteration", "inside"),
    }
    assert find_origin("inside", graph) is graph["shape"]
    counting = graph | {"add": node("AddV2", "inside", "one"), "next": node("NextIteration", "add")}
    assert find_origin("inside", counting) is None


def test_a_branch_has_no_origin_where_the_two_differ() -> None:
    graph = {"a": node("Const"), "b": node("Const"), "either": node("Merge", "a", "b")}
    assert find_origin("either", graph) is None
    assert find_origin("either:1", graph | {"b": graph["a"]}) is None


def test_a_name_that_differing_nodes_share_stands_for_none_of_them() -> None:
    first, same, other_namespace = (node("Tanh", source) for source in ("x", "x", "y"))
    same.input.append("^before")
    lone = node("Mul", "x", "y")
    assert merge_nodes([first, lone, same]) == {"tanh": first, "mul": lone}
    assert merge_nodes([first, lone, other_namespace]) == {"mul": lone}
    assert merge_nodes([first, other_namespace, same]) == {}


def test_an_execution_of_another_op_is_not_that_node() -> None:
    execution = Execution(node="tanh", op="Mul", shapes="", seconds=1.0, began=0.0)
    assert list(summarise_call_sites([execution], {"tanh": node("Tanh")}, 1)) == []


def test_a_second_output_and_a_circle_have_no_origin() -> None:
    graph = {"a": node("Split"), "b": node("Merge", "c"), "c": node("NextIteration", "b")}
    assert find_origin("a:1", graph) is None
    assert find_origin("b", graph) is None
    assert find_origin("elsewhere", graph) is None


def test_details_show_values_without_the_names_of_their_fields() -> None:
    call_site = CallSite(
        op="Conv2D",
        attributes={"padding": 's: "SAME"', "strides": "list { i: 1 i: 2 }"},
        inputs=(
            CallSiteInput(dtype="float", shape=(2,)),
            CallSiteInput(dtype="int32", values=(1,)),
        ),
    )
    assert call_site.details == 'padding="SAME", strides=list { i: 1 i: 2 }, input 1 is [1]'
    assert call_site.shapes == "float[2];int32[]"


@drawn(
    st.builds(
        CallSite,
        op=st.text(),
        types=st.dictionaries(st.text(), st.lists(st.integers()).map(tuple)),
        attributes=st.dictionaries(st.text(), st.text()),
        inputs=st.lists(
            st.builds(
                CallSiteInput,
                dtype=st.text(),
                shape=st.lists(st.integers()).map(tuple),
                variable=st.booleans(),
                values=st.none() | st.lists(st.integers()).map(tuple),
            )
        ).map(tuple),
    )
)
def test_a_place_survives_json(call_site: CallSite) -> None:
    assert parse_call_site(json.loads(json.dumps(asdict(call_site)))) == call_site
