"""Examples per second: over launches, and as tf_cnn_benchmarks prints them. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfbench.costs.cost import Amount, average_launches
from tfcore.errors import SampleError

_NORMAL = 1.4826
"""Factor from the median absolute deviation to the standard deviation of a normal distribution."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PrintedSpeed:
    """The values of the line `images/sec: mean +/- uncertainty (jitter = …)` of one launch.

    `log_util` and `benchmark_cnn.get_perf_timing` of tensorflow/benchmarks compute them: `mean` is
    the batch size over the mean time of a step, `uncertainty` the standard error of the steps'
    speeds, `jitter` their scaled median absolute deviation.
    """

    mean: float
    uncertainty: float
    jitter: float


def compute_printed_speed(step_s: Sequence[float], batch: int) -> PrintedSpeed:
    """Compute the speed that tf_cnn_benchmarks would print.

    Raises SampleError if there are no steps or a time is not a positive number.
    """
    _check_times(step_s)
    speeds = [batch / value for value in step_s]
    center = statistics.median(speeds)
    return PrintedSpeed(
        mean=batch / statistics.fmean(step_s),
        uncertainty=statistics.pstdev(speeds) / math.sqrt(len(speeds)),
        jitter=_NORMAL * statistics.median(abs(value - center) for value in speeds),
    )


def compute_speed(answers: Sequence[Mapping[str, Any]]) -> Amount:
    """Return examples per second over launches.

    It is the geometric mean with Student's t interval, or a plain number for a single launch.
    Answers have `step_s` and `batch`. Raises SampleError.
    """
    return average_launches(
        [_compute_launch_speed(answer["step_s"], answer["batch"]) for answer in answers]
    )


def _compute_launch_speed(step_s: Sequence[float], batch: int) -> float:
    _check_times(step_s)
    return batch * len(step_s) / math.fsum(step_s)


def _check_times(step_s: Sequence[float]) -> None:
    if not step_s:
        raise SampleError("no step was timed")
    invalid = [seconds for seconds in step_s if not (math.isfinite(seconds) and seconds > 0)]
    if invalid:
        raise SampleError(f"a step took {invalid[0]:g} s, which is not a positive time")
