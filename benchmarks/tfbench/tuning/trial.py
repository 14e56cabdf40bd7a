"""A trial of the workload: whether it trains, whether it is reproducible, and how fast it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tfbench.arms.arm import Arm, create_repeat
from tfbench.engine.workers import LOAD_LIMIT_S, build_worker_environment, start_session
from tfbench.inside.workloads import PROGRAM
from tfbench.measuring.agreement import compare_losses
from tfbench.tuning.results import FirstSteps
from tfcore.errors import UsageError


def try_out(arm: Arm, workload: str, vcpus: tuple[int, ...], seed: int, logs: Path) -> FirstSteps:
    """Try the workload in two workers, one after the other.

    Raises UsageError if a file cannot be trained, or does not give the same data and
    parameters twice, and WorkerError if a worker fails.
    """
    first, second = (
        _try_arm(tried_arm, workload, vcpus, seed, logs) for tried_arm in (arm, create_repeat(arm))
    )
    if first["inputs_sha256"] != second["inputs_sha256"]:
        raise UsageError(
            f"{workload} creates other data or another model each time it is read",
            hint="Give every random generator in it a fixed seed",
        )
    difference = compare_losses(first["losses"], second["losses"])
    if difference is None:
        raise UsageError(f"{workload} has a loss that is not finite in its first steps")
    if difference > arm.tolerance:
        raise UsageError(
            f"{workload} is not reproducible: first losses differ by {difference:.2g}",
            hint="Make its parameters and dropout follow TensorFlow's global seed",
        )
    return FirstSteps(
        batch=first["batch"],
        parameters=first["parameters"],
        step_s=min(first["step_s"], second["step_s"]),
        onednn=first["onednn"],
    )


def _try_arm(
    arm: Arm, workload: str, vcpus: tuple[int, ...], seed: int, logs: Path
) -> dict[str, Any]:
    env = build_worker_environment(arm, len(vcpus), logs)
    with start_session(arm, env, logs / f"{arm.name}.log") as opened:
        answer = opened.request("try", LOAD_LIMIT_S, workload=workload, seed=seed, vcpus=vcpus)
    if answer["problem"]:
        raise UsageError(f"{dict(arm.env)[PROGRAM]}: {answer['problem']}")
    return answer
