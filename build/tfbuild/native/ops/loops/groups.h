// Joins consecutive elementwise tasks of a plan into groups. Threads share the rows of a whole
// group, so they synchronize once for each group.

#ifndef TENSORWRIGHT_OPS_LOOPS_GROUPS_H_
#define TENSORWRIGHT_OPS_LOOPS_GROUPS_H_

#include <cstdint>
#include <map>

#include "tensorwright/compute/elements.h"
#include "tensorwright/compute/matrix.h"
#include "tensorwright/ops/loops/plan.h"

namespace tensorwright {

// Rows of a block. Threads share whole blocks. A vector has at most 16 floats, so each block begins
// at a vector.
constexpr std::int64_t kBlockRows = 16;
// Cost of a function that is approximated, such as a hyperbolic tangent, in additions.
constexpr std::int64_t kApproximation = 8;

// Chooses the function that computes a row of an elementwise task, by which operands repeat one
// element throughout a row. The task is `flat` if consecutive rows can be computed as one long row:
// all of its views are dense or repeat one element.
inline void ChooseRowFunction(Task& task) {
  task.flat = task.out.IsDense();
  for (const View& view : task.in) task.flat = task.flat && (view.IsDense() || view.IsLone());
  int form = 0;
  for (std::size_t i = 0; i < task.in.size(); ++i) {
    const View& view = task.in[i];
    const bool lone = task.flat ? view.IsLone() : view.column_step == 0;
    if (lone && task.out.rows * task.out.columns > 1) form |= 1 << i;
  }
  task.row = (*task.forms)[form];
}

// Makes the groups of a plan. An elementwise task joins the group before it if they have equally
// many rows (at least 2) and each row of the task needs only the same row of that group. Any other
// task begins a group. Products and sums are groups of their own.
class Grouping {
 public:
  explicit Grouping(Plan& plan) : plan_(plan) {}

  void Make() {
    for (std::size_t i = 0; i < plan_.tasks.size(); ++i) {
      Task& task = plan_.tasks[i];
      const bool elements = task.what == Task::What::kElements;
      if (elements) ChooseRowFunction(task);
      if (!elements || !Joins(task)) Begin(i);
      if (task.once) plan_.once = plan_.groups.size();
      plan_.groups.back().last = i + 1;
      if (elements) Take(task);
      if (task.what == Task::What::kProduct) {
        plan_.groups.back().work =
            EstimateCost(task.out.rows, task.in[0].columns, task.out.columns);
      }
    }
  }

 private:
  // Whether the task can join the last group.
  bool Joins(const Task& task) const {
    if (plan_.groups.empty() || plan_.groups.back().rows != task.out.rows || task.out.rows < 2 ||
        plan_.tasks[plan_.groups.back().first].once != task.once) {
      return false;
    }
    const auto written = written_.find(task.out.memory);
    if (!task.out.IsInRows(written == written_.end() ? task.out.row_step : written->second)) {
      return false;
    }
    // Tasks that read this memory before it is overwritten must read the same rows.
    const auto read = read_.find(task.out.memory);
    if (read != read_.end() && read->second != task.out.row_step) return false;
    for (const View& view : task.in) {
      const auto writer = written_.find(view.memory);
      if (writer != written_.end() && !view.IsInRows(writer->second)) return false;
    }
    return true;
  }

  // Begins a group with the task of this index.
  void Begin(std::size_t task) {
    plan_.groups.push_back({task, task});
    written_.clear();
    read_.clear();
  }

  // Adds the task's work, reads and writes to the last group.
  void Take(const Task& task) {
    Group& group = plan_.groups.back();
    group.rows = task.out.rows;
    group.work += group.rows * task.out.columns * (IsApproximated(task.forms) ? kApproximation : 1);
    written_[task.out.memory] = task.out.IsInRows(task.out.row_step) ? task.out.row_step : kNone;
    for (const View& view : task.in) {
      const auto [known, is_new] =
          read_.emplace(view.memory, view.IsInRows(view.row_step) ? view.row_step : kNone);
      if (!is_new && known->second != view.row_step) known->second = kNone;
    }
  }

  static constexpr std::int64_t kNone = -1;  // Not by rows of one distance.

  Plan& plan_;
  // By memory: the distance of the rows that the last group writes or reads, in elements.
  std::map<int, std::int64_t> written_, read_;
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_LOOPS_GROUPS_H_
