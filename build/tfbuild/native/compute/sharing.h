// Work on a range of elements, shared among threads where that ends sooner.
//
// Eigen's cost model takes every element for a load from memory and a thread for one that is awake.
// So it wakes threads for work that is done before they come: on a virtual machine with 2 CPUs, where
// one takes some 50 us to wake, stock Mul of 512 x 512 floats took 43 us alone and 85 us shared.
// Here the caller begins, and calls for help when its first block took so long that help is worth it.

#ifndef TENSORWRIGHT_COMPUTE_SHARING_H_
#define TENSORWRIGHT_COMPUTE_SHARING_H_

#ifndef EIGEN_USE_THREADS
#define EIGEN_USE_THREADS
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "tensorflow/tsl/platform/threadpool_interface.h"
#include "unsupported/Eigen/CXX11/Tensor"

namespace tensorwright {

using Eigen::Index;

constexpr double kWorthNs = 100e3;  // of work, for which the first helper is called
constexpr int kSpins = 1000;        // of some 50 ns each, before the caller sleeps
constexpr Index kAligned = 1024;    // elements: whole packets, and whole cache lines of any type

// Whether the pool is lent to one run: a RunHandler's, or one of ThreadPoolOptions. Nothing may be
// left in it when the run ends (ReleaseHandler in tensorflow/core/framework/run_handler.cc aborts).
inline bool IsLent(const Eigen::ThreadPoolDevice& device) {
  return dynamic_cast<::tsl::thread::ThreadPoolInterface*>(device.getPool()) != nullptr;
}

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

// Runs range(first, last) over the blocks of [start, size), on the calling thread and `helpers` of
// the device's. One that comes late finds no block left and touches nothing but `Blocks`.
template <class Range>
void Share(const Eigen::ThreadPoolDevice& device, Index helpers, Index start, Index size,
           Index block, const Range& range) {
  struct Blocks {
    explicit Blocks(Index count) : left(static_cast<unsigned int>(count)) {}
    std::atomic<Index> next{0}, done{0};
    Eigen::Barrier left;
  };
  const Index count = Eigen::divup(size - start, block);
  const auto blocks = std::make_shared<Blocks>(count);
  const auto take = [blocks, count, start, size, block, &range] {
    for (Index mine; (mine = blocks->next.fetch_add(1)) < count;) {
      const Index first = start + mine * block;
      range(first, std::min(size, first + block));
      blocks->done.fetch_add(1, std::memory_order_release);
      blocks->left.Notify();
    }
  };
  for (Index each = 0; each < helpers; ++each) device.getPool()->Schedule(take);
  take();
  // What is left is being computed now: to sleep and to be woken would take longer.
  for (int spin = 0; spin < kSpins && blocks->done.load(std::memory_order_acquire) < count;
       ++spin) {
    Pause();
  }
  blocks->left.Wait();
}

// Runs range(first, last) over [0, size). `first` is a multiple of kAligned; no block but the last
// has fewer than `least` elements.
template <class Range>
void Over(const Eigen::ThreadPoolDevice& device, Index size, Index least, const Range& range) {
  const auto aligned = [](Index each) { return Eigen::divup(each, kAligned) * kAligned; };
  const int threads = device.numThreads();
  const Index block = aligned(std::max(least, Eigen::divup<Index>(size, 8 * threads)));
  if (threads == 1 || size <= 2 * block) {
    range(0, size);
    return;
  }
  using Clock = std::chrono::steady_clock;
  const auto began = Clock::now();
  range(0, block);
  const double took = std::chrono::duration<double, std::nano>(Clock::now() - began).count();
  const Index blocks = Eigen::divup(size - block, block);
  const double rest = took * static_cast<double>(blocks);
  if (rest < kWorthNs) {
    range(block, size);
  } else if (IsLent(device)) {
    const Eigen::TensorOpCost cost(0, 0, 3 * took / static_cast<double>(block));  // at 3 GHz
    device.parallelFor(size - block, cost, aligned,
                       [&](Index first, Index last) { range(block + first, block + last); });
  } else {
    const Index worth = 1 + static_cast<Index>(rest / kWorthNs);
    Share(device, std::min<Index>({threads - 1, blocks - 1, worth}), block, size, block, range);
  }
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_COMPUTE_SHARING_H_
