"""Small shared libraries, compiled for the test that asks for them."""

from __future__ import annotations

import subprocess
from pathlib import Path

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

QUICK = ("-O3", "-ffp-contract=fast", "-nostdlib")


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
