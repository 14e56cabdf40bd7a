"""Our way of filling tensors with random numbers gives TensorFlow's numbers."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.builders.later import later

from tfbuild.planning.plan import NATIVE
from tfbuild.tools.environment import Environment

pytestmark = pytest.mark.toolchain

# Both fill the same tensors: many seeds, sizes around a block of any width, parts of a tensor, and
# counters about to carry into their second and third word. Ours also fills each in two tasks.
# A line for each distribution: name, numbers, how many differ, the worst in ULPs of the stock one,
# how many differ between one task and two, how many were written beyond the end.
PROGRAM = r"""
#include "tensorwright/replacements/random_fill.h"
#include <cstdio>
#include <cstring>
#include <vector>

using namespace tensorwright;
using tensorflow::bfloat16;

template <class D>
void Compare(const char* name) {
  using T = typename D::ResultElementType;
  constexpr int kElements = D::kResultElementCount, kBeyond = 8;
  using Task = tensorflow::functor::FillPhiloxRandomTask<D, D::kVariableSamplesPerOutput>;
  long total = 0, differ = 0, split = 0, beyond = 0;
  double worst = 0;
  for (int seed = 0; seed < 40; ++seed) {
    PhiloxRandom start(seed * 7919u + 1, seed);
    if (seed > 30) start.Skip(0xffffffffffffffffull - 20 * seed * seed);
    else if (seed > 20) start.Skip(0xffffffffull - 5 * seed);
    for (long size : {1L, 2L, 3L, 7L, 31L, 32L, 33L, 64L, 100L, 257L, 1001L, seed ? 9L : 100003L}) {
      const long groups = (size + kElements - 1) / kElements;
      const long first = seed % 3 == 1 ? groups / 3 : 0;
      const long middle = first + (groups - first) / 2;
      std::vector<T> ours(size + kBeyond, T(9)), stock(ours), two(ours);
      Task::Run(start, ours.data(), size, first, groups, D());
      RunStock(start, stock.data(), size, first, groups, D());
      Task::Run(start, two.data(), size, middle, groups, D());
      Task::Run(start, two.data(), middle * kElements, first, middle, D());
      for (long i = 0; i < size + kBeyond; ++i) {
        split += std::memcmp(&ours[i], &two[i], sizeof(T)) != 0;
        beyond += i >= size && ours[i] != T(9);
        if (std::memcmp(&ours[i], &stock[i], sizeof(T)) == 0) continue;
        ++differ;
        const double a = double(stock[i]), b = double(ours[i]);
        int exponent;
        std::frexp(a, &exponent);
        exponent -= std::numeric_limits<T>::digits;
        worst = std::max(worst, std::ldexp(std::abs(a - b), -exponent));
      }
      total += size;
    }
  }
  std::printf("%s %ld %ld %.2f %ld %ld\n", name, total, differ, worst, split, beyond);
}

template <typename T>
void CompareReal(const char* name) {
  Compare<random::UniformDistribution<PhiloxRandom, T>>((std::string("uniform ") + name).c_str());
  Compare<random::NormalDistribution<PhiloxRandom, T>>((std::string("normal ") + name).c_str());
  Compare<random::TruncatedNormalDistribution<SingleSamples, T>>(
      (std::string("truncated ") + name).c_str());
}

int main() {
  CompareReal<float>("float");
  CompareReal<double>("double");
  CompareReal<Eigen::half>("half");
  CompareReal<bfloat16>("bfloat16");
  Compare<random::UniformFullIntDistribution<PhiloxRandom, tensorflow::int32>>("full int32");
  Compare<random::UniformFullIntDistribution<PhiloxRandom, tensorflow::uint32>>("full uint32");
  Compare<random::UniformFullIntDistribution<PhiloxRandom, std::int64_t>>("full int64");
  Compare<random::UniformFullIntDistribution<PhiloxRandom, tensorflow::uint64>>("full uint64");
}
"""

ULPS = {"float": 16.0, "double": 16.0, "half": 1.0, "bfloat16": 1.0}
"""How far a normal number may lie from the stock one; half precision is rounded from float."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    distribution: str
    type: str
    total: int
    differ: int
    worst: float
    split: int
    beyond: int


def compared(folder: Path, arm: Environment, compiler: str, march: str) -> list[Line]:
    """The program's lines."""
    wheel = next(arm.folder.glob("lib/python3*/site-packages/tensorflow"))
    source, program = folder / "program.cc", folder / "program"
    (folder / "tensorwright").symlink_to(NATIVE)
    source.write_text(PROGRAM)
    command = [compiler, "-std=c++17", "-O2", "-w", "-DNDEBUG", "-pthread", f"-march={march}"]
    command += ["-DEIGEN_MAX_ALIGN_BYTES=64", "-DEIGEN_AVOID_STL_ARRAY", f"-I{folder}"]
    command += ["-DEIGEN_USE_AVX512_GEMM_KERNELS=0", f"-I{wheel / 'include'}", str(source)]
    command += [f"-L{wheel}", "-l:libtensorflow_framework.so.2", f"-Wl,-rpath,{wheel}"]
    subprocess.run([*command, "-o", str(program)], check=True)
    done = subprocess.run([program], check=True, capture_output=True, text=True)
    return [line(text) for text in done.stdout.splitlines()]


def line(text: str) -> Line:
    distribution, dtype, total, differ, worst, split, beyond = text.split()
    return Line(
        distribution=distribution,
        type=dtype,
        total=int(total),
        differ=int(differ),
        worst=float(worst),
        split=int(split),
        beyond=int(beyond),
    )


@pytest.mark.parametrize(
    ("compiler", "march"),
    [
        ("clang++-16", "native"),
        *later(("clang++-16", "haswell"), ("clang++-16", "sandybridge"), ("g++-12", "native")),
    ],
)
def test_the_numbers_are_the_stock_ones(
    compiler: str, march: str, stock_arm: Environment, tmp_path: Path
) -> None:
    lines = compared(tmp_path, stock_arm, compiler, march)
    assert len(lines) == 4 * 3 + 4
    for output_line in lines:
        assert output_line.total > 100_000, output_line
        assert output_line.beyond == 0, output_line
        assert output_line.split == 0, output_line
        if output_line.distribution in {"uniform", "full"}:
            assert output_line.differ == 0, output_line
        else:
            assert output_line.worst <= ULPS[output_line.type], output_line
