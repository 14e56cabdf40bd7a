// Executes the program of a fused update (program.h) over blocks that stay in the L1 cache, so that
// each variable and tensor is read once and written once. Each step is one loop over a block, in
// the order and with the rounding of TensorFlow's kernels. -ffp-contract=off prevents contraction
// to FMA.

#ifndef TENSORWRIGHT_OPS_UPDATES_BLOCKS_H_
#define TENSORWRIGHT_OPS_UPDATES_BLOCKS_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "Eigen/Core"
#include "tensorwright/compute/arithmetic.h"
#include "tensorwright/ops/updates/program.h"
#include "tensorwright/simd/roots.h"

namespace tensorwright {

// Which operand of a loop, if any, has a single element, which is broadcast.
enum class Form { kBoth, kSingleRight, kSingleLeft };

// A loop over `count` elements of a block. `out` may be `a` or `b`. `packed` is the number of
// elements from the start of the block that stock kernels compute in vectors of 32 bytes; it may be
// negative. Rsqrt, Maximum and Minimum use it.
template <typename T>
using Loop = void (*)(T* out, const T* a, const T* b, std::int64_t count, std::int64_t packed);

// Computes out[i] = Op(a[i], b[i]). Reads a single-element operand once.
template <typename T, template <typename> class Op, Form form>
void Run(T* out, const T* a, const T* b, std::int64_t count, std::int64_t) {
  const T left = *a, right = *b;
  TENSORWRIGHT_ELEMENTS
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] =
        Op<T>()(form == Form::kSingleLeft ? left : a[i], form == Form::kSingleRight ? right : b[i]);
  }
}

template <typename T>
void Copy(T* out, const T* a, const T*, std::int64_t count, std::int64_t) {
  std::memcpy(out, a, count * sizeof(T));
}

template <typename T>
void Sqrt(T* out, const T* a, const T*, std::int64_t count, std::int64_t) {
  for (std::int64_t i = SqrtVectors(out, a, count); i < count; ++i) {
    out[i] = Eigen::numext::sqrt(a[i]);
  }
}

// Computes 1/sqrt as stock kernels do. For float32 they approximate it in vectors of eight
// elements, except for the last elements of a tensor, fewer than eight. So this function
// approximates the elements before `packed` and computes the others with numext::rsqrt.
template <typename T>
void Rsqrt(T* out, const T* a, const T*, std::int64_t count, std::int64_t packed) {
  for (std::int64_t i = RsqrtVectors(out, a, std::min(count, packed)); i < count; ++i) {
    out[i] = Eigen::numext::rsqrt(a[i]);
  }
}

// Executes an op whose stock kernel is `Vector` for elements in whole vectors of 32 bytes, which
// are those before `packed`, and `Scalar` for the others. Those of float16 and bfloat16 are all
// `Scalar`.
template <typename T, template <typename> class Vector, template <typename> class Scalar, Form form>
void RunByPosition(T* out, const T* a, const T* b, std::int64_t count, std::int64_t packed) {
  constexpr bool kHasVectors = std::is_same_v<T, float> || std::is_same_v<T, double>;
  const std::int64_t vectors =
      kHasVectors ? std::clamp<std::int64_t>(packed, 0, count) : std::int64_t{0};
  if (vectors > 0) Run<T, Vector, form>(out, a, b, vectors, 0);
  if (vectors == count) return;
  Run<T, Scalar, form>(out + vectors, a + (form == Form::kSingleLeft ? 0 : vectors),
                       b + (form == Form::kSingleRight ? 0 : vectors), count - vectors, 0);
}

// Returns the loop of a maximum or minimum.
template <typename T, template <typename> class Vector, template <typename> class Scalar>
Loop<T> ByPosition(Form form) {
  if (form == Form::kSingleLeft) return RunByPosition<T, Vector, Scalar, Form::kSingleLeft>;
  return form == Form::kSingleRight ? RunByPosition<T, Vector, Scalar, Form::kSingleRight>
                                    : RunByPosition<T, Vector, Scalar, Form::kBoth>;
}

// Returns the loop of a binary op.
template <typename T, template <typename> class Op>
Loop<T> Of(Form form) {
  if (form == Form::kSingleLeft) return Run<T, Op, Form::kSingleLeft>;
  return form == Form::kSingleRight ? Run<T, Op, Form::kSingleRight> : Run<T, Op, Form::kBoth>;
}

