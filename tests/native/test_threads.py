"""Kernels that share their work among 16 threads, under ThreadSanitizer.

The threads are those of Eigen's thread pool, as in TensorFlow, and all code is instrumented. They
sleep at random before each part, so that parts run in many orders on few CPUs.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.builders.native_kernels import INSTRUCTIONS
from tests.builders.own_cpu import own_cpu

from tfbuild.tools.environment import Environment
from tfcore import settings

pytestmark = pytest.mark.toolchain

RACE = 66
"""ThreadSanitizer's exit status."""
SOURCE = """
#include "tensorwright/compute/sharing.h"

#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "tensorwright/ops/grouped/grouped_gradient.h"
#include "tensorwright/ops/grouped/grouped_outputs.h"
#include "tensorwright/ops/products/contraction_run.h"
#include "tensorwright/ops/products/filter_gradient.h"
#include "tensorwright/ops/products/winograd_gradient.h"
#include "tensorwright/ops/products/winograd_outputs.h"

using namespace tensorwright;
using Axis = Convolution::Axis;
using Numbers = std::vector<float>;

constexpr int kThreads = 16, kRounds = 12;

Numbers Draw(std::size_t count) {
  static std::mt19937 engine;
  std::normal_distribution<float> normal;
  Numbers numbers(count);
  for (float& number : numbers) number = normal(engine);
  return numbers;
}

void Delay() {
  static thread_local std::minstd_rand engine(std::random_device{}());
  if (engine() % 2) usleep(engine() % 300);
}

// As ShareParts in compute/threads.h does it.
struct Sharing {
  const Eigen::ThreadPoolDevice& device;
  Index threads;

  template <class Some>
  void operator()(Index count, const Some& some) const {
    if (threads == 1 || count < 2) return some(0, count);
    const Index part = Eigen::divup(count, 2 * threads);
    Share(device, std::min(threads, Eigen::divup(count, part)) - 1, 0, count, part,
          [&](Index first, Index last) {
            Delay();
            some(first, last);
          });
  }
};

const Convolution kImages = {2, 16, 32, Axis{19, 19, 3, 1, 1, 1}, Axis{17, 17, 3, 1, 1, 1}};
constexpr Index kGroups = 6;

Numbers Product(const Sharing& share) {
  static const Numbers a = Draw(210 * 96), b = Draw(96 * 330);
  Numbers out(210 * 330);
  const Contraction of = MakeProduct(210, 96, 330, false, false);
  const ContractionRun run(of, share.threads, a.data(), b.data(), {}, out.data());
  share(run.parts(), [&](Index first, Index last) { run.Compute(first, last); });
  return out;
}

Numbers Filters(const Sharing& share) {
  static const Numbers in = Draw(2 * 19 * 17 * 16), back = Draw(2 * 19 * 17 * 32);
  Numbers out(9 * 16 * 32 + 32);
  const FilterGradient run(kImages, in.data(), back.data(), out.data(), &out[9 * 16 * 32]);
  const std::vector<Part> parts = SplitIntoParts(kImages, share.threads);
  share(parts.size(), [&](Index first, Index last) {
    for (; first < last; ++first) run.Compute(parts[first]);
  });
  return out;
}

Numbers Winograd(const Sharing& share) {
  static const Numbers in = Draw(2 * 19 * 17 * 16), filter = Draw(9 * 16 * 32);
  Numbers out(2 * 19 * 17 * 32);
  std::vector<Lanes> room(WinogradOutputs<SquareTiles>::TransformedSize(kImages) / kLanes);
  const WinogradOutputs<SquareTiles> run(kImages, in.data(), filter.data(), false, {},
                                         reinterpret_cast<float*>(room.data()), out.data());
  share(run.lines(), [&](Index first, Index last) { run.TransformFilters(first, last); });
  share(run.blocks(), [&](Index first, Index last) { run.Compute(first, last); });
  return out;
}

Numbers WinogradFilters(const Sharing& share) {
  static const Numbers in = Draw(2 * 19 * 17 * 16), back = Draw(2 * 19 * 17 * 32);
  Numbers out(9 * 16 * 32 + 32);
  std::vector<Lanes> room(WinogradGradient<SquareTiles>::SumsSize(kImages) / kLanes);
  const WinogradGradient<SquareTiles> run(kImages, share.threads, in.data(), back.data(),
                                          reinterpret_cast<float*>(room.data()), out.data(),
                                          &out[9 * 16 * 32]);
  share(run.parts(), [&](Index first, Index last) { run.Compute(first, last); });
  share(run.lines(), [&](Index first, Index last) { run.Finish(first, last); });
  return out;
}

Numbers Grouped(const Sharing& share) {
  static const Numbers in = Draw(2 * 19 * 17 * 16 * kGroups), filter = Draw(9 * 16 * 32 * kGroups);
  Numbers out(2 * 19 * 17 * 32 * kGroups);
  Numbers weights(GroupedOutputs::WeightsSize(kImages, kGroups, false));
  const GroupedOutputs run(kImages, kGroups, false, in.data(), filter.data(), weights.data(),
                           out.data());
  share(run.blocks(), [&](Index first, Index last) { run.PackWeights(first, last); });
  share(run.boxes(), [&](Index first, Index last) { run.Compute(first, last); });
  return out;
}

Numbers GroupedFilters(const Sharing& share) {
  static const Numbers in = Draw(2 * 19 * 17 * 16 * kGroups),
                       back = Draw(2 * 19 * 17 * 32 * kGroups);
  Numbers out(9 * 16 * 32 * kGroups);
  Numbers room(GroupedGradient::SumsSize(kImages, kGroups));
  const GroupedGradient run(kImages, kGroups, in.data(), back.data(), room.data(), out.data());
  share(run.parts(), [&](Index first, Index last) { run.Compute(first, last); });
  share(run.blocks(), [&](Index first, Index last) { run.Finish(first, last); });
  return out;
}

Numbers Elements(const Sharing& share) {
  static const Numbers in = Draw(100000);
  Numbers out(in.size());
  const auto range = [&](Index first, Index last) {
    if (share.threads > 1) usleep(200);  // So long that helpers are called.
    for (; first < last; ++first) out[first] = 2 * in[first] + 1;
  };
  if (share.threads == 1) {
    range(0, in.size());
  } else {
    Over(share.device, in.size(), 1, range);
  }
  return out;
}

int main(int count, char** words) {
  Eigen::ThreadPool pool(kThreads);
  const Eigen::ThreadPoolDevice device(&pool, kThreads);
  if (count > 1) {
    int sum = 0;
    Sharing{device, kThreads}(64, [&](Index first, Index last) { sum += last - first; });
    return sum < 0;
  }
  struct Kernel {
    const char* name;
    Numbers (*run)(const Sharing&);
  };
  const Kernel kernels[] = {
      {"product", Product},   {"filters", Filters},
      {"winograd", Winograd}, {"winograd filters", WinogradFilters},
      {"grouped", Grouped},   {"grouped filters", GroupedFilters},
      {"elements", Elements},
  };
  for (const Kernel& kernel : kernels) {
    const Numbers alone = kernel.run({device, 1});
    for (int round = 0; round < kRounds; ++round) {
      const Numbers shared = kernel.run({device, kThreads});
      if (std::memcmp(alone.data(), shared.data(), alone.size() * sizeof(float)) == 0) continue;
      std::printf("%s: other bits with %d threads\\n", kernel.name, kThreads);
      return 1;
    }
  }
  return 0;
}
"""


