"""An arm: a Python environment with one TensorFlow, and the settings of its processes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfcore.comparisons.kernels import KernelTable
from tfcore.cpus.cpu import MASK
from tfcore.errors import UsageError

TOLERANCE = 1e-3
"""Largest difference of the first losses (relative) and of the predictions after them (absolute)
in float32. Other kernels sum in another order, and optimizer steps amplify the difference."""
INHERITED = ("PATH", "TMPDIR", "LANG", "LC_ALL", MASK)
"""The only variables of the caller's environment that a worker gets: others could differ between
runs. The mask is one of them, because the recorded CPU lacks the features that it hides."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    """A Python environment with one TensorFlow, and the settings of its processes.

    `env` are the environment variables that the arm sets. A `tuned` arm must load its tuned
    kernels, otherwise there is nothing to compare. A `whole` arm is a full build, which has no
    kernel library to load. `tolerance` is wider only for arms that compute in another precision
    on purpose. `kernel_table` is the table of the kernels that this CPU runs, None if none was
    measured; `admission` is the conformance status of these kernels.
    """

    name: str
    python: Path
    label: str
    env: tuple[tuple[str, str], ...] = ()
    wheel_sha256: str = ""
    tuned: bool = False
    whole: bool = False
    tolerance: float = TOLERANCE
    kernel_table: KernelTable | None = None
    admission: str = ""

    @property
    def prefix(self) -> Path:
        """Return the virtual environment's folder.

        `python` is not resolved, because it may be a link out of that folder.
        """
        return self.python.absolute().parent.parent


def create_repeat(arm: Arm) -> Arm:
    """Create a repeat of the arm: differences between the two are noise."""
    return dataclasses.replace(arm, name=f"{arm.name} again")


def build_environment(
    arm: Arm, *, vcpus: int, home: Path, padding: int, inherited: Mapping[str, str]
) -> dict[str, str]:
    """Build the environment of a worker process; the arm's own values take precedence.

    `home` is an empty folder: a user's keras.json would change the models. `padding` bytes
    shift the stack, as the size of the environment does (Mytkowicz et al., ASPLOS 2009).
    """
    threads = str(vcpus)
    return {
        **{name: inherited[name] for name in INHERITED if name in inherited},
        "HOME": str(home),
        "PYTHONHASHSEED": "0",
        "CUDA_VISIBLE_DEVICES": "",
        "TF_CPP_MIN_LOG_LEVEL": "0",
        "TF_NUM_INTRAOP_THREADS": threads,
        "TF_NUM_INTEROP_THREADS": threads,
        "OMP_NUM_THREADS": threads,
        # Idle threads of an OpenMP build would spin during the other arm's sample.
        "KMP_BLOCKTIME": "0",
        "TENSORWRIGHT_PADDING": "x" * padding,
        **dict(arm.env),
    }


def check_arms(arms: Sequence[Arm]) -> None:
    """Check that there are two or more arms with different names.

    Raises UsageError, also if one has the name of the first one's repeat.
    """
    if len(arms) < 2:  # noqa: PLR2004  (a pair)
        raise UsageError(f"a comparison needs at least two arms, got {len(arms)}")
    names = [arm.name for arm in (*arms, create_repeat(arms[0]))]
    if len(set(names)) < len(names):
        raise UsageError(f"two arms have the same name ({', '.join(names)})")
