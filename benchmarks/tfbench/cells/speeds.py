"""Examples per second: ours over launches, and what tf_cnn_benchmarks would print. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfbench.costs.cost import Amount, average_launches
from tfbuild.errors import SampleError

_NORMAL = 1.4826
"""Times the median of absolute deviations: the standard deviation, were they normal."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Printed:
    """`images/sec: mean +/- uncertainty (jitter = …)` of one launch, as `log_util` and
    `benchmark_cnn.get_perf_timing` of tensorflow/benchmarks compute it: the batch over the mean
    time of a step; the standard error of the steps' speeds; their scaled median of absolute
    deviations from their median."""

    mean: float
    uncertainty: float
    jitter: float


def printed(step_s: Sequence[float], batch: int) -> Printed:
    """Raises SampleError for no steps, and for times that are not positive numbers."""
    _check(step_s)
    speeds = [batch / each for each in step_s]
    middle = statistics.median(speeds)
    return Printed(
        mean=batch / statistics.fmean(step_s),
        uncertainty=statistics.pstdev(speeds) / math.sqrt(len(speeds)),
        jitter=_NORMAL * statistics.median(abs(each - middle) for each in speeds),
    )


def speed(answers: Sequence[Mapping[str, Any]]) -> Amount:
    """Examples per second over launches, the geometric mean with Student's t interval; of a single
    launch a plain number. Answers have `step_s` and `batch`. Raises SampleError."""
    return average_launches([_of_launch(each["step_s"], each["batch"]) for each in answers])


def _of_launch(step_s: Sequence[float], batch: int) -> float:
    _check(step_s)
    return batch * len(step_s) / math.fsum(step_s)


def _check(step_s: Sequence[float]) -> None:
    if not step_s:
        raise SampleError("no step was timed")
    wrong = [each for each in step_s if not (math.isfinite(each) and each > 0)]
    if wrong:
        raise SampleError(f"a step took {wrong[0]:g} s, which is not a time")
