// The elementwise operations of loops.

#ifndef TENSORWRIGHT_OPS_LOOPS_ELEMENTS_H_
#define TENSORWRIGHT_OPS_LOOPS_ELEMENTS_H_

#include <cstdint>
#include <functional>
#include <map>

#include "tensorwright/compute/elements.h"
#include "tensorwright/ops/loops/loop.h"

namespace tensorwright {

// Returns the loops of an elementwise operation; null if the operation is not one of those.
inline const RowLoops* FindRowLoops(Do what) {
  static const auto* forms = new std::map<Do, RowLoops>{
      {Do::kAdd, MakeRowLoops<float, float, Add<float>>()},
      {Do::kBiasAdd, MakeRowLoops<float, float, Add<float>>()},
      {Do::kSub, MakeRowLoops<float, float, Sub<float>>()},
      {Do::kMul, MakeRowLoops<float, float, Mul<float>>()},
      {Do::kDiv, MakeRowLoops<float, float, Div<float>>()},
      {Do::kMaximum, MakeRowLoops<float, float, Maximum<float>>()},
      {Do::kMinimum, MakeRowLoops<float, float, Minimum<float>>()},
      {Do::kSquaredDifference, MakeRowLoops<float, float, SquaredDifference<float>>()},
      {Do::kSigmoidGrad, MakeRowLoops<float, float, SigmoidGradient>()},
      {Do::kTanhGrad, MakeRowLoops<float, float, TanhGradient>()},
      {Do::kReluGrad, MakeRowLoops<float, float, ReluGradient>()},
      {Do::kNeg, MakeRowLoops<float, float, Neg<float>>()},
      {Do::kAbs, MakeRowLoops<float, float, Abs<float>>()},
      {Do::kSign, MakeRowLoops<float, float, Sign>()},
      {Do::kSquare, MakeRowLoops<float, float, Square<float>>()},
      {Do::kRelu, MakeRowLoops<float, float, Relu>()},
      {Do::kRelu6, MakeRowLoops<float, float, Relu6>()},
      {Do::kRelu6Grad, MakeRowLoops<float, float, Relu6Gradient>()},
      {Do::kTanh, {ApplyEigenFunction<TanhOf, false>, ApplyEigenFunction<TanhOf, true>}},
      {Do::kSigmoid, {ApplyEigenFunction<SigmoidOf, false>, ApplyEigenFunction<SigmoidOf, true>}},
      {Do::kExp, {ApplyEigenFunction<ExpOf, false>, ApplyEigenFunction<ExpOf, true>}},
      {Do::kGreater, MakeRowLoops<float, std::uint8_t, Whether<std::greater<float>>>()},
      {Do::kGreaterEqual, MakeRowLoops<float, std::uint8_t, Whether<std::greater_equal<float>>>()},
      {Do::kLess, MakeRowLoops<float, std::uint8_t, Whether<std::less<float>>>()},
      {Do::kLessEqual, MakeRowLoops<float, std::uint8_t, Whether<std::less_equal<float>>>()},
      {Do::kNot, MakeRowLoops<std::uint8_t, std::uint8_t, Not>()},
      {Do::kAnd, MakeRowLoops<std::uint8_t, std::uint8_t, And>()},
      {Do::kOr, MakeRowLoops<std::uint8_t, std::uint8_t, Or>()},
      {Do::kSelect, MakeSelectLoops()},
  };
  const auto found = forms->find(what);
  return found == forms->end() ? nullptr : &found->second;
}

// Whether an element takes many times as long as an addition.
inline bool IsApproximated(const RowLoops* forms) {
  return forms == FindRowLoops(Do::kTanh) || forms == FindRowLoops(Do::kSigmoid) ||
         forms == FindRowLoops(Do::kExp);
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_LOOPS_ELEMENTS_H_
