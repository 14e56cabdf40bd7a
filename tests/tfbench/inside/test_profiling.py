from __future__ import annotations

import pytest

from tfbench.inside.profiling import count_executions, parse_op_type


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
    assert parse_op_type(name) == op


def test_without_a_tuned_library_no_tuned_kernel_ran() -> None:
    assert not count_executions(None)
