"""From what a person typed to a plan."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from tfbuild import compilers, flags, releases
from tfbuild import plan as plans
from tfbuild.compilers import Compiler
from tfbuild.cpu import read_cpu
from tfbuild.plan import Plan
from tfbuild.targets import Target, parse_target, resolve


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """Options as they were typed; an empty one means the default."""

    arch: str = "native"
    release: str = "2.14.1"
    scope: str = "kernels"
    kernels: str = "hot"
    package: str = "tensorflow-cpu"
    python: str = ""
    compiler: str = ""


def plan_for(request: Request) -> tuple[Plan, Compiler]:
    """The plan, and the compiler that it was resolved with. Raises TargetError, ReleaseError,
    CompilerError, UsageError."""
    release = releases.find_release(request.release)
    target = target_for(request.arch)
    compiler, macros = _compiler(request.compiler, target)
    plan = plans.make_plan(
        scope=request.scope,
        release=release,
        package=request.package,
        python=request.python or default_python(release.pythons),
        target=target,
        compiler=compiler,
        macros=macros,
        kernel_choice=request.kernels,
    )
    return plan, compiler


def target_for(arch: str) -> Target:
    """`native` is resolved to a name and explicit features here, and nowhere later."""
    if arch.strip().lower() == "native":
        return resolve(arch, read_cpu())
    return parse_target(arch)


def _compiler(wanted: str, target: Target) -> tuple[Compiler, dict[str, str]]:
    """A declared compiler (clang@16.0.6) is believed; one that is here is asked what it defines."""
    if "@" in wanted:
        return plans.declared_compiler(wanted, target.family), {}
    compiler = compilers.find_compiler(wanted or None, target.family)
    march = flags.march_flags(target, compiler.family, compiler.version)
    macros = compilers.macros(compiler, march)
    flags.verify(target, compiler.family, compiler.version, macros)
    return compiler, macros


def default_python(supported: tuple[str, ...]) -> str:
    """This interpreter's version if the release supports it, else the newest that it does."""
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    return own if own in supported else supported[-1]
