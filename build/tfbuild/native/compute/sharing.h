// Runs work on a range of elements, shared among threads if that is faster.
//
// Eigen's cost model assumes that each element is loaded from memory and that threads are awake. So
// it wakes threads for work that is done before they start: on a virtual machine with 2 CPUs, where
// a thread takes about 50 us to wake up, stock Mul of 512 x 512 floats took 43 us on one thread and
// 85 us when shared. Here, the calling thread starts alone. It calls helpers only if its first
// block took so long that they are worth waking.

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

// The least remaining work, in ns, for which helpers are called.
constexpr double kMinSharedWorkNs = 100e3;
constexpr int kSpins = 1000;      // Spins, of about 50 ns each, before the caller sleeps.
constexpr Index kAligned = 1024;  // Elements: whole packets and whole cache lines of any type.

// Whether the device's thread pool is lent to one run, by a RunHandler or by ThreadPoolOptions.
// Such a pool must have no tasks left when the run ends: ReleaseHandler in
// tensorflow/core/framework/run_handler.cc aborts otherwise.
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

// Runs range(first, last) over [start, size) in blocks of `block` elements, on the calling thread
// and on `helpers` threads of the device, and returns when all blocks are done. A helper that
// starts after that finds no block left and accesses only `Blocks`, which it keeps alive.
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
    for (Index block_index; (block_index = blocks->next.fetch_add(1)) < count;) {
      const Index first = start + block_index * block;
      range(first, std::min(size, first + block));
      blocks->done.fetch_add(1, std::memory_order_release);
      blocks->left.Notify();
    }
  };
  for (Index each = 0; each < helpers; ++each) device.getPool()->Schedule(take);
  take();
  // The last blocks are being computed. To sleep and be woken would take longer than to spin.
  for (int spin = 0; spin < kSpins && blocks->done.load(std::memory_order_acquire) < count;
       ++spin) {
    Pause();
  }
  blocks->left.Wait();
}

// Runs range(first, last) over [0, size), on the calling thread or shared with threads of the
// device, and returns when all is done. `first` is a multiple of kAligned. Every range except the
// last has at least `least` elements. If the pool is lent to one run, Eigen's parallelFor chooses
// the sizes of the ranges after the first.
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
  if (rest < kMinSharedWorkNs) {
    range(block, size);
  } else if (IsLent(device)) {
    // In cycles, at 3 GHz.
    const Eigen::TensorOpCost cost(0, 0, 3 * took / static_cast<double>(block));
    device.parallelFor(size - block, cost, aligned,
                       [&](Index first, Index last) { range(block + first, block + last); });
  } else {
    const Index worth = 1 + static_cast<Index>(rest / kMinSharedWorkNs);
    Share(device, std::min<Index>({threads - 1, blocks - 1, worth}), block, size, block, range);
  }
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_COMPUTE_SHARING_H_
