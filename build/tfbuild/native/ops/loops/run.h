// One execution of a plan, by the threads of its device.

#ifndef TENSORWRIGHT_OPS_LOOPS_RUN_H_
#define TENSORWRIGHT_OPS_LOOPS_RUN_H_

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorwright/compute/matrix.h"
#include "tensorwright/compute/threads.h"
#include "tensorwright/ops/loops/groups.h"
#include "tensorwright/ops/loops/memory.h"
#include "tensorwright/ops/loops/plan.h"

namespace tensorwright {
namespace {

constexpr std::int64_t kMostRows = 32;  // That are summed up by themselves.
// Threads share what takes as long as so many sums of two elements.
constexpr std::int64_t kSharedWork = 1 << 16;

// Loops that run now. Those of two directions, or of two requests, share the threads.
std::atomic<int> running{0};

class Running {
 public:
  Running() { running.fetch_add(1); }
  ~Running() { running.fetch_sub(1); }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
};

class LoopRun {
 public:
  LoopRun(const Plan& plan, const Given& given, OpKernelContext* context)
      : plan_(plan), context_(context), memory_(plan, given, context) {
    pool_ = context->device()->tensorflow_cpu_worker_threads();
  }

  absl::Status Run() {
    const Running now;
    TF_RETURN_IF_ERROR(memory_.Allocate());
    rights_.resize(plan_.rights.size());
    for (std::int64_t t = 0; t < plan_.iterations; t += plan_.chunk) {
      const std::int64_t end = std::min(plan_.iterations, t + plan_.chunk);
      if (t == 0) Begin();
      if (IsByRows()) {
        ByRows(t, end);
      } else {
        OneByOne(t, end);
      }
      if (IsCancelled()) return tensorflow::errors::Cancelled("the loop was cancelled");
      SumUp(end - t);
    }
    return absl::OkStatus();
  }

  const LoopMemory& memory() const { return memory_; }

 private:
  bool IsCancelled() const {
    auto* cancellation = context_->cancellation_manager();
    return cancellation != nullptr && cancellation->IsCancelled();
  }

  // What is the same in every iteration.
  void Begin() {
    const Addresses at(plan_, memory_, 0);
    for (std::size_t i = 0; i < plan_.once; ++i) Perform(plan_.groups[i], at);
    for (std::size_t i = 0; i < plan_.rights.size(); ++i) {
      if (plan_.rights[i].fixed) Pack(i, at);
    }
  }

  int Threads() const { return pool_->num_threads / running.load(); }

  // Whether there are two blocks of independent rows for each thread: in one, products have small tiles.
  bool IsByRows() const { return plan_.rows >= 2 * kBlockRows * std::max(1, Threads()); }

  // Threads take rows, and compute them in all of these iterations: so each has what it needs in its own
  // caches, and waits for no other.
  void ByRows(std::int64_t t, std::int64_t end) {
    std::int64_t work = 0;
    for (std::size_t group = plan_.once; group < plan_.groups.size(); ++group) {
      work += plan_.groups[group].work * (end - t);
    }
    std::vector<Addresses> iterations;
    for (; t < end; ++t) iterations.emplace_back(plan_, memory_, t);
    ShareBlocks(plan_.rows, kBlockRows, work, [&](std::int64_t first, std::int64_t last) {
      for (const Addresses& at : iterations) {
        if (IsCancelled()) return;
        for (std::size_t group = plan_.once; group < plan_.groups.size(); ++group) {
          PerformRows(plan_.groups[group], at, first, last);
        }
      }
    });
  }

  // Threads share one task, or group of them, after the other.
  void OneByOne(std::int64_t t, std::int64_t end) {
    for (; t < end && !IsCancelled(); ++t) {
      const Addresses at(plan_, memory_, t);
      for (std::size_t group = plan_.once; group < plan_.groups.size(); ++group) {
        Perform(plan_.groups[group], at);
      }
    }
  }

