// Finds out whether the rows of a loop, such as the examples of a batch, are independent. If they
// are, threads share the rows and compute many iterations without waiting for each other.

#ifndef TENSORWRIGHT_OPS_LOOPS_ROWS_H_
#define TENSORWRIGHT_OPS_LOOPS_ROWS_H_

#include <algorithm>
#include <cstdint>
#include <map>

#include "tensorwright/ops/loops/plan.h"

namespace tensorwright {

// Most bytes of right matrices if threads are to share rows. Each thread reads all of them in every
// iteration, from its second-level cache.
constexpr std::int64_t kMaxRightMatrixBytes = 1 << 20;

// Rows are independent if all tasks of an iteration have equally many rows, and row i of each reads
// and writes only row i of what iterations change.
class IndependentRows {
 public:
  explicit IndependentRows(const Plan& plan) : plan_(plan) {}

  // Returns the number of rows of each task of an iteration, or 0 if rows are not independent or
  // the right matrices are larger than kMaxRightMatrixBytes.
  std::int64_t Find() {
    std::int64_t rows = 0, shared = 0;
    for (const Task& task : plan_.tasks) {
      if (task.once) continue;
      if (rows == 0) rows = task.out.rows;
      if (task.out.rows != rows || !IsByRows(task)) return 0;
    }
    for (const Right& right : plan_.rights) shared += right.view.rows * right.view.columns;
    return shared * static_cast<std::int64_t>(sizeof(float)) <= kMaxRightMatrixBytes ? rows : 0;
  }

 private:
  // Whether each row of the task needs only its own row.
  bool IsByRows(const Task& task) {
    if (task.what == Task::What::kColumnSums) return false;
    if (task.what == Task::What::kProduct && !plan_.rights[task.packed].fixed) return false;
    return IsInRows(task.out) && std::all_of(task.in.begin(), task.in.end(),
                                             [&](const View& view) { return IsInRows(view); });
  }

  // Whether each row of the view is in the same row of its memory, or no iteration writes the
  // memory.
  bool IsInRows(const View& view) {
    const Memory& memory = plan_.memories[view.memory];
    if (memory.loop_invariant || memory.where == Memory::Where::kItems ||
        memory.where == Memory::Where::kSlice) {
      return true;
    }
    const bool left = memory.where == Memory::Where::kState;
    const int written = left ? plan_.states.at(memory.source).memory : view.memory;
    return view.IsInRows(steps_.emplace(written, view.row_step).first->second);
  }

  const Plan& plan_;
  std::map<int, std::int64_t> steps_;  // Memory → distance of its rows, in elements.
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_LOOPS_ROWS_H_
