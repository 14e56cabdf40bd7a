// Executes a plan on the threads of the device.

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

constexpr std::int64_t kMaxPartialSumRows = 32;  // Rows of a partial sum, at most (PartialSumRows).
// Work that is worth sharing among threads, in elementwise additions.
constexpr std::int64_t kSharedWork = 1 << 16;

// The number of fused loops that run now in this process. Loops that run at the same time, such as
// both directions of a layer or two requests, divide the threads.
std::atomic<int> num_running_loops{0};

// Counts a loop in `num_running_loops` during the object's lifetime.
class Running {
 public:
  Running() { num_running_loops.fetch_add(1); }
  ~Running() { num_running_loops.fetch_sub(1); }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
};

// One execution of a plan. Runs once, on the calling thread and on threads of the device's pool.
//
// Iterations are computed in chunks of `plan.chunk`. In a chunk, each thread computes its own rows
// in all iterations if there are enough independent rows (RunByRows). Otherwise threads share one
// group of tasks after the other (RunGroupByGroup). After each chunk, its contribution is added to
// the sums over all iterations. Results do not depend on the number of threads.
class LoopRun {
 public:
  LoopRun(const Plan& plan, const LoopInputs& given, OpKernelContext* context)
      : plan_(plan), context_(context), memory_(plan, given, context) {
    pool_ = context->device()->tensorflow_cpu_worker_threads();
  }

  // Computes all iterations. Returns an error if memory cannot be allocated or the step is
  // cancelled.
  absl::Status Run() {
    const Running now;
    TF_RETURN_IF_ERROR(memory_.Allocate());
    rights_.resize(plan_.rights.size());
    for (std::int64_t t = 0; t < plan_.iterations; t += plan_.chunk) {
      const std::int64_t end = std::min(plan_.iterations, t + plan_.chunk);
      if (t == 0) Begin();
      if (IsByRows()) {
        RunByRows(t, end);
      } else {
        RunGroupByGroup(t, end);
      }
      if (IsCancelled()) return tensorflow::errors::Cancelled("the loop was cancelled");
      AddToSums(end - t);
    }
    return absl::OkStatus();
  }

  const LoopMemory& memory() const { return memory_; }

 private:
  bool IsCancelled() const {
    auto* cancellation = context_->cancellation_manager();
    return cancellation != nullptr && cancellation->IsCancelled();
  }

  // Computes the loop-invariant tasks and packs the loop-invariant right matrices.
  void Begin() {
    const Addresses at(plan_, memory_, 0);
    for (std::size_t i = 0; i < plan_.once; ++i) Perform(plan_.groups[i], at);
    for (std::size_t i = 0; i < plan_.rights.size(); ++i) {
      if (plan_.rights[i].fixed) Pack(i, at);
    }
  }

  // Returns this loop's share of the pool's threads; 0 if more loops run than there are threads.
  int Threads() const { return pool_->num_threads / num_running_loops.load(); }

  // Whether there are at least two blocks of independent rows for each thread. With one block, the
  // tiles of products would be small.
  bool IsByRows() const { return plan_.rows >= 2 * kBlockRows * std::max(1, Threads()); }

