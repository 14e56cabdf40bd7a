"""Launches that the kit measured on other machines, and the training runs computed from them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfbench.costs.cost import Amount, average_launches
from tfbench.costs.prices import Price
from tfbench.costs.runs import TrainingRun
from tfbench.engine.journal import read_lines
from tfbench.inside.kit import SCHEMA
from tfbench.inside.steps import OK
from tfbench.inside.workloads import UnknownWorkloadError, find_workload
from tfcore.errors import RecordError, UsageError
from tfcore.records import quote_value

_SHORTEST_S = 1e-9
"""A valid step takes longer than this and less than its reciprocal."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KitLaunch:
    """One process of the kit. `step_s` is the mean time of its steps, None without an answer."""

    arm: str
    workload: str
    phase: str
    launch: int
    outcome: str
    reason: str
    device: str
    backend: str
    step_s: float | None
    batch: int


def read_launches(path: Path) -> tuple[KitLaunch, ...]:
    """Read the launches in a file of the kit.

    Raises RecordError if it is not a file of the kit, has an invalid line, or is empty.
    """
    launches = read_lines(path, _parse_launch, "a launch of the kit")
    if not launches:
        raise RecordError(f"{path} has no launches", hint="Run the kit to its end")
    return launches


def _parse_launch(line: Any) -> KitLaunch:  # noqa: ANN401  (JSON)
    if line["schema"] != SCHEMA:
        raise ValueError(f"schema is {quote_value(line['schema'])}, expected {SCHEMA}")
    outcome = str(line["outcome"])
    try:
        workload = find_workload(line["workload"])
    except UnknownWorkloadError as error:
        raise ValueError(str(error)) from error
    return KitLaunch(
        arm=str(line["arm"] or line.get("device") or line["host"]["cpu"]),
        workload=workload.name,
        phase=str(line["phase"]),
        launch=int(line["launch"]),
        outcome=outcome,
        reason=str(line["reason"]),
        device=str(line.get("device", "")),
        backend=str(line.get("backend", "")),
        step_s=_compute_mean(line["step_s"]) if outcome == OK else None,
        batch=workload.batch,
    )


def _compute_mean(step_s: Sequence[float]) -> float:
    mean = math.fsum(step_s) / len(step_s) if step_s else math.nan
    if not _SHORTEST_S < mean < 1 / _SHORTEST_S:
        raise ValueError(f"invalid time of a step: {mean} s")
    return mean


def compose_runs(launches: Sequence[KitLaunch], price: Price) -> tuple[TrainingRun, ...]:
    """Compose whole training runs from the phases, as `compare --thorough` does.

    Only workloads with all phases measured have a run. The vCPUs of such a machine are not
    counted. Raises UsageError if there is no whole run.
    """
    timed: dict[tuple[str, str], dict[int, dict[str, float]]] = {}
    for launch in launches:
        times = timed.setdefault((launch.arm, launch.workload), {}).setdefault(launch.launch, {})
        if launch.step_s:
            times[launch.phase] = launch.step_s
    training_runs = tuple(
        TrainingRun(workload=workload, vcpus=None, arm=arm, seconds=seconds, price=price)
        for (arm, workload), launch_times in timed.items()
        if (seconds := _compute_run_s(workload, launch_times.values())) is not None
    )
    if not training_runs:
        raise UsageError(
            "the kit's file has no complete training run",
            hint="Run the kit without --phases, so that it times all phases of a run",
        )
    return training_runs


def _compute_run_s(workload: str, launches: Iterable[Mapping[str, float]]) -> Amount | None:
    """Compute the seconds of the published run over launches, each with its step times by phase.

    Return None if no launch has all phases.
    """
    schedule = find_workload(workload).schedule
    run_seconds = [
        schedule.epochs
        * math.fsum(count * times[phase] for phase, count in schedule.phases.items())
        for times in launches
        if schedule.phases.keys() <= times.keys()
    ]
    return average_launches(run_seconds) if run_seconds else None
