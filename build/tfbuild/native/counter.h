// How often each tuned kernel was executed.

#ifndef TENSORWRIGHT_COUNTER_H_
#define TENSORWRIGHT_COUNTER_H_

#include <atomic>
#include <cstdint>

namespace tensorwright {

// One registered kernel. Lives as long as the library; published ones form a list.
class Counter {
 public:
  constexpr Counter(const char* op, const char* kernel) : op_(op), kernel_(kernel) {}

  void Publish();  // Called once, while the library is loaded.
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
