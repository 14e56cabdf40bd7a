"""Launches that the kit measured on machines elsewhere, and the training runs they make up."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfbench.costs.cost import Amount
from tfbench.costs.prices import Price
from tfbench.costs.runs import TrainingRun
from tfbench.engine.journal import read_lines
from tfbench.inside.kit import SCHEMA
from tfbench.inside.steps import OK
from tfbench.inside.workloads import UnknownWorkloadError, find
from tfbench.measuring.statistics import FEWEST_LAUNCHES, estimate
from tfbuild.errors import RecordError, UsageError
from tfbuild.records import shown

_SHORTEST_S = 1e-9
"""No step takes less, and none as many seconds as there are of these in one."""


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


def read(path: Path) -> tuple[KitLaunch, ...]:
    """Raises RecordError for what is no file of the kit, or has a line that makes no sense."""
    found = read_lines(path, _launch, "a launch of the kit")
    if not found:
        raise RecordError(f"{path} has no launch in it", hint="Run the kit there to its end")
    return found


def _launch(line: Any) -> KitLaunch:  # noqa: ANN401  (JSON)
    if line["schema"] != SCHEMA:
        raise ValueError(f"schema {shown(line['schema'])}, this version reads {SCHEMA}")
    outcome = str(line["outcome"])
    try:
        workload = find(line["workload"])
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
        step_s=_mean(line["step_s"]) if outcome == OK else None,
        batch=workload.batch,
    )


def _mean(step_s: Sequence[float]) -> float:
    mean = math.fsum(step_s) / len(step_s) if step_s else math.nan
    if not _SHORTEST_S < mean < 1 / _SHORTEST_S:
        raise ValueError(f"a step took {mean} s")
    return mean


def runs(launches: Sequence[KitLaunch], price: Price) -> tuple[TrainingRun, ...]:
    """Whole training runs, composed of the phases as `compare --thorough` does; of workloads of
    which all phases were measured. vCPUs are not what such a machine is about."""
    places = dict.fromkeys((each.arm, each.workload) for each in launches)
    found = []
    for arm, workload in places:
        own = [e for e in launches if (e.arm, e.workload) == (arm, workload)]
        seconds = _run_s(workload, own)
        if seconds is not None:
            found.append(
                TrainingRun(workload=workload, vcpus=None, arm=arm, seconds=seconds, price=price)
            )
    if not found:
        raise UsageError(
            "the kit's file has no whole training run",
            hint="Run the kit with its default phases, which are those of a run",
        )
    return tuple(found)


def _run_s(workload: str, launches: Sequence[KitLaunch]) -> Amount | None:
    """Seconds of the published run, over launches; None where a phase is missing."""
    schedule = find(workload).schedule
    each = [
        total
        for number in dict.fromkeys(each.launch for each in launches)
        if (total := _total(schedule.phases, _times(launches, number))) is not None
    ]
    if not each:
        return None
    if len(each) < FEWEST_LAUNCHES:
        return schedule.epochs * each[0]
    return estimate([[math.log(schedule.epochs * seconds)] for seconds in each])


def _times(launches: Sequence[KitLaunch], number: int) -> dict[str, float]:
    return {each.phase: each.step_s for each in launches if each.launch == number and each.step_s}


def _total(counts: Mapping[str, int], times: Mapping[str, float]) -> float | None:
    if not counts.keys() <= times.keys():
        return None
    return math.fsum(count * times[phase] for phase, count in counts.items())
