// Elementwise operations on a row, rounded as TensorFlow's kernels round them.

#ifndef TENSORWRIGHT_COMPUTE_ELEMENTS_H_
#define TENSORWRIGHT_COMPUTE_ELEMENTS_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <string>

#include "Eigen/Core"
#include "tensorwright/compute/arithmetic.h"
#include "unsupported/Eigen/SpecialFunctions"

namespace tensorwright {

// Computes `count` elements of `out` from up to three operands. All operands must be valid
// pointers, even those that are not used.
using RowLoop = void (*)(void* out, const void* a, const void* b, const void* c,
                         std::int64_t count);
// The variants of a RowLoop. The index is a bit mask: bit i is set if operand i is one element that
// is broadcast along the row.
using RowLoops = std::array<RowLoop, 8>;

struct SigmoidGradient {
  float operator()(float y, float dy) const { return dy * (y * (1.0f - y)); }
};
struct TanhGradient {
  float operator()(float y, float dy) const { return dy * (1.0f - y * y); }
};
struct ReluGradient {
  float operator()(float dy, float x) const { return dy * (x > 0.0f ? 1.0f : 0.0f); }
};
struct Relu {
  float operator()(float x, float) const { return x != x || x > 0.0f ? x : 0.0f; }
};
struct Relu6 {
  float operator()(float x, float) const { return x > 6.0f ? 6.0f : x < 0.0f ? 0.0f : x; }
};
struct Relu6Gradient {
  float operator()(float dy, float x) const { return dy * (x > 0.0f && x < 6.0f ? 1.0f : 0.0f); }
};
struct Sign {
  float operator()(float x, float) const { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x; }
};
template <typename Compare>
struct Whether {
  std::uint8_t operator()(float a, float b) const { return Compare()(a, b); }
};
struct Not {
  std::uint8_t operator()(std::uint8_t a, std::uint8_t) const { return a == 0; }
};
struct And {
  std::uint8_t operator()(std::uint8_t a, std::uint8_t b) const { return a & b; }
};
struct Or {
  std::uint8_t operator()(std::uint8_t a, std::uint8_t b) const { return a | b; }
};

struct Reciprocal {
  float operator()(float a, float) const { return 1.0f / a; }
};
struct ToFloat {
  float operator()(std::uint8_t a, std::uint8_t) const { return a ? 1.0f : 0.0f; }
};

// Applies `Op` to each element. `lone_a` and `lone_b`: whether that operand is one element. The others
// may be null if `count` is 0.
template <typename In, typename Out, typename Op, bool lone_a, bool lone_b>
void Each(void* out, const void* a, const void* b, const void*, std::int64_t count) {
  Out* to = static_cast<Out*>(out);
  const In *left = static_cast<const In*>(a), *right = static_cast<const In*>(b);
  const In first = lone_a ? *left : In(), second = lone_b ? *right : In();
  TENSORWRIGHT_ELEMENTS
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = Op()(lone_a ? first : left[i], lone_b ? second : right[i]);
  }
}

// Computes SelectV2 with a condition for each element.
template <bool lone_a, bool lone_b>
void Choose(void* out, const void* which, const void* a, const void* b, std::int64_t count) {
  float* to = static_cast<float*>(out);
  const auto* yes = static_cast<const std::uint8_t*>(which);
  const float *left = static_cast<const float*>(a), *right = static_cast<const float*>(b);
  const float first = lone_a ? *left : 0.0f, second = lone_b ? *right : 0.0f;
  TENSORWRIGHT_ELEMENTS
  for (std::int64_t i = 0; i < count; ++i) {
    const float one = lone_a ? first : left[i], other = lone_b ? second : right[i];
    to[i] = yes[i] ? one : other;
  }
}

// Computes SelectV2 with one condition for the whole row.
template <bool lone_a, bool lone_b>
void ChooseRow(void* out, const void* which, const void* a, const void* b, std::int64_t count) {
  const bool yes = *static_cast<const std::uint8_t*>(which) != 0;
  const float* from = static_cast<const float*>(yes ? a : b);
  if (yes ? lone_a : lone_b) {
    std::fill_n(static_cast<float*>(out), count, *from);
  } else {
    std::memcpy(out, from, count * sizeof(float));
  }
}

// Returns the variants of SelectV2, whose first operand is the condition.
constexpr RowLoops MakeSelectLoops() {
  return {Choose<false, false>,   ChooseRow<false, false>, Choose<true, false>,
          ChooseRow<true, false>, Choose<false, true>,     ChooseRow<false, true>,
          Choose<true, true>,     ChooseRow<true, true>};
}

// Functions that Eigen approximates; TensorFlow's kernels use the same ones.
struct TanhOf {
  template <typename Array>
  auto operator()(const Array& x) const {
    return x.tanh();
  }
};
struct SigmoidOf {
  template <typename Array>
  auto operator()(const Array& x) const {
    return x.logistic();
  }
};
struct ExpOf {
  template <typename Array>
  auto operator()(const Array& x) const {
    return x.exp();
  }
};

