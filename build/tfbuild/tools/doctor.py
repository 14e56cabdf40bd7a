"""Find the programs that a build needs, and the commands that install missing ones."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterable
from dataclasses import dataclass

from tfbuild.tools import apt, bazel
from tfcore import console, packages, settings
from tfcore.cpus import compilers
from tfcore.errors import CompilerError, ToolError
from tfcore.settings import Paths


@dataclass(frozen=True, kw_only=True, slots=True)
class Dependency:
    """A dependency of a build: its name, its purpose, and the packages that provide it.

    `present` are the paths of its programs; empty if one is missing.
    """

    name: str
    purpose: str
    packages: tuple[str, ...]
    present: str


def list_dependencies(
    paths: Paths, *, tests: bool = False, clang: bool = True
) -> tuple[Dependency, ...]:
    """Return the dependencies of a build, and with `tests` those of the project's own tests.

    Use `clang=False` for a build whose compiler was named.
    """
    compiler = Dependency(
        name="clang",
        purpose="compiles the kernels; the stock wheel is built with clang 16",
        packages=(packages.choose_clang(),),
        present=_find_clang(),
    )
    dependencies = [
        *([compiler] if clang else []),
        Dependency(
            name="C++ standard library and linker",
            purpose="needed to compile and link C++ programs",
            packages=("g++", "binutils"),
            present=_find_programs("g++", "ld", "nm", "c++filt"),
        ),
        Dependency(
            name="bazelisk",
            purpose="downloads Bazel; npm installs it",
            packages=("npm",),
            present=str(bazel.find_bazelisk(paths) or shutil.which("npm") or ""),
        ),
    ]
    if tests:
        dependencies += [
            Dependency(
                name="QEMU user mode",
                purpose="runs wheels on emulated CPUs",
                packages=("qemu-user",),
                present=_find_programs("qemu-x86_64"),
            ),
            Dependency(
                name="mmdebstrap",
                purpose="unpacks the Debian system and the QEMU of the aarch64 tests",
                packages=("mmdebstrap",),
                present=_find_programs("mmdebstrap"),
            ),
            Dependency(
                name="aarch64 cross compiler",
                purpose="provides libraries for aarch64 kernels; checks their compiler flags",
                packages=("g++-aarch64-linux-gnu",),
                present=_find_programs("aarch64-linux-gnu-g++"),
            ),
            Dependency(
                name="nginx",
                purpose="serves a shared build cache",
                packages=("nginx-light",),
                present=_find_programs("nginx"),
            ),
            Dependency(
                name="bubblewrap",
                purpose="isolates build steps on the build cluster that the tests start",
                packages=("bubblewrap",),
                present=_find_programs("bwrap"),
            ),
            Dependency(
                name="OpenSSH server and rsync",
                purpose="stand in for the hosts of a fleet",
                packages=("openssh-server", "openssh-client", "rsync"),
                present=_find_programs("ssh", "rsync", "sshd"),
            ),
            Dependency(
                name="Slurm",
                purpose="stands in for the cluster of a fleet",
                packages=("slurm-wlm", "munge"),
                present=_find_programs("srun", "slurmctld", "munged"),
            ),
            Dependency(
                name="LLVM 16's linker, profile tools and runtime",
                purpose="builds with link-time and profile-guided optimization",
                packages=("lld-16", "llvm-16", "libclang-rt-16-dev"),
                present=_find_llvm(),
            ),
            Dependency(
                name="debootstrap",
                purpose="installs an older Debian, to load wheels in, and a newer one, to use "
                "its Bazel",
                packages=("debootstrap",),
                present=_find_programs("debootstrap"),
            ),
        ]
    return tuple(dependencies)


def _find_clang() -> str:
    try:
        compiler = compilers.find_compiler()
    except CompilerError:
        return ""
    return (
        f"{compiler.path} ({compiler.family} {compiler.version})"
        if compiler.family == "clang"
        else ""
    )


def _find_llvm() -> str:
    """Find LLVM's programs; empty if clang's profile runtime is missing."""
    try:
        has_runtime = compilers.can_link(
            compilers.find_compiler("clang-16"), ("-fprofile-generate",)
        )
    except CompilerError:
        return ""
    return _find_programs("ld.lld-16", "llvm-profdata-16") if has_runtime else ""


def _find_programs(*programs: str) -> str:
    matches = [shutil.which(program) for program in programs]
    return ", ".join(path for path in matches if path) if all(matches) else ""


def list_install_commands(missing: Iterable[Dependency]) -> tuple[str, ...]:
    """Return the shell commands that install the packages; () without apt."""
    names = [package for dependency in missing for package in dependency.packages]
    if not names or not packages.has_apt():
        return ()
    install = f"apt-get install -y --no-install-recommends {shlex.join(names)}"
    return (packages.format_root_command("apt-get update"), packages.format_root_command(install))


def prepare(
    paths: Paths,
    version: str,
    *,
    tests: bool = False,
    clang: bool = True,
    install: bool = False,
) -> None:
    """Check that all dependencies of `list_dependencies` are present, and that a Bazel runs.

    With `install`, missing Debian packages are installed; bazelisk is put into the cache.
    Reports each step. Raises ToolError with the install commands if it must not install
    (--no-install).
    """
    install = install and settings.can_install()
    missing = [
        dependency
        for dependency in list_dependencies(paths, tests=tests, clang=clang)
        if not dependency.present
    ]
    if missing:
        names = ", ".join(dependency.name for dependency in missing)
        if not install or os.geteuid() != 0 or not packages.has_apt():
            raise _build_manual_error(
                f"this machine lacks: {names}", list_install_commands(missing)
            )
        apt.install([package for dependency in missing for package in dependency.packages])
    _prepare_bazel(paths, version, install=install)


def _prepare_bazel(paths: Paths, version: str, *, install: bool) -> None:
    if bazel.find_bazelisk(paths) is None:
        if not settings.can_install():
            raise _build_manual_error(
                "bazelisk is missing", ("npm install --global @bazel/bazelisk",)
            )
        with console.report_step("install bazelisk from npm, pinned by package-lock.json"):
            bazel.install_bazelisk(paths)
    try:
        installed = bazel.find_bazel(paths, version)
    except ToolError as error:
        if not (
            install
            and os.geteuid() == 0
            and packages.has_apt()
            and bazel.list_missing_debian_packages()
        ):
            raise
        console.print_note(error.message)
        apt.install(bazel.list_missing_debian_packages())
        installed = bazel.find_bazel(paths, version)
    console.print_note(f"Bazel {installed.version}")


def _build_manual_error(problem: str, lines: Iterable[str]) -> ToolError:
    listing = "".join(f"\n  {line}" for line in lines)
    run = f". Run:{listing}\n" if listing else ""
    return ToolError(f"{problem}{run}", hint="Then run the same command again")
