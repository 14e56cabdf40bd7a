"""From launches to a cell, from cells to the overall figures. Pure."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tfbench.arms.arm import Arm
from tfbench.inside import bins
from tfbench.inside.phases import AUGMENT, JUDGED, VALIDATE
from tfbench.inside.workloads import find_batch_size, find_phase, find_schedule
from tfbench.measuring import gates
from tfbench.measuring.agreement import agreements
from tfbench.measuring.effort import FEWEST_LAUNCHES, stop
from tfbench.measuring.observations import (
    Launch,
    ObservedCell,
    contrast_of,
    counting,
    half_width,
    log_ms,
    medians,
    more_blocks,
)
from tfbench.measuring.samples import Sample, Start
from tfbench.measuring.statistics import Thresholds, combined, floor, mean_of, verdict
from tfbuild.errors import SampleError
from tfbuild.measured.comparison import (
    ArmFacts,
    ArmTimes,
    ComparedCell,
    Coverage,
    Gates,
    InterimAnalysis,
    Latency,
    OpShare,
    Overall,
    PhaseTime,
    Speedup,
)
from tfbuild.measured.effort import Effort, Stop
from tfbuild.measured.interval import Interval, Verdict
from tfbuild.measured.kernels import KernelTable

_FOR_P99 = 200
"""Requests of a launch: two that are slower than the quantile."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Criteria:
    """What every cell of a comparison is judged by. `tolerances` names the arms and the repeat."""

    effort: Effort
    tolerances: Mapping[str, float]
    threshold: float
    margin: float


def cell(measured: ObservedCell, by: Criteria) -> ComparedCell:
    """Raises SampleError when the samples allow no answer."""
    answered = measured.answered
    found = [gates.reasons(block) for block in measured.blocks]
    noise = contrast_of(measured, measured.repeat).interval if answered else None
    return ComparedCell(
        workload=measured.workload,
        vcpus=measured.vcpus,
        batch=find_batch_size(measured.workload),
        steps=measured.launches[0].steps(find_phase(measured.workload)) if answered else 0,
        launches=len(measured.launches),
        blocks=len(found),
        seconds=measured.seconds,
        stopped_by=_stopped_by(measured, by.effort),
        looks=_looks(measured),
        gates=Gates(
            dropped=sum(map(bool, found)),
            reasons=gates.counted(found),
            counting=sum(map(len, counting(measured))),
        ),
        others=gates.others([sample for block in measured.blocks for sample in block]),
        unsteady=sum(not launch.steady for launch in measured.launches),
        arms=tuple(_arm_times(measured, name) for name in _started(measured)),
        agreements=tuple(
            each
            for each in agreements(measured.starts, by.tolerances)
            if each.arm != measured.repeat
        ),
        noise=noise,
        speedups=tuple(_speedup([measured], arm, noise, by) for arm in _candidates([measured])),
        failures=measured.failures,
    )


def overall(cells: Sequence[ObservedCell], by: Criteria) -> tuple[Overall, ...]:
    """One figure per vCPU count and arm, over the cells in which the arm was timed."""
    found = []
    for vcpus in dict.fromkeys(each.vcpus for each in cells):
        row = [each for each in cells if each.vcpus == vcpus]
        for arm in _candidates(row):
            timed = [each for each in row if each.compared(arm)]
            noise = mean_of([contrast_of(each, each.repeat) for each in timed]).interval
            speedup = _speedup(timed, arm, noise, by)
            found.append(Overall(vcpus=vcpus, workloads=len(timed), speedup=speedup, noise=noise))
    return tuple(found)


def arm_facts(arms: Sequence[Arm], cells: Sequence[ObservedCell]) -> tuple[ArmFacts, ...]:
    """What is known of each arm, from its own description and its first worker; nothing of an arm
    that never started."""
    every = [start for measured in cells for start in measured.starts]
    starts = {start.arm: start for start in reversed(every)}
    return tuple(_arm_facts(arm, starts[arm.name]) for arm in arms if arm.name in starts)


