// The list of counters, and exported C functions with which ctypes and the dispatcher read it.

#include "tensorwright/counter.h"

#include <cstdlib>

#if defined(__GLIBCXX__) && (defined(__x86_64__) || defined(__aarch64__))
// Defines std::__throw_bad_array_new_length, which libstdc++ has only since GCC 11. It aborts:
// kernels are compiled without exceptions, so nothing could catch what it throws.
extern "C" __attribute__((visibility("hidden"), noreturn)) void tensorwright_bad_length(
    void) __asm__("_ZSt28__throw_bad_array_new_lengthv");
void tensorwright_bad_length(void) { std::abort(); }

// Defines __libc_single_threaded, which glibc has only since 2.32. libstdc++ 12 reads it before it
// counts references; false makes it count atomically.
extern "C" __attribute__((visibility("hidden"))) char tensorwright_single_threaded __asm__(
    "__libc_single_threaded");
char tensorwright_single_threaded = 0;
#endif

#define TENSORWRIGHT_EXPORT extern "C" __attribute__((visibility("default")))

namespace tensorwright {
namespace {

const Counter* first = nullptr;
int count = 0;

// Returns the counter at `index` of the list, or nullptr.
const Counter* At(int index) {
  const Counter* counter = first;
  while (counter != nullptr && index-- > 0) counter = counter->next();
  return counter;
}

}  // namespace

// Needs no lock, because static initializers of one library run one after the other.
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
