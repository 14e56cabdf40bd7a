"""Kernels of the library, compiled alone for each instruction set, and data for them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from tests.builders.compiled_code import library
from tests.builders.own_cpu import own_cpu

from tfcore import settings

ROUNDING = 2.0**-23
"""Of the sum of absolute values, for each term: an error of rounding is half of it, two a term."""
INSTRUCTIONS = {
    "sse2": (),
    "avx2": ("-mavx2", "-mfma"),
    "avx512": ("-mavx512f", "-mavx512vl", "-mfma"),
}
"""Compiler flags by instruction set."""
GUARDED = """
#include <sys/mman.h>
#include <unistd.h>
#include <cstring>

// Numbers of which the last one is the last of a page, behind which nothing may be read.
class Guarded {
 public:
  Guarded(const float* from, std::size_t count) {
    const std::size_t page = getpagesize(), bytes = count * sizeof(float);
    size_ = (bytes + page - 1) / page * page + page;
    start_ = static_cast<char*>(
        mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    data_ = start_ + size_ - page - bytes;
    std::memcpy(data_, from, bytes);
    mprotect(start_ + size_ - page, page, PROT_NONE);
  }
  ~Guarded() { munmap(start_, size_); }
  const float* data() const { return reinterpret_cast<const float*>(data_); }

 private:
  std::size_t size_;
  char *start_, *data_;
};
"""


def compile_kernels(folder: Path, source: str, instructions: str) -> ctypes.CDLL:
    """Compile C++ code that uses GUARDED. Skips the test if this CPU lacks the instructions."""
    flags = INSTRUCTIONS[instructions]
    if not {flag.removeprefix("-m") for flag in flags} <= own_cpu().cpu.features:
        pytest.skip(f"this CPU has no {instructions}")
    (folder / "tensorwright").symlink_to(settings.ROOT / "build/tfbuild/native")
    options = (*flags, "-O2", "-std=c++17", "-ffp-contract=off", f"-I{folder}", "-lstdc++")
    return ctypes.CDLL(str(library(folder, "kernels", GUARDED + source, *options, kind="cc")))


def floats(array: Any) -> Any:
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_float))


def numbers(values: Sequence[int]) -> Any:
    return (ctypes.c_int64 * len(values))(*values)


def drawn(rng: np.random.Generator, *shape: int) -> Any:
    return rng.standard_normal(shape).astype("float32")


@st.composite
def axes(draw: st.DrawFn) -> tuple[int, ...]:
    """Positions in and out, taps, stride, dilation, padding before; zeros follow behind."""
    taps, stride, dilation = (draw(st.integers(1, most)) for most in (4, 3, 2))
    reach = (taps - 1) * dilation + 1
    before = draw(st.integers(0, reach - 1))
    out = draw(st.integers(1, 12))
    missing = draw(st.integers(0, reach - 1))
    return (
        max((out - 1) * stride + reach - before - missing, 1),
        out,
        taps,
        stride,
        dilation,
        before,
    )


def padded(images: Any, axis: int, of: Sequence[int]) -> Any:
    size, out, taps, stride, dilation, before = of
    after = max((out - 1) * stride + (taps - 1) * dilation + 1 - before - size, 0)
    return np.pad(images, [(before, after) if number == axis else (0, 0) for number in range(4)])