  void Pack(std::size_t which, const Addresses& at) {
    const Right& right = plan_.rights[which];
    const Matrix matrix = at.MatrixOf(right.view);
    rights_[which].Take(right.transposed ? matrix.Transposed() : matrix);
  }

  void PerformRows(const Group& group, const Addresses& at, std::int64_t first, std::int64_t last) {
    const Task& task = plan_.tasks[group.first];
    switch (task.what) {
      case Task::What::kElements: return DoElements(group, at, first, last);
      case Task::What::kProduct:
        return Multiply(task, at, first, last, 0, rights_[task.packed].panels());
      default: return DoRowSums(task, at, first, last);
    }
  }

  void Perform(const Group& group, const Addresses& at) {
    const Task& task = plan_.tasks[group.first];
    switch (task.what) {
      case Task::What::kElements: return ShareElements(group, at);
      case Task::What::kProduct: return ShareProduct(task, group.work, at);
      case Task::What::kColumnSums: return DoColumnSums(task, at);
      default: return DoRowSums(task, at, 0, task.in[0].rows);
    }
  }

  // Elements, which threads share by rows, all tasks of the group at once.
  void ShareElements(const Group& group, const Addresses& at) {
    const Task& task = plan_.tasks[group.first];
    if (group.rows == 1 && task.flat) return ShareRow(task, group.work, at);
    ShareBlocks(group.rows, kBlockRows, group.work,
                [&](std::int64_t row, std::int64_t end) { DoElements(group, at, row, end); });
  }

  // A block begins where vectors do, so that results are the same for any number of threads.
  template <typename Block>
  void ShareBlocks(std::int64_t all, std::int64_t block, std::int64_t work, const Block& done) {
    ShareSome(Eigen::divup(all, block), work, [&](std::int64_t first, std::int64_t last) {
      done(first * block, std::min(last * block, all));
    });
  }

  template <typename Some>
  void ShareSome(std::int64_t count, std::int64_t work, const Some& some) {
    ShareParts(context_, work < kSharedWork ? 1 : Threads(), count, some);
  }

  // What a task does to elements, from its operands; of fewer than three the first one stands in.
  struct Rows {
    RowLoop loop;
    Addresses::Operand out, in[3];

    void Do(std::int64_t row, std::int64_t column, std::int64_t count) const {
      const auto at = [&](const Addresses::Operand& of) {
        return of.data + row * of.row_step + column * of.column_step;
      };
      loop(at(out), at(in[0]), at(in[1]), at(in[2]), count);
    }
  };

  static Rows RowsOf(const Task& task, const Addresses& at) {
    Rows rows = {task.row, at.OperandOf(task.out)};
    for (std::size_t i = 0; i < 3; ++i) {
      rows.in[i] = at.OperandOf(task.in[i < task.in.size() ? i : 0]);
    }
    return rows;
  }

  void DoElements(const Group& group, const Addresses& at, std::int64_t first, std::int64_t last) {
    for (std::size_t i = group.first; i < group.last; ++i) {
      const Task& task = plan_.tasks[i];
      const Rows rows = RowsOf(task, at);
      if (task.flat) {
        rows.Do(first, 0, (last - first) * task.out.columns);
      } else {
        for (std::int64_t row = first; row < last; ++row) rows.Do(row, 0, task.out.columns);
      }
    }
  }

  // One long row.
  void ShareRow(const Task& task, std::int64_t work, const Addresses& at) {
    const Rows rows = RowsOf(task, at);
    ShareBlocks(task.out.columns, kBlock, work,
                [&](std::int64_t from, std::int64_t end) { rows.Do(0, from, end - from); });
  }

  // By threads, each with panels of its own.
  void ShareProduct(const Task& task, std::int64_t work, const Addresses& at) {
    if (!plan_.rights[task.packed].fixed) Pack(task.packed, at);
    const Packed& right = rights_[task.packed];
    ShareSome(right.panels(), work, [&](std::int64_t first, std::int64_t last) {
      Multiply(task, at, 0, task.in[0].rows, first, last);
    });
  }

