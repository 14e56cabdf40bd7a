// Counters of the executions of tuned kernels.

#ifndef TENSORWRIGHT_COUNTER_H_
#define TENSORWRIGHT_COUNTER_H_

#include <atomic>
#include <cstdint>

namespace tensorwright {

// The counter of one registered kernel. It lives as long as the library. Published counters form a
// list, which the C functions of counter.cc read.
class Counter {
 public:
  constexpr Counter(const char* op, const char* kernel) : op_(op), kernel_(kernel) {}

  // Adds the counter to the list. Must be called once, while the library is loaded.
  void Publish();
  // Counts an execution. Thread-safe.
  void Add() { executions_.fetch_add(1, std::memory_order_relaxed); }

  const char* op() const { return op_; }
  const char* kernel() const { return kernel_; }
  const Counter* next() const { return next_; }
  std::uint64_t executions() const { return executions_.load(std::memory_order_relaxed); }

 private:
  const char* const op_;
  const char* const kernel_;
  const Counter* next_ = nullptr;
  std::atomic<std::uint64_t> executions_{0};
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_COUNTER_H_
