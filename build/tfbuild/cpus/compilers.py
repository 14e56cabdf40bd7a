"""The C++ compilers of this machine: which there are, which version, what they define."""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfbuild import packages
from tfbuild.errors import CommandError, CompilerError
from tfbuild.run import run

_TIMEOUT_S = 30.0
_CROSS = {"aarch64": "aarch64-linux-gnu", "x86_64": "x86_64-linux-gnu"}
_SUFFIX = re.compile(r"^(?P<stem>clang\+\+|clang|g\+\+)-(?P<major>\d+)$")
_NAME = re.compile(r"(?P<stem>clang\+\+|clang|g\+\+|g)(?:-(?P<major>\d+))?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Compiler:
    """`flags` go before all others: they select the architecture of a clang that cross-compiles."""

    family: str
    version: str
    path: Path
    architecture: str
    flags: tuple[str, ...] = ()

    @property
    def driver(self) -> Path:
        """The command that goes by a file's suffix, as Bazel wants it: g++ takes C for C++."""
        name = self.path.name.replace("clang++", "clang").replace("g++", "gcc")
        return self.path.with_name(name)

    def need_here(self) -> None:
        """Raises CompilerError for one that is declared and need not be installed."""
        if not self.path.is_absolute():
            raise CompilerError(
                f"{self.family}@{self.version} is declared, not installed",
                hint="Name a compiler that is here, such as --compiler clang-16",
            )


def driver_in(compiler: Compiler, folder: Path) -> Path:
    """The driver as a command alone. A clang that cross-compiles gets a link in `folder` whose name
    begins with the machine, which is how it takes its target (clang/docs/CrossCompilation.rst):
    Bazel asks the bare command for its folders of headers."""
    if not compiler.flags:
        return compiler.driver
    link = folder / f"{_CROSS[compiler.architecture]}-{compiler.driver.name}"
    if not link.is_symlink() or link.readlink() != compiler.driver:
        folder.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(compiler.driver)
    return link


def can_link(compiler: Compiler, flags: Sequence[str]) -> bool:
    """Whether a shared library can be linked with these flags: a linker or a runtime library may be
    in a package of its own."""
    words = (*compiler.flags, *flags, "-shared", "-x", "c", "/dev/null", "-o", "/dev/null")
    return not run([compiler.path, *words], check=False, timeout_s=_TIMEOUT_S).returncode


def find_compiler(
    name: str | None = None,
    architecture: str | None = None,
    *,
    env: Mapping[str, str] | None = None,
) -> Compiler:
    """The compiler called `name`, or the best one for an architecture (by default this machine's).

    The best is the newest clang, else g++; to cross-compile only where Debian's g++ for the other
    architecture is here too, which brings its libraries. Raises CompilerError when there is none
    that serves.
    """
    architecture = architecture or platform.machine()
    if architecture not in _CROSS:
        raise CompilerError(f"{architecture} is not supported", hint=f"Known: {', '.join(_CROSS)}")
    found = _which(name, env) if name else next(_candidates(architecture, env), None)
    if found is None:
        asked = f"no compiler called {name}" if name else f"no C++ compiler for {architecture}"
        raise CompilerError(
            f"{asked} is on PATH",
            hint=_install(name, architecture) + _or_declare(architecture),
        )
    return identify(found, architecture)


def identify(path: Path, architecture: str) -> Compiler:
    """Ask a compiler what it is. Raises CompilerError when it cannot serve the architecture."""
    own = _predefined(path, ())
    family, version = _family(path, own)
    flags: tuple[str, ...] = ()
    if f"__{architecture}__" not in own:
        if family == "gcc":
            raise CompilerError(
                f"{path} does not compile for {architecture}",
                hint=_install(None, architecture),
            )
        flags = (f"--target={_CROSS[architecture]}",)
    return Compiler(
        family=family,
        version=version,
        path=path,
        architecture=architecture,
        flags=flags,
    )


def _family(path: Path, own: Mapping[str, str]) -> tuple[str, str]:
    """Read the family and version from what it defines: a name like c++ does not tell them."""
    if "__INTEL_LLVM_COMPILER" in own:
        raise CompilerError(f"{path} is Intel's compiler", hint="Use clang or g++")
    if "__clang__" in own:
        family, names = "clang", ("__clang_major__", "__clang_minor__", "__clang_patchlevel__")
    elif "__GNUC__" in own:
        family, names = "gcc", ("__GNUC__", "__GNUC_MINOR__", "__GNUC_PATCHLEVEL__")
    else:
        raise CompilerError(f"{path} is neither clang nor gcc", hint="Use clang or g++")
    return family, ".".join(own[name] for name in names)


def macros(compiler: Compiler, flags: Sequence[str]) -> dict[str, str]:
    """What the compiler defines under these flags. Raises CompilerError when it refuses them."""
    return _predefined(compiler.path, (*compiler.flags, *flags))


def _predefined(path: Path, flags: Sequence[str]) -> dict[str, str]:
    argv = [str(path), *flags, "-dM", "-E", "-x", "c++", "/dev/null"]
    try:
        output = run(argv, timeout_s=_TIMEOUT_S).output
    except CommandError as error:
        raise CompilerError(
            f"{path.name} refuses {' '.join(flags) or 'to run'}: {_complaint(error)}",
            hint="Use a newer compiler, or another target",
        ) from error
    words = (line.split(maxsplit=2) for line in output.splitlines())
    return {word[1]: (word[2:] or [""])[0] for word in words if word[:1] == ["#define"]}


def _complaint(error: CommandError) -> str:
    lines = str(error).splitlines()
    return next((line.strip() for line in lines if "error:" in line), lines[0])


def _candidates(architecture: str, env: Mapping[str, str] | None) -> Iterator[Path]:
    numbered = sorted(_numbered(env), key=lambda match: -int(match["major"]))
    names = [match[0] for match in numbered if match["stem"] == "clang"]
    names += ["clang", *(match[0] for match in numbered if match["stem"] == "clang++"), "clang++"]
    if architecture == platform.machine():
        names += ["g++", *(match[0] for match in numbered if match["stem"] == "g++")]
    else:
        cross = f"{_CROSS[architecture]}-g++"
        names = [*names, cross] if _which(cross, env) else []
    for name in names:
        found = _which(name, env)
        if found is not None:
            yield found


def _numbered(env: Mapping[str, str] | None) -> list[re.Match[str]]:
    """The compilers on PATH that carry a version in their name."""
    names: set[str] = set()
    for folder in _path(env).split(os.pathsep):
        try:
            names.update(path.name for path in Path(folder or ".").iterdir())
        except OSError:
            continue
    return [match for match in map(_SUFFIX.match, sorted(names)) if match]


def _which(name: str, env: Mapping[str, str] | None) -> Path | None:

    found = shutil.which(name, path=_path(env))
    return Path(found) if found else None


def _path(env: Mapping[str, str] | None) -> str:
    return (os.environ if env is None else env).get("PATH", "")


def _or_declare(architecture: str) -> str:
    here = architecture == platform.machine()
    return "" if here else "; or, to plan only, name one with --compiler clang@16.0.6"


def _install(name: str | None, architecture: str) -> str:
    """What brings the compiler of this name, or one of the same kind in its place."""
    found = _NAME.fullmatch(name or "")
    if found is None:
        package = "" if architecture == platform.machine() else cross_package(architecture)
        return packages.advice("a C++ compiler", package or packages.clang())
    stem, version = "clang" if found["stem"].startswith("clang") else "g++", found["major"]
    if version is None:
        return packages.advice(stem, stem)
    offered = packages.versions(stem)
    if not offered or int(version) in offered:
        return packages.advice(f"{stem} {version}", f"{stem}-{version}")
    others = ", ".join(f"{stem}-{each}" for each in offered)
    instead = packages.advice(stem, packages.nearest(stem, int(version)))
    return f"apt has no {stem}-{version}, but {others}. {instead}"


def cross_package(architecture: str) -> str:
    """The Debian package with the compiler and the libraries of another architecture."""
    return f"g++-{_CROSS[architecture].replace('_', '-')}"