// Returns the loop that executes a step, which must not read rows.
template <typename T>
Loop<T> LoopOf(Code code, Form form) {
  switch (code) {
    case Code::kAdd:
    case Code::kAssignAdd: return Of<T, Add>(form);
    case Code::kSub:
    case Code::kAssignSub: return Of<T, Sub>(form);
    case Code::kMul: return Of<T, Mul>(form);
    case Code::kDiv: return Of<T, Div>(form);
    case Code::kMaximum: return ByPosition<T, Maximum, MaximumOrFirst>(form);
    case Code::kMinimum: return ByPosition<T, Minimum, MinimumOrFirst>(form);
    case Code::kSquaredDifference: return Of<T, SquaredDifference>(form);
    case Code::kNeg: return Run<T, Neg, Form::kBoth>;
    case Code::kAbs: return Run<T, Abs, Form::kBoth>;
    case Code::kSquare: return Run<T, Square, Form::kBoth>;
    case Code::kSqrt: return Sqrt<T>;
    case Code::kRsqrt: return Rsqrt<T>;
    default: return Copy<T>;
  }
}

// Pairs (row of the variable, row of the tensor that is added to it), sorted. So tensor rows with
// the same index are added in their order.
using Rows = std::vector<std::pair<std::int64_t, std::int64_t>>;

// One execution of a program on the data of its variables and tensors. Each has `count` elements,
// except single elements and the tensors of rows that a step scatters or sums.
//
// The caller fills `places`, `moved` and `rows`, calls Prepare() once and Over() for all blocks. It
// owns the memory and must hold the locks of the variables meanwhile.
template <typename T>
struct Execution {
  struct Place {
    T* data;
    bool lone;  // Whether it is a single element.
  };

  Execution(const Program& steps, std::int64_t elements, std::int64_t elements_of_row)
      : program(steps), count(elements), width(elements_of_row) {}

  const Program& program;
  const std::int64_t count;
  const std::int64_t width;                    // Elements per row of the variables.
  std::vector<Place> places;                   // The variables, then the tensors.
  std::vector<std::pair<T*, const T*>> moved;  // New and old memory of variables to copy.
  std::vector<Rows> rows;                      // For each tensor of indices.