def _arm_facts(arm: Arm, start: Start) -> ArmFacts:
    facts = start.facts
    return ArmFacts(
        name=arm.name,
        label=arm.label,
        wheel_sha256=arm.wheel_sha256,
        env=arm.env,
        tolerance=arm.tolerance,
        tensorflow=facts["tensorflow"],
        keras=start.keras,
        tensorflow_file=facts["tensorflow_file"],
        git_version=facts["git_version"],
        compiler_version=facts["compiler_version"],
        python=facts["python"],
        numpy=facts["numpy"],
        threading=facts["threading"],
        raised_kernels=sum(facts["raised_kernels"].values()),
        kernel_library=facts["kernel_library"],
        whole=arm.whole,
        kernel_table=_of_library(arm.kernel_table, facts["kernel_library"]),
        admission=arm.admission,
    )


def _of_library(found: KernelTable | None, library: str | None) -> KernelTable | None:
    """Another library of the wheel may have been asked for (TENSORWRIGHT_TARGET)."""
    return found if found and library and Path(library).name == found.library else None


def _candidates(cells: Sequence[ObservedCell]) -> tuple[str, ...]:
    """The arms with a speedup in any of the cells."""
    names = (arm for each in cells for arm in each.arms[1:] if each.compared(arm))
    return tuple(dict.fromkeys(names))


def _started(measured: ObservedCell) -> Iterator[str]:
    """The arms that started; none of a cell whose baseline failed."""
    if measured.stands:
        started = {start.arm for start in measured.starts}
        yield from (arm for arm in measured.arms if arm in started)


def _speedup(
    cells: Sequence[ObservedCell], arm: str, noise: Interval | None, by: Criteria
) -> Speedup:
    """An arm's, over one cell or several."""
    found = mean_of([contrast_of(each, arm) for each in cells])
    thresholds = Thresholds(
        floor=floor(noise) if noise else math.inf, threshold=by.threshold, margin=by.margin
    )
    fair = all(each.fair for each in cells)
    single = cells[0] if len(cells) == 1 else None
    return Speedup(
        arm=arm,
        interval=found.interval,
        verdict=verdict(found, thresholds) if fair else Verdict.INCONCLUSIVE,
        confidence=found.confidence if fair else 0.0,
        medians=medians(single, arm) if single else None,
        run=_run_ratio(single, arm) if single else None,
    )


def _stopped_by(measured: ObservedCell, effort: Effort) -> str:
    count = len(measured.launches)
    width = half_width(measured, count) if count in effort.looks else math.inf
    if not measured.answered:
        return ""
    spent = effort.budget_s is not None and not more_blocks(measured, effort)
    return stop(count, width, effort) or (Stop.BUDGET if spent else "")


def _looks(measured: ObservedCell) -> tuple[InterimAnalysis, ...]:
    """How the intervals became narrower; a look at all of them afterwards decides nothing."""
    found, spent = [], 0.0
    for count, launch in enumerate(measured.launches, start=1):
        spent += launch.seconds
        width = half_width(measured, count) if count >= FEWEST_LAUNCHES else math.inf
        if math.isfinite(width):
            found.append(InterimAnalysis(launches=count, seconds=spent, half_width=width))
    return tuple(found)


def _arm_times(measured: ObservedCell, arm: str) -> ArmTimes:
    starts = [start for start in measured.starts if start.arm == arm]
    samples = [s for block in measured.blocks for s in block if s.arm == arm]
    profiles = (one.end.profiles.get(arm) for one in measured.launches if one.end is not None)

    def middle(name: str) -> float:
        return float(np.median([start.facts[name] for start in starts]))

    return ArmTimes(
        arm=arm,
        phases=tuple(_phases(measured, arm)),
        run_s=_run(measured, arm),
        cpu_ms=_cpu_ms(samples),
        idle_share=_idle_share(samples),
        peak_mb=max((one.peak_mb(arm) for one in measured.launches), default=0.0),
        losses=starts[0].losses,
        import_s=middle("import_s"),
        build_s=middle("build_s"),
        first_steps_s=middle("first_steps_s"),
        environment=tuple(sorted(starts[0].facts["environment"].items())),
        coverage=coverage(next((each for each in profiles if each), None)),
        latency=_latency(measured, arm),
    )


