// Operations on the elements of one row after the other, rounded as stock kernels round them.

#ifndef TENSORWRIGHT_OPS_LOOPS_ELEMENTS_H_
#define TENSORWRIGHT_OPS_LOOPS_ELEMENTS_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>

#include "Eigen/Core"
#include "tensorwright/compute/arithmetic.h"
#include "tensorwright/ops/loops/loop.h"

namespace tensorwright {

// Elements of one row from up to three operands.
using RowLoop = void (*)(void* out, const void* a, const void* b, const void* c,
                         std::int64_t count);
// By which operands are one element that stands for a whole row: 1, 2, 4 for the first, second, third.
using Forms = std::array<RowLoop, 8>;

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

template <typename In, typename Out, typename Op, bool lone_a, bool lone_b>
void Each(void* out, const void* a, const void* b, const void*, std::int64_t count) {
  Out* to = static_cast<Out*>(out);
  const In *left = static_cast<const In*>(a), *right = static_cast<const In*>(b);
  const In first = *left, second = *right;
  TENSORWRIGHT_ELEMENTS
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = Op()(lone_a ? first : left[i], lone_b ? second : right[i]);
  }
}

template <bool lone_a, bool lone_b>
void Choose(void* out, const void* which, const void* a, const void* b, std::int64_t count) {
  float* to = static_cast<float*>(out);
  const auto* yes = static_cast<const std::uint8_t*>(which);
  const float *left = static_cast<const float*>(a), *right = static_cast<const float*>(b);
  const float first = *left, second = *right;
  TENSORWRIGHT_ELEMENTS
  for (std::int64_t i = 0; i < count; ++i) {
    const float one = lone_a ? first : left[i], other = lone_b ? second : right[i];
    to[i] = yes[i] ? one : other;
  }
}

// One decision for a whole row.
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

// Functions that Eigen approximates, as stock kernels have them.
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

template <typename Op, bool lone>
void Approximate(void* out, const void* a, const void*, const void*, std::int64_t count) {
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

template <typename In, typename Out, typename Op>
constexpr Forms FormsOf() {
  return {Each<In, Out, Op, false, false>, Each<In, Out, Op, true, false>,
          Each<In, Out, Op, false, true>, Each<In, Out, Op, true, true>};
}

// None where this library has no such operation on elements.
inline const Forms* FormsFor(Do what) {
  static const auto* forms = new std::map<Do, Forms>{
      {Do::kAdd, FormsOf<float, float, Add<float>>()},
      {Do::kBiasAdd, FormsOf<float, float, Add<float>>()},
      {Do::kSub, FormsOf<float, float, Sub<float>>()},
      {Do::kMul, FormsOf<float, float, Mul<float>>()},
      {Do::kDiv, FormsOf<float, float, Div<float>>()},
      {Do::kMaximum, FormsOf<float, float, Maximum<float>>()},
      {Do::kMinimum, FormsOf<float, float, Minimum<float>>()},
      {Do::kSquaredDifference, FormsOf<float, float, SquaredDifference<float>>()},
      {Do::kSigmoidGrad, FormsOf<float, float, SigmoidGradient>()},
      {Do::kTanhGrad, FormsOf<float, float, TanhGradient>()},
      {Do::kReluGrad, FormsOf<float, float, ReluGradient>()},
      {Do::kNeg, FormsOf<float, float, Neg<float>>()},
      {Do::kAbs, FormsOf<float, float, Abs<float>>()},
      {Do::kSign, FormsOf<float, float, Sign>()},
      {Do::kSquare, FormsOf<float, float, Square<float>>()},
      {Do::kRelu, FormsOf<float, float, Relu>()},
      {Do::kRelu6, FormsOf<float, float, Relu6>()},
      {Do::kRelu6Grad, FormsOf<float, float, Relu6Gradient>()},
      {Do::kTanh, {Approximate<TanhOf, false>, Approximate<TanhOf, true>}},
      {Do::kSigmoid, {Approximate<SigmoidOf, false>, Approximate<SigmoidOf, true>}},
      {Do::kExp, {Approximate<ExpOf, false>, Approximate<ExpOf, true>}},
      {Do::kGreater, FormsOf<float, std::uint8_t, Whether<std::greater<float>>>()},
      {Do::kGreaterEqual, FormsOf<float, std::uint8_t, Whether<std::greater_equal<float>>>()},
      {Do::kLess, FormsOf<float, std::uint8_t, Whether<std::less<float>>>()},
      {Do::kLessEqual, FormsOf<float, std::uint8_t, Whether<std::less_equal<float>>>()},
      {Do::kNot, FormsOf<std::uint8_t, std::uint8_t, Not>()},
      {Do::kAnd, FormsOf<std::uint8_t, std::uint8_t, And>()},
      {Do::kOr, FormsOf<std::uint8_t, std::uint8_t, Or>()},
      {Do::kSelect,
       {Choose<false, false>, ChooseRow<false, false>, Choose<true, false>, ChooseRow<true, false>,
        Choose<false, true>, ChooseRow<false, true>, Choose<true, true>, ChooseRow<true, true>}},
  };
  const auto found = forms->find(what);
  return found == forms->end() ? nullptr : &found->second;
}

// Whether an element takes many times as long as a sum of two.
inline bool IsApproximated(const Forms* forms) {
  return forms == FormsFor(Do::kTanh) || forms == FormsFor(Do::kSigmoid) ||
         forms == FormsFor(Do::kExp);
}

// What moves rows, or repeats an element.
inline const Forms* Copies(bool bytes) {
  static const Forms* forms[] = {
      new Forms{FormsOf<float, float, First<float>>()},
      new Forms{FormsOf<std::uint8_t, std::uint8_t, First<std::uint8_t>>()}};
  return forms[bytes];
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_LOOPS_ELEMENTS_H_
