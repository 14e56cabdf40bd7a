// A program run over blocks that stay in the first-level cache, so that each variable and tensor is
// read once and written once. Each step is one loop over a block, in the order and with the rounding
// of TensorFlow's own kernels; nothing is contracted (-ffp-contract=off).

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

enum class Form { kBoth, kLoneRight, kLoneLeft };

template <typename T>
using Loop = void (*)(T* out, const T* a, const T* b, std::int64_t count, std::int64_t packed);

template <typename T, template <typename> class Op, Form form>
void Run(T* out, const T* a, const T* b, std::int64_t count, std::int64_t) {
  const T left = *a, right = *b;
  TENSORWRIGHT_ELEMENTS
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] =
        Op<T>()(form == Form::kLoneLeft ? left : a[i], form == Form::kLoneRight ? right : b[i]);
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

// Stock kernels approximate 1/sqrt of float in vectors of eight, and compute it for the last elements
// of a tensor, fewer than eight; so does this, for the elements before `packed` and from it on.
template <typename T>
void Rsqrt(T* out, const T* a, const T*, std::int64_t count, std::int64_t packed) {
  for (std::int64_t i = RsqrtVectors(out, a, std::min(count, packed)); i < count; ++i) {
    out[i] = Eigen::numext::rsqrt(a[i]);
  }
}

template <typename T, template <typename> class Op>
Loop<T> Of(Form form) {
  if (form == Form::kLoneLeft) return Run<T, Op, Form::kLoneLeft>;
  return form == Form::kLoneRight ? Run<T, Op, Form::kLoneRight> : Run<T, Op, Form::kBoth>;
}

template <typename T>
Loop<T> LoopOf(Code code, Form form) {
  switch (code) {
    case Code::kAdd:
    case Code::kAssignAdd: return Of<T, Add>(form);
    case Code::kSub:
    case Code::kAssignSub: return Of<T, Sub>(form);
    case Code::kMul: return Of<T, Mul>(form);
    case Code::kDiv: return Of<T, Div>(form);
    case Code::kMaximum: return Of<T, Maximum>(form);
    case Code::kMinimum: return Of<T, Minimum>(form);
    case Code::kSquaredDifference: return Of<T, SquaredDifference>(form);
    case Code::kNeg: return Run<T, Neg, Form::kBoth>;
    case Code::kAbs: return Run<T, Abs, Form::kBoth>;
    case Code::kSquare: return Run<T, Square, Form::kBoth>;
    case Code::kSqrt: return Sqrt<T>;
    case Code::kRsqrt: return Rsqrt<T>;
    default: return Copy<T>;
  }
}

// Where rows of a tensor go: (row of the variable, row of the tensor), sorted, so that rows that come
// twice are added in their own order.
using Rows = std::vector<std::pair<std::int64_t, std::int64_t>>;

// One execution: where the program's variables and tensors lie. All have `count` elements but the
// lone ones, which have one, and the rows that a step takes.
template <typename T>
struct Execution {
  struct Place {
    T* data;
    bool lone;
  };

  Execution(const Program& steps, std::int64_t elements, std::int64_t elements_of_row)
      : program(steps), count(elements), width(elements_of_row) {}

  const Program& program;
  const std::int64_t count;
  const std::int64_t width;                    // Elements of a row of the variables.
  std::vector<Place> places;                   // Of the variables, then of the tensors.
  std::vector<std::pair<T*, const T*>> moved;  // Variables' new memory, and what they were.
  std::vector<Rows> rows;                      // Of each tensor of indices.

  // Computes what has one element only. Returns false if a step would assign such a value: then the
  // shapes are none that can be fused. Once, before `Over`.
  bool Prepare() {
    const auto& steps = program.steps;
    lone_.assign(steps.size(), T(0));
    is_lone_.assign(steps.size(), false);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const Step& step = steps[i];
      if (Assigns(step.code)) {
        if (places[step.out].lone || (!Scatters(step.code) && IsLone(step.a))) return false;
        continue;
      }
      if (TakesRows(step.code) || !IsLone(step.a) || !IsLone(step.b)) continue;
      is_lone_[i] = true;
      LoopOf<T>(step.code, Form::kBoth)(&lone_[i], Lone(step.a), Lone(step.b), 1, 0);
    }
    return true;
  }

  std::int64_t blocks() const { return (count + kBlock - 1) / kBlock; }

  // The blocks from `first` on, without `last`. Blocks are independent of each other.
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
    const std::int64_t packed = count / 8 * 8;
    for (std::int64_t block = first; block < last; ++block) {
      const std::int64_t from = block * kBlock, length = std::min(kBlock, count - from);
      for (const auto& [to, old] : moved) std::memcpy(to + from, old + from, length * sizeof(T));
      for (Task& task : tasks) {
        if (task.loop == nullptr) {
          AddRows(task, from, length);
        } else {
          task.loop(task.out + from * task.out_moves, task.a + from * task.a_moves,
                    task.b + from * task.b_moves, length, packed - from);
        }
      }
    }
  }

 private:
  struct Task {
    Loop<T> loop;  // None where rows are taken.
    T* out;
    const T* a;
    const T* b;
    std::int64_t out_moves, a_moves, b_moves;  // 1 for what is as long as the variables.
    const Rows* rows;
    std::int64_t sign;
    bool clears;       // Rows are added to zeros.
    std::size_t next;  // The first of the rows that may end in or behind a block.
    bool started;
  };

  bool IsLone(std::int64_t value) const {
    return value < program.first_value ? places[value].lone : is_lone_[value - program.first_value];
  }
  const T* Lone(std::int64_t value) const {
    return value < program.first_value ? places[value].data : &lone_[value - program.first_value];
  }

  std::vector<Task> Tasks(char* memory, std::int64_t bytes) const {
    auto place = [&](std::int64_t value, std::int64_t& moves) {
      moves = 0;
      if (IsLone(value)) return const_cast<T*>(Lone(value));
      if (value >= program.first_value) {
        return reinterpret_cast<T*>(memory + bytes * program.of_step[value - program.first_value]);
      }
      moves = 1;
      return places[value].data;
    };
    std::vector<Task> tasks;
    for (std::size_t i = 0; i < program.steps.size(); ++i) {
      const Step& step = program.steps[i];
      if (!Assigns(step.code) && is_lone_[i]) continue;
      Task task{};
      task.out = place(step.out, task.out_moves);
      if (TakesRows(step.code)) {
        task.a = places[step.a].data;
        task.rows = &rows[step.b];
        task.sign = step.code == Code::kScatterSub ? -1 : 1;
        task.clears = step.code == Code::kSegmentSum;
      } else {
        const bool onto = step.code == Code::kAssignAdd || step.code == Code::kAssignSub;
        const std::int64_t left = onto ? step.out : step.a, right = onto ? step.a : step.b;
        task.a = place(left, task.a_moves);
        task.b = place(right, task.b_moves);
        const Form form = IsLone(left)                           ? Form::kLoneLeft
                          : !IsUnary(step.code) && IsLone(right) ? Form::kLoneRight
                                                                 : Form::kBoth;
        task.loop = LoopOf<T>(step.code, form);
      }
      tasks.push_back(task);
    }
    return tasks;
  }

  void AddRows(Task& task, std::int64_t from, std::int64_t length) const {
    const Rows& rows = *task.rows;
    T* block = task.out + from * task.out_moves;
    if (task.clears) std::fill_n(block, length, T(0));
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

  std::vector<T> lone_;  // Values of the steps that have one element.
  std::vector<char> is_lone_;
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_UPDATES_BLOCKS_H_
