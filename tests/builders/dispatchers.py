"""Dispatchers, compiled from their table of targets, and packages that have one."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from tests.builders.plans import plan_for

from tfbuild.commands import Request
from tfbuild.planning.dispatcher import (
    HEADER,
    LIBRARY,
    LIBRARY_FOLDER,
    LINK_FLAGS,
    SOURCE,
    DispatchFeature,
    DispatchTarget,
    list_compile_flags,
    render_header,
)
from tfbuild.planning.plan import KernelsPlan
from tfcore.cpus.targets import list_targets
from tfcore.errors import CompilerError
from tfcore.run import run
from tfcore.settings import TEMPLATES

Register = Literal["eax", "ebx", "ecx", "edx"]

on_x86_64 = pytest.mark.skipif(platform.machine() != "x86_64", reason="the dispatcher uses CPUID")


def feature(
    name: str, leaf: int, subleaf: int, register: Register, bit: int, xcr0: int = 0
) -> DispatchFeature:
    return DispatchFeature(
        name=name, leaf=leaf, subleaf=subleaf, register=register, bit=bit, xcr0=xcr0
    )


def target(name: str, *features: DispatchFeature) -> DispatchTarget:
    return DispatchTarget(name=name, library=f"lib{name}.so", features=features)


# Every x86-64 CPU has these, and the x87 and SSE state is saved by every operating system.
PRESENT = (
    feature("fpu", 1, 0, "edx", 0),
    feature("tsc", 1, 0, "edx", 4),
    feature("cx8", 1, 0, "edx", 8),
    feature("cmov", 1, 0, "edx", 15),
    feature("sse", 1, 0, "edx", 25),
    feature("sse2", 1, 0, "edx", 26),
)

# No CPU has these: a reserved bit, a leaf past the last one, and state that does not exist.
ABSENT = (
    feature("reserved_bit", 1, 0, "ecx", 16),
    feature("no_leaf", 0x0FFFFFFF, 0, "eax", 0),
    feature("no_extended_leaf", 0x8FFFFFFF, 0, "eax", 0),
    feature("no_state", 1, 0, "edx", 26, 1 << 61),
)

# A host program as TensorFlow is one: it loads the dispatcher and goes on.
HOST = """
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv) {
  for (int i = 1; i < argc - 1; ++i)
    if (!dlopen(argv[i], RTLD_LAZY)) return fprintf(stderr, "%s\\n", dlerror()), 2;
  void *dispatcher = dlopen(argv[argc - 1], RTLD_LAZY);
  if (!dispatcher) return fprintf(stderr, "%s\\n", dlerror()), 1;
  const char *(*loaded)(void), *(*reason)(void);
  *(void **)&loaded = dlsym(dispatcher, "tensorwright_loaded");
  *(void **)&reason = dlsym(dispatcher, "tensorwright_reason");
  FILE *answer = fopen("answer", "w");
  fprintf(answer, "%s\\n%s", loaded() ? loaded() : "", reason());
  return fclose(answer);
}
"""

KERNELS = "int tensorwright_kernel_count(void) { return 34; }\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What the dispatcher answered to its host, and everything that the host printed."""

    loaded: str
    reason: str
    said: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Wheel:
    """A folder laid out as an installed wheel is, and a host program beside it."""

    site: Path

    @property
    def kernels(self) -> Path:
        return self.site / "tensorflow" / "core" / "kernels"

    def library(self, name: str) -> Path:
        return self.kernels / LIBRARY_FOLDER / f"lib{name}.so"

    def ask(
        self, *before: Path, under: Sequence[str] = (), env: Mapping[str, str] | None = None
    ) -> Answer:
        """Load the dispatcher into a fresh host, with the libraries `before` already in it."""
        answer = self.site / "answer"
        answer.unlink(missing_ok=True)
        argv: list[str | Path] = [*under, self.site / "host", *before, self.kernels / LIBRARY]
        done = run(argv, cwd=self.site, env={"PATH": os.environ["PATH"], **(env or {})})
        loaded, reason = answer.read_text(encoding="utf-8").split("\n", 1)
        return Answer(loaded=loaded, reason=reason, said=done.output)


def compile_c(compiler: str, text: str, out: Path, *flags: str) -> Path:
    source = out.with_suffix(".c")
    source.write_text(text, encoding="utf-8")
    run([compiler, "-O1", source, "-o", out, *flags])
    return out


def install(site: Path, *targets: DispatchTarget, compiler: str = "gcc") -> Wheel:
    wheel = Wheel(site=site)
    wheel.library("x").parent.mkdir(parents=True)
    (site / HEADER).write_text(render_header(targets, TEMPLATES), encoding="utf-8")
    run(
        [
            compiler,
            *list_compile_flags("x86_64"),
            *("-Werror", "-pedantic", f"-I{site}", SOURCE),
            *("-o", wheel.kernels / LIBRARY, *LINK_FLAGS),
        ]
    )
    compile_c(compiler, HOST, site / "host", "-ldl")
    compile_c(compiler, KERNELS, site / "kernels.so", "-shared", "-fPIC")
    for dispatch_target in targets:
        shutil.copy(site / "kernels.so", wheel.library(dispatch_target.name))
    return wheel


def buildable(compiler: str) -> Iterator[KernelsPlan]:
    for target in list_targets("x86_64"):
        with contextlib.suppress(CompilerError):
            yield plan_for(Request(arch=target.spec, kernels="mini", compiler=compiler))[0]
