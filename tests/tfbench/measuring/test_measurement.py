"""A launch with made-up workers and a clock that only they move; real ones are in
tests/integration."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.builders.journals import REPEAT, STOCK, TUNED, WORKLOAD

from tfbench.arms.arm import Arm, create_repeat
from tfbench.engine import workers
from tfbench.inside.phases import FIT
from tfbench.inside.workload_name import parse_name
from tfbench.measuring import measurement
from tfbench.measuring.measurement import CellSpec, PlannedLaunch, measure_launch
from tfbench.measuring.observations import group_launches
from tfbench.measuring.samples import Entry
from tfbench.measuring.stopping import FEWEST_LAUNCHES
from tfcore.comparisons.effort import Effort

EPOCH_S = 0.1
FIT_WORKLOAD = str(dataclasses.replace(parse_name(WORKLOAD), fit=1))


@dataclasses.dataclass
class Clock:
    """A clock in place of the module `time`."""

    now_s: float = 0.0

    def monotonic(self) -> float:
        return self.now_s


@dataclasses.dataclass
class MadeUpSession:
    """A worker whose start takes 4 s, each step EPOCH_S, and each request `beside_s` more."""

    arm: Arm
    clock: Clock
    beside_s: float

    def start_load(self, *_: object, **__: object) -> None: ...

    def start_check(self, _: int) -> None: ...

    def pin_cpus(self, _: object) -> None: ...

    def finish_load(self, _: object) -> dict[str, Any]:
        self.clock.now_s += 4.0
        return {"inputs_sha256": "same", "kernel_library": None}

    def finish_check(self) -> dict[str, Any]:
        return {"losses": [1.0], "predictions": [0.5], "first_steps_s": 0.1}

    def read_peak_mb(self) -> float:
        return 500.0

    def sample(self, _: str, steps: int, __: int = 1) -> dict[str, Any]:
        wall_s = steps * EPOCH_S
        self.clock.now_s += wall_s + self.beside_s
        counters = dict.fromkeys(
            ("idle_s", "idle_cpu_s", "run_delay_s", "busy_s", "steal_s", "throttled_s"), 0.0
        )
        times = {"wall_s": wall_s, "cpu_s": wall_s, "canary_s": 0.001, "switches": 0}
        outside = {"elapsed_s": wall_s + self.beside_s, "beside_s": self.beside_s}
        return times | counters | outside


def measure_first(
    monkeypatch: pytest.MonkeyPatch, effort: Effort, beside_s: float
) -> tuple[list[Entry], float]:
    """The entries of a cell's first launch, and its seconds."""
    clock, actual = Clock(), list[Entry]()

    @contextlib.contextmanager
    def start_sessions(arms: tuple[Arm, ...], *_: object) -> Iterator[Mapping[str, MadeUpSession]]:
        yield {arm.name: MadeUpSession(arm=arm, clock=clock, beside_s=beside_s) for arm in arms}

    monkeypatch.setattr(measurement, "time", clock)
    monkeypatch.setattr(workers, "start_sessions", start_sessions)
    untuned = dataclasses.replace(TUNED, tuned=False)
    spec = CellSpec(
        workload=FIT_WORKLOAD, vcpus=(0,), arms=(STOCK, create_repeat(STOCK), untuned), seed=1
    )
    launch = PlannedLaunch(spec=spec, number=0, steps={}, blocks=None, profiled=False)
    measure_launch(launch, effort, logs=Path("logs"), keep=actual.append)
    return actual, clock.now_s


@pytest.mark.parametrize("beside_s", [0.0, 0.34, 1.3])
def test_what_fit_takes_beside_its_epochs_is_in_the_budget_of_a_first_launch(
    beside_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget_s = 240.0
    actual, seconds = measure_first(monkeypatch, Effort(budget_s=budget_s), beside_s)
    (launch,) = group_launches(actual)
    assert {sample.phase for block in launch.judged for sample in block} == {FIT}
    assert sorted(launch.starts) == sorted((STOCK.name, REPEAT, TUNED.name))
    assert seconds <= 1.05 * budget_s / FEWEST_LAUNCHES


def test_a_budget_that_fit_exceeds_beside_its_epochs_is_told_before(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measure_first(monkeypatch, Effort(budget_s=150.0), 0.0)
    assert "more than its budget" not in "".join(capsys.readouterr())
    measure_first(monkeypatch, Effort(budget_s=150.0), 2.5)
    assert "more than its budget of 2 min 30 s" in "".join(capsys.readouterr())
