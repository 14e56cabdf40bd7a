"""Profiles for the compiler, from a training program's run on an instrumented wheel."""

from __future__ import annotations

from pathlib import Path

from tfbench.arms import installs, lineup
from tfbuild import console
from tfbuild.cpus.compilers import Compiler
from tfbuild.settings import Paths
from tfbuild.tools import pgo


def find_earlier_profile(out: Path) -> Path | None:
    """Find the profile of an earlier run in the same folder.

    Another run would give another profile, and the timings made with this one would be lost.
    """
    return next(iter(sorted(out.glob(f"*{pgo.SUFFIX}"))), None)


def record_profile(
    wheel: Path, program: Path, compiler: Compiler, *, out: Path, paths: Paths
) -> Path:
    """Run the program on the instrumented wheel; return the profile that its kernels recorded.

    Raises WheelError, ToolError, and BuildError if the program fails.
    """
    candidate = lineup.make_spec(name=lineup.TUNED, wheel=lineup.TUNED)
    (arm,) = installs.install(installs.choose([candidate], str(wheel), paths), paths)
    folder = out / "training"
    with console.report_step(f"train with {program.name}"):
        pgo.run_training(arm.python, program, folder)
    return pgo.merge_profiles(folder, compiler, folder / f"learned{pgo.SUFFIX}")