  void Multiply(const Task& task, const Addresses& at, std::int64_t first_row,
                std::int64_t last_row, std::int64_t first_panel, std::int64_t last_panel) const {
    Matrix left = at.MatrixOf(task.in[0]);
    left.data += first_row * left.row_step;
    left.rows = last_row - first_row;
    const float* bias = task.in.size() > 1 ? at.Floats(task.in[1]) : nullptr;
    tensorwright::Multiply(left, rights_[task.packed], bias,
                           at.Floats(task.out) + first_row * task.out.row_step, task.out.row_step,
                           task.adds, first_panel, last_panel, kDepth);
  }

  static void DoColumnSums(const Task& task, const Addresses& at) {
    float* out = at.Floats(task.out);
    std::fill_n(out, task.out.rows * task.out.columns, 0.0f);
    const Matrix from = at.MatrixOf(task.in[0]);
    AddColumns(from, PartOf(from.rows), out);
  }

  // So many rows are summed up first, then their sums. Errors are least where there are about as many of
  // these as rows of each (Castaldo et al., "Reducing Floating Point Error in Dot Product Using the
  // Superblock Family of Algorithms", SISC 2008).
  static std::int64_t PartOf(std::int64_t rows) {
    return std::min(2 * static_cast<std::int64_t>(std::sqrt(rows)), kMostRows);
  }

  static void AddColumns(const Matrix& from, std::int64_t part, float* out) {
    for (std::int64_t first = 0; first < from.columns; first += kPanel) {
      const std::int64_t width = std::min<std::int64_t>(kPanel, from.columns - first);
      for (std::int64_t top = 0; top < from.rows; top += part) {
        float sums[kPanel] = {};
        for (std::int64_t row = top; row < std::min(from.rows, top + part); ++row) {
          const float* values = from.data + row * from.row_step + first * from.column_step;
          for (std::int64_t i = 0; i < width; ++i) sums[i] += values[i * from.column_step];
        }
        for (std::int64_t i = 0; i < width; ++i) out[first + i] += sums[i];
      }
    }
  }

  static void DoRowSums(const Task& task, const Addresses& at, std::int64_t first,
                        std::int64_t last) {
    const Matrix from = at.MatrixOf(task.in[0]);
    float* out = at.Floats(task.out);
    for (std::int64_t row = first; row < last; ++row) {
      float sum = 0;
      for (std::int64_t i = 0; i < from.columns; ++i) {
        sum += from.data[row * from.row_step + i * from.column_step];
      }
      out[row * task.out.row_step] = sum;
    }
  }

  // Adds what the last `count` iterations contribute to sums over all of them.
  void SumUp(std::int64_t count) {
    std::map<int, Packed> rights;
    for (const SumOf& sum : plan_.sums) {
      Tensor& all = memory_.sum(sum.argument);
      float* out = all.flat<float>().data() + sum.column;
      const Matrix right = memory_.Together(sum.right, count);
      const std::int64_t part = PartOf(right.rows);
      if (!sum.left) {
        AddColumns(right, part, out);
        continue;
      }
      Packed& packed = rights[sum.right.memory];
      if (packed.depth() == 0) packed.Take(right);
      const Matrix left = memory_.Together(*sum.left, count).Transposed();
      const std::int64_t work = WorkOf(left.rows, left.columns, right.columns);
      ShareSome(packed.panels(), work, [&](std::int64_t first, std::int64_t last) {
        tensorwright::Multiply(left, packed, nullptr, out, all.dim_size(all.dims() - 1), true,
                               first, last, part);
      });
    }
  }

  const Plan& plan_;
  OpKernelContext* const context_;
  LoopMemory memory_;
  const tensorflow::DeviceBase::CpuWorkerThreads* pool_;
  std::vector<Packed> rights_;
};

}  // namespace
}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_LOOPS_RUN_H_
