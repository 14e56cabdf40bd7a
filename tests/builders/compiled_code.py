"""Small shared libraries, compiled for the test that asks for them."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tfbuild.planning.dispatcher import (
    HEADER,
    LINK_FLAGS,
    SOURCE,
    DispatchTarget,
    list_compile_flags,
    render_header,
)
from tfcore.settings import TEMPLATES

KERNEL = """
static void hidden(float* a, const float* b, const float* c, int n) {
  for (int i = 0; i < n; i++) a[i] += b[i] * c[i];
}
void kernel(float* a, const float* b, const float* c, int n) { hidden(a, b, c, n); }
int bits(unsigned x) { return __builtin_popcount(x) + __builtin_clz(x | 1); }
"""
"""Loops that become vectors and fused multiply-adds, and counted bits, where flags allow."""

VNNI = """
int smuggled(void) {
  __asm__ volatile("vpdpbusd %%zmm2, %%zmm1, %%zmm0" ::: "memory");
  return 7;
}
"""
"""An instruction of avx512_vnni, whatever the flags are."""

REGISTERED = """
struct counter { const char *op, *kernel; const struct counter* next; unsigned long executions; };
struct counter counter_of_tanh = {"Tanh", "UnaryOp< CPUDevice, functor::tanh<float>>", 0, 0};
"""
"""What a registration of a kernel for Tanh leaves in a library (native/counter.h)."""

QUICK = ("-O3", "-ffp-contract=fast", "-nostdlib")


def headers(folder: Path, text: str) -> ctypes.CDLL:
    """C++ code that includes headers of the kernel library which need no TensorFlow."""
    words = (f"-I{SOURCE.parent}", "-lstdc++")
    return ctypes.CDLL(str(library(folder, "headers", text, *words, kind="cc")))


def dispatcher(folder: Path, rows: Sequence[DispatchTarget], name: str = "dispatcher") -> Path:
    """`name`.so: the dispatcher, linked for these targets."""
    folder.mkdir(exist_ok=True)
    (folder / HEADER).write_text(render_header(rows, TEMPLATES))
    path = folder / f"{name}.so"
    words = ("clang-16", *list_compile_flags("x86_64"), f"-I{folder}", str(SOURCE), "-o", str(path))
    subprocess.run([*words, *LINK_FLAGS], check=True)
    return path


def library(
    folder: Path, name: str, text: str, *flags: str, compiler: str = "clang-16", kind: str = "c"
) -> Path:
    """`name`.so of one source; `kind` is the ending of its file: c, or s for assembler."""
    source, path = folder / f"{name}.{kind}", folder / f"{name}.so"
    folder.mkdir(exist_ok=True)
    source.write_text(text)
    words = [compiler, "-shared", "-fPIC", str(source), "-o", str(path), *flags]
    subprocess.run(words, check=True)
    return path