  // Computes iterations [t, end). Each thread computes some rows in all of these iterations, so
  // their data stays in its caches and it does not wait for other threads.
  void RunByRows(std::int64_t t, std::int64_t end) {
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

  // Computes iterations [t, end). Threads share one group of tasks after the other.
  void RunGroupByGroup(std::int64_t t, std::int64_t end) {
    for (; t < end && !IsCancelled(); ++t) {
      const Addresses at(plan_, memory_, t);
      for (std::size_t group = plan_.once; group < plan_.groups.size(); ++group) {
        Perform(plan_.groups[group], at);
      }
    }
  }

  // Packs a right matrix.
  void Pack(std::size_t which, const Addresses& at) {
    const Right& right = plan_.rights[which];
    const Matrix matrix = at.MatrixOf(right.view);
    rights_[which].Take(right.transposed ? matrix.Transposed() : matrix);
  }

  // Performs rows [first, last) of a group on the calling thread.
  void PerformRows(const Group& group, const Addresses& at, std::int64_t first, std::int64_t last) {
    const Task& task = plan_.tasks[group.first];
    switch (task.what) {
      case Task::What::kElements: return DoElements(group, at, first, last);
      case Task::What::kProduct:
        return Multiply(task, at, first, last, 0, rights_[task.packed].panels());
      default: return DoRowSums(task, at, first, last);
    }
  }

  // Performs a group. Threads share elementwise tasks and products; sums run on the calling thread.
  void Perform(const Group& group, const Addresses& at) {
    const Task& task = plan_.tasks[group.first];
    switch (task.what) {
      case Task::What::kElements: return ShareElements(group, at);
      case Task::What::kProduct: return ShareProduct(task, group.work, at);
      case Task::What::kColumnSums: return DoColumnSums(task, at);
      default: return DoRowSums(task, at, 0, task.in[0].rows);
    }
  }

  // Performs a group of elementwise tasks. Threads share the rows; each performs all tasks on its
  // rows.
  void ShareElements(const Group& group, const Addresses& at) {
    const Task& task = plan_.tasks[group.first];
    if (group.rows == 1 && task.flat) return ShareRow(task, group.work, at);
    ShareBlocks(group.rows, kBlockRows, group.work,
                [&](std::int64_t row, std::int64_t end) { DoElements(group, at, row, end); });
  }

  // Calls done(first, last) for parts of [0, all). Each part begins at a multiple of `block` and so
  // at a whole SIMD vector. Therefore results do not depend on the number of threads.
  template <typename Block>
  void ShareBlocks(std::int64_t all, std::int64_t block, std::int64_t work, const Block& done) {
    ShareItems(Eigen::divup(all, block), work, [&](std::int64_t first, std::int64_t last) {
      done(first * block, std::min(last * block, all));
    });
  }

  // Calls some(first, last) for parts of [0, count): on one thread if `work` is below kSharedWork,
  // else on this loop's share of the threads.
  template <typename Some>
  void ShareItems(std::int64_t count, std::int64_t work, const Some& some) {
    ShareParts(context_, work < kSharedWork ? 1 : Threads(), count, some);
  }

  // An elementwise task with the addresses of its operands in one iteration. If it has fewer than
  // three operands, the first one is passed for the others, too.
  struct Rows {
    RowLoop loop;
    Addresses::Operand out, in[3];

    // Computes `count` elements of a row, from `column` on.
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

  // Performs the elementwise tasks of a group on rows [first, last), on the calling thread.
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

  // Performs an elementwise task on one long row. Threads share its elements, in blocks of kBlock.
  void ShareRow(const Task& task, std::int64_t work, const Addresses& at) {
    const Rows rows = RowsOf(task, at);
    ShareBlocks(task.out.columns, kBlock, work,
                [&](std::int64_t from, std::int64_t end) { rows.Do(0, from, end - from); });
  }

  // Computes a product. Threads share the panels of the right matrix, which is packed first unless
  // it is loop-invariant.
  void ShareProduct(const Task& task, std::int64_t work, const Addresses& at) {
    if (!plan_.rights[task.packed].fixed) Pack(task.packed, at);
    const PackedMatrix& right = rights_[task.packed];
    ShareItems(right.panels(), work, [&](std::int64_t first, std::int64_t last) {
      Multiply(task, at, 0, task.in[0].rows, first, last);
    });
  }

  // Computes a part of a product: rows from `first_row` to before `last_row`, and the columns of
  // the panels from `first_panel` to before `last_panel`.
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
    AddColumns(from, PartialSumRows(from.rows), out);
  }

  // Returns the number of rows of a partial sum. Partial sums are computed first and then added.
  // The error is smallest if there are about as many partial sums as rows in each (Castaldo et al.,
  // "Reducing Floating Point Error in Dot Product Using the Superblock Family of Algorithms", SISC
  // 2008).
  static std::int64_t PartialSumRows(std::int64_t rows) {
    const auto wanted = 2 * static_cast<std::int64_t>(std::sqrt(rows));
    return std::clamp<std::int64_t>(wanted, 1, kMaxPartialSumRows);
  }

  // Adds the sum of each column of `from` to `out`, by partial sums of `part` rows.
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

  // Returns the sum of `count` elements that are `step` apart. It adds up partial sums of every
  // 16th element, and then these in pairs, so that a long sum is rounded about as often as stock's.
  static float SumOfElements(const float* from, std::int64_t step, std::int64_t count) {
    constexpr int kParts = 16;
    float parts[kParts] = {};
    std::int64_t i = 0;
    for (; i + kParts <= count; i += kParts) {
      for (int part = 0; part < kParts; ++part) parts[part] += from[(i + part) * step];
    }
    for (int part = 0; i < count; ++i, ++part) parts[part] += from[i * step];
    for (int width = kParts / 2; width > 0; width /= 2) {
      for (int part = 0; part < width; ++part) parts[part] += parts[part + width];
    }
    return parts[0];
  }

  // Sums the elements of each of the rows [first, last).
  static void DoRowSums(const Task& task, const Addresses& at, std::int64_t first,
                        std::int64_t last) {
    const Matrix from = at.MatrixOf(task.in[0]);
    float* out = at.Floats(task.out);
    for (std::int64_t row = first; row < last; ++row) {
      out[row * task.out.row_step] =
          SumOfElements(from.data + row * from.row_step, from.column_step, from.columns);
    }
  }

  // Adds the contribution of the last `count` iterations to the sums over all iterations. Right
  // matrices are packed once for all sums that use them.
  void AddToSums(std::int64_t count) {
    std::map<int, PackedMatrix> rights;
    for (const SumOf& sum : plan_.sums) {
      Tensor& all = memory_.sum(sum.argument);
      float* out = all.flat<float>().data() + sum.column;
      const Matrix right = memory_.StackedRows(sum.right, count);
      const std::int64_t part = PartialSumRows(right.rows);
      if (!sum.left) {
        AddColumns(right, part, out);
        continue;
      }
      PackedMatrix& packed = rights[sum.right.memory];
      if (packed.depth() == 0) packed.Take(right);
      const Matrix left = memory_.StackedRows(*sum.left, count).Transposed();
      const std::int64_t work = EstimateCost(left.rows, left.columns, right.columns);
      ShareItems(packed.panels(), work, [&](std::int64_t first, std::int64_t last) {
        tensorwright::Multiply(left, packed, nullptr, out, all.dim_size(all.dims() - 1), true,
                               first, last, part);
      });
    }
  }

  const Plan& plan_;
  OpKernelContext* const context_;
  LoopMemory memory_;
  const tensorflow::DeviceBase::CpuWorkerThreads* pool_;
  std::vector<PackedMatrix> rights_;  // As plan.rights.
};

}  // namespace
}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_LOOPS_RUN_H_