def _latency(measured: ObservedCell, arm: str) -> Latency | None:
    """Quantiles of each launch's requests, Student's t over launches."""
    launches = [_answered(one, arm) for one in measured.timed(arm)]
    if len(launches) < FEWEST_LAUNCHES or not all(launches):
        return None
    often = all(sum(one.values()) >= _FOR_P99 for one in launches)
    return Latency(
        median_ms=_quantile_ms(launches, 0.5),
        p99_ms=_quantile_ms(launches, 0.99) if often else None,
    )


def _answered(launch: Launch, arm: str) -> Counter[int]:
    """The launch's requests by bin."""
    found: Counter[int] = Counter()
    for sample in itertools.chain.from_iterable(launch.judged):
        if sample.arm == arm:
            found.update({int(number): count for number, count in sample.answered.items()})
    return found


def _quantile_ms(launches: Sequence[Counter[int]], share: float) -> Interval:
    logs = [math.log(1000 * bins.compute_quantile(one, share)) for one in launches]
    return combined([np.array(logs)])


def _phases(measured: ObservedCell, arm: str) -> Iterator[PhaseTime]:
    for phase in (*JUDGED, VALIDATE, AUGMENT):
        times = log_ms(measured, arm, phase)
        if len(times) > 1:
            yield PhaseTime(phase=phase, step_ms=combined([np.array(times)]))


def _cpu_ms(samples: Sequence[Sample]) -> float | None:
    if not samples:
        return None
    return float(np.median([1000 * sample.cpu_s / sample.steps for sample in samples]))


def _idle_share(samples: Sequence[Sample]) -> float | None:
    idle = math.fsum(sample.idle_s for sample in samples)
    return math.fsum(sample.idle_cpu_s for sample in samples) / idle if idle > 0 else None


# --- the article's run, composed ------------------------------------------------------------------


def _run(measured: ObservedCell, arm: str) -> Interval | None:
    """Seconds of the article's training run: its batches times what each phase's batch took."""
    runs = [run for one in measured.timed(arm) if (run := _log_run(measured, one, arm)) is not None]
    return combined([np.array(runs)]) if len(runs) > 1 else None


def _run_ratio(measured: ObservedCell, arm: str) -> Interval | None:
    pairs = [
        (_log_run(measured, one, measured.baseline), _log_run(measured, one, arm))
        for one in measured.timed(arm)
    ]
    found = [base - run for base, run in pairs if base is not None and run is not None]
    return combined([np.array(found)]) if len(found) > 1 else None


def _log_run(measured: ObservedCell, launch: Launch, arm: str) -> float | None:
    """ln(seconds) from one launch; None when a phase of the run was not timed in it."""
    schedule = find_schedule(measured.workload)
    seconds = 0.0
    for phase, count in schedule.phases.items():
        times = log_ms(measured, arm, phase, launches=(launch,))
        if not times:
            return None
        seconds += count * math.exp(times[0]) / 1000
    return math.log(schedule.epochs * seconds)


def coverage(profile: Mapping[str, Any] | None) -> Coverage | None:
    """Of a worker's answer to `profile`. Raises SampleError when the profiler saw no op."""
    if profile is None:
        return None
    seconds, runs = profile["op_s"], profile["executions"]
    total = sum(seconds.values())
    if not total > 0:
        raise SampleError("the profiler saw no op run")
    rows = [
        OpShare(op=op, share=seconds.get(op, 0.0) / total, runs_per_step=count / profile["steps"])
        for op, count in runs.items()
    ]
    rows.sort(key=lambda row: -row.share)
    return Coverage(
        share=sum(row.share for row in rows),
        ops=tuple(rows),
        fused=tuple(profile.get("fused", {}).items()),
    )
