"""An arm: one Python with one TensorFlow in it, and what its processes are started with."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfbuild.cpus.cpu import MASK
from tfbuild.errors import UsageError
from tfbuild.measured.kernels import KernelTable

TOLERANCE = 1e-3
"""Largest difference of the first losses (relative) and of the predictions after them (absolute)
in float32. Other kernels sum in another order, and an optimizer's steps enlarge the difference."""
INHERITED = ("PATH", "TMPDIR", "LANG", "LC_ALL", MASK)
"""All that a worker sees of the caller's environment: the rest could differ between two runs. Of a
mask it must know, as the recorded CPU is without what that hides."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    """One Python with one TensorFlow in it, and what its processes are started with.

    `env` is what makes this arm differ from a plain import of its TensorFlow. A `tuned` one
    must load its tuned kernels, or there is nothing to compare; a `whole` one is a full
    build, which has none to load. `tolerance` is wider only for arms that are meant to
    compute in another precision. `kernel_table` is that of the kernels which this CPU runs,
    None if nothing was measured; `admission` is the conformance status of these kernels.
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
        """Return the virtual environment's folder; `python` is not resolved, as it may link out
        of it.
        """
        return self.python.absolute().parent.parent


def create_repeat(arm: Arm) -> Arm:
    """Create the same arm once more: what differs between the two is noise."""
    return dataclasses.replace(arm, name=f"{arm.name} again")


def build_environment(
    arm: Arm, *, vcpus: int, home: Path, padding: int, inherited: Mapping[str, str]
) -> dict[str, str]:
    """Build the whole environment of a worker process; the arm's own values win.

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
        # An OpenMP build's idle threads would spin beside the other arm's sample.
        "KMP_BLOCKTIME": "0",
        "TENSORWRIGHT_PADDING": "x" * padding,
        **dict(arm.env),
    }


def check_arms(arms: Sequence[Arm]) -> None:
    """Check that there are two or more arms with different names.

    Raises UsageError, also if one has the name of the first one's repeat.
    """
    if len(arms) < 2:  # noqa: PLR2004  (a pair)
        raise UsageError(f"a comparison needs two arms, got {len(arms)}")
    names = [arm.name for arm in (*arms, create_repeat(arms[0]))]
    if len(set(names)) < len(names):
        raise UsageError(f"two arms have the same name ({', '.join(names)})")
