"""Which compiler made a cached result: its identity, as a part of every cache key.

Bazel takes neither the compiler's bytes nor the system's headers and libraries into its keys, so an
upgraded compiler of the same name would be served what the old one made (bazelbuild/bazel#4558).
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

from tfbuild.cpus.compilers import Compiler
from tfbuild.errors import CompilerError
from tfbuild.remote.caches import Remote
from tfbuild.run import run
from tfbuild.upstream.download import hash_file

_TIMEOUT_S = 30.0
# Bazel links with gold where it finds it, --lto with lld.
_PROGRAMS = ("cc1", "cc1plus", "as", "ld", "ld.gold", "ld.lld")
_FILES = ("libstdc++.so.6", "libc.so.6", "libgcc.a", "crtbeginS.o")
_PROPERTIES = ("remote_default_exec_properties", "remote_default_platform_properties")
_LIBRARY = re.compile(r"(?:=>\s+|^\s*)(/\S+) \(0x", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Toolchain:
    """`compiler` is family-version, `glibc` its version, `digest` (SHA-256, hex) that of all files
    that take part in compiling and linking."""

    compiler: str
    glibc: str
    architecture: str
    digest: str

    @property
    def identity(self) -> str:
        return f"{self.compiler}-glibc-{self.glibc}-{self.digest[:16]}"


@functools.cache
def toolchain_of(compiler: Compiler) -> Toolchain:
    """What this machine compiles with. Raises CompilerError where the C library is not glibc,
    CommandError when the compiler does not run."""
    files = tuple(sorted(_files(compiler)))
    libc, version = platform.libc_ver()
    if libc != "glibc":
        raise CompilerError(f"the C library is {libc or 'unknown'}, TensorFlow is built with glibc")
    text = "".join(f"{hash_file(path)}  {path.name}\n" for path in files)
    return Toolchain(
        compiler=f"{compiler.family}-{compiler.version}",
        glibc=version,
        architecture=compiler.architecture,
        digest=hashlib.sha256(text.encode()).hexdigest(),
    )


def key_options(toolchain: Toolchain, remote: Remote) -> tuple[str, ...]:
    """Options that put the toolchain into the key of every action, for the target and for tools.

    The properties say in the entry itself what made it. They are the same with a shared cache and
    without, so that the one on disk serves both; a cluster gets none of them, for it chooses a
    worker by the properties that it is asked for. None go with the user's own, either: Bazel ends
    over a property that is there twice.
    """
    value = f"TENSORWRIGHT_TOOLCHAIN={toolchain.identity}"
    named = {
        "arch": toolchain.architecture,
        "compiler": toolchain.compiler,
        "glibc": toolchain.glibc,
        "toolchain": toolchain.digest,
    }
    shown = () if remote.executor or remote.rc.values(*_PROPERTIES) else sorted(named.items())
    properties = (f"--{_PROPERTIES[0]}={name}={text}" for name, text in shown)
    return (f"--action_env={value}", f"--host_action_env={value}", *properties)


def _files(compiler: Compiler) -> Iterator[Path]:
    """The compiler, the programs and libraries that it runs, and what it links into everything."""
    program = compiler.path.resolve()
    found = {program}
    for option, names in (("-print-prog-name", _PROGRAMS), ("-print-file-name", _FILES)):
        for name in names:
            answer = _answer(compiler, f"{option}={name}")
            # What it has no place for comes back as it was asked: a program is then PATH's.
            path = Path(shutil.which(answer) or answer)
            if path.is_absolute() and path.is_file():
                found.add(path.resolve())
    loaded = run(["ldd", str(program)], timeout_s=_TIMEOUT_S, check=False).output
    found.update(Path(each).resolve() for each in _LIBRARY.findall(loaded))
    yield from found


def _answer(compiler: Compiler, question: str) -> str:
    words = [str(compiler.path), *compiler.flags, question]
    return run(words, timeout_s=_TIMEOUT_S).output.strip()
