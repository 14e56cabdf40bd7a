// Arithmetic of single elements, rounded as TensorFlow's kernels round it.

#ifndef TENSORWRIGHT_COMPUTE_ARITHMETIC_H_
#define TENSORWRIGHT_COMPUTE_ARITHMETIC_H_

#include <cstdint>

#include "Eigen/Core"

// Operands are the same elements or others, never shifted ones.
#if defined(__clang__)
#define TENSORWRIGHT_ELEMENTS _Pragma("clang loop vectorize(assume_safety)")
#else
#define TENSORWRIGHT_ELEMENTS _Pragma("GCC ivdep")
#endif

namespace tensorwright {

constexpr std::int64_t kBlock = 1024;  // Elements. A register of float has 4 KiB.

template <typename T>
struct Add {
  T operator()(T a, T b) const { return a + b; }
};
template <typename T>
struct Sub {
  T operator()(T a, T b) const { return a - b; }
};
template <typename T>
struct Mul {
  T operator()(T a, T b) const { return a * b; }
};
template <typename T>
struct Div {
  T operator()(T a, T b) const { return a / b; }
};
template <typename T>
struct SquaredDifference {
  T operator()(T a, T b) const {
    const T difference = a - b;
    return difference * difference;
  }
};
// NaN if one is. Of equal zeros the second one, as the vectors of x86 and stock kernels have it.
template <typename T>
struct Maximum {
  T operator()(T a, T b) const { return a != a || a > b ? a : b; }
};
template <typename T>
struct Minimum {
  T operator()(T a, T b) const { return a != a || a < b ? a : b; }
};
template <typename T>
struct First {
  T operator()(T a, T) const { return a; }
};
template <typename T>
struct Neg {
  T operator()(T a, T) const { return -a; }
};
template <typename T>
struct Abs {
  T operator()(T a, T) const { return Eigen::numext::abs(a); }
};
template <typename T>
struct Square {
  T operator()(T a, T) const { return a * a; }
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_COMPUTE_ARITHMETIC_H_