@pytest.fixture(scope="module", params=INSTRUCTIONS)
def program(
    stock_arm: Environment,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Path:
    flags = INSTRUCTIONS[request.param]
    if not {flag.removeprefix("-m") for flag in flags} <= own_cpu().cpu.features:
        pytest.skip(f"this CPU has no {request.param}")
    folder = tmp_path_factory.mktemp("threads")
    (folder / "tensorwright").symlink_to(settings.ROOT / "build/tfbuild/native")
    (folder / "threads.cc").write_text(SOURCE, "utf-8")
    (headers,) = stock_arm.folder.glob("lib/python*/site-packages/tensorflow/include")
    options = (*flags, "-O1", "-g", "-std=c++17", "-ffp-contract=off", "-w", "-DNDEBUG")
    include = (f"-I{folder}", f"-isystem{headers}")
    words = ["clang-16", "-fsanitize=thread", *options, *include, "threads.cc", "-o", "threads"]
    subprocess.run([*words, "-lstdc++", "-lm", "-pthread"], check=True, cwd=folder)
    return folder / "threads"


def ran(program: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "TSAN_OPTIONS": f"exitcode={RACE}"}
    return subprocess.run(
        [program, *words], env=env, text=True, capture_output=True, check=False, timeout=600
    )


def test_kernels_have_no_race_and_the_bits_of_one_thread(program: Path) -> None:
    done = ran(program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_race_would_be_found(program: Path) -> None:
    done = ran(program, "race")
    assert done.returncode == RACE
    assert "data race" in done.stderr
