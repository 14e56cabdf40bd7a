"""Summaries of launches as cells, and of cells as overall figures. Pure."""

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
from tfbench.inside.workload_name import parse_name
from tfbench.inside.workloads import find_batch_size, find_schedule
from tfbench.measuring import gates
from tfbench.measuring.agreement import compute_agreements
from tfbench.measuring.observations import (
    Launch,
    ObservedCell,
    choose_next_block_count,
    compute_arm_contrast,
    compute_half_width,
    compute_log_ms,
    estimate_median_ratio,
    select_blocks,
)
from tfbench.measuring.samples import Sample, Start
from tfbench.measuring.statistics import (
    Thresholds,
    average_contrasts,
    choose_verdict,
    combine_cells,
)
from tfbench.measuring.stopping import FEWEST_LAUNCHES, find_stop_reason
from tfcore.comparisons.comparison import (
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
from tfcore.comparisons.decision import compute_floor
from tfcore.comparisons.effort import Effort, Stop
from tfcore.comparisons.interval import Interval
from tfcore.comparisons.kernels import KernelTable
from tfcore.errors import SampleError

_FOR_P99 = 200
"""Fewest requests of a launch for the 99 % quantile: two are slower than it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Criteria:
    """The criteria for the cells of a comparison. `tolerances` names the arms and the repeat."""

    effort: Effort
    tolerances: Mapping[str, float]
    threshold: float
    margin: float


def summarise_cell(measured: ObservedCell, by: Criteria) -> ComparedCell:
    """Summarise an observed cell. Raises SampleError if the samples allow no answer."""
    answered = measured.answered
    block_reasons = [gates.list_drop_reasons(block) for block in measured.blocks]
    noise = compute_arm_contrast(measured, measured.repeat).interval if answered else None
    return ComparedCell(
        workload=measured.workload,
        vcpus=measured.vcpus,
        batch=find_batch_size(measured.workload),
        steps=measured.launches[0].get_steps(parse_name(measured.workload).phase)
        if answered
        else 0,
        launches=len(measured.launches),
        blocks=len(block_reasons),
        seconds=measured.seconds,
        stopped_by=_describe_stop(measured, by.effort),
        looks=_list_interim_analyses(measured),
        gates=Gates(
            dropped=sum(map(bool, block_reasons)),
            reasons=gates.count_reasons(block_reasons),
            counting=sum(map(len, select_blocks(measured))),
        ),
        others=gates.compute_others_share(
            [sample for block in measured.blocks for sample in block]
        ),
        unsteady=sum(not launch.steady for launch in measured.launches),
        arms=tuple(_create_arm_times(measured, name) for name in _list_started(measured)),
        agreements=tuple(
            agreement
            for agreement in compute_agreements(measured.starts, by.tolerances)
            if agreement.arm != measured.repeat
        ),
        noise=noise,
        speedups=tuple(
            _compute_speedup([measured], arm, noise, by) for arm in _list_candidates([measured])
        ),
        failures=measured.failures,
    )


def summarise_overall(cells: Sequence[ObservedCell], by: Criteria) -> tuple[Overall, ...]:
    """Compute one figure per vCPU count and arm, over the cells in which the arm was timed."""
    figures = []
    for vcpus in dict.fromkeys(observed.vcpus for observed in cells):
        row = [observed for observed in cells if observed.vcpus == vcpus]
        for arm in _list_candidates(row):
            timed = [observed for observed in row if observed.can_compare(arm)]
            noise = average_contrasts(
                [compute_arm_contrast(observed, observed.repeat) for observed in timed]
            ).interval
            speedup = _compute_speedup(timed, arm, noise, by)
            figures.append(Overall(vcpus=vcpus, workloads=len(timed), speedup=speedup, noise=noise))
    return tuple(figures)


def collect_arm_facts(arms: Sequence[Arm], cells: Sequence[ObservedCell]) -> tuple[ArmFacts, ...]:
    """Collect the facts of each arm from its own description and its first worker.

    Arms that never started are excluded.
    """
    all_starts = [start for measured in cells for start in measured.starts]
    starts = {start.arm: start for start in reversed(all_starts)}
    return tuple(_create_arm_facts(arm, starts[arm.name]) for arm in arms if arm.name in starts)


def _create_arm_facts(arm: Arm, start: Start) -> ArmFacts:
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
        kernel_table=_select_kernel_table(arm.kernel_table, facts["kernel_library"]),
        admission=arm.admission,
    )


def _select_kernel_table(
    kernel_table: KernelTable | None, library: str | None
) -> KernelTable | None:
    """Return the kernel table if it is of the loaded library.

    Another library of the wheel may have been requested (TENSORWRIGHT_TARGET).
    """
    return (
        kernel_table
        if kernel_table and library and Path(library).name == kernel_table.library
        else None
    )


def _list_candidates(cells: Sequence[ObservedCell]) -> tuple[str, ...]:
    """List the arms with a speedup in any of the cells."""
    names = (arm for observed in cells for arm in observed.arms[1:] if observed.can_compare(arm))
    return tuple(dict.fromkeys(names))


def _list_started(measured: ObservedCell) -> Iterator[str]:
    """Yield the arms that started; none if the cell's baseline failed."""
    if measured.has_baseline:
        started = {start.arm for start in measured.starts}
        yield from (arm for arm in measured.arms if arm in started)


def _compute_speedup(
    cells: Sequence[ObservedCell], arm: str, noise: Interval | None, by: Criteria
) -> Speedup:
    """Compute an arm's speedup over one cell or several."""
    arm_contrast = average_contrasts([compute_arm_contrast(observed, arm) for observed in cells])
    thresholds = Thresholds(
        floor=compute_floor(noise) if noise else math.inf, threshold=by.threshold, margin=by.margin
    )
    fair = all(observed.fair for observed in cells)
    single = cells[0] if len(cells) == 1 else None
    return Speedup(
        arm=arm,
        interval=arm_contrast.interval,
        verdict=choose_verdict(arm_contrast, thresholds, fair=fair),
        confidence=arm_contrast.confidence if fair else 0.0,
        medians=estimate_median_ratio(single, arm) if single else None,
        run=_compute_run_ratio(single, arm) if single else None,
    )


def _describe_stop(measured: ObservedCell, effort: Effort) -> str:
    count = len(measured.launches)
    width = compute_half_width(measured, count) if count in effort.looks else math.inf
    if not measured.answered:
        return ""
    spent = effort.budget_s is not None and not choose_next_block_count(measured, effort)
    return find_stop_reason(count, width, effort) or (Stop.BUDGET if spent else "")


def _list_interim_analyses(measured: ObservedCell) -> tuple[InterimAnalysis, ...]:
    """List the half-width of the widest interval after each launch.

    These interim analyses are made afterwards and decide nothing.
    """
    analyses, spent = [], 0.0
    for count, launch in enumerate(measured.launches, start=1):
        spent += launch.seconds
        width = compute_half_width(measured, count) if count >= FEWEST_LAUNCHES else math.inf
        if math.isfinite(width):
            analyses.append(InterimAnalysis(launches=count, seconds=spent, half_width=width))
    return tuple(analyses)


def _create_arm_times(measured: ObservedCell, arm: str) -> ArmTimes:
    starts = [start for start in measured.starts if start.arm == arm]
    samples = [s for block in measured.blocks for s in block if s.arm == arm]
    profiles = (
        launch.end.profiles.get(arm) for launch in measured.launches if launch.end is not None
    )

    def compute_median(name: str) -> float:
        return float(np.median([start.facts[name] for start in starts]))

    return ArmTimes(
        arm=arm,
        phases=tuple(_list_phase_times(measured, arm)),
        run_s=_compute_run_s(measured, arm),
        cpu_ms=_compute_cpu_ms(samples),
        idle_share=_compute_idle_share(samples),
        peak_mb=max((launch.get_peak_mb(arm) for launch in measured.launches), default=0.0),
        losses=starts[0].losses,
        import_s=compute_median("import_s"),
        build_s=compute_median("build_s"),
        first_steps_s=compute_median("first_steps_s"),
        environment=tuple(sorted(starts[0].facts["environment"].items())),
        coverage=compute_coverage(next((profile for profile in profiles if profile), None)),
        latency=_compute_latency(measured, arm),
    )


def _compute_latency(measured: ObservedCell, arm: str) -> Latency | None:
    """Compute quantiles of each launch's requests, with Student's t over launches."""
    launches = [_count_requests(launch, arm) for launch in measured.list_timed_launches(arm)]
    if len(launches) < FEWEST_LAUNCHES or not all(launches):
        return None
    enough = all(sum(counts.values()) >= _FOR_P99 for counts in launches)
    return Latency(
        median_ms=_compute_quantile_ms(launches, 0.5),
        p99_ms=_compute_quantile_ms(launches, 0.99) if enough else None,
    )


def _count_requests(launch: Launch, arm: str) -> Counter[int]:
    """Count the launch's requests by bin."""
    counts: Counter[int] = Counter()
    for sample in itertools.chain.from_iterable(launch.judged):
        if sample.arm == arm:
            counts.update({int(number): count for number, count in sample.answered.items()})
    return counts


def _compute_quantile_ms(launches: Sequence[Counter[int]], share: float) -> Interval:
    logs = [math.log(1000 * bins.compute_quantile(requests, share)) for requests in launches]
    return combine_cells([np.array(logs)])


def _list_phase_times(measured: ObservedCell, arm: str) -> Iterator[PhaseTime]:
    for phase in (*JUDGED, VALIDATE, AUGMENT):
        times = compute_log_ms(measured, arm, phase)
        if len(times) > 1:
            yield PhaseTime(phase=phase, step_ms=combine_cells([np.array(times)]))


def _compute_cpu_ms(samples: Sequence[Sample]) -> float | None:
    if not samples:
        return None
    return float(np.median([1000 * sample.cpu_s / sample.steps for sample in samples]))


def _compute_idle_share(samples: Sequence[Sample]) -> float | None:
    idle = math.fsum(sample.idle_s for sample in samples)
    return math.fsum(sample.idle_cpu_s for sample in samples) / idle if idle > 0 else None


# --- the article's training run -------------------------------------------------------------------


def _compute_run_s(measured: ObservedCell, arm: str) -> Interval | None:
    """Compute the seconds of the article's training run: its batches times the time of a batch
    in each phase.
    """
    runs = [
        run
        for launch in measured.list_timed_launches(arm)
        if (run := _compute_log_run_s(measured, launch, arm)) is not None
    ]
    return combine_cells([np.array(runs)]) if len(runs) > 1 else None


def _compute_run_ratio(measured: ObservedCell, arm: str) -> Interval | None:
    pairs = [
        (
            _compute_log_run_s(measured, launch, measured.baseline),
            _compute_log_run_s(measured, launch, arm),
        )
        for launch in measured.list_timed_launches(arm)
    ]
    log_ratios = [base - run for base, run in pairs if base is not None and run is not None]
    return combine_cells([np.array(log_ratios)]) if len(log_ratios) > 1 else None


def _compute_log_run_s(measured: ObservedCell, launch: Launch, arm: str) -> float | None:
    """Compute ln(seconds) of the run from one launch; None if a phase of the run was not timed
    in it.
    """
    schedule = find_schedule(measured.workload)
    seconds = 0.0
    for phase, count in schedule.phases.items():
        times = compute_log_ms(measured, arm, phase, launches=(launch,))
        if not times:
            return None
        seconds += count * math.exp(times[0]) / 1000
    return math.log(schedule.epochs * seconds)


def compute_coverage(profile: Mapping[str, Any] | None) -> Coverage | None:
    """Compute the coverage from a worker's answer to `profile`. Raises SampleError if the
    profiler saw no op.
    """
    if profile is None:
        return None
    seconds, runs = profile["op_s"], profile["executions"]
    total = sum(seconds.values())
    if not total > 0:
        raise SampleError("the profiler recorded no ops")
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
