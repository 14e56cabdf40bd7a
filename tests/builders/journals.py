"""Made-up journals: what workers would have said, had the truth been as given."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tests.builders import comparisons
from tests.builders.comparisons import host

from tfbench.arms.arm import TOLERANCE, Arm
from tfbench.engine.schedule import create_random, draw_block_order
from tfbench.inside.phases import AUGMENT, TRAIN, VALIDATE
from tfbench.measuring.observations import (
    ObservedCell,
    filter_starts,
    group_launches,
    list_failures,
)
from tfbench.measuring.samples import End, Entry, Fault, Sample, Start
from tfbench.measuring.statistics import LEVEL, MARGIN
from tfbench.measuring.summary import Criteria, collect_arm_facts, summarise_cell, summarise_overall
from tfcore.comparisons.comparison import Comparison
from tfcore.comparisons.effort import Effort
from tfcore.cpus.cpu import Vcpus

WORKLOAD, VCPUS = "mnist_mlp", 2
STOCK = Arm(name="stock", python=Path("/arms/stock/bin/python"), label="tensorflow-cpu 2.14.1")
TUNED = Arm(
    name="tuned",
    python=Path("/arms/tuned/bin/python"),
    label="tensorflow-cpu 2.14.1+skylake.1",
    env=(("TF_ENABLE_ONEDNN_OPTS", "1"),),
    wheel_sha256="ab" * 32,
    tuned=True,
)
REPEAT = "stock again"
LOSSES = (2.30, 2.25, 2.21, 2.15, 2.10)
PREDICTIONS = (0.1, 0.2, 0.7)
STEPS = 10
SHARES = {TRAIN: 1.0, VALIDATE: 0.4, AUGMENT: 0.1}
"""A phase's time by that of training."""
HOST = host(4, vcpus=Vcpus(machine=4, affinity=4, quota=2.0, usable=2))


def start(
    arm: str,
    launch: int = 0,
    facts: Mapping[str, object] | None = None,
    **fields: Any,
) -> Start:
    known: dict[str, object] = {
        "pid": 1,
        "inputs_sha256": "same",
        "parameters": 669_706,
        "import_s": 1.5,
        "build_s": 0.2,
        "first_steps_s": 0.4,
        "tensorflow": "2.14.1",
        "tensorflow_file": f"/arms/{arm}/lib/tensorflow/__init__.py",
        "git_version": "v2.14.1",
        "compiler_version": "clang 16",
        "python": "3.11.7",
        "numpy": "1.26.4",
        "threading": "Eigen",
        "vcpus": [0, 1],
        "raised_kernels": {"OptionsDataset": 1, "Tanh": 3},
        "kernel_library": "/k/skylake.so" if arm == TUNED.name else None,
        "environment": {"TF_NUM_INTRAOP_THREADS": "2"},
    }
    whole: dict[str, Any] = {
        "workload": WORKLOAD,
        "vcpus": VCPUS,
        "losses": LOSSES,
        "predictions": PREDICTIONS,
    }
    return Start(arm=arm, launch=launch, facts=known | dict(facts or {}), **whole | fields)


def sample(arm: str = STOCK.name, **fields: Any) -> Sample:
    """One that no gate drops."""
    used_s = 1.5 * fields.get("wall_s", 0.25)
    whole: dict[str, Any] = {
        "workload": WORKLOAD,
        "vcpus": VCPUS,
        "phase": TRAIN,
        "steps": STEPS,
        "at_s": 9.0,
        "busy_s": used_s,
        "cpu_s": used_s,
    }
    return comparisons.sample(arm, **whole | fields)


def end(launch: int = 0, **fields: Any) -> End:
    whole: dict[str, Any] = {
        "workload": WORKLOAD,
        "vcpus": VCPUS,
        "seconds": 20.0,
        "warm_up": 6,
        "steady": True,
        "peak_mb": {STOCK.name: 500.0, REPEAT: 501.0, TUNED.name: 520.0 + launch},
    }
    return End(launch=launch, **whole | fields)


def fault(arm: str, launch: int = 0, **fields: Any) -> Fault:
    whole: dict[str, Any] = {
        "workload": WORKLOAD,
        "vcpus": VCPUS,
        "reason": f"the worker of arm {arm} was ended by SIGKILL",
    }
    return Fault(arm=arm, launch=launch, **whole | fields)


def entries(
    paces: Mapping[str, float],
    *,
    launches: int = 3,
    blocks: int = 4,
    phases: Sequence[str] = (TRAIN,),
    spread: float = 0.0,
    jitter: float = 0.0,
    workload: str = WORKLOAD,
    vcpus: int = VCPUS,
    seed: int = 0,
) -> list[Entry]:
    """A cell's journal. `paces` are the arms' true seconds per step; a launch moves each of them by
    a share with the standard deviation `spread`, a sample by `jitter`."""
    draw = np.random.default_rng(seed)
    actual: list[Entry] = []
    for launch in range(launches):
        own_values = {arm: pace * math.exp(draw.normal(0, spread)) for arm, pace in paces.items()}
        chance = create_random(seed, workload, vcpus, launch)
        actual += [start(arm, launch, workload=workload, vcpus=vcpus) for arm in paces]
        actual += [
            sample(
                arm,
                workload=workload,
                vcpus=vcpus,
                launch=launch,
                phase=phase,
                block=block,
                position=position,
                wall_s=STEPS * own_values[arm] * SHARES[phase] * math.exp(draw.normal(0, jitter)),
            )
            for phase in phases
            for block in range(blocks)
            for position, arm in enumerate(draw_block_order(sorted(paces), chance))
        ]
        actual.append(end(launch, workload=workload, vcpus=vcpus))
    return actual


def paces(speedup: float = 1.25, pace: float = 0.025) -> dict[str, float]:
    """Of the baseline, its repeat and a candidate that is so much faster."""
    return {STOCK.name: pace, REPEAT: pace, TUNED.name: pace / speedup}


def measured(actual: Sequence[Entry]) -> ObservedCell:
    """The cell that the journal is of."""
    failures = list_failures(actual, (STOCK, TUNED))
    failed = {failure.arm for failure in failures}
    return ObservedCell(
        workload=actual[0].workload if actual else WORKLOAD,
        vcpus=actual[0].vcpus if actual else VCPUS,
        baseline=STOCK.name,
        repeat=REPEAT,
        arms=tuple(name for name in (STOCK.name, TUNED.name) if name not in failed),
        starts=filter_starts(actual),
        launches=group_launches(actual),
        failures=failures,
    )


def criteria(threshold: float = 0.0, effort: Effort | None = None) -> Criteria:
    return Criteria(
        margin=MARGIN,
        effort=effort or Effort(looks=(3, 6)),
        tolerances=dict.fromkeys((STOCK.name, REPEAT, TUNED.name), TOLERANCE),
        threshold=threshold,
    )


def comparison(*cells: ObservedCell) -> Comparison:
    by = criteria()
    return comparisons.comparison(
        *(summarise_cell(cell, by) for cell in cells),
        seconds=sum(cell.seconds for cell in cells),
        effort=by.effort,
        margin=MARGIN,
        threshold=by.threshold,
        level=LEVEL,
        host=HOST,
        arms=collect_arm_facts((STOCK, TUNED), cells),
        overall=summarise_overall(cells, by),
    )
