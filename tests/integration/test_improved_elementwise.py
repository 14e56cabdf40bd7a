"""Our way of storing elementwise expressions computes what Eigen's own way does, bit for bit."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from tests.builders.later import later

from tfbuild.planning.plan import NATIVE
from tfbuild.tools.environment import Environment

pytestmark = pytest.mark.toolchain

# What kernels write, over sizes around packets, blocks and the caches; with one thread and more;
# at every alignment that a tensor can have; in place; into memory that is there and that is not.
PROGRAM = r"""
#define EIGEN_USE_THREADS
#include "unsupported/Eigen/CXX11/Tensor"
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

using Eigen::ThreadPoolDevice;
template <class T>
using Map = Eigen::TensorMap<Eigen::Tensor<T, 1, Eigen::RowMajor, long>, Eigen::Aligned>;

unsigned long long Hash(const void* from, size_t bytes) {
  unsigned long long hash = 14695981039346656037ull, word = 0;
  for (size_t at = 0; at < bytes; at += 8) {
    word = 0;
    std::memcpy(&word, static_cast<const char*>(from) + at, std::min<size_t>(8, bytes - at));
    hash = (hash ^ word) * 1099511628211ull;
    hash ^= hash >> 29;
  }
  return hash;
}

// Awkward numbers among ordinary ones.
template <class T>
void Fill(T* to, long size, unsigned int state) {
  using Limits = std::numeric_limits<T>;
  const T odd[] = {T(0), T(-0.0), Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN(),
                   Limits::denorm_min(), Limits::min(), Limits::max(), Limits::lowest()};
  for (long at = 0; at < size; ++at) {
    state = state * 1664525u + 1013904223u;
    to[at] = state % 7 == 0 ? odd[(state >> 8) % 9] : T(int(state >> 8) % 20000 - 10000) / T(999);
  }
}

template <class T>
struct Case {
  const ThreadPoolDevice& device;
  const long size, offset;
  std::vector<T> first, second;

  Case(const ThreadPoolDevice& device, long size, long offset)
      : device(device), size(size), offset(offset), first(size + 64), second(size + 64) {
    Fill(first.data(), size + 64, 1);
    Fill(second.data(), size + 64, 2);
  }
  static T* At(void* start, long offset) {
    return reinterpret_cast<T*>((reinterpret_cast<size_t>(start) + 63) & ~size_t{63}) + offset;
  }
  template <class To, class Make>
  void Show(const char* name, Make make) {
    Map<const T> a(At(first.data(), offset), size), b(At(second.data(), offset), size);
    for (const bool resident : {false, true}) {
      void* const memory = std::malloc(size * sizeof(To) + 1024);
      if (resident) std::memset(memory, 1, size * sizeof(To) + 1024);
      To* const to = reinterpret_cast<To*>(Case<char>::At(memory, offset * sizeof(To)));
      Map<To>(to, size).device(device) = make(a, b);
      std::printf("%s of %zu bytes, %ld + %ld, %d threads: %llx\n", name, sizeof(T), size, offset,
                  device.numThreads(), Hash(to, size * sizeof(To)));
      std::free(memory);
    }
  }
  template <class Make>
  void InPlace(const char* name, Make make) {
    std::vector<T> copy(first);
    // Not where the vector's copy lies otherwise than the vector.
    T* const start = At(copy.data(), offset);
    std::memmove(start, At(first.data(), offset), size * sizeof(T));
    Map<const T> a(start, size), b(At(second.data(), offset), size);
    Map<T>(start, size).device(device) = make(a, b);
    std::printf("%s in place: %llx\n", name, Hash(start, size * sizeof(T)));
  }
};

