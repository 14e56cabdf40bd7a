from __future__ import annotations

import pytest
from tests.builders.kernel_call_sites import FLOAT, INT32, call_site

from tfbench.inside.call_sites import CallSite
from tfbench.kernels.serving import find_registration
from tfcore.comparisons.kernels import TypedOp


@pytest.mark.parametrize(
    ("types", "serves"),
    [
        ("T=1", True),
        ("T=3|1", True),
        ("", True),
        ("T=3", False),
        ("T=1,Tidx=3", False),
        ("T=1;special", False),
    ],
)
def test_a_registration_serves_the_types_that_it_allows(types: str, *, serves: bool) -> None:
    choice = TypedOp(op="Tanh", types=types)
    assert find_registration(call_site("Tanh", 4), [choice]) == (choice if serves else None)


def test_another_op_is_not_served() -> None:
    assert find_registration(call_site("Tanh"), [TypedOp(op="TanhGrad", types="T=1")]) is None


def test_every_type_of_a_list_must_be_allowed() -> None:
    several = CallSite(op="Tanh", types={"T": (FLOAT, INT32)})
    assert find_registration(several, [TypedOp(op="Tanh", types="T=1")]) is None
    assert find_registration(several, [TypedOp(op="Tanh", types="T=1|3")]) is not None