struct ErfOf {
  template <typename Array>
  auto operator()(const Array& x) const {
    return x.erf();
  }
};
struct LogOf {
  template <typename Array>
  auto operator()(const Array& x) const {
    return x.log();
  }
};
struct SqrtOf {
  template <typename Array>
  auto operator()(const Array& x) const {
    return x.sqrt();
  }
};
struct RsqrtOf {
  template <typename Array>
  auto operator()(const Array& x) const {
    return x.rsqrt();
  }
};

// Applies an Eigen function to each element, or once if the operand is one element.
template <typename Op, bool lone>
void ApplyEigenFunction(void* out, const void* a, const void*, const void*, std::int64_t count) {
  using Array = Eigen::Array<float, Eigen::Dynamic, 1>;
  Eigen::Map<Array> to(static_cast<float*>(out), count);
  Eigen::Map<const Array> from(static_cast<const float*>(a), lone ? 1 : count);
  if constexpr (lone) {
    const Array one = Op()(from);
    to.setConstant(one(0));
  } else {
    to = Op()(from);
  }
}

// Returns the variants for an operation of one or two operands.
template <typename In, typename Out, typename Op>
constexpr RowLoops MakeRowLoops() {
  return {Each<In, Out, Op, false, false>, Each<In, Out, Op, true, false>,
          Each<In, Out, Op, false, true>, Each<In, Out, Op, true, true>};
}

template <typename Op>
constexpr RowLoops MakeFunctionLoops() {
  return {ApplyEigenFunction<Op, false>, ApplyEigenFunction<Op, true>};
}

// Returns the loops of an elementwise op of TensorFlow; null if there are none.
inline const RowLoops* FindRowLoops(const std::string& op) {
  using Byte = std::uint8_t;
  static const auto* loops = new std::map<std::string, RowLoops>{
      {"Add", MakeRowLoops<float, float, Add<float>>()},
      {"AddV2", MakeRowLoops<float, float, Add<float>>()},
      {"BiasAdd", MakeRowLoops<float, float, Add<float>>()},
      {"Sub", MakeRowLoops<float, float, Sub<float>>()},
      {"Mul", MakeRowLoops<float, float, Mul<float>>()},
      {"RealDiv", MakeRowLoops<float, float, Div<float>>()},
      {"Maximum", MakeRowLoops<float, float, Maximum<float>>()},
      {"Minimum", MakeRowLoops<float, float, Minimum<float>>()},
      {"SquaredDifference", MakeRowLoops<float, float, SquaredDifference<float>>()},
      {"SigmoidGrad", MakeRowLoops<float, float, SigmoidGradient>()},
      {"TanhGrad", MakeRowLoops<float, float, TanhGradient>()},
      {"ReluGrad", MakeRowLoops<float, float, ReluGradient>()},
      {"Relu6Grad", MakeRowLoops<float, float, Relu6Gradient>()},
      {"Neg", MakeRowLoops<float, float, Neg<float>>()},
      {"Abs", MakeRowLoops<float, float, Abs<float>>()},
      {"Sign", MakeRowLoops<float, float, Sign>()},
      {"Square", MakeRowLoops<float, float, Square<float>>()},
      {"Reciprocal", MakeRowLoops<float, float, Reciprocal>()},
      {"Relu", MakeRowLoops<float, float, Relu>()},
      {"Relu6", MakeRowLoops<float, float, Relu6>()},
      {"Sqrt", MakeFunctionLoops<SqrtOf>()},
      {"Rsqrt", MakeFunctionLoops<RsqrtOf>()},
      {"Exp", MakeFunctionLoops<ExpOf>()},
      {"Log", MakeFunctionLoops<LogOf>()},
      {"Tanh", MakeFunctionLoops<TanhOf>()},
      {"Sigmoid", MakeFunctionLoops<SigmoidOf>()},
      {"Erf", MakeFunctionLoops<ErfOf>()},
      {"Greater", MakeRowLoops<float, Byte, Whether<std::greater<float>>>()},
      {"GreaterEqual", MakeRowLoops<float, Byte, Whether<std::greater_equal<float>>>()},
      {"Less", MakeRowLoops<float, Byte, Whether<std::less<float>>>()},
      {"LessEqual", MakeRowLoops<float, Byte, Whether<std::less_equal<float>>>()},
      {"LogicalAnd", MakeRowLoops<Byte, Byte, And>()},
      {"LogicalOr", MakeRowLoops<Byte, Byte, Or>()},
      {"LogicalNot", MakeRowLoops<Byte, Byte, Not>()},
      {"SelectV2", MakeSelectLoops()},
      {"Cast", MakeRowLoops<Byte, float, ToFloat>()},  // From bool.
  };
  const auto found = loops->find(op);
  return found == loops->end() ? nullptr : &found->second;
}

// Whether an element of these ops of recurrent layers takes many times as long as an addition.
inline bool IsApproximated(const RowLoops* loops) {
  return loops == FindRowLoops("Tanh") || loops == FindRowLoops("Sigmoid") ||
         loops == FindRowLoops("Exp");
}

// Returns the loops that copy a row or repeat an element: of bool if `bytes`, else of float.
inline const RowLoops* Copies(bool bytes) {
  static const RowLoops* forms[] = {
      new RowLoops{MakeRowLoops<float, float, First<float>>()},
      new RowLoops{MakeRowLoops<std::uint8_t, std::uint8_t, First<std::uint8_t>>()}};
  return forms[bytes];
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_COMPUTE_ELEMENTS_H_
