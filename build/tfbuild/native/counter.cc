// The exported view of the counters: plain C, so that ctypes and the dispatcher can read it.

#include "tensorwright/counter.h"

#include <cstdlib>

#if defined(__GLIBCXX__) && (defined(__x86_64__) || defined(__aarch64__))
// std::__throw_bad_array_new_length, which libstdc++ has since GCC 11 only. Kernels are compiled
// without exceptions, so that nobody could catch what it throws.
extern "C" __attribute__((visibility("hidden"), noreturn)) void tensorwright_bad_length(
    void) __asm__("_ZSt28__throw_bad_array_new_lengthv");
void tensorwright_bad_length(void) { std::abort(); }

// Whether the process has one thread, which glibc says since 2.32 only and libstdc++ 12 asks before
// it counts references: without that question it counts atomically.
extern "C" __attribute__((visibility("hidden"))) char tensorwright_single_threaded __asm__(
    "__libc_single_threaded");
char tensorwright_single_threaded = 0;
#endif

#define TENSORWRIGHT_EXPORT extern "C" __attribute__((visibility("default")))

namespace tensorwright {
namespace {

const Counter* first = nullptr;
int count = 0;

const Counter* At(int index) {
  const Counter* counter = first;
  while (counter != nullptr && index-- > 0) counter = counter->next();
  return counter;
}

}  // namespace

// Static initialisers of one library run one after the other, so no lock is needed.
void Counter::Publish() {
  next_ = first;
  first = this;
  ++count;
}

}  // namespace tensorwright

TENSORWRIGHT_EXPORT int tensorwright_kernel_count(void) { return tensorwright::count; }

TENSORWRIGHT_EXPORT const char* tensorwright_kernel_op(int index) {
  const auto* counter = tensorwright::At(index);
  return counter == nullptr ? nullptr : counter->op();
}

TENSORWRIGHT_EXPORT const char* tensorwright_kernel_class(int index) {
  const auto* counter = tensorwright::At(index);
  return counter == nullptr ? nullptr : counter->kernel();
}

TENSORWRIGHT_EXPORT unsigned long long tensorwright_kernel_executions(int index) {
  const auto* counter = tensorwright::At(index);
  return counter == nullptr ? 0 : counter->executions();
}