  // Computes the steps whose operands have one element. Returns false if a step assigns such a
  // value to a variable: updates of these shapes cannot be fused. Must be called once, before
  // Over().
  bool Prepare() {
    const auto& steps = program.steps;
    single_values_.assign(steps.size(), T(0));
    is_single_value_.assign(steps.size(), false);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const Step& step = steps[i];
      if (IsAssignment(step.code)) {
        if (places[step.out].lone || (!IsScatter(step.code) && IsLone(step.a))) return false;
        continue;
      }
      if (HasRowOperand(step.code) || !IsLone(step.a) || !IsLone(step.b)) continue;
      is_single_value_[i] = true;
      LoopOf<T>(step.code, Form::kBoth)(&single_values_[i], SingleValue(step.a),
                                        SingleValue(step.b), 1, 0);
    }
    return true;
  }

  std::int64_t blocks() const { return (count + kBlock - 1) / kBlock; }

  // Runs the program over the blocks [first, last). Blocks are independent, so threads may run
  // disjoint ranges at the same time. Registers are on the stack if they fit into 32 KiB.
  void Over(std::int64_t first, std::int64_t last) const {
    const std::int64_t size = std::min(kBlock, count);
    constexpr std::int64_t kOnStack = 32 << 10;
    alignas(64) char stack[kOnStack];
    std::vector<char> heap;
    std::int64_t bytes = (size * sizeof(T) + 63) / 64 * 64;
    char* memory = stack;
    if (bytes * program.registers > kOnStack) {
      heap.resize(bytes * program.registers + 64);
      memory = heap.data() + (64 - reinterpret_cast<std::uintptr_t>(heap.data()) % 64) % 64;
    }
    std::vector<Task> tasks = Tasks(memory, bytes);
    constexpr std::int64_t kVector = 32 / sizeof(T);
    const std::int64_t packed = count / kVector * kVector;
    for (std::int64_t block = first; block < last; ++block) {
      const std::int64_t from = block * kBlock, length = std::min(kBlock, count - from);
      for (const auto& [to, old] : moved) std::memcpy(to + from, old + from, length * sizeof(T));
      for (Task& task : tasks) {
        if (task.loop == nullptr) {
          AddRows(task, from, length);
        } else {
          task.loop(task.out + from * task.out_stride, task.a + from * task.a_stride,
                    task.b + from * task.b_stride, length, packed - from);
        }
      }
    }
  }

 private:
  // A step with resolved addresses: a loop over a block, or an addition of rows.
  struct Task {
    Loop<T> loop;  // nullptr for a step that adds rows.
    T* out;
    const T* a;
    const T* b;
    std::int64_t out_stride, a_stride, b_stride;  // 1 for memory of `count` elements, else 0.
    const Rows* rows;
    std::int64_t sign;
    bool starts_from_zero;  // Whether to fill the block with zeros first.
    std::size_t next;       // The first entry of `rows` that does not end before the block.
    bool started;           // Whether `next` was searched for.
  };

  bool IsLone(std::int64_t value) const {
    return value < program.first_value ? places[value].lone
                                       : is_single_value_[value - program.first_value];
  }
  const T* SingleValue(std::int64_t value) const {
    return value < program.first_value ? places[value].data
                                       : &single_values_[value - program.first_value];
  }

  // Returns the tasks of one thread. `memory` has its registers, of `bytes` bytes each.
  std::vector<Task> Tasks(char* memory, std::int64_t bytes) const {
    auto place = [&](std::int64_t value, std::int64_t& moves) {
      moves = 0;
      if (IsLone(value)) return const_cast<T*>(SingleValue(value));
      if (value >= program.first_value) {
        return reinterpret_cast<T*>(memory +
                                    bytes * program.register_of_step[value - program.first_value]);
      }
      moves = 1;
      return places[value].data;
    };
    std::vector<Task> tasks;
    for (std::size_t i = 0; i < program.steps.size(); ++i) {
      const Step& step = program.steps[i];
      if (!IsAssignment(step.code) && is_single_value_[i]) continue;
      Task task{};
      task.out = place(step.out, task.out_stride);
      if (HasRowOperand(step.code)) {
        task.a = places[step.a].data;
        task.rows = &rows[step.b];
        task.sign = step.code == Code::kScatterSub ? -1 : 1;
        task.starts_from_zero = step.code == Code::kSegmentSum;
      } else {
        const bool onto = step.code == Code::kAssignAdd || step.code == Code::kAssignSub;
        const std::int64_t left = onto ? step.out : step.a, right = onto ? step.a : step.b;
        task.a = place(left, task.a_stride);
        task.b = place(right, task.b_stride);
        const Form form = IsLone(left)                           ? Form::kSingleLeft
                          : !IsUnary(step.code) && IsLone(right) ? Form::kSingleRight
                                                                 : Form::kBoth;
        task.loop = LoopOf<T>(step.code, form);
      }
      tasks.push_back(task);
    }
    return tasks;
  }

  // Adds the parts of rows that lie in the block [from, from + length). `task` keeps its position
  // in `rows` between calls, so blocks must come in ascending order.
  void AddRows(Task& task, std::int64_t from, std::int64_t length) const {
    const Rows& rows = *task.rows;
    T* block = task.out + from * task.out_stride;
    if (task.starts_from_zero) std::fill_n(block, length, T(0));
    if (!task.started) {
      const Rows::value_type first(from / width, -1);
      task.next = std::lower_bound(rows.begin(), rows.end(), first) - rows.begin();
      task.started = true;
    }
    while (task.next < rows.size() && (rows[task.next].first + 1) * width <= from) ++task.next;
    for (std::size_t at = task.next; at < rows.size(); ++at) {
      const std::int64_t begin = rows[at].first * width;
      if (begin >= from + length) break;
      const std::int64_t low = std::max(from, begin), high = std::min(from + length, begin + width);
      T* out = block + (low - from);
      const T* in = task.a + rows[at].second * width + (low - begin);
      if (task.sign > 0) {
        Run<T, Add, Form::kBoth>(out, out, in, high - low, 0);
      } else {
        Run<T, Sub, Form::kBoth>(out, out, in, high - low, 0);
      }
    }
  }

  std::vector<T> single_values_;  // Results of the steps with one element.
  std::vector<char> is_single_value_;
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_UPDATES_BLOCKS_H_
