"""Profile-guided optimization: train an instrumented wheel, and store the profiles for clang.

https://clang.llvm.org/docs/UsersManual.html#profiling-with-instrumentation; the Bazel options are
--fdo_instrument and --fdo_optimize.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection
from pathlib import Path

from tfcore import packages
from tfcore.cpus.compilers import Compiler, can_link
from tfcore.cpus.cpu import Cpu
from tfcore.errors import BuildError, CommandError, HostError, ToolError
from tfcore.run import run

INSTRUMENT = "--fdo_instrument=/nonexistent"
"""The code contains this folder; LLVM_PROFILE_FILE replaces it at run time."""
_TRAINING_S = 6 * 3600.0
# With these variables Python could import another TensorFlow.
_ELSEWHERE = frozenset({"PYTHONPATH", "PYTHONHOME"})


def build_use_option(profile: Path) -> str:
    return f"--fdo_optimize={profile}"


def require_support(compiler: Compiler, required: Collection[str], cpu: Cpu) -> None:
    """Raise ToolError if an instrumented build would lack a tool at its end.

    Raises HostError if this CPU lacks `required` features, and so could not run the wheel.
    """
    absent = sorted(set(required) - cpu.features)
    if absent:
        raise HostError(
            f"--pgo runs the instrumented wheel, and this CPU lacks {', '.join(absent)}",
            hint="Build with --pgo on a CPU that has them",
        )
    find_llvm_profdata(compiler)
    if not can_link(compiler, ("-fprofile-generate",)):
        major = compiler.version.partition(".")[0]
        raise ToolError(
            f"--pgo needs the profile runtime of {compiler.path.name}, which is missing",
            hint=packages.suggest_install(
                f"the runtime of LLVM {major}", f"libclang-rt-{major}-dev"
            ),
        )


def find_llvm_profdata(compiler: Compiler) -> Path:
    """Find the llvm-profdata of the compiler's own LLVM: another cannot read its profiles.

    Raises ToolError.
    """
    major = compiler.version.partition(".")[0]
    beside = compiler.path.resolve().with_name("llvm-profdata")
    program = shutil.which(f"llvm-profdata-{major}") or (str(beside) if beside.is_file() else None)
    if program is None:
        raise ToolError(
            f"--pgo needs llvm-profdata of LLVM {major}, which is missing",
            hint=packages.suggest_install(f"LLVM {major}", f"llvm-{major}"),
        )
    return Path(program)


def run_training(python: Path, program: Path, folder: Path) -> None:
    """Run the training program in the environment with the instrumented wheel.

    `python` is its interpreter. The profiles go to `folder`. Raises BuildError if the program
    fails or leaves no profile.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    env = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE}
    env["LLVM_PROFILE_FILE"] = f"{folder}/%p-%m.profraw"
    log = folder.with_suffix(".log")
    try:
        run([python, program], env=env, log=log, timeout_s=_TRAINING_S)
    except CommandError as error:
        raise BuildError(
            f"{program.name} failed: {error.last_line} (full output: {log})",
            hint="Its environment has only the instrumented wheel and its dependencies",
        ) from error
    if not any(folder.glob("*.profraw")):
        raise BuildError(
            f"{program.name} wrote no profile",
            hint="The program must import its interpreter's TensorFlow and exit normally",
        )


def merge_profiles(folder: Path, compiler: Compiler, profile: Path) -> Path:
    """Merge all profiles of a training run into one file for clang."""
    raw = sorted(folder.glob("*.profraw"))
    part = profile.with_suffix(".part")
    try:
        run([find_llvm_profdata(compiler), "merge", f"--output={part}", *raw], timeout_s=3600)
    except CommandError as error:
        match = re.search(r"(?m)^.*(?:error|warning): (.+)$", error.message)
        reason = match[1] if match else error.last_line
        raise BuildError(f"could not merge the profiles: {reason}") from error
    part.replace(profile)
    return profile
