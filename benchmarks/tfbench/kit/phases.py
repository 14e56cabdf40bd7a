"""What the kit measured of each phase, over launches. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfbench.cells import speeds
from tfbench.costs.cost import Amount
from tfbench.costs.kit_runs import KitLaunch


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


def phases(launches: Sequence[KitLaunch]) -> tuple[Phase, ...]:
    """By arm, workload and phase, in the order of the file."""
    places = dict.fromkeys((each.arm, each.workload, each.phase) for each in launches)
    return tuple(
        _phase([each for each in launches if (each.arm, each.workload, each.phase) == place])
        for place in places
    )


def _phase(launches: Sequence[KitLaunch]) -> Phase:
    first = launches[0]
    answers = [{"step_s": [each.step_s], "batch": each.batch} for each in launches if each.step_s]
    return Phase(
        arm=first.arm,
        workload=first.workload,
        phase=first.phase,
        device=first.device,
        backend=first.backend,
        launches=len(answers),
        speed=speeds.speed(answers) if answers else None,
        reason=next((f"{e.outcome}: {e.reason}" for e in launches if e.step_s is None), ""),
    )
