from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.op_definitions import Arg, Attr, Op

from tfbuild.probe.proposals import BOOL, FLOAT, INT32, RESOURCE, STRING, get_dtype, propose

INDEXES = st.integers(0, 319)
TRANSPOSE = Op("Transpose", [Arg("x", type_attr="T"), Arg("perm", INT32)], [Attr("T", "type")])
CONCAT = Op(
    "ConcatV2",
    [Arg("values", type_attr="T", number_attr="N"), Arg("axis", INT32)],
    [Attr("T", "type"), Attr("N", "int", minimum=2, has_minimum=True)],
)


def test_a_proposal_is_the_same_every_time() -> None:
    for index in range(50):
        once, again = (propose(TRANSPOSE, {"T": FLOAT}, index) for _ in range(2))
        assert pickle.dumps(once) == pickle.dumps(again)


@given(INDEXES)
def test_other_types_have_the_same_shapes(index: int) -> None:
    floats, words = (propose(TRANSPOSE, {"T": number}, index) for number in (FLOAT, STRING))
    assert [a.array.shape for a in floats.inputs][:1] == [a.array.shape for a in words.inputs][:1]


def test_the_first_proposals_have_every_rank_and_matching_sizes() -> None:
    shapes = [propose(TRANSPOSE, {"T": FLOAT}, index).inputs[0].array.shape for index in range(12)]
    assert {len(shape) for shape in shapes} == {0, 1, 2, 3, 4, 5}
    assert all(len(set(shape)) <= 1 for shape in shapes[::2])


def test_what_an_argument_is_called_steers_its_values() -> None:
    cases = [propose(TRANSPOSE, {"T": FLOAT}, index) for index in range(100)]
    fitting = [
        sorted(c.inputs[1].array.ravel()) == list(range(c.inputs[0].array.ndim)) for c in cases
    ]
    assert sum(fitting) > 50


@given(INDEXES)
def test_a_list_has_as_many_tensors_as_its_attribute_says(index: int) -> None:
    case = propose(CONCAT, {"T": FLOAT}, index)
    count = dict(case.attributes)["N"]
    assert 2 <= count <= 10
    assert len(case.inputs) == count + 1


@given(INDEXES)
def test_sizes_are_bounded(index: int) -> None:
    case = propose(TRANSPOSE, {"T": FLOAT}, index)
    assert all(op_input.array.size <= 7**5 for op_input in case.inputs)


def test_some_proposals_are_empty() -> None:
    sizes = [propose(TRANSPOSE, {"T": FLOAT}, index).inputs[0].array.size for index in range(33)]
    assert 0 in sizes


def test_attributes_take_their_defaults_first_and_lawful_values_later() -> None:
    lawful = (b"SAME", b"VALID")
    op = Op("Pool", [], [Attr("padding", "string", lawful), Attr("flag", "bool", default=True)])
    records = [dict(propose(op, {}, index).attributes) for index in range(99)]
    assert {row["padding"] for row in records} == set(lawful)
    assert {row["flag"] for row in records[:24]} == {True}
    assert {row["flag"] for row in records} == {True, False}


def test_stateful_ops_get_a_seed() -> None:
    op = Op("RandomUniform", [], [Attr("seed", "int", default=0)], is_stateful=True)
    assert dict(propose(op, {}, 0).attributes) == {"seed": 7}


def test_a_sparse_tensor_is_consistent() -> None:
    names = ("a_indices", "a_values", "a_shape")
    op = Op(
        "SparseAny", [Arg(name, number) for name, number in zip(names, (9, FLOAT, 9), strict=True)]
    )
    for index in range(40):
        indices, values, shape = (op_input.array for op_input in propose(op, {}, index).inputs)
        assert indices.shape == (len(values), len(shape))
        assert (indices < shape).all()
        assert len(np.unique(indices, axis=0)) == len(values)


@pytest.mark.parametrize(
    ("op", "role"),
    [
        ("ResourceScatterAdd", "variable"),
        ("LookupTableFindV2", "table"),
        ("StackPopV2", "stack"),
        ("QueueSizeV2", "queue"),
        ("TensorArrayReadV3", "tensor array"),
    ],
)
def test_a_handle_is_of_what_the_op_is_named_after(op: str, role: str) -> None:
    assert propose(Op(op, [Arg("handle", RESOURCE)]), {}, 0).inputs[0].role == role


def test_functions_cannot_be_guessed() -> None:
    with pytest.raises(NotImplementedError, match="function"):
        propose(Op("MapDefun", [], [Attr("f", "func")]), {}, 0)


@pytest.mark.parametrize("number", [*range(1, 20), 22, 23])
def test_every_data_type_has_values_or_says_so(number: int) -> None:
    op = Op("Identity", [Arg("input", type_attr="T")], [Attr("T", "type")])
    (array,) = (op_input.array for op_input in propose(op, {"T": number}, 2).inputs)
    assert array.dtype == get_dtype(number)
    assert array.size
    if number == BOOL:
        assert array.dtype == np.bool_


def test_unknown_data_types_are_refused() -> None:
    with pytest.raises(NotImplementedError, match="99"):
        get_dtype(99)


def test_a_case_says_what_it_is() -> None:
    assert str(propose(TRANSPOSE, {"T": FLOAT}, 0)).startswith("Transpose 1 (")
