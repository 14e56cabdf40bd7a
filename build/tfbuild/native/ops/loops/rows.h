// Whether the rows of a loop, as those of examples in a batch, are computed each for itself: then threads
// share them, and none waits for another in many iterations.

#ifndef TENSORWRIGHT_OPS_LOOPS_ROWS_H_
#define TENSORWRIGHT_OPS_LOOPS_ROWS_H_

#include <algorithm>
#include <cstdint>
#include <map>

#include "tensorwright/ops/loops/plan.h"

namespace tensorwright {

// Of right matrices, in bytes, that each thread reads in every iteration: the second-level cache has them.
constexpr std::int64_t kMostShared = 1 << 20;

class IndependentRows {
 public:
  explicit IndependentRows(const Plan& plan) : plan_(plan) {}

  // How many rows all tasks of an iteration have; 0 where one needs another row than its own.
  std::int64_t Find() {
    std::int64_t rows = 0, shared = 0;
    for (const Task& task : plan_.tasks) {
      if (task.once) continue;
      if (rows == 0) rows = task.out.rows;
      if (task.out.rows != rows || !IsByRows(task)) return 0;
    }
    for (const Right& right : plan_.rights) shared += right.view.rows * right.view.columns;
    return shared * static_cast<std::int64_t>(sizeof(float)) <= kMostShared ? rows : 0;
  }

 private:
  bool IsByRows(const Task& task) {
    if (task.what == Task::What::kColumnSums) return false;
    if (task.what == Task::What::kProduct && !plan_.rights[task.packed].fixed) return false;
    return IsInRows(task.out) && std::all_of(task.in.begin(), task.in.end(),
                                             [&](const View& view) { return IsInRows(view); });
  }

  // Whether each row of a view lies in the same row of its memory, or nothing writes that.
  bool IsInRows(const View& view) {
    const Memory& memory = plan_.memories[view.memory];
    if (memory.steady || memory.where == Memory::Where::kItems ||
        memory.where == Memory::Where::kSlice) {
      return true;
    }
    const bool left = memory.where == Memory::Where::kState;
    const int written = left ? plan_.states.at(memory.source).memory : view.memory;
    return view.IsInRows(steps_.emplace(written, view.row_step).first->second);
  }

  const Plan& plan_;
  std::map<int, std::int64_t> steps_;  // Memory → how far its rows are apart.
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_LOOPS_ROWS_H_
