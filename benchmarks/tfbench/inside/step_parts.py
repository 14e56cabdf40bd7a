"""Split the time of a step into parts. Pure; runs inside an arm."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tfbench.inside.profiling import Execution

MOVING = frozenset(
    {
        *("Identity", "IdentityN", "Snapshot", "DeepCopy", "ReadVariableOp", "AssignVariableOp"),
        *("Reshape", "Squeeze", "ExpandDims", "Transpose", "Concat", "ConcatV2", "Split"),
        *("SplitV", "Slice", "StridedSlice", "StridedSliceGrad", "Pack", "Unpack", "Tile"),
        *("Pad", "PadV2", "BroadcastTo", "ReverseV2", "ReverseSequence", "Fill", "ZerosLike"),
        *("Gather", "GatherV2", "GatherNd", "ResourceGather", "DynamicStitch"),
        *("TensorListGetItem", "TensorListSetItem", "TensorListPushBack", "TensorListPopBack"),
        *("TensorListStack", "TensorListFromTensor", "TensorListReserve"),
        *("_MklToTf", "_MklInputConversion"),
    }
)
"""Ops that only move data."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepParts:
    """The parts of a step's seconds without the profiler.

    In `kernels` an op computes; in `copies` all running ops only move data; in `dispatch`
    TensorFlow or Python chooses the next op; in `waiting` no thread runs.
    """

    kernels: float
    copies: float
    dispatch: float
    waiting: float


def compute_step_parts(
    executions: Iterable[Execution], *, step_s: float, cpu_s: float
) -> StepParts:
    """Compute the parts of a step from the traced executions of consecutive steps.

    A step without the profiler takes `step_s` seconds and `cpu_s` of CPU time. Traced steps
    take longer, so only their proportions are used.
    """
    traced = list(executions)
    span = measure_span(traced)
    busy = measure_coverage(traced) / span * step_s if span else 0.0
    kernels = (
        measure_coverage(execution for execution in traced if execution.op not in MOVING) / span
        if span
        else 0.0
    )
    waiting = min(max(step_s - cpu_s, 0.0), max(step_s - busy, 0.0))
    return StepParts(
        kernels=kernels * step_s,
        copies=busy - kernels * step_s,
        dispatch=step_s - busy - waiting,
        waiting=waiting,
    )


def measure_span(executions: Sequence[Execution]) -> float:
    """Return the seconds from the first start to the last end of the executions."""
    ends = [execution.began + execution.seconds for execution in executions]
    return max(ends) - min(execution.began for execution in executions) if ends else 0.0


def measure_coverage(executions: Iterable[Execution]) -> float:
    """Return the seconds in which at least one of the executions ran."""
    total, end = 0.0, float("-inf")
    for execution in sorted(executions, key=lambda execution: execution.began):
        last = execution.began + execution.seconds
        total += max(0.0, last - max(end, execution.began))
        end = max(end, last)
    return total
