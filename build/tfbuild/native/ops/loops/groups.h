// Which tasks of a plan are done together: threads share all of them at once, by rows.

#ifndef TENSORWRIGHT_OPS_LOOPS_GROUPS_H_
#define TENSORWRIGHT_OPS_LOOPS_GROUPS_H_

#include <cstdint>
#include <map>

#include "tensorwright/compute/matrix.h"
#include "tensorwright/ops/loops/elements.h"
#include "tensorwright/ops/loops/plan.h"

namespace tensorwright {

// As many as a vector has elements: a block of rows begins with a vector.
constexpr std::int64_t kBlockRows = 16;
// As many sums take about as long as a hyperbolic tangent.
constexpr std::int64_t kApproximation = 8;

// Chooses what is done to a row.
inline void ShapeRows(Task& task) {
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

// Decides, task by task, whether the next one may join those before it.
class Grouping {
 public:
  explicit Grouping(Plan& plan) : plan_(plan) {}

  void Make() {
    for (std::size_t i = 0; i < plan_.tasks.size(); ++i) {
      Task& task = plan_.tasks[i];
      const bool elements = task.what == Task::What::kElements;
      if (elements) ShapeRows(task);
      if (!elements || !Joins(task)) Begin(i);
      if (task.once) plan_.once = plan_.groups.size();
      plan_.groups.back().last = i + 1;
      if (elements) Take(task);
      if (task.what == Task::What::kProduct) {
        plan_.groups.back().work = WorkOf(task.out.rows, task.in[0].columns, task.out.columns);
      }
    }
  }

 private:
  bool Joins(const Task& task) const {
    if (plan_.groups.empty() || plan_.groups.back().rows != task.out.rows || task.out.rows < 2 ||
        plan_.tasks[plan_.groups.back().first].once != task.once) {
      return false;
    }
    const auto written = written_.find(task.out.memory);
    if (!task.out.IsInRows(written == written_.end() ? task.out.row_step : written->second)) {
      return false;
    }
    // What others read before it is written here lies in the same rows, too.
    const auto read = read_.find(task.out.memory);
    if (read != read_.end() && read->second != task.out.row_step) return false;
    for (const View& view : task.in) {
      const auto writer = written_.find(view.memory);
      if (writer != written_.end() && !view.IsInRows(writer->second)) return false;
    }
    return true;
  }

  void Begin(std::size_t task) {
    plan_.groups.push_back({task, task});
    written_.clear();
    read_.clear();
  }

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

  static constexpr std::int64_t kNone = -1;

  Plan& plan_;
  // Of the last group, by memory: how far the rows that it writes, or reads, are apart.
  std::map<int, std::int64_t> written_, read_;
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_LOOPS_GROUPS_H_
