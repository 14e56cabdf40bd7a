// Counters of fused ops. Each group declares its own in ops/NAME/events.h; all groups share those
// below.

#ifndef TENSORWRIGHT_GRAPH_EVENTS_H_
#define TENSORWRIGHT_GRAPH_EVENTS_H_

#include <atomic>

namespace tensorwright {

// A named counter, declared as an inline variable. It adds itself to the library's list, in the
// order of declaration. Names begin with "left:" if they count ops that were not fused, and with
// "stock:" if they count executions by the stock kernels. Reports show them. Counters of anything
// but executions count once for each graph that TensorFlow prepares. Add() and count() are
// thread-safe.
class EventCounter {
 public:
  explicit EventCounter(const char* name) : name_(name) {
    if (last_ == nullptr) {
      first_ = this;
    } else {
      last_->next_ = this;
    }
    last_ = this;
  }
  EventCounter(const EventCounter&) = delete;
  EventCounter& operator=(const EventCounter&) = delete;

  void Add(int times = 1) { count_.fetch_add(times, std::memory_order_relaxed); }

  const char* name() const { return name_; }
  unsigned long long count() const { return count_.load(std::memory_order_relaxed); }

  // Returns the counter at `index` of the library's list, or nullptr.
  static const EventCounter* At(int index) {
    const EventCounter* counter = index < 0 ? nullptr : first_;
    while (counter != nullptr && index-- > 0) counter = counter->next_;
    return counter;
  }

 private:
  static inline EventCounter *first_ = nullptr, *last_ = nullptr;

  const char* const name_;
  EventCounter* next_ = nullptr;
  std::atomic<unsigned long long> count_{0};
};

namespace events {

inline EventCounter compiled("left: compiled");    // XLA compiles it.
inline EventCounter elsewhere("left: elsewhere");  // It is not on a CPU of this process.
inline EventCounter rejected("left: not made");    // TensorFlow rejects our op or its function.

}  // namespace events
}  // namespace tensorwright

// C functions through which ctypes reads the counters. Weak, because every group defines them.
#define TENSORWRIGHT_EXPORT extern "C" __attribute__((visibility("default"), weak))

TENSORWRIGHT_EXPORT int tensorwright_fused_events(void) {
  int count = 0;
  while (tensorwright::EventCounter::At(count) != nullptr) ++count;
  return count;
}

TENSORWRIGHT_EXPORT const char* tensorwright_fused_name(int index) {
  const auto* counter = tensorwright::EventCounter::At(index);
  return counter == nullptr ? nullptr : counter->name();
}

TENSORWRIGHT_EXPORT unsigned long long tensorwright_fused_count(int index) {
  const auto* counter = tensorwright::EventCounter::At(index);
  return counter == nullptr ? 0 : counter->count();
}

#undef TENSORWRIGHT_EXPORT

#endif  // TENSORWRIGHT_GRAPH_EVENTS_H_
