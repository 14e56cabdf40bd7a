// The program of a chain: its elementwise operations and sums, in the order of the graph.

#ifndef TENSORWRIGHT_OPS_CHAINS_PROGRAM_H_
#define TENSORWRIGHT_OPS_CHAINS_PROGRAM_H_

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "tensorflow/core/framework/types.pb.h"
#include "tensorwright/compute/elements.h"

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

// Returns the codes of the ops that are one step, with their inputs as operands.
inline const std::map<std::string, Code>& OpCodes() {
  static const auto* codes = new std::map<std::string, Code>{
      {"Add", Code::kAdd},
      {"AddV2", Code::kAdd},
      {"Sub", Code::kSub},
      {"Mul", Code::kMul},
      {"RealDiv", Code::kDiv},
      {"Maximum", Code::kMaximum},
      {"Minimum", Code::kMinimum},
      {"SquaredDifference", Code::kSquaredDifference},
      {"Greater", Code::kGreater},
      {"GreaterEqual", Code::kGreaterEqual},
      {"Less", Code::kLess},
      {"LessEqual", Code::kLessEqual},
      {"LogicalAnd", Code::kAnd},
      {"LogicalOr", Code::kOr},
      {"LogicalNot", Code::kNot},
      {"SelectV2", Code::kSelect},
      {"SigmoidGrad", Code::kSigmoidGrad},
      {"TanhGrad", Code::kTanhGrad},
      {"ReluGrad", Code::kReluGrad},
      {"Relu6Grad", Code::kRelu6Grad},
      {"Neg", Code::kNeg},
      {"Abs", Code::kAbs},
      {"Sign", Code::kSign},
      {"Square", Code::kSquare},
      {"Sqrt", Code::kSqrt},
      {"Rsqrt", Code::kRsqrt},
      {"Reciprocal", Code::kReciprocal},
      {"Inv", Code::kReciprocal},
      {"Exp", Code::kExp},
      {"Log", Code::kLog},
      {"Tanh", Code::kTanh},
      {"Sigmoid", Code::kSigmoid},
      {"Erf", Code::kErf},
      {"Relu", Code::kRelu},
      {"Relu6", Code::kRelu6},
      {"Cast", Code::kToFloat},
      {"BiasAdd", Code::kBiasAdd},
      {"BiasAddGrad", Code::kBiasAddGrad},
      {"Sum", Code::kSum},
      {"Mean", Code::kMean},
      {"Max", Code::kMax},
      {"Identity", Code::kCopy},
      {"Reshape", Code::kReshape},
      {"Shape", Code::kShape},
  };
  return *codes;
}

// Returns the loops of an elementwise operation. kAddNumber has the number as its second operand.
inline const RowLoops& LoopsOf(Code code) {
  static const auto* loops = [] {
    auto* all = new std::map<Code, const RowLoops*>;
    for (const auto& [op, op_code] : OpCodes()) {
      if (const RowLoops* found = FindRowLoops(op)) all->emplace(op_code, found);
    }
    for (const Code sum : {Code::kAddSame, Code::kAddNumber})
      all->emplace(sum, FindRowLoops("AddV2"));
    return all;
  }();
  return *loops->at(code);
}

// Whether the result of an elementwise operation is bool.
inline bool IsBool(Code code) {
  return (code >= Code::kGreater && code <= Code::kOr) || code == Code::kNot;
}

}  // namespace tensorwright::chains

#endif  // TENSORWRIGHT_OPS_CHAINS_PROGRAM_H_
