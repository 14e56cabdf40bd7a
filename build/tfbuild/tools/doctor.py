"""What this machine lacks for which work, and the commands that mend it."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterable
from dataclasses import dataclass

from tfbuild import console, packages, settings
from tfbuild.cpus import compilers
from tfbuild.errors import CompilerError, ToolError
from tfbuild.settings import Paths
from tfbuild.tools import apt, bazel


@dataclass(frozen=True, kw_only=True, slots=True)
class Need:
    """One thing that work needs: how it is called, what for, and the packages that have it.

    `present` is what was found, empty if nothing was.
    """

    name: str
    purpose: str
    packages: tuple[str, ...]
    present: str


def needs(paths: Paths, *, tests: bool = False, clang: bool = True) -> tuple[Need, ...]:
    """Everything that a build needs, and with `tests` what the project's own tests need too.

    Without `clang` for a build whose compiler was named.
    """
    compiler = Need(
        name="clang",
        purpose="compiles the kernels; TensorFlow's own wheel is built with clang 16",
        packages=(packages.choose_clang(),),
        present=_clang(),
    )
    found = [
        *([compiler] if clang else []),
        Need(
            name="C++ standard library and linker",
            purpose="what every C++ program is built with",
            packages=("g++", "binutils"),
            present=_all_of("g++", "ld", "nm", "c++filt"),
        ),
        Need(
            name="bazelisk",
            purpose="fetches Bazel; installed from npm",
            packages=("npm",),
            present=str(bazel.find_bazelisk(paths) or shutil.which("npm") or ""),
        ),
    ]
    if tests:
        found += [
            Need(
                name="QEMU user mode",
                purpose="runs wheels on CPUs that this machine is not",
                packages=("qemu-user",),
                present=_all_of("qemu-x86_64"),
            ),
            Need(
                name="mmdebstrap",
                purpose="unpacks the Debian, and the QEMU, that aarch64 wheels are tried in",
                packages=("mmdebstrap",),
                present=_all_of("mmdebstrap"),
            ),
            Need(
                name="aarch64 cross compiler",
                purpose="the libraries that aarch64 kernels are linked with; proves their flags",
                packages=("g++-aarch64-linux-gnu",),
                present=_all_of("aarch64-linux-gnu-g++"),
            ),
            Need(
                name="nginx",
                purpose="a shared cache for builds",
                packages=("nginx-light",),
                present=_all_of("nginx"),
            ),
            Need(
                name="bubblewrap",
                purpose="runs what a build cluster is sent",
                packages=("bubblewrap",),
                present=_all_of("bwrap"),
            ),
            Need(
                name="LLVM 16's linker, profile tools and runtime",
                purpose="builds with link-time and profile-guided optimization",
                packages=("lld-16", "llvm-16", "libclang-rt-16-dev"),
                present=_llvm(),
            ),
            Need(
                name="debootstrap",
                purpose="makes an older Debian to load wheels in, and a newer one for its Bazel",
                packages=("debootstrap",),
                present=_all_of("debootstrap"),
            ),
        ]
    return tuple(found)


def _clang() -> str:
    try:
        found = compilers.find_compiler()
    except CompilerError:
        return ""
    return f"{found.path} ({found.family} {found.version})" if found.family == "clang" else ""


def _llvm() -> str:
    """The programs, once clang's profile runtime, which is no program, is there too."""
    try:
        whole = compilers.can_link(compilers.find_compiler("clang-16"), ("-fprofile-generate",))
    except CompilerError:
        return ""
    return _all_of("ld.lld-16", "llvm-profdata-16") if whole else ""


def _all_of(*programs: str) -> str:
    found = [shutil.which(program) for program in programs]
    return ", ".join(path for path in found if path) if all(found) else ""


def commands(missing: Iterable[Need]) -> tuple[str, ...]:
    """What a person would type to install them; nothing where there is no apt."""
    names = [package for need in missing for package in need.packages]
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
    """Everything that `needs` names, and a Bazel that runs.

    With `install` missing Debian packages are installed; bazelisk is put into the cache. Says what
    it does. What it may not do (--no-install) becomes a ToolError with the commands.
    """
    install = install and settings.can_install()
    missing = [need for need in needs(paths, tests=tests, clang=clang) if not need.present]
    if missing:
        names = ", ".join(need.name for need in missing)
        if not install or os.geteuid() != 0 or not packages.has_apt():
            raise _by_hand(f"this machine lacks: {names}", commands(missing))
        apt.install([package for need in missing for package in need.packages])
    _prepare_bazel(paths, version, install=install)


def _prepare_bazel(paths: Paths, version: str, *, install: bool) -> None:
    if bazel.find_bazelisk(paths) is None:
        if not settings.can_install():
            raise _by_hand("bazelisk is missing", ("npm install --global @bazel/bazelisk",))
        with console.report_step(
            "ask npm's registry for bazelisk, its bytes pinned by package-lock.json"
        ):
            bazel.install_bazelisk(paths)
    try:
        found = bazel.find_bazel(paths, version)
    except ToolError as error:
        if not (install and os.geteuid() == 0 and packages.has_apt() and bazel.lacks_of_debian()):
            raise
        console.print_note(error.message)
        apt.install(bazel.lacks_of_debian())
        found = bazel.find_bazel(paths, version)
    console.print_note(f"Bazel {found.version}")


def _by_hand(what: str, lines: Iterable[str]) -> ToolError:
    listed = "".join(f"\n  {line}" for line in lines)
    run = f". Run:{listed}\n" if listed else ""
    return ToolError(f"{what}{run}", hint="Then run the same command again")
