from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbench.inside.profiling import Execution
from tfbench.inside.step_parts import compute_step_parts, measure_coverage

TIMES = st.floats(0, 10, allow_nan=False)


def ran(op: str, began: float, seconds: float) -> Execution:
    return Execution(node=op, op=op, shapes="", seconds=seconds, began=began)


def test_a_step_is_kernels_copies_what_lies_between_and_what_waits() -> None:
    executions = [ran("MatMul", 0, 4), ran("Identity", 5, 2), ran("Mul", 10, 4), ran("Pack", 18, 2)]
    parts = compute_step_parts(executions, step_s=10, cpu_s=9)
    assert (parts.kernels, parts.copies, parts.dispatch, parts.waiting) == (4, 2, 3, 1)


def test_ops_at_once_count_once_and_one_that_computes_hides_a_copy() -> None:
    executions = [ran("MatMul", 0, 4), ran("Identity", 1, 2), ran("Identity", 3, 3)]
    parts = compute_step_parts(executions, step_s=6, cpu_s=6)
    assert (parts.kernels, parts.copies, parts.dispatch) == (4, 2, 0)


def test_what_was_traced_is_longer_and_only_its_proportions_count() -> None:
    parts = compute_step_parts([ran("MatMul", 5, 9), ran("Mul", 24, 1)], step_s=10, cpu_s=10)
    assert (parts.kernels, parts.dispatch, parts.waiting) == (5, 5, 0)


def test_no_more_waits_than_lies_between_ops() -> None:
    parts = compute_step_parts([ran("MatMul", 0, 12)], step_s=10, cpu_s=8)
    assert (parts.kernels, parts.dispatch, parts.waiting) == (10, 0, 0)


def test_a_step_without_ops_is_dispatch() -> None:
    assert compute_step_parts([], step_s=1, cpu_s=1).dispatch == 1


@given(
    st.lists(st.builds(ran, st.sampled_from(["MatMul", "Identity"]), TIMES, TIMES), max_size=9),
    TIMES,
    TIMES,
)
def test_parts_are_the_whole_step(executions: list[Execution], step_s: float, cpu_s: float) -> None:
    actual = dataclasses.astuple(compute_step_parts(executions, step_s=step_s, cpu_s=cpu_s))
    assert math.fsum(actual) == pytest.approx(step_s)
    assert min(actual) >= -1e-9


@given(st.lists(st.builds(ran, st.just("MatMul"), TIMES, TIMES), max_size=9))
def test_no_more_is_covered_than_all_take(executions: list[Execution]) -> None:
    longest = max((execution.seconds for execution in executions), default=0)
    assert (
        longest - 1e-9
        <= measure_coverage(executions)
        <= math.fsum(execution.seconds for execution in executions) + 1e-9
    )
