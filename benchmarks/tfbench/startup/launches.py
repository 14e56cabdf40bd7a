"""Fresh processes that import TensorFlow, each timed and watched."""

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
from tfbench.measuring.samples import need_times
from tfbuild.errors import CommandError, WorkerError
from tfbuild.run import run

IMPORT = "import"
_LIMIT_S = 300.0
_PROGRAM = Path(importing.__file__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """One process: whose, where it stands in which round, and the bytes that its environment is
    larger by."""

    arm: Arm
    block: int
    position: int
    padding: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportLaunch:
    """One process. `import_s` is the import by its own clock; all else is of the whole process,
    from its start to its exit, as seen from outside. Units and meanings are those of Sample.

    Raises SampleError for times that are not positive numbers.
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
        need_times(self, "process_s", "cpu_s", "canary_s")


@dataclass(frozen=True, kw_only=True, slots=True)
class Launcher:
    """Starts processes on the CPUs that this one may use. `home` is an empty folder for them."""

    home: Path

    def launch(self, turn: Turn) -> ImportLaunch:
        """Import once. Raises WorkerError."""
        canary_s, before = meters.time_canary(), _meters()
        import_s, process_s = self._import(turn.arm, padding=turn.padding)
        taken = meters.compute_growth(before, _meters())
        return ImportLaunch(
            arm=turn.arm.name,
            block=turn.block,
            position=turn.position,
            import_s=import_s,
            process_s=process_s,
            canary_s=canary_s + meters.time_canary(),
            **taken,
        )

    def warm(self, arm: Arm) -> None:
        """Import once and forget how long that took: it fills caches, the kernel's of files and
        Python's of byte code. Raises WorkerError."""
        self._import(arm, padding=0)

    def _import(self, arm: Arm, *, padding: int) -> tuple[float, float]:
        """Seconds of the import by the process's own clock, and from its start to its exit."""
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
                f"arm {arm.name} does not import TensorFlow: {error.message}", arm=arm.name
            ) from error
        answer = _answer(arm, done.output)
        _check(arm, answer)
        return float(answer["import_s"]), done.seconds


def _answer(arm: Arm, output: str) -> dict[str, Any]:
    """The line with an object in it: TensorFlow talks, too."""
    lines = [line for line in output.splitlines() if line.startswith('{"import_s"')]
    if not lines:
        raise WorkerError(f"arm {arm.name} did not say how long its import took", arm=arm.name)
    answer = json.loads(lines[-1])
    assert isinstance(answer, dict)  # noqa: S101  (importing.py writes an object)
    return answer


def _check(arm: Arm, answer: Mapping[str, Any]) -> None:
    """Raises WorkerError when its TensorFlow is not the arm's own, or the arm is tuned and its
    kernels did not load."""
    require_own_tensorflow(arm, answer["file"])
    if arm.tuned and find_kernel_library(answer["maps"]) is None:
        raise WorkerError(
            f"arm {arm.name} ran stock kernels: its tuned ones did not load",
            hint="Build for this CPU with --arch native",
            arm=arm.name,
        )


def _meters() -> dict[str, Any]:
    """Counters of this machine and of the processes that we started."""
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "cpu_s": own.ru_utime + own.ru_stime,
        **meters.read_machine_counters(os.sched_getaffinity(0)),
        "switches": own.ru_nivcsw,
    }
