"""The identity of the compiler, as a part of every cache key.

Bazel's keys include neither the compiler's bytes nor the system's headers and libraries. An
upgraded compiler of the same name would get the results of the old one (bazelbuild/bazel#4558).
"""

from __future__ import annotations

import functools
import hashlib
import platform
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tfbuild.remote.caches import Remote
from tfbuild.upstream.download import hash_file
from tfcore.cpus.compilers import Compiler
from tfcore.errors import CompilerError
from tfcore.run import run

_TIMEOUT_S = 30.0
# Bazel links with gold if it finds it; --lto links with lld.
_PROGRAMS = ("cc1", "cc1plus", "as", "ld", "ld.gold", "ld.lld")
_FILES = ("libstdc++.so.6", "libc.so.6", "libgcc.a", "crtbeginS.o")
_PROPERTIES = ("remote_default_exec_properties", "remote_default_platform_properties")
_LIBRARY = re.compile(r"(?:=>\s+|^\s*)(/\S+) \(0x", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Toolchain:
    """The compiler and C library of this machine.

    `compiler` is family-version, `glibc` its version, `digest` the SHA-256 (hex) of all files
    that take part in compiling and linking.
    """

    compiler: str
    glibc: str
    architecture: str
    digest: str

    @property
    def identity(self) -> str:
        return f"{self.compiler}-glibc-{self.glibc}-{self.digest[:16]}"


@functools.cache
def identify_toolchain(compiler: Compiler) -> Toolchain:
    """Return the toolchain that this machine compiles with.

    Raises CompilerError if the C library is not glibc, CommandError if the compiler does not
    run.
    """
    files = tuple(sorted(_find_files(compiler)))
    libc, version = platform.libc_ver()
    if libc != "glibc":
        raise CompilerError(f"the C library is {libc or 'unknown'}, but TensorFlow needs glibc")
    text = "".join(f"{hash_file(path)}  {path.name}\n" for path in files)
    return Toolchain(
        compiler=f"{compiler.family}-{compiler.version}",
        glibc=version,
        architecture=compiler.architecture,
        digest=hashlib.sha256(text.encode()).hexdigest(),
    )


def build_key_options(toolchain: Toolchain, remote: Remote) -> tuple[str, ...]:
    """Return the options that put the toolchain into the key of every action, target and tools.

    The properties record the toolchain in the cache entry. They are the same with a shared
    cache and without, so that the one on disk serves both. A cluster gets none of them, since
    it chooses a worker by the requested properties. None are added to the user's own, either:
    Bazel fails on a property that is there twice.
    """
    value = f"TENSORWRIGHT_TOOLCHAIN={toolchain.identity}"
    named = {
        "arch": toolchain.architecture,
        "compiler": toolchain.compiler,
        "glibc": toolchain.glibc,
        "toolchain": toolchain.digest,
    }
    shown = () if remote.executor or remote.rc.get_values(*_PROPERTIES) else sorted(named.items())
    properties = (f"--{_PROPERTIES[0]}={name}={text}" for name, text in shown)
    return (f"--action_env={value}", f"--host_action_env={value}", *properties)


def _find_files(compiler: Compiler) -> Iterator[Path]:
    """Yield the compiler, the programs and libraries it runs, and what it links into everything."""
    program = compiler.path.resolve()
    files = {program}
    for option, names in (("-print-prog-name", _PROGRAMS), ("-print-file-name", _FILES)):
        for name in names:
            answer = _query_compiler(compiler, f"{option}={name}")
            # The compiler prints an unknown name unchanged: look for the program on PATH.
            path = Path(shutil.which(answer) or answer)
            if path.is_absolute() and path.is_file():
                files.add(path.resolve())
    loaded = run(["ldd", str(program)], timeout_s=_TIMEOUT_S, check=False).output
    files.update(Path(library).resolve() for library in _LIBRARY.findall(loaded))
    yield from files


def _query_compiler(compiler: Compiler, question: str) -> str:
    words = [str(compiler.path), *compiler.flags, question]
    return run(words, timeout_s=_TIMEOUT_S).output.strip()
