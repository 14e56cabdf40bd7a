// Arithmetic on single elements, rounded as in TensorFlow's kernels.

#ifndef TENSORWRIGHT_COMPUTE_ARITHMETIC_H_
#define TENSORWRIGHT_COMPUTE_ARITHMETIC_H_

#include <cstdint>

#include "Eigen/Core"

// Precedes an elementwise loop and allows the compiler to vectorize it. Each input must either
// start at the same address as the output or not overlap it.
#if defined(__clang__)
#define TENSORWRIGHT_ELEMENTS _Pragma("clang loop vectorize(assume_safety)")
#else
#define TENSORWRIGHT_ELEMENTS _Pragma("GCC ivdep")
#endif

namespace tensorwright {

constexpr std::int64_t kBlock = 1024;  // Elements of a block. A block of float has 4 KiB.

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
// Maximum and Minimum return NaN if an operand is NaN. Of two equal operands, which may be zeros of
// different signs, they return the second, as x86 vector instructions do.
template <typename T>
struct Maximum {
  T operator()(T a, T b) const { return a != a || a > b ? a : b; }
};
template <typename T>
struct Minimum {
  T operator()(T a, T b) const { return a != a || a < b ? a : b; }
};
// The same, but of two equal operands they return the first, as Eigen's functions of scalars do.
template <typename T>
struct MaximumOrFirst {
  T operator()(T a, T b) const { return b != b || b > a ? b : a; }
};
template <typename T>
struct MinimumOrFirst {
  T operator()(T a, T b) const { return b != b || b < a ? b : a; }
};
// The unary operations ignore their second operand.
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
