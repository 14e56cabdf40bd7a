"""Small comparisons and samples that nobody measured, each field to be set by the test."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tfbench.measuring.samples import Sample
from tfbench.measuring.statistics import Contrast
from tfcore.comparisons.comparison import (
    SCHEMA,
    Agreement,
    ArmFacts,
    ArmTimes,
    ComparedCell,
    Comparison,
    Gates,
    Overall,
    PhaseTime,
    Speedup,
)
from tfcore.comparisons.effort import Effort, Stop
from tfcore.comparisons.host import Host
from tfcore.comparisons.interval import Interval, Verdict
from tfcore.cpus.cpu import Cpu, Vcpus

BASELINE = "stock"
FREEDOM = 1e6
"""So many degrees that Student's t is the normal distribution."""


def with_interval(interval: Interval) -> Contrast:
    """One whose interval this is, where that is symmetric on a logarithmic scale."""
    variance = (interval.half_width / 1.959964) ** 2
    return Contrast(mean=math.log(interval.value), variance=variance, freedom=FREEDOM)


def spread(value: float, share: float = 0.02) -> Interval:
    """An interval that reaches `share` to either side."""
    return Interval(value=value, low=value / (1 + share), high=value * (1 + share))


def host(size: int = 2, **fields: Any) -> Host:
    """A machine with `size` vCPUs."""
    whole: dict[str, Any] = {
        "cpu": Cpu(
            architecture="x86_64",
            vendor="GenuineIntel",
            name="Example CPU @ 2.00GHz",
            family=6,
            model=85,
            stepping=4,
            microcode="0x1",
            hypervisor=True,
            features=frozenset({"avx2", "avx512f", "fma"}),
        ),
        "vcpus": Vcpus(machine=size, affinity=size, quota=None, usable=size),
        "affinity": tuple(range(size)),
        "kernel": "6.1.0",
        "memory_bytes": size * 4_000_000_000,
        "hugepages": "madvise",
        "clocksource": "tsc",
        "governor": "",
    }
    return Host(**whole | fields)


def arm(name: str, **fields: Any) -> ArmFacts:
    whole: dict[str, Any] = {
        "name": name,
        "label": f"the {name} wheel",
        "wheel_sha256": f"{name}-sha256",
        "env": (),
        "tolerance": 1e-3,
        "tensorflow": "2.14.1",
        "tensorflow_file": f"/arms/{name}/tensorflow/__init__.py",
        "git_version": "v2.14.1",
        "compiler_version": "clang 16",
        "python": "3.11.7",
        "numpy": "1.26.4",
        "threading": "Eigen",
        "raised_kernels": 20,
        "kernel_library": None,
    }
    return ArmFacts(**whole | fields)


def times(name: str, run_s: Interval | None, **fields: Any) -> ArmTimes:
    """Without a run only training was timed."""
    phases = {"train": spread(10.0)} | ({} if run_s is None else {"validate": spread(4.0)})
    whole: dict[str, Any] = {
        "phases": tuple(
            PhaseTime(phase=phase, step_ms=interval) for phase, interval in phases.items()
        ),
        "cpu_ms": 18.5,
        "idle_share": 0.001,
        "peak_mb": 512.0,
        "losses": (2.3, 2.2, 2.1, 2.0, 1.9),
        "import_s": 1.5,
        "build_s": 0.25,
        "first_steps_s": 0.5,
        "environment": (("OMP_NUM_THREADS", "2"),),
    }
    return ArmTimes(arm=name, run_s=run_s, **whole | fields)


def speedup(name: str, interval: Interval, run: Interval | None = None) -> Speedup:
    return Speedup(
        arm=name,
        interval=interval,
        verdict=Verdict.FASTER if interval.low > 1 else Verdict.INCONCLUSIVE,
        confidence=0.99 if interval.low > 1 else 0.5,
        medians=interval,
        run=run,
    )


def cell(
    workload: str = "mnist_mlp",
    vcpus: int = 2,
    runs: Mapping[str, Interval | None] | None = None,
    speedups: Sequence[Speedup] | None = None,
    **fields: Any,
) -> ComparedCell:
    """`runs` are the arms' composed runs, the baseline's first."""
    runs = {BASELINE: spread(100.0), "tuned": spread(80.0)} if runs is None else runs
    other_lines = [name for name in runs if name != BASELINE]
    whole: dict[str, Any] = {
        "workload": workload,
        "vcpus": vcpus,
        "batch": 128,
        "steps": 40,
        "launches": 6,
        "blocks": 36,
        "seconds": 60.0,
        "stopped_by": Stop.LAUNCHES,
        "looks": (),
        "gates": Gates(dropped=1, reasons=(("throttled", 1),)),
        "others": 0.02,
        "unsteady": 0,
        "arms": tuple(times(name, run_s) for name, run_s in runs.items()),
        "agreements": tuple(
            Agreement(arm=name, losses=1e-7, predictions=2e-7, tolerance=1e-3)
            for name in other_lines
        ),
        "noise": spread(1.0),
        "speedups": tuple(
            [speedup(name, spread(1.25)) for name in other_lines] if speedups is None else speedups
        ),
    }
    return ComparedCell(**whole | fields)


def comparison(*cells: ComparedCell, **fields: Any) -> Comparison:
    names = dict.fromkeys(arm.arm for compared_cell in cells for arm in compared_cell.arms)
    whole: dict[str, Any] = {
        "schema": SCHEMA,
        "made": "2026-01-02T03:04:05+00:00",
        "seconds": 75.0,
        "seed": 1,
        "effort": Effort(looks=(6,), blocks=6, phase_blocks=2),
        "margin": 0.02,
        "threshold": 0.01,
        "level": 0.95,
        "host": host(max((compared_cell.vcpus for compared_cell in cells), default=2)),
        "arms": tuple(map(arm, names or (BASELINE, "tuned"))),
        "cells": cells,
        "overall": tuple(
            Overall(
                vcpus=vcpus, workloads=1, speedup=speedup("tuned", spread(1.2)), noise=spread(1.0)
            )
            for vcpus in dict.fromkeys(compared_cell.vcpus for compared_cell in cells)
        ),
        "complete": True,
    }
    return Comparison(**whole | fields)


def sample(name: str = BASELINE, wall_s: float = 0.25, **fields: Any) -> Sample:
    whole: dict[str, Any] = {
        "workload": "mnist_mlp",
        "vcpus": 2,
        "launch": 0,
        "phase": "train",
        "block": 0,
        "position": 0,
        "arm": name,
        "steps": 40,
        "at_s": 1.0,
        "wall_s": wall_s,
        "elapsed_s": wall_s,
        "busy_s": wall_s,
        "cpu_s": 2 * wall_s,
        "idle_s": wall_s,
        "idle_cpu_s": 0.0,
        "run_delay_s": 0.0,
        "steal_s": 0.0,
        "throttled_s": 0.0,
        "switches": 3,
        "canary_s": 0.001,
    }
    return Sample(**whole | fields)
