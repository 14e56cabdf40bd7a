"""Profile-guided optimisation: the run of an instrumented wheel, and what clang learns of it.

https://clang.llvm.org/docs/UsersManual.html#profiling-with-instrumentation; the Bazel options are
--fdo_instrument and --fdo_optimize. Kernels get clang's own flags: each source may have a profile,
which is kept by its hash.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Iterable
from pathlib import Path

from tfbuild import packages
from tfbuild.cpus.compilers import Compiler, can_link
from tfbuild.cpus.cpu import Cpu
from tfbuild.cpus.flags import LEARNED
from tfbuild.errors import BuildError, ChecksumError, CommandError, HostError, ToolError
from tfbuild.records import write_atomic
from tfbuild.run import run
from tfbuild.settings import Paths
from tfbuild.upstream.download import hash_file

INSTRUMENT = "--fdo_instrument=/nonexistent"
"""The folder is written into the code; LLVM_PROFILE_FILE says at run time where profiles go."""
_TRAINING_S = 6 * 3600.0
_HASH = 16
# Where Python would find another TensorFlow than the instrumented one.
_ELSEWHERE = frozenset({"PYTHONPATH", "PYTHONHOME"})


SUFFIX = ".profdata"


def use(profile: Path) -> str:
    return f"--fdo_optimize={profile}"


def keep(profile: Path, paths: Paths) -> str:
    """The flag of a kernel source that is compiled with this profile, which the cache keeps from
    now on under the hash that the flag names."""
    name = hash_file(profile)[:_HASH]
    write_atomic(kept(name, paths), profile.read_bytes())
    return f"{LEARNED}{name}"


def kept(name: str, paths: Paths) -> Path:
    """Where the cache has the profile of a hash, if it has it."""
    return paths.profiles / f"{name}{SUFFIX}"


def leave(names: Iterable[str], folder: Path, paths: Paths) -> None:
    """Put the kept profiles of these hashes beside a selection whose flags name them."""
    for name in names:
        write_atomic(folder / f"{name}{SUFFIX}", kept(name, paths).read_bytes())


def bring(names: Iterable[str], folders: Iterable[Path], paths: Paths) -> None:
    """See that the cache has the profiles of these hashes: what it lacks lies in a folder, beside
    the selection whose flags name it.

    Raises BuildError for one that is nowhere, ChecksumError for one of another hash.
    """
    among = tuple(folders)
    for name in names:
        if kept(name, paths).is_file():
            continue
        file = f"{name}{SUFFIX}"
        found = next((path for each in among if (path := each / file).is_file()), None)
        if found is None:
            raise BuildError(
                f"a source is to be compiled with the profile {file}, which is not here",
                hint="Put it beside the selection: invoke flags left it there",
            )
        if not hash_file(found).startswith(name):
            raise ChecksumError(f"{found} is not the profile that it is named after")
        keep(found, paths)


def need(compiler: Compiler, required: Collection[str], cpu: Cpu) -> None:
    """Raises ToolError for what an instrumented build would miss in the end, and HostError where
    this CPU could not run what it makes: `required` are the features that this needs."""
    absent = sorted(set(required) - cpu.features)
    if absent:
        raise HostError(
            f"--pgo runs the wheel that it builds first, and this CPU lacks {', '.join(absent)}",
            hint="Build with --pgo on a CPU that has them",
        )
    merger(compiler)
    if not can_link(compiler, ("-fprofile-generate",)):
        major = compiler.version.partition(".")[0]
        raise ToolError(
            f"{compiler.path.name} has no profile runtime, and --pgo needs it",
            hint=packages.suggest_install(
                f"the runtime of LLVM {major}", f"libclang-rt-{major}-dev"
            ),
        )


def merger(compiler: Compiler) -> Path:
    """The llvm-profdata of the same LLVM as the compiler: another cannot read its profiles.

    Raises ToolError.
    """
    major = compiler.version.partition(".")[0]
    beside = compiler.path.resolve().with_name("llvm-profdata")
    found = shutil.which(f"llvm-profdata-{major}") or (str(beside) if beside.is_file() else None)
    if found is None:
        raise ToolError(
            f"llvm-profdata of LLVM {major} is missing, and --pgo needs it",
            hint=packages.suggest_install(f"LLVM {major}", f"llvm-{major}"),
        )
    return Path(found)


def train(python: Path, program: Path, folder: Path) -> None:
    """Run the training program with the interpreter of an environment with the instrumented wheel.
    Its profiles land in `folder`.

    Raises BuildError when it fails or leaves no profile.
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
            f"{program.name} failed: {error.last_line} (whole output: {log})",
            hint="It runs where only the instrumented wheel and what that needs are installed",
        ) from error
    if not any(folder.glob("*.profraw")):
        raise BuildError(
            f"{program.name} ran and left no profile",
            hint="Let it import the TensorFlow of its interpreter, and end by itself",
        )


def merge(folder: Path, compiler: Compiler, profile: Path) -> Path:
    """All profiles of a training run as the one file that clang reads."""
    raw = sorted(folder.glob("*.profraw"))
    part = profile.with_suffix(".part")
    try:
        run([merger(compiler), "merge", f"--output={part}", *raw], timeout_s=3600)
    except CommandError as error:
        found = re.search(r"(?m)^.*(?:error|warning): (.+)$", error.message)
        said = found[1] if found else error.last_line
        raise BuildError(f"the profiles could not be merged: {said}") from error
    part.replace(profile)
    return profile
