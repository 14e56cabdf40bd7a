"""Container files: an image that builds a wheel, and one that compares it with the stock wheel.

Rendering is pure. Both images start from the same pinned Debian, and run the same commands that run
on any machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tfbuild.planning.fleet import Fleet
from tfbuild.planning.plan import FullPlan, KernelsPlan, Plan
from tfbuild.planning.render import render_template
from tfcore.errors import CompilerError, PythonError

# Debian 12 of 2026-08-24, without documentation. The digest is that of an index of images for all
# architectures. Public files of many owners name it; MathiasPius/kronform#323 also names the date.
BASE = (
    "debian:bookworm-20260824-slim"
    "@sha256:88200866dfff7ea7f5cbcb6ec7c8a701889efe6fe859fe64d6990e4b07ea4171"
)
PYTHON = "3.11"
"""The only Python in Debian 12."""
# Family and version of a compiler → its program in Debian 12, and the package of the same name.
_COMPILERS = {
    ("clang", "13.0.1"): "clang-13",
    ("clang", "14.0.6"): "clang-14",
    ("clang", "15.0.6"): "clang-15",
    ("clang", "16.0.6"): "clang-16",
    ("clang", "19.1.7"): "clang-19",
    ("gcc", "11.3.0"): "g++-11",
    ("gcc", "12.2.0"): "g++-12",
}
_PLATFORMS = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}

_FOR_INV = ("ca-certificates", "python3", "python3-venv")
# A linker, C++ headers, and npm for bazelisk: required by `doctor`.
_FOR_BUILDS = ("binutils", "g++", "npm")
# Python's headers and patchelf: required by the preflight of a full build.
_FOR_TREES = ("patchelf", "python3-dev")


def render_containers(
    fleet: Fleet[Plan], *, kernels: str, vcpus: int | None, templates: Path
) -> dict[str, str]:
    """Return the container files: file name → text.

    `kernels` is the choice that the plans were made with; with `vcpus` the lines that run the
    images give them that many CPUs.

    Raises CompilerError or PythonError if Debian 12 does not have the compiler or the Python.
    """
    variables = build_contexts(fleet, kernels=kernels, vcpus=vcpus)
    files = {}
    for name in ("build.Dockerfile", "compare.Dockerfile"):
        for file, template in ((name, name), (f"{name}.dockerignore", "dockerignore")):
            source = f"containers/{template}.j2"
            files[file] = render_template(templates, source, variables[source])
    return files


def build_contexts(
    fleet: Fleet[Plan], *, kernels: str, vcpus: int | None
) -> dict[str, Mapping[str, object]]:
    """Return the template variables: template name → variables.

    Raises CompilerError or PythonError if Debian 12 does not have the compiler or the Python.
    """
    plan = fleet.first
    if plan.python != PYTHON:
        raise PythonError(
            f"the container image has Python {PYTHON}, but the plan is for {plan.python}",
            hint=f"Use --python {PYTHON}, or build on a machine with Python {plan.python}",
        )
    compiler = _find_program(plan)
    common: dict[str, object] = {
        "package": plan.package,
        "version": fleet.version,
        "platform": _PLATFORMS[plan.target.family],
        "base": BASE,
        "cpus": "" if vcpus is None else f" --cpuset-cpus {_format_cpu_range(vcpus)}",
    }
    build: dict[str, object] = {
        "image": f"tensorwright-build:{plan.release}-{fleet.local}",
        "packages": sorted({*_FOR_INV, *_FOR_BUILDS, *_list_compiler_packages(plan, compiler)}),
        "command": ["./inv", *_build_command(fleet, kernels, compiler)],
    }
    compare: dict[str, object] = {
        "image": "tensorwright-compare",
        "packages": sorted(_FOR_INV),
        "command": ["./inv", "compare", *(() if vcpus is None else ("--vcpus", str(vcpus)))],
    }
    return {
        "containers/build.Dockerfile.j2": common | build,
        "containers/compare.Dockerfile.j2": common | compare,
        "containers/debian.j2": {},
        "containers/dockerignore.j2": {},
    }


def _format_cpu_range(vcpus: int) -> str:
    return "0" if vcpus == 1 else f"0-{vcpus - 1}"


def _find_program(plan: Plan) -> str:
    """Return the program name of the plan's compiler in Debian 12.

    Raises CompilerError if Debian 12 does not have that version: another version would change
    the plan.
    """
    program = _COMPILERS.get((plan.compiler, plan.compiler_version))
    if program is None:
        known = ", ".join(f"{family}@{version}" for family, version in _COMPILERS)
        raise CompilerError(
            f"the container image has no {plan.compiler} {plan.compiler_version}",
            hint=f"Choose --compiler from {known}",
        )
    return program


def _list_compiler_packages(plan: Plan, compiler: str) -> tuple[str, ...]:
    if isinstance(plan, KernelsPlan):
        return (compiler,)
    family, _, number = compiler.rpartition("-")
    # --lto links with lld; --pgo needs a profile runtime and llvm-profdata.
    names = (f"lld-{number}", f"llvm-{number}", f"libclang-rt-{number}-dev")
    llvm = names if family == "clang" else ()
    return (compiler, *llvm, *_FOR_TREES)


def _build_command(fleet: Fleet[Plan], kernels: str, compiler: str) -> tuple[str, ...]:
    """Return the build command of these plans, with `native` resolved and defaults written out."""
    plan = fleet.first
    lto = isinstance(plan, FullPlan) and plan.full_recipe.lto
    return (
        "build",
        *("--scope", plan.scope.value),
        *("--arch", ",".join(fleet.targets)),
        *("--release", plan.release),
        *("--package", plan.package),
        *("--python", plan.python),
        *("--compiler", compiler),
        *(("--kernels", kernels) if isinstance(plan, KernelsPlan) else ()),
        *(("--lto",) if lto else ()),
    )
