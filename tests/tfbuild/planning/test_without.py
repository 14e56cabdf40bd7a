"""--without: kernel groups that are excluded from the chosen ones."""

from __future__ import annotations

from typing import Any

import pytest
from tests.builders.plans import planned

from tfbuild.commands import Request
from tfbuild.planning.plan import Plan, make_plan
from tfbuild.planning.request import resolve_fleet
from tfbuild.upstream import kernels
from tfcore.errors import UsageError


def units(plan: Plan) -> set[str]:
    return {unit.name for unit in plan.kernels}


def asked(arch: str = "haswell", **options: Any) -> tuple[Plan, ...]:
    request = Request(arch=arch, compiler="clang@16.0.6", python="3.11", **options)
    return resolve_fleet(request, make_plan)[0].plans


@pytest.mark.parametrize("word", ["cwise_op_tanh", "cwise_op_tanh.cc", "Tanh", " Tanh "])
def test_a_unit_is_left_out_by_its_name_its_source_or_its_op(word: str) -> None:
    (plan,) = asked(kernels="mini", without=word)
    assert units(plan) == {"cwise_op_sigmoid"}
    assert plan.key == planned("haswell", kernels="cwise_op_sigmoid").key


def test_a_units_own_name_means_no_other_that_has_its_source() -> None:
    kernel_units = kernels.select("random_op,stateless_random_ops_v2")
    assert [unit.name for unit in kernels.exclude_units(kernel_units, ("random_op",))] == [
        "stateless_random_ops_v2"
    ]


def test_what_a_selection_names_is_dropped_from_it_with_a_word(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (whole,), (less,) = asked(), asked(without="cwise_op_tanh")
    assert units(whole) - units(less) == {"cwise_op_tanh"}
    assert whole.selection is not None
    assert less.selection is not None
    assert {typed_op.op for typed_op in {*whole.selection} - {*less.selection}} <= {
        "Tanh",
        "TanhGrad",
    }
    assert not {"Tanh", "TanhGrad"} & {typed_op.op for typed_op in less.selection}
    assert not {"Tanh", "TanhGrad"} & {row.op for row in less.measured}
    assert "excluding cwise_op_tanh from the selection for haswell" in capsys.readouterr().err


def test_in_a_fleet_it_may_be_chosen_for_one_target_only() -> None:
    plans = asked("haswell,skylake_avx512")
    alone = units(plans[0]) ^ units(plans[1])
    for name in alone or {"cwise_op_tanh"}:
        assert not any(
            name in units(plan) for plan in asked("haswell,skylake_avx512", without=name)
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"without": "cwise_op_tan"}, "one of the chosen kernels. Did you mean cwise_op_tanh"),
        (
            {"without": "bias_op"},
            "one of the chosen kernels. Choose from cwise_op_sigmoid, cwise_op",
        ),
        ({"without": "Tanh,Sigmoid"}, "--without excludes all kernels"),
        ({"without": "Tanh", "scope": "full"}, "--without needs --scope kernels"),
    ],
)
def test_a_word_that_means_nothing_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        asked(kernels="mini", **options)
    assert message in str(caught.value)
