"""The programs that a full build runs: compiler, C library, Python, and what its scripts call."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tfbuild import packages
from tfbuild.cpus.compilers import Compiler
from tfbuild.machine.checklist import CheckVerdict, Finding, build_finding, build_unknown
from tfbuild.planning.plan import Plan
from tfbuild.upstream.releases import Release


@dataclass(frozen=True, kw_only=True, slots=True)
class Conflict:
    """Compilers that fail on some releases."""

    family: str
    compilers: SpecifierSet
    releases: SpecifierSet


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildProgram:
    """A program that the build of some releases calls, and its source."""

    name: str
    purpose: str
    releases: SpecifierSet
    package: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Interpreter:
    """A Python: its path, and whether its headers are there. `problem` is why there is none."""

    path: str = ""
    headers: bool = False
    problem: str = ""


def _build_conflict(family: str, compilers: str, tensorflow: str) -> Conflict:
    return Conflict(
        family=family, compilers=SpecifierSet(compilers), releases=SpecifierSet(tensorflow)
    )


# spack-packages, py_tensorflow/package.py. There "gcc up to 9.3" is no good for 2.9 and later, but
# TensorFlow's own table tests 2.9 to 2.12 with GCC 9.3.1.
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
        purpose="build_pip_package.sh of 2.14.1 changes two libraries with it, at the very end",
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
                f"TensorFlow {release.version} is tested with {release.compiler}: --compiler "
                "takes another.",
            )
            return
    family, _, version = release.compiler.partition(" ")
    tested = family == compiler.family and Version(compiler.version) >= Version(version)
    advice = f"TensorFlow {release.version} is not tested with it, though nothing is known against."
    bad = None if tested else CheckVerdict.WARNING
    yield build_finding("compiler", name, f"{release.compiler} or newer, as tested", bad, advice)


def check_glibc(libc: tuple[str, str], plan: Plan) -> Finding:
    """Check the glibc of this machine against that of the stock wheel's tag.

    The wheel runs where glibc is as new as here; the stock wheel's tag shows which glibc
    users have.
    """
    name, version = libc
    seen = f"{name} {version}".strip()
    if name != "glibc":
        advice = "TensorFlow builds against glibc only: use a Debian container."
        return build_finding("C library", seen or "not glibc", "glibc", CheckVerdict.FATAL, advice)
    required = parse_glibc_floor(plan.stock.name) if plan.stock else ""
    if not required:
        return build_unknown("C library", seen, "what the stock wheel promises, which is not known")
    newer = Version(version) > Version(required)
    return build_finding(
        "C library",
        seen,
        f"glibc {required}, as the stock wheel",
        CheckVerdict.WARNING if newer else None,
        f"The wheel may need up to glibc {version} where it runs: to serve older machines, build "
        "in a container of theirs.",
    )


def parse_glibc_floor(wheel: str) -> str:
    """Return the oldest glibc that a wheel's file name promises; "" for none (PEP 600)."""
    versions = [
        _LEGACY_TAGS.get(m["legacy"] or "") or _format_version(m) for m in _TAG.finditer(wheel)
    ]
    return min(filter(None, versions), key=Version, default="")


def _format_version(match: re.Match[str]) -> str:
    return f"{match['major']}.{match['minor']}" if match["major"] else ""


def has_hermetic_python(release: Release) -> bool:
    """Return whether Bazel brings the Python that the sources are compiled for (from 2.14 on)."""
    return "TF_PYTHON_VERSION" in dict(release.repo_env)


def check_python(python: str, interpreter: Interpreter, release: Release) -> Finding:
    """Check the interpreter and its headers.

    Modules are not checked: the build runs its Python in an environment of its own, which has
    the dependencies of the release's wheel, including NumPy, setuptools and wheel.
    """
    name, required = f"Python {python}", "an interpreter"
    if interpreter.problem:
        if has_hermetic_python(release):
            advice = "Install any: Bazel fetches its own, but configure.py runs with this one."
        else:
            advice = packages.suggest_install(
                f"Python {python}", f"python{python}-dev", f"python{python}-venv"
            )
        return build_finding(name, interpreter.problem, required, CheckVerdict.FATAL, advice)
    if not (interpreter.headers or has_hermetic_python(release)):
        advice = packages.suggest_install("Python's headers", f"python{python}-dev")
        return build_finding(name, "no Python.h", "its headers", CheckVerdict.FATAL, advice)
    return build_finding(name, interpreter.path, required, None, "")


def check_programs(found: Mapping[str, str], release: Release) -> Iterator[Finding]:
    """Check that the programs that the build calls are there.

    `found` maps a program's name to its path; a missing one is absent or empty.
    """
    called = list_programs(release)
    if not called:
        required = "what this release's scripts call; only 2.14.1's were read"
        yield build_unknown("programs", "not looked for", required)
    for program in called:
        path = found.get(program.name, "")
        advice = packages.suggest_install(program.name, program.package)
        bad = None if path else CheckVerdict.FATAL
        yield build_finding(program.name, path or "not on PATH", program.purpose, bad, advice)


def list_programs(release: Release) -> tuple[BuildProgram, ...]:
    """Return the programs that the release's build is known to call."""
    return tuple(program for program in PROGRAMS if Version(release.version) in program.releases)
