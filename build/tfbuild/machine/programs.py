"""Check the programs of a full build: compiler, C library, Python, and tools of its scripts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tfbuild.machine.checklist import CheckVerdict, Finding, build_finding, build_unknown
from tfbuild.planning.plan import Plan
from tfbuild.upstream.releases import Release
from tfcore import packages
from tfcore.cpus.compilers import Compiler


@dataclass(frozen=True, kw_only=True, slots=True)
class Conflict:
    """Compilers that cannot compile some releases."""

    family: str
    compilers: SpecifierSet
    releases: SpecifierSet


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildProgram:
    """A program that the build of some releases calls, and its package."""

    name: str
    purpose: str
    releases: SpecifierSet
    package: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Interpreter:
    """A Python: its path, and whether it has headers. `problem` is the reason if it is missing."""

    path: str = ""
    headers: bool = False
    problem: str = ""


def _build_conflict(family: str, compilers: str, tensorflow: str) -> Conflict:
    return Conflict(
        family=family, compilers=SpecifierSet(compilers), releases=SpecifierSet(tensorflow)
    )


# Source: spack-packages, py_tensorflow/package.py. It rejects GCC up to 9.3 for 2.9 and later, but
# TensorFlow's table of tested builds has GCC 9.3.1 for 2.9 to 2.12.
CONFLICTS = (
    _build_conflict("gcc", ">=13", "<2.15"),
    _build_conflict("gcc", "<12", ">=2.17"),
    _build_conflict("gcc", "<9.3", ">=2.9"),
    _build_conflict("clang", "<16", ">=2.18"),
    _build_conflict("clang", ">=17", "<2.15"),
)

PROGRAMS = (
    BuildProgram(
        name="patchelf",
        purpose="build_pip_package.sh of 2.14.1 changes two libraries with it in its last step",
        releases=SpecifierSet("==2.14.*"),
        package="patchelf",
    ),
    BuildProgram(
        name="realpath",
        purpose="tensorflow.bzl of 2.14.1 links shared objects with it",
        releases=SpecifierSet("==2.14.*"),
        package="coreutils",
    ),
)
_LEGACY_TAGS = {"manylinux2010": "2.12", "manylinux2014": "2.17"}  # PEP 571, PEP 599
_TAG = re.compile(r"(?P<legacy>manylinux20\d\d)_|manylinux_(?P<major>\d+)_(?P<minor>\d+)_")


def check_compiler(compiler: Compiler, release: Release) -> Iterator[Finding]:
    """Check the compiler against the release's tested one and known conflicts.

    No finding is fatal: a patch or a define may help.
    """
    name = f"{compiler.family} {compiler.version}"
    for conflict in CONFLICTS:
        if (
            conflict.family == compiler.family
            and Version(compiler.version) in conflict.compilers
            and Version(release.version) in conflict.releases
        ):
            yield build_finding(
                "compiler",
                name,
                f"not {conflict.family} {conflict.compilers} for TensorFlow "
                f"{conflict.releases} (Spack)",
                CheckVerdict.WARNING,
                f"TensorFlow {release.version} is tested with {release.compiler}: choose it with "
                "--compiler.",
            )
            return
    family, _, version = release.compiler.partition(" ")
    tested = family == compiler.family and Version(compiler.version) >= Version(version)
    advice = f"TensorFlow {release.version} is not tested with it; no problem is known."
    bad = None if tested else CheckVerdict.WARNING
    yield build_finding("compiler", name, f"{release.compiler} or newer, as tested", bad, advice)


def check_glibc(libc: tuple[str, str], plan: Plan) -> Finding:
    """Check the glibc of this machine against that of the stock wheel's tag.

    The wheel runs on machines whose glibc is as new as here; the stock wheel's tag shows the
    glibc of its users.
    """
    name, version = libc
    actual = f"{name} {version}".strip()
    if name != "glibc":
        advice = "TensorFlow builds against glibc only: use a Debian container."
        return build_finding(
            "C library", actual or "not glibc", "glibc", CheckVerdict.FATAL, advice
        )
    required = parse_glibc_floor(plan.stock.name) if plan.stock else ""
    if not required:
        return build_unknown("C library", actual, "glibc of the stock wheel, which is not known")
    newer = Version(version) > Version(required)
    return build_finding(
        "C library",
        actual,
        f"glibc {required} or older, as the stock wheel",
        CheckVerdict.WARNING if newer else None,
        f"The wheel may require glibc {version}. For older machines, build in a container with "
        "their glibc.",
    )


def parse_glibc_floor(wheel: str) -> str:
    """Return the oldest glibc in the tags of a wheel's file name; "" for none (PEP 600)."""
    versions = [
        _LEGACY_TAGS.get(m["legacy"] or "") or _format_version(m) for m in _TAG.finditer(wheel)
    ]
    return min(filter(None, versions), key=Version, default="")


def _format_version(match: re.Match[str]) -> str:
    return f"{match['major']}.{match['minor']}" if match["major"] else ""


def has_hermetic_python(release: Release) -> bool:
    """Return whether Bazel downloads the Python that the sources are compiled for (from 2.14)."""
    return "TF_PYTHON_VERSION" in dict(release.repo_env)


def check_python(python: str, interpreter: Interpreter, release: Release) -> Finding:
    """Check the interpreter and its headers.

    Modules are not checked: the build runs its Python in its own environment, which has the
    dependencies of the release's wheel, including NumPy, setuptools and wheel.
    """
    name, required = f"Python {python}", "an interpreter"
    if interpreter.problem:
        if has_hermetic_python(release):
            advice = "Install any Python for configure.py; Bazel downloads its own."
        else:
            advice = packages.suggest_install(
                f"Python {python}", f"python{python}-dev", f"python{python}-venv"
            )
        return build_finding(name, interpreter.problem, required, CheckVerdict.FATAL, advice)
    if not (interpreter.headers or has_hermetic_python(release)):
        advice = packages.suggest_install("Python's headers", f"python{python}-dev")
        return build_finding(name, "no Python.h", "its headers", CheckVerdict.FATAL, advice)
    return build_finding(name, interpreter.path, required, None, "")


def check_programs(paths: Mapping[str, str], release: Release) -> Iterator[Finding]:
    """Check that the programs that the build calls are installed.

    `paths` maps a program's name to its path; a missing one is absent or empty.
    """
    called = list_programs(release)
    if not called:
        required = "programs of this release's scripts; only those of 2.14.1 are known"
        yield build_unknown("programs", "not checked", required)
    for program in called:
        path = paths.get(program.name, "")
        advice = packages.suggest_install(program.name, program.package)
        bad = None if path else CheckVerdict.FATAL
        yield build_finding(program.name, path or "not on PATH", program.purpose, bad, advice)


def list_programs(release: Release) -> tuple[BuildProgram, ...]:
    """Return the programs that the release's build is known to call."""
    return tuple(program for program in PROGRAMS if Version(release.version) in program.releases)