template <class T>
void ShowAll(const ThreadPoolDevice& device, long size, long offset) {
  namespace ops = Eigen::internal;
  Case<T> each(device, size, offset);
  const auto product = [](auto& a, auto& b) {
    return a.binaryExpr(b, ops::scalar_product_op<T>());
  };
  each.template Show<T>("product", product);
  each.InPlace("product", product);
  each.template Show<T>("tanh", [](auto& a, auto&) {
    return a.unaryExpr(ops::scalar_tanh_op<T>());
  });
  each.template Show<T>("relu's gradient", [](auto& a, auto& b) {
    return a * (b > T(0)).template cast<T>();
  });
  each.template Show<T>("choice", [](auto& a, auto& b) {
    return (a > a.constant(T(2))).select(a, b.exp());
  });
  each.template Show<bool>("comparison", [](auto& a, auto& b) { return a >= b; });
}

int main() {
  for (const int threads : {1, 3}) {
    Eigen::ThreadPool pool(threads);
    const ThreadPoolDevice device(&pool, threads);
    for (const long size : {0, 1, 7, 16, 63, 64, 1000, 4097, 300001}) {
      for (const long offset : {0, 4, 8}) {
        ShowAll<float>(device, size, offset);
        ShowAll<double>(device, size, offset);
      }
    }
    ShowAll<float>(device, 9000001, 0);
  }
}
"""


PATIENCE = "kMinSharedWorkNs = 100e3"


def compiled(
    folder: Path, headers: Path, compiler: str, *flags: str, patience: str = PATIENCE
) -> Path:
    """The program; `flags` come last. With no patience every piece of work is shared."""
    source, program = folder / "program.cc", folder / "program"
    shutil.copytree(NATIVE, folder / "tensorwright")
    sharing = folder / "tensorwright/compute/sharing.h"
    text = sharing.read_text("utf-8")
    assert text.count(PATIENCE) == 1
    sharing.write_text(text.replace(PATIENCE, patience), "utf-8")
    source.write_text(PROGRAM)
    command = [compiler, "-std=c++17", "-O2", "-w", "-DNDEBUG", "-pthread", "-ffp-contract=off"]
    command += ["-DEIGEN_MAX_ALIGN_BYTES=64", "-DEIGEN_AVOID_STL_ARRAY", f"-I{folder}"]
    command += ["-DEIGEN_USE_AVX512_GEMM_KERNELS=0", f"-I{headers}", *flags]
    subprocess.run([*command, str(source), "-o", str(program)], check=True)
    return program


def shown(program: Path) -> list[str]:
    done = subprocess.run([program], check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def headers(stock_arm: Environment) -> Path:
    return next(stock_arm.folder.glob("lib/python3*/site-packages/tensorflow/include"))


IMPROVED = ("-include", "tensorwright/replacements/elementwise.h")


@pytest.mark.parametrize(
    ("compiler", "march"),
    [
        ("clang++-16", "native"),
        *later(("clang++-16", "haswell"), ("g++-12", "native"), ("g++-12", "haswell")),
    ],
)
def test_expressions_are_what_eigen_makes_of_them(
    compiler: str, march: str, headers: Path, tmp_path: Path
) -> None:
    plain = compiled(tmp_path / "plain", headers, compiler, f"-march={march}")
    lines = shown(plain)
    assert len(lines) == 2 * (9 * 3 * 2 + 1) * 11
    for name, patience in (("ours", PATIENCE), ("eager", "kMinSharedWorkNs = 0")):
        folder, flags = tmp_path / name, (f"-march={march}", *IMPROVED)
        ours = compiled(folder, headers, compiler, *flags, patience=patience)
        assert b"tensorwright" in ours.read_bytes()
        assert shown(ours) == lines


@pytest.mark.parametrize(
    ("compiler", "march"),
    later(("clang++-16", "skylake-avx512"), ("clang++-16", "znver4"), ("g++-12", "skylake-avx512")),
)
def test_the_header_compiles_for_a_target(
    compiler: str, march: str, headers: Path, tmp_path: Path
) -> None:
    compiled(tmp_path / "ours", headers, compiler, f"-march={march}", *IMPROVED)
