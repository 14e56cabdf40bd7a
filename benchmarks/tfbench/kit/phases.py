"""The kit's measurements, grouped by phase over all launches. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfbench.costs.cost import Amount
from tfbench.costs.kit_runs import KitLaunch
from tfbench.experiments import speeds


@dataclass(frozen=True, kw_only=True, slots=True)
class Phase:
    """All launches of one phase. `speed` is in examples per second."""

    arm: str
    workload: str
    phase: str
    device: str
    backend: str
    launches: int
    speed: Amount | None
    reason: str


def group_launches(launches: Sequence[KitLaunch]) -> tuple[Phase, ...]:
    """Group the launches by arm, workload and phase, in the order of the file."""
    keys = dict.fromkeys((launch.arm, launch.workload, launch.phase) for launch in launches)
    return tuple(
        _build_phase(
            [launch for launch in launches if (launch.arm, launch.workload, launch.phase) == key]
        )
        for key in keys
    )


def _build_phase(launches: Sequence[KitLaunch]) -> Phase:
    first = launches[0]
    answers = [
        {"step_s": [launch.step_s], "batch": launch.batch} for launch in launches if launch.step_s
    ]
    return Phase(
        arm=first.arm,
        workload=first.workload,
        phase=first.phase,
        device=first.device,
        backend=first.backend,
        launches=len(answers),
        speed=speeds.compute_speed(answers) if answers else None,
        reason=next((f"{e.outcome}: {e.reason}" for e in launches if e.step_s is None), ""),
    )
