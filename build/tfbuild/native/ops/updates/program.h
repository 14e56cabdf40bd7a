// The program of a fused update: steps over variables and tensors of one shape, in an order in
// which TensorFlow could run the original ops.

#ifndef TENSORWRIGHT_OPS_UPDATES_PROGRAM_H_
#define TENSORWRIGHT_OPS_UPDATES_PROGRAM_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tensorwright/simd/isa.h"

namespace tensorwright {

// The operation of a step. The functions below depend on the order.
enum class Code : std::int64_t {
  kCopy,  // Keeps the value of a variable that is written before the value is used.
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMaximum,
  kMinimum,
  kSquaredDifference,
  kNeg,
  kAbs,
  kSquare,
  kSqrt,
  kRsqrt,
  kSegmentSum,  // As kScatterAdd, but adds to zeros and has a value instead of a variable.
  kAssign,      // From here on, `out` is a variable.
  kAssignAdd,
  kAssignSub,
  kScatterAdd,  // From here on, `a` is a tensor of rows and `b` the index of a tensor of indices.
  kScatterSub,
};

inline bool IsAssignment(Code code) { return code >= Code::kAssign; }
inline bool IsScatter(Code code) { return code >= Code::kScatterAdd; }
inline bool HasRowOperand(Code code) { return IsScatter(code) || code == Code::kSegmentSum; }
inline bool IsUnary(Code code) {
  return code == Code::kCopy || code == Code::kAssign ||
         (code >= Code::kNeg && code <= Code::kRsqrt);
}

// Whether the program is known to compute the bits of the stock kernel. On CPUs other than x86,
// stock kernels approximate roots, and their maximum or minimum of 0 and -0 may be either. Bits
// were not compared there.
inline bool HasStockBits(Code code) {
  return kHasAvx || (code != Code::kSqrt && code != Code::kRsqrt && code != Code::kMaximum &&
                     code != Code::kMinimum);
}

// One operation. Its operands are numbers of values: the variables come first, then the tensors,
// then the result of each step. A step with one operand has b = a.
struct Step {
  Code code;
  std::int64_t out;  // The variable that the step assigns, or the number of its result.
  std::int64_t a;
  std::int64_t b;
};

// The steps, and the register that holds the result of each. A register is one block of scratch
// memory. A step may write to the register of an operand that no later step needs.
struct Program {
  static constexpr std::size_t kWidth = 4;

  // `numbers` has the steps one after the other, kWidth numbers each, as the attribute `program`
  // has them. `first` is the number of variables and tensors.
  Program(const std::vector<std::int64_t>& numbers, std::int64_t first) : first_value(first) {
    for (std::size_t at = 0; at + kWidth <= numbers.size(); at += kWidth) {
      steps.push_back(
          {static_cast<Code>(numbers[at]), numbers[at + 1], numbers[at + 2], numbers[at + 3]});
    }
    Allocate();
  }

  std::vector<Step> steps;
  std::vector<int> register_of_step;  // The register of each step's result.
  int registers = 0;
  const std::int64_t first_value;  // The number of the first step's result.

 private:
  // Assigns registers: each result gets the first register that is free.
  void Allocate() {
    std::vector<std::size_t> last(steps.size());
    for (std::size_t i = 0; i < steps.size(); ++i) {
      last[i] = i;
      if (steps[i].a >= first_value) last[steps[i].a - first_value] = i;
      if (!HasRowOperand(steps[i].code) && steps[i].b >= first_value) {
        last[steps[i].b - first_value] = i;
      }
    }
    register_of_step.assign(steps.size(), 0);
    std::vector<std::size_t> busy;  // Register → the last step that reads it.
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (IsAssignment(steps[i].code)) continue;
      std::size_t free = 0;
      while (free < busy.size() && busy[free] > i) ++free;
      if (free == busy.size()) busy.push_back(0);
      busy[free] = last[i];
      register_of_step[i] = static_cast<int>(free);
    }
    registers = static_cast<int>(busy.size());
  }
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_UPDATES_PROGRAM_H_
