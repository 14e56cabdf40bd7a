"""Finds the C++ compilers of this machine, their versions and their predefined macros."""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfcore import packages
from tfcore.errors import CommandError, CompilerError
from tfcore.run import run

_TIMEOUT_S = 30.0
_CROSS = {"aarch64": "aarch64-linux-gnu", "x86_64": "x86_64-linux-gnu"}
_SUFFIX = re.compile(r"^(?P<stem>clang\+\+|clang|g\+\+)-(?P<major>\d+)$")
_NAME = re.compile(r"(?P<stem>clang\+\+|clang|g\+\+|g)(?:-(?P<major>\d+))?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Compiler:
    """A C++ compiler for one architecture.

    `flags` go before all others: they select the architecture of a clang that cross-compiles.
    """

    family: str
    version: str
    path: Path
    architecture: str
    flags: tuple[str, ...] = ()

    @property
    def driver(self) -> Path:
        """Return the command that picks the language by a file's suffix, as Bazel needs it.

        g++ compiles C files as C++.
        """
        name = self.path.name.replace("clang++", "clang").replace("g++", "gcc")
        return self.path.with_name(name)

    def require_installed(self) -> None:
        """Raise CompilerError if the compiler is only declared, not installed."""
        if not self.path.is_absolute():
            raise CompilerError(
                f"{self.family}@{self.version} is only declared, not installed",
                hint="Name an installed compiler, for example --compiler clang-16",
            )


def link_driver(compiler: Compiler, folder: Path) -> Path:
    """Return the driver as a command without flags.

    For a clang that cross-compiles it is a link in `folder` whose name begins with the
    machine: clang takes its target from the name (clang/docs/CrossCompilation.rst), and Bazel
    runs the command without flags to find its header folders.
    """
    if not compiler.flags:
        return compiler.driver
    link = folder / f"{_CROSS[compiler.architecture]}-{compiler.driver.name}"
    if not link.is_symlink() or link.readlink() != compiler.driver:
        folder.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(compiler.driver)
    return link


def can_link(compiler: Compiler, flags: Sequence[str]) -> bool:
    """Return True if a shared library can be linked with these flags.

    A linker or a runtime library may be in a separate package.
    """
    words = (*compiler.flags, *flags, "-shared", "-x", "c", "/dev/null", "-o", "/dev/null")
    return not run([compiler.path, *words], check=False, timeout_s=_TIMEOUT_S).returncode


def find_compiler(
    name: str | None = None,
    architecture: str | None = None,
    *,
    env: Mapping[str, str] | None = None,
) -> Compiler:
    """Return the compiler called `name`, or the best one for an architecture.

    The architecture is this machine's by default. The best compiler is the newest clang, else
    g++. For cross-compilation Debian's g++ for the other architecture must be installed too,
    because it brings the libraries. Raises CompilerError if there is none.
    """
    architecture = architecture or platform.machine()
    if architecture not in _CROSS:
        raise CompilerError(f"{architecture} is not supported", hint=f"Known: {', '.join(_CROSS)}")
    path = _find_on_path(name, env) if name else next(_find_candidates(architecture, env), None)
    if path is None:
        problem = f"no compiler called {name}" if name else f"no C++ compiler for {architecture}"
        raise CompilerError(
            f"{problem} is on PATH",
            hint=_suggest_install(name, architecture) + _suggest_declaring(architecture),
        )
    return identify_compiler(path, architecture)


def identify_compiler(path: Path, architecture: str) -> Compiler:
    """Read the family and the version of a compiler.

    Raises CompilerError if it cannot compile for the architecture.
    """
    predefined = _query_macros(path, ())
    family, version = _parse_family(path, predefined)
    flags: tuple[str, ...] = ()
    if f"__{architecture}__" not in predefined:
        if family == "gcc":
            raise CompilerError(
                f"{path} does not compile for {architecture}",
                hint=_suggest_install(None, architecture),
            )
        flags = (f"--target={_CROSS[architecture]}",)
    return Compiler(
        family=family,
        version=version,
        path=path,
        architecture=architecture,
        flags=flags,
    )


def _parse_family(path: Path, macros: Mapping[str, str]) -> tuple[str, str]:
    """Return the family and the version from the predefined macros.

    A name like c++ shows neither. Raises CompilerError unless it is clang or gcc.
    """
    if "__INTEL_LLVM_COMPILER" in macros:
        raise CompilerError(f"{path} is Intel's compiler", hint="Use clang or g++")
    if "__clang__" in macros:
        family, names = "clang", ("__clang_major__", "__clang_minor__", "__clang_patchlevel__")
    elif "__GNUC__" in macros:
        family, names = "gcc", ("__GNUC__", "__GNUC_MINOR__", "__GNUC_PATCHLEVEL__")
    else:
        raise CompilerError(f"{path} is neither clang nor gcc", hint="Use clang or g++")
    return family, ".".join(macros[name] for name in names)


def read_macros(compiler: Compiler, flags: Sequence[str]) -> dict[str, str]:
    """Return the macros that the compiler predefines under these flags.

    Raises CompilerError if it refuses them.
    """
    return _query_macros(compiler.path, (*compiler.flags, *flags))


def _query_macros(path: Path, flags: Sequence[str]) -> dict[str, str]:
    argv = [str(path), *flags, "-dM", "-E", "-x", "c++", "/dev/null"]
    try:
        output = run(argv, timeout_s=_TIMEOUT_S).output
    except CommandError as error:
        raise CompilerError(
            f"{path.name} failed with {' '.join(flags) or 'no flags'}: {_extract_error(error)}",
            hint="Use a newer compiler or another target",
        ) from error
    directives = (line.split(maxsplit=2) for line in output.splitlines())
    return {word[1]: (word[2:] or [""])[0] for word in directives if word[:1] == ["#define"]}


def _extract_error(error: CommandError) -> str:
    lines = str(error).splitlines()
    return next((line.strip() for line in lines if "error:" in line), lines[0])


def _find_candidates(architecture: str, env: Mapping[str, str] | None) -> Iterator[Path]:
    numbered = sorted(_find_numbered(env), key=lambda match: -int(match["major"]))
    names = [match[0] for match in numbered if match["stem"] == "clang"]
    names += ["clang", *(match[0] for match in numbered if match["stem"] == "clang++"), "clang++"]
    if architecture == platform.machine():
        names += ["g++", *(match[0] for match in numbered if match["stem"] == "g++")]
    else:
        cross = f"{_CROSS[architecture]}-g++"
        names = [*names, cross] if _find_on_path(cross, env) else []
    for name in names:
        path = _find_on_path(name, env)
        if path is not None:
            yield path


def _find_numbered(env: Mapping[str, str] | None) -> list[re.Match[str]]:
    """Return the compilers on PATH with a version in their name."""
    names: set[str] = set()
    for folder in _get_path(env).split(os.pathsep):
        try:
            names.update(path.name for path in Path(folder or ".").iterdir())
        except OSError:
            continue
    return [match for match in map(_SUFFIX.match, sorted(names)) if match]


def _find_on_path(name: str, env: Mapping[str, str] | None) -> Path | None:

    path = shutil.which(name, path=_get_path(env))
    return Path(path) if path else None


def _get_path(env: Mapping[str, str] | None) -> str:
    return (os.environ if env is None else env).get("PATH", "")


def _suggest_declaring(architecture: str) -> str:
    is_native = architecture == platform.machine()
    return "" if is_native else "; to plan only, use --compiler clang@16.0.6"


def _suggest_install(name: str | None, architecture: str) -> str:
    """Return the command that installs the compiler of this name, or one of the same kind."""
    match = _NAME.fullmatch(name or "")
    if match is None:
        package = "" if architecture == platform.machine() else name_cross_package(architecture)
        install = packages.suggest_install("a C++ compiler", package or packages.choose_clang())
        return f"Use clang or g++. {install}" if name else install
    stem, version = "clang" if match["stem"].startswith("clang") else "g++", match["major"]
    if version is None:
        return packages.suggest_install(stem, stem)
    offered = packages.list_versions(stem)
    if not offered or int(version) in offered:
        return packages.suggest_install(f"{stem} {version}", f"{stem}-{version}")
    alternatives = ", ".join(f"{stem}-{number}" for number in offered)
    instead = packages.suggest_install(stem, packages.choose_package(stem, int(version)))
    return f"apt has no {stem}-{version}; it has {alternatives}. {instead}"


def name_cross_package(architecture: str) -> str:
    """Return the Debian package with the compiler and the libraries of another architecture."""
    return f"g++-{_CROSS[architecture].replace('_', '-')}"
