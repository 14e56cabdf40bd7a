"""What the time of a step is made of. Pure; runs inside an arm."""

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
"""Ops that put numbers elsewhere, and compute none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepParts:
    """Seconds of a step without the profiler. In `kernels` an op computes, in `copies` all that run
    put numbers elsewhere, in `dispatch` TensorFlow or Python chooses what is next, while `waiting`
    no thread runs."""

    kernels: float
    copies: float
    dispatch: float
    waiting: float


def parts_of(executions: Iterable[Execution], *, step_s: float, cpu_s: float) -> StepParts:
    """Of ops that were traced, step after step; a step without the profiler takes `step_s` seconds
    and `cpu_s` of CPU time. Traced ones take longer, so that only their proportions count."""
    every = list(executions)
    span = spanned(every)
    busy = covered(every) / span * step_s if span else 0.0
    kernels = covered(each for each in every if each.op not in MOVING) / span if span else 0.0
    waiting = min(max(step_s - cpu_s, 0.0), max(step_s - busy, 0.0))
    return StepParts(
        kernels=kernels * step_s,
        copies=busy - kernels * step_s,
        dispatch=step_s - busy - waiting,
        waiting=waiting,
    )


def spanned(executions: Sequence[Execution]) -> float:
    """Seconds from where the first one began to where the last one ended."""
    ends = [each.began + each.seconds for each in executions]
    return max(ends) - min(each.began for each in executions) if ends else 0.0


def covered(executions: Iterable[Execution]) -> float:
    """Seconds in which at least one of them ran."""
    total, end = 0.0, float("-inf")
    for each in sorted(executions, key=lambda each: each.began):
        last = each.began + each.seconds
        total += max(0.0, last - max(end, each.began))
        end = max(end, last)
    return total
