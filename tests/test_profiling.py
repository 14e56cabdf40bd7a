from __future__ import annotations

import pytest

from tfbench.profiling import executions, op_type
from tfbench.summary import coverage
from tfbuild.errors import SampleError


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("while_15/body/_1/while/Tanh_1:Tanh", "Tanh"),
        ("dense/MatMul:_MklNativeFusedMatMul", "_MklNativeFusedMatMul"),
        ("EagerExecute: __inference_train_7", None),
        ("KernelAndDeviceFunc::Run", None),
        ("while:While", None),
        ("call:StatefulPartitionedCall", None),
        ("Iterator::Root::Prefetch", None),
        ("tf.constant", None),
    ],
)
def test_executed_ops_are_told_from_scopes_and_containers(name: str, op: str | None) -> None:
    assert op_type(name) == op


def test_an_op_counts_as_covered_when_its_tuned_kernels_ran() -> None:
    found = coverage(
        {
            "steps": 5,
            "op_s": {"Tanh": 0.2, "MatMul": 0.7, "Mul": 0.1},
            "executions": {"Tanh": 400, "ResourceApplyAdam": 10},
        }
    )
    assert found is not None
    assert found.share == pytest.approx(0.2)
    assert [(row.op, row.runs_per_step) for row in found.ops] == [
        ("Tanh", 80.0),
        ("ResourceApplyAdam", 2.0),
    ]


def test_an_arm_of_stock_kernels_has_no_coverage() -> None:
    assert coverage(None) is None
    assert not executions(None)


def test_a_profile_of_nothing_is_an_error() -> None:
    with pytest.raises(SampleError):
        coverage({"steps": 5, "op_s": {}, "executions": {}})
