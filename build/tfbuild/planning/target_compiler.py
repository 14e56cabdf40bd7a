"""Finds the target that a word of --arch means, and the compiler for it."""

from __future__ import annotations

import contextlib
import platform
import re
from pathlib import Path

from tfcore import console
from tfcore.cpus import compilers, flags
from tfcore.cpus.compilers import Compiler
from tfcore.cpus.cpu import read_cpu
from tfcore.cpus.targets import (
    Target,
    create_stock_target,
    list_proxy_targets,
    match_cpu,
    parse_target,
)
from tfcore.errors import CompilerError


def resolve_target(arch: str, compiler_name: str) -> tuple[Target, Compiler]:
    """Return the target of a word of --arch, and its compiler: the one of --compiler, or the best.

    `native` and `stock` become names and features. For a compiler older than this CPU, prints
    which target `native` is.

    Raises TargetError, CompilerError.
    """
    word = arch.strip().lower()
    if word == "native":
        target = match_cpu(read_cpu()).native
    elif word == "stock":
        target = create_stock_target(platform.machine())
    else:
        target = parse_target(word)
    compiler = _resolve_compiler(compiler_name, target.family)
    fitting = find_buildable_target(target, compiler) if word == "native" else target
    if fitting != target:
        reason = f"{compiler.family} {compiler.version} does not support all of {target.spec}"
        console.print_note(f"{reason}; native is {fitting.spec}")
    return fitting, compiler


def find_architecture(arch: str) -> str:
    """Return the architecture of the first target of --arch. Raises TargetError."""
    word = arch.strip(" ,").partition(",")[0].lower()
    return platform.machine() if word in {"native", "stock"} else parse_target(word).family


def find_buildable_target(target: Target, compiler: Compiler) -> Target:
    """Return the target, or the nearest one that an older compiler supports.

    The result has the extra features that the compiler supports.

    Raises CompilerError if there is none.
    """
    for candidate in (target, *list_proxy_targets(target)):
        extras = flags.filter_known_extras(candidate, compiler.family, compiler.version)
        tuned = "" if candidate.tune == candidate.name else f"/{candidate.tune}"
        fitting = parse_target("+".join((candidate.name, *extras)) + tuned)
        with contextlib.suppress(CompilerError):
            flags.compute_march_flags(fitting, compiler.family, compiler.version)
            return fitting
    flags.compute_march_flags(target, compiler.family, compiler.version)
    return target


def _resolve_compiler(name: str, architecture: str) -> Compiler:
    if "@" in name:
        return parse_compiler(name, architecture)
    return compilers.find_compiler(name or None, architecture)


def parse_compiler(text: str, architecture: str) -> Compiler:
    """Parse a compiler that need not be installed: clang@16.0.6.

    Raises CompilerError.
    """
    family, _, version = text.partition("@")
    if family not in flags.FAMILIES or not re.fullmatch(r"[0-9]+(\.[0-9]+)*", version):
        raise CompilerError(
            f"{text} is not a compiler and version", hint="Use the form clang@16.0.6 or gcc@12.2.0"
        )
    return Compiler(family=family, version=version, path=Path(family), architecture=architecture)


def read_macros(target: Target, compiler: Compiler) -> dict[str, str]:
    """Return the macros that the compiler defines for the target; empty for a declared one
    (clang@16.0.6), which cannot be run.
    """
    march = flags.compute_march_flags(target, compiler.family, compiler.version)
    if not compiler.path.is_absolute():
        return {}
    macros = compilers.read_macros(compiler, march)
    flags.verify_macros(target, compiler.family, compiler.version, macros)
    return macros
