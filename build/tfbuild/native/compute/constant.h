// Makes a number of sums a constant, so that they stay in registers.

#ifndef TENSORWRIGHT_COMPUTE_CONSTANT_H_
#define TENSORWRIGHT_COMPUTE_CONSTANT_H_

#include <cstdint>
#include <type_traits>

namespace tensorwright {

// Calls run(constant) with `count`, 1 <= count <= kMost, as a std::integral_constant.
template <int kMost, typename Run>
void WithConstant(std::int64_t count, const Run& run) {
  if (count == kMost) {
    run(std::integral_constant<int, kMost>());
  } else if constexpr (kMost > 1) {
    WithConstant<kMost - 1>(count, run);
  }
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_COMPUTE_CONSTANT_H_
