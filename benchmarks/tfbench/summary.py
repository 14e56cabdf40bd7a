"""From launches to a cell, from cells to the overall figures. Pure: an injected generator."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfbench.arms import Arm
from tfbench.measurement import Measured, Start
from tfbench.results import (
    Agreement,
    ArmFacts,
    ArmTimes,
    Cell,
    Coverage,
    OpShare,
    Overall,
    Speedup,
)
from tfbench.samples import Sample
from tfbench.statistics import Interval, estimate, geometric_mean, log_ratio, total, verdict
from tfbench.workloads import WORKLOADS
from tfbuild.errors import AgreementError, SampleError

TOLERANCE = 1e-3
"""Largest relative difference of the first training losses in float32. Other kernels sum in
another order, and five steps of an optimizer make such differences larger."""


def agreements(launches: Sequence[Sequence[Start]]) -> tuple[Agreement, ...]:
    """For each arm but the first its worst difference from the first, over all launches.

    Raises AgreementError when two arms did not start from the same data and parameters.
    """
    found: dict[str, list[float | None]] = defaultdict(list)
    for starts in launches:
        baseline = starts[0]
        for start in starts[1:]:
            if start.facts["inputs_sha256"] != baseline.facts["inputs_sha256"]:
                raise AgreementError(
                    f"{baseline.arm} and {start.arm} did not start from equal data and parameters",
                    hint="Give both arms' environments the same version of NumPy",
                )
            found[start.arm].append(difference(baseline.losses, start.losses))
    return tuple(
        Agreement(
            arm=arm,
            difference=None if None in each else max(d for d in each if d is not None),
            tolerance=TOLERANCE,
        )
        for arm, each in found.items()
    )


def difference(losses: Sequence[float], others: Sequence[float]) -> float | None:
    """The largest relative difference, None when a loss is not finite. Raises SampleError."""
    if len(losses) != len(others) or not losses:
        raise SampleError(f"{len(losses)} losses cannot be compared with {len(others)}")
    if not all(map(math.isfinite, (*losses, *others))):
        return None
    pairs = zip(losses, others, strict=True)
    return max(abs(a - b) / max(abs(a), abs(b), 1e-12) for a, b in pairs)


def cell(measured: Measured, generator: np.random.Generator) -> Cell:
    """Raises SampleError when the samples allow no answer, AgreementError as above."""
    baseline, *others = (arm.name for arm in measured.question.arms)
    agreed = agreements([launch.starts for launch in measured.launches])
    timed = all(each.agrees for each in agreed)
    return Cell(
        workload=measured.question.workload,
        vcpus=len(measured.question.vcpus),
        batch=WORKLOADS[measured.question.workload].batch,
        steps=measured.launches[0].samples[0].steps if timed else 0,
        launches=len(measured.launches),
        blocks=sum(len(blocks_of(launch.samples)) for launch in measured.launches),
        arms=tuple(
            _arm_times(measured, name, generator if timed else None) for name in (baseline, *others)
        ),
        agreements=agreed,
        speedups=tuple(
            _speedup(name, estimate(ratios(measured, name), generator))
            for name in (others if timed else ())
        ),
    )


def overall(cells: Sequence[Measured], generator: np.random.Generator) -> tuple[Overall, ...]:
    """One figure per vCPU count and arm, over the cells whose arms agreed."""
    found = []
    for vcpus in dict.fromkeys(len(each.question.vcpus) for each in cells):
        row = [each for each in cells if len(each.question.vcpus) == vcpus and each.timed]
        for arm in row[0].question.arms[1:] if row else ():
            mean = geometric_mean([ratios(each, arm.name) for each in row], generator)
            speedup = _speedup(arm.name, mean)
            found.append(Overall(vcpus=vcpus, workloads=len(row), speedup=speedup))
    return tuple(found)


def ratios(measured: Measured, arm: str) -> list[list[float]]:
    """ln(baseline time / arm's time) per launch and block. Raises SampleError."""
    baseline = measured.question.arms[0].name
    return [
        [log_ratio(block[baseline], block[arm]) for block in blocks_of(launch.samples)]
        for launch in measured.launches
    ]


def blocks_of(samples: Sequence[Sample]) -> list[dict[str, list[float]]]:
    """Wall seconds per arm, block by block. Raises SampleError for unequal step counts."""
    if len({sample.steps for sample in samples}) > 1:
        raise SampleError("the arms' samples have different numbers of steps")
    blocks: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for sample in samples:
        blocks[sample.block][sample.arm].append(sample.wall_s)
    return list(blocks.values())


def arm_facts(arms: Sequence[Arm], starts: Sequence[Start]) -> tuple[ArmFacts, ...]:
    """What is known of each arm, from its own description and its first worker."""
    return tuple(
        ArmFacts(
            name=arm.name,
            label=arm.label,
            wheel_sha256=arm.wheel_sha256,
            env=arm.env,
            tensorflow=start.facts["tensorflow"],
            tensorflow_file=start.facts["tensorflow_file"],
            git_version=start.facts["git_version"],
            compiler_version=start.facts["compiler_version"],
            python=start.facts["python"],
            numpy=start.facts["numpy"],
            raised_kernels=sum(start.facts["raised_kernels"].values()),
            kernel_library=start.facts["kernel_library"],
        )
        for arm, start in zip(arms, starts, strict=True)
    )


def _speedup(arm: str, interval: Interval) -> Speedup:
    return Speedup(arm=arm, interval=interval, verdict=verdict(interval))


def _arm_times(measured: Measured, arm: str, generator: np.random.Generator | None) -> ArmTimes:
    """Without a generator the steps were not timed, only the start-up was."""
    starts = [s for launch in measured.launches for s in launch.starts if s.arm == arm]

    def middle(name: str) -> float:
        return float(np.median([start.facts[name] for start in starts]))

    return ArmTimes(
        arm=arm,
        step_ms=None if generator is None else estimate(_log_ms(measured, arm), generator),
        losses=starts[0].losses,
        import_s=middle("import_s"),
        build_s=middle("build_s"),
        first_step_s=middle("first_step_s"),
        environment=tuple(sorted(starts[0].facts["environment"].items())),
        coverage=coverage(measured.launches[0].profiles.get(arm)),
    )


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
    return Coverage(share=sum(row.share for row in rows), ops=tuple(rows))


def _log_ms(measured: Measured, arm: str) -> list[list[float]]:
    """ln(milliseconds per step) per launch and block."""
    steps = measured.launches[0].samples[0].steps
    return [
        [
            math.log(1000 * total(block[arm]) / (steps * len(block[arm])))
            for block in blocks_of(launch.samples)
        ]
        for launch in measured.launches
    ]
