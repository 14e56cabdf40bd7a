// What a fused update computes: steps over variables and tensors of one shape, in the order that
// TensorFlow would have run them.

#ifndef TENSORWRIGHT_OPS_UPDATES_PROGRAM_H_
#define TENSORWRIGHT_OPS_UPDATES_PROGRAM_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tensorwright/simd/isa.h"

namespace tensorwright {

enum class Code : std::int64_t {
  kCopy,  // A variable as it was read, where it is written before the value is used.
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
  kSegmentSum,  // As kScatterAdd, to zeros.
  kAssign,      // From here on `out` is a variable.
  kAssignAdd,
  kAssignSub,
  kScatterAdd,  // From here on `a` is a tensor of rows and `b` which of the tensors of indices.
  kScatterSub,
};

inline bool Assigns(Code code) { return code >= Code::kAssign; }
inline bool Scatters(Code code) { return code >= Code::kScatterAdd; }
inline bool TakesRows(Code code) { return Scatters(code) || code == Code::kSegmentSum; }
inline bool IsUnary(Code code) {
  return code == Code::kCopy || code == Code::kAssign ||
         (code >= Code::kNeg && code <= Code::kRsqrt);
}

// Of these stock kernels for other processors than x86 may compute other bits, which nobody has
// compared: roots are approximations there, and of a zero and a negative one the larger may be either.
inline bool HasStockBits(Code code) {
  return kHasAvx || (code != Code::kSqrt && code != Code::kRsqrt && code != Code::kMaximum &&
                     code != Code::kMinimum);
}

// Values have numbers: the variables come first, then the tensors, then what each step gives. `b` is
// that of `a` where there is one operand.
struct Step {
  Code code;
  std::int64_t out;  // The variable, of a step that assigns; else the step's own value.
  std::int64_t a;
  std::int64_t b;
};

// The steps, and for the value of each the register that holds it: values share registers as far as
// no two of one are needed at once.
struct Program {
  static constexpr std::size_t kWidth = 4;

  // `numbers` are the steps one after the other, as the attribute of a node has them.
  Program(const std::vector<std::int64_t>& numbers, std::int64_t first) : first_value(first) {
    for (std::size_t at = 0; at + kWidth <= numbers.size(); at += kWidth) {
      steps.push_back(
          {static_cast<Code>(numbers[at]), numbers[at + 1], numbers[at + 2], numbers[at + 3]});
    }
    Allocate();
  }

  std::vector<Step> steps;
  std::vector<int> of_step;  // The register of each step's value.
  int registers = 0;
  const std::int64_t first_value;  // The number of the first step's value.

 private:
  void Allocate() {
    std::vector<std::size_t> last(steps.size());
    for (std::size_t i = 0; i < steps.size(); ++i) {
      last[i] = i;
      if (steps[i].a >= first_value) last[steps[i].a - first_value] = i;
      if (!TakesRows(steps[i].code) && steps[i].b >= first_value) {
        last[steps[i].b - first_value] = i;
      }
    }
    of_step.assign(steps.size(), 0);
    std::vector<std::size_t> busy;  // Register → the last step that reads it.
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (Assigns(steps[i].code)) continue;
      std::size_t free = 0;
      while (free < busy.size() && busy[free] > i) ++free;
      if (free == busy.size()) busy.push_back(0);
      busy[free] = last[i];
      of_step[i] = static_cast<int>(free);
    }
    registers = static_cast<int>(busy.size());
  }
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_UPDATES_PROGRAM_H_
