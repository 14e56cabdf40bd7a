"""Time imports of TensorFlow in fresh processes, and read their meters."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfbench.arms.arm import Arm, build_environment
from tfbench.engine.workers import require_own_tensorflow
from tfbench.inside import importing, meters
from tfbench.inside.worker import find_kernel_library
from tfbench.measuring.samples import require_positive
from tfcore.errors import CommandError, WorkerError
from tfcore.run import run

IMPORT = "import"
_LIMIT_S = 300.0
_PROGRAM = Path(importing.__file__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """One process to start: its arm, its position in a round, and its environment's padding."""

    arm: Arm
    block: int
    position: int
    padding: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportLaunch:
    """The measurement of one process.

    `import_s` is the time of the import by the process's own clock. All other values are those of
    the whole process, from its start to its exit, measured from outside. Units and meanings are
    those of Sample. Raises SampleError if a time is not a positive number.
    """

    arm: str
    block: int
    position: int
    import_s: float
    process_s: float
    cpu_s: float
    busy_s: float
    steal_s: float
    throttled_s: float
    switches: int
    canary_s: float

    def __post_init__(self) -> None:
        require_positive(self, "process_s", "cpu_s", "canary_s")


@dataclass(frozen=True, kw_only=True, slots=True)
class Launcher:
    """Starts processes on the CPUs that this process may use; their home is the empty `home`."""

    home: Path

    def measure_import(self, turn: Turn) -> ImportLaunch:
        """Import once in a fresh process and measure it. Raises WorkerError if the import fails."""
        canary_s, before = meters.time_canary(), _read_meters()
        import_s, process_s = self._run_import(turn.arm, padding=turn.padding)
        growth = meters.compute_growth(before, _read_meters())
        return ImportLaunch(
            arm=turn.arm.name,
            block=turn.block,
            position=turn.position,
            import_s=import_s,
            process_s=process_s,
            canary_s=canary_s + meters.time_canary(),
            **growth,
        )

    def warm_caches(self, arm: Arm) -> None:
        """Import once without measuring, to fill the page cache and Python's bytecode cache.

        Raises WorkerError if the import fails.
        """
        self._run_import(arm, padding=0)

    def _run_import(self, arm: Arm, *, padding: int) -> tuple[float, float]:
        """Return the seconds of the import by the process's own clock, and from start to exit."""
        env = build_environment(
            arm,
            vcpus=len(os.sched_getaffinity(0)),
            home=self.home,
            padding=padding,
            inherited=os.environ,
        )
        try:
            done = run([arm.python, "-P", _PROGRAM], env=env, timeout_s=_LIMIT_S)
        except CommandError as error:
            raise WorkerError(
                f"arm {arm.name} cannot import TensorFlow: {error.message}", arm=arm.name
            ) from error
        answer = _parse_answer(arm, done.output)
        _check_answer(arm, answer)
        return float(answer["import_s"]), done.seconds


def _parse_answer(arm: Arm, output: str) -> dict[str, Any]:
    """Parse the line with the answer, which may be among TensorFlow's output."""
    lines = [line for line in output.splitlines() if line.startswith('{"import_s"')]
    if not lines:
        raise WorkerError(f"arm {arm.name} did not report the time of its import", arm=arm.name)
    answer = json.loads(lines[-1])
    assert isinstance(answer, dict)  # noqa: S101  (importing.py writes an object)
    return answer


def _check_answer(arm: Arm, answer: Mapping[str, Any]) -> None:
    """Check that the process ran the arm's TensorFlow and kernels.

    Raises WorkerError if it imported another TensorFlow, or the arm is tuned and its kernels did
    not load.
    """
    require_own_tensorflow(arm, answer["file"])
    if arm.tuned and find_kernel_library(answer["maps"]) is None:
        raise WorkerError(
            f"arm {arm.name} ran stock kernels: its tuned kernels did not load",
            hint="Build for this CPU with --arch native",
            arm=arm.name,
        )


def _read_meters() -> dict[str, Any]:
    """Read counters of this machine and of the processes that we started."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "cpu_s": usage.ru_utime + usage.ru_stime,
        **meters.read_machine_counters(os.sched_getaffinity(0)),
        "switches": usage.ru_nivcsw,
    }
