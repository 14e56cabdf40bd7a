// The program of a chain: its elementwise operations and sums, in the order of the graph.

#ifndef TENSORWRIGHT_OPS_CHAINS_PROGRAM_H_
#define TENSORWRIGHT_OPS_CHAINS_PROGRAM_H_

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <vector>

#include "tensorflow/core/framework/types.pb.h"
#include "tensorwright/compute/elements.h"
#include "unsupported/Eigen/SpecialFunctions"

namespace tensorwright::chains {

// The numbers are those of the attribute `program`.
enum class Code : std::int64_t {
  // Elementwise operations, which broadcast their operands.
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMaximum,
  kMinimum,
  kSquaredDifference,
  kGreater,
  kGreaterEqual,
  kLess,
  kLessEqual,
  kAnd,
  kOr,
  kSelect,
  // Elementwise operations on operands of the same shape.
  kAddSame,
  kSigmoidGrad,
  kTanhGrad,
  kReluGrad,
  kRelu6Grad,
  // Elementwise operations on one operand.
  kNeg,
  kAbs,
  kSign,
  kSquare,
  kSqrt,
  kRsqrt,
  kReciprocal,
  kExp,
  kLog,
  kTanh,
  kSigmoid,
  kErf,
  kRelu,
  kRelu6,
  kNot,
  kToFloat,    // A bool as 0 or 1.
  kAddNumber,  // Adds the parameter (NumberOf).
  kBiasAdd,    // The second operand has one axis, the last of the first operand.
  // Sums and maxima. The parameter is 1 if the axes stay, with one element each.
  kSum,  // Over the axes that the second operand gives.
  kMean,
  kMax,
  kBiasAddGrad,  // The sum over all axes but the last.
  // Operations on shapes.
  kCopy,        // An identity.
  kReshape,     // To the shape that the second operand gives.
  kShape,       // The shape as integers; the parameter is their type.
  kVector,      // All elements along one axis.
  kOfChannels,  // The elements along axis 1 of 4, the number of channels.
  kOneImage,    // The identity, for a tensor of four axes of which the first and last have size 1.
  kEmptyReserve,  // A scalar zero. The operand is not read.
};

// One operation. Operands are numbers of values: the inputs of the op come first, then the result
// of each step. A step with fewer operands repeats the first.
struct Step {
  Code code;
  std::int64_t operands[3];
  std::int64_t parameter;
};

constexpr std::size_t kNumbersPerStep = 5;

// Reads the attribute `program`, which has kNumbersPerStep numbers for each step.
inline std::vector<Step> ReadProgram(const std::vector<std::int64_t>& numbers) {
  std::vector<Step> steps;
  for (std::size_t i = 0; i + kNumbersPerStep <= numbers.size(); i += kNumbersPerStep) {
    steps.push_back({static_cast<Code>(numbers[i]),
                     {numbers[i + 1], numbers[i + 2], numbers[i + 3]},
                     numbers[i + 4]});
  }
  return steps;
}

// Converts the parameter of kAddNumber to a float, and back.
inline float NumberOf(std::int64_t parameter) {
  const auto bits = static_cast<std::uint32_t>(parameter);
  float number;
  std::memcpy(&number, &bits, sizeof number);
  return number;
}
inline std::int64_t ParameterOf(float number) {
  std::uint32_t bits;
  std::memcpy(&bits, &number, sizeof bits);
  return bits;
}

inline bool IsReduction(Code code) { return code >= Code::kSum && code <= Code::kBiasAddGrad; }
inline bool IsElementwise(Code code) { return code < Code::kSum; }
// Whether the operands must have the same shape.
inline bool NeedsSameShapes(Code code) {
  return code >= Code::kAddSame && code <= Code::kRelu6Grad;
}
inline int CountOperands(Code code) {
  if (code == Code::kSelect) return 3;
  if (code == Code::kAddNumber) return 1;
  return code < Code::kNeg || code == Code::kBiasAdd ? 2 : 1;
}

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
struct Reciprocal {
  float operator()(float a, float) const { return 1.0f / a; }
};
struct ToFloat {
  float operator()(std::uint8_t a, std::uint8_t) const { return a ? 1.0f : 0.0f; }
};

template <typename Op>
constexpr RowLoops MakeFunctionLoops() {
  return {ApplyEigenFunction<Op, false>, ApplyEigenFunction<Op, true>};
}

// Returns the loops of an elementwise operation. kAddNumber has those of kAdd, with the number as
// its second operand.
inline const RowLoops& LoopsOf(Code code) {
  using Byte = std::uint8_t;
  static const auto* loops = new std::map<Code, RowLoops>{
      {Code::kAdd, MakeRowLoops<float, float, Add<float>>()},
      {Code::kAddSame, MakeRowLoops<float, float, Add<float>>()},
      {Code::kAddNumber, MakeRowLoops<float, float, Add<float>>()},
      {Code::kBiasAdd, MakeRowLoops<float, float, Add<float>>()},
      {Code::kSub, MakeRowLoops<float, float, Sub<float>>()},
      {Code::kMul, MakeRowLoops<float, float, Mul<float>>()},
      {Code::kDiv, MakeRowLoops<float, float, Div<float>>()},
      {Code::kMaximum, MakeRowLoops<float, float, Maximum<float>>()},
      {Code::kMinimum, MakeRowLoops<float, float, Minimum<float>>()},
      {Code::kSquaredDifference, MakeRowLoops<float, float, SquaredDifference<float>>()},
      {Code::kGreater, MakeRowLoops<float, Byte, Whether<std::greater<float>>>()},
      {Code::kGreaterEqual, MakeRowLoops<float, Byte, Whether<std::greater_equal<float>>>()},
      {Code::kLess, MakeRowLoops<float, Byte, Whether<std::less<float>>>()},
      {Code::kLessEqual, MakeRowLoops<float, Byte, Whether<std::less_equal<float>>>()},
      {Code::kAnd, MakeRowLoops<Byte, Byte, And>()},
      {Code::kOr, MakeRowLoops<Byte, Byte, Or>()},
      {Code::kSelect, MakeSelectLoops()},
      {Code::kSigmoidGrad, MakeRowLoops<float, float, SigmoidGradient>()},
      {Code::kTanhGrad, MakeRowLoops<float, float, TanhGradient>()},
      {Code::kReluGrad, MakeRowLoops<float, float, ReluGradient>()},
      {Code::kRelu6Grad, MakeRowLoops<float, float, Relu6Gradient>()},
      {Code::kNeg, MakeRowLoops<float, float, Neg<float>>()},
      {Code::kAbs, MakeRowLoops<float, float, Abs<float>>()},
      {Code::kSign, MakeRowLoops<float, float, Sign>()},
      {Code::kSquare, MakeRowLoops<float, float, Square<float>>()},
      {Code::kReciprocal, MakeRowLoops<float, float, Reciprocal>()},
      {Code::kRelu, MakeRowLoops<float, float, Relu>()},
      {Code::kRelu6, MakeRowLoops<float, float, Relu6>()},
      {Code::kNot, MakeRowLoops<Byte, Byte, Not>()},
      {Code::kToFloat, MakeRowLoops<Byte, float, ToFloat>()},
      {Code::kSqrt, MakeFunctionLoops<SqrtOf>()},
      {Code::kRsqrt, MakeFunctionLoops<RsqrtOf>()},
      {Code::kExp, MakeFunctionLoops<ExpOf>()},
      {Code::kLog, MakeFunctionLoops<LogOf>()},
      {Code::kTanh, MakeFunctionLoops<TanhOf>()},
      {Code::kSigmoid, MakeFunctionLoops<SigmoidOf>()},
      {Code::kErf, MakeFunctionLoops<ErfOf>()},
  };
  return loops->at(code);
}

// Whether the result of an elementwise operation is bool.
inline bool IsBool(Code code) {
  return (code >= Code::kGreater && code <= Code::kOr) || code == Code::kNot;
}

}  // namespace tensorwright::chains

#endif  // TENSORWRIGHT_OPS_CHAINS_PROGRAM_H_
