"""The programs that a full build runs: compiler, C library, Python, and what its scripts call."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tfbuild import packages
from tfbuild.cpus.compilers import Compiler
from tfbuild.machine.checklist import CheckVerdict, Finding, finding, unknown
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
    """A program that a release's build calls, and where that was seen."""

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


def _conflict(family: str, compilers: str, tensorflow: str) -> Conflict:
    return Conflict(
        family=family, compilers=SpecifierSet(compilers), releases=SpecifierSet(tensorflow)
    )


# spack-packages, py_tensorflow/package.py. There "gcc up to 9.3" is no good for 2.9 and later, but
# TensorFlow's own table tests 2.9 to 2.12 with GCC 9.3.1.
CONFLICTS = (
    _conflict("gcc", ">=13", "<2.15"),
    _conflict("gcc", "<12", ">=2.17"),
    _conflict("gcc", "<9.3", ">=2.9"),
    _conflict("clang", "<16", ">=2.18"),
    _conflict("clang", ">=17", "<2.15"),
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


def compiler_findings(compiler: Compiler, release: Release) -> Iterator[Finding]:
    """The release's tested compiler, and what others found not to work. No finding is fatal: a
    patch or a define may help."""
    name = f"{compiler.family} {compiler.version}"
    for each in CONFLICTS:
        if (
            each.family == compiler.family
            and Version(compiler.version) in each.compilers
            and Version(release.version) in each.releases
        ):
            yield finding(
                "compiler",
                name,
                f"not {each.family} {each.compilers} for TensorFlow {each.releases} (Spack)",
                CheckVerdict.WARNING,
                f"TensorFlow {release.version} is tested with {release.compiler}: --compiler "
                "takes another.",
            )
            return
    family, _, version = release.compiler.partition(" ")
    tested = family == compiler.family and Version(compiler.version) >= Version(version)
    advice = f"TensorFlow {release.version} is not tested with it, though nothing is known against."
    bad = None if tested else CheckVerdict.WARNING
    yield finding("compiler", name, f"{release.compiler} or newer, as tested", bad, advice)


def glibc_finding(libc: tuple[str, str], plan: Plan) -> Finding:
    """The wheel runs where glibc is as new as here; the stock wheel's tag says where users are."""
    name, version = libc
    seen = f"{name} {version}".strip()
    if name != "glibc":
        advice = "TensorFlow builds against glibc only: use a Debian container."
        return finding("C library", seen or "not glibc", "glibc", CheckVerdict.FATAL, advice)
    wanted = floor_of(plan.stock.name) if plan.stock else ""
    if not wanted:
        return unknown("C library", seen, "what the stock wheel promises, which is not known")
    newer = Version(version) > Version(wanted)
    return finding(
        "C library",
        seen,
        f"glibc {wanted}, as the stock wheel",
        CheckVerdict.WARNING if newer else None,
        f"The wheel may need up to glibc {version} where it runs: to serve older machines, build "
        "in a container of theirs.",
    )


def floor_of(wheel: str) -> str:
    """The oldest glibc that a wheel's file name promises; empty for none (PEP 600)."""
    found = [_LEGACY_TAGS.get(m["legacy"] or "") or _numbered(m) for m in _TAG.finditer(wheel)]
    return min(filter(None, found), key=Version, default="")


def _numbered(match: re.Match[str]) -> str:
    return f"{match['major']}.{match['minor']}" if match["major"] else ""


def hermetic(release: Release) -> bool:
    """Whether Bazel brings the Python that the sources are compiled for (from 2.14 on)."""
    return "TF_PYTHON_VERSION" in dict(release.repo_env)


def python_finding(python: str, interpreter: Interpreter, release: Release) -> Finding:
    """Modules are not looked for: the build runs its Python in an environment of its own, which has
    what the release's wheel depends on, NumPy, setuptools and wheel among it."""
    name, wanted = f"Python {python}", "an interpreter"
    if interpreter.problem:
        if hermetic(release):
            advice = "Install any: Bazel fetches its own, but configure.py runs with this one."
        else:
            advice = packages.suggest_install(
                f"Python {python}", f"python{python}-dev", f"python{python}-venv"
            )
        return finding(name, interpreter.problem, wanted, CheckVerdict.FATAL, advice)
    if not (interpreter.headers or hermetic(release)):
        advice = packages.suggest_install("Python's headers", f"python{python}-dev")
        return finding(name, "no Python.h", "its headers", CheckVerdict.FATAL, advice)
    return finding(name, interpreter.path, wanted, None, "")


def program_findings(found: Mapping[str, str], release: Release) -> Iterator[Finding]:
    """`found` maps a program's name to its path; what is missing is not in it or empty."""
    called = called_by(release)
    if not called:
        wanted = "what this release's scripts call; only 2.14.1's were read"
        yield unknown("programs", "not looked for", wanted)
    for program in called:
        path = found.get(program.name, "")
        advice = packages.suggest_install(program.name, program.package)
        bad = None if path else CheckVerdict.FATAL
        yield finding(program.name, path or "not on PATH", program.purpose, bad, advice)


def called_by(release: Release) -> tuple[BuildProgram, ...]:
    """The programs that the release's build is known to call."""
    return tuple(each for each in PROGRAMS if Version(release.version) in each.releases)
