// The plan of a loop for given shapes: the memory layout and the tasks of an iteration. A plan
// holds no data except constants, so it serves every execution with the same shapes and integers.

#ifndef TENSORWRIGHT_OPS_LOOPS_PLAN_H_
#define TENSORWRIGHT_OPS_LOOPS_PLAN_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/kernels/tensor_list.h"
#include "tensorwright/compute/elements.h"
#include "tensorwright/ops/loops/numbers.h"

namespace tensorwright {

constexpr std::int64_t kMostIterations = 1 << 20;
// About the number of rows that the iterations of a chunk have together (Plan::chunk). Products
// that are summed over iterations are computed once for each chunk.
constexpr std::int64_t kRowsOfSum = 512;

// The memory of a tensor during an execution. What the loop computes has `turns` buffers; iteration
// t uses buffer t % turns.
struct Memory {
  enum class Where {
    kFixed,  // The same in every iteration: an argument, a constant, a list item.
    kOwn,    // Computed by the loop.
    kItems,  // Items of an input list.
    kSlice,  // The slice of a kFixed memory along the first axis that a counter selects.
    kState,  // A result of the previous iteration; in the first iteration, the argument.
  };
  Where where;
  // An index into Plan::fixed (kFixed), Plan::reads (kItems), Plan::slices (kSlice) or the
  // arguments (kState); -1 for kOwn.
  int source = -1;
  Dimensions dimensions;
  bool bytes = false;  // Whether the elements are bool, of one byte; else they are float.
  bool given = false;  // Whether the buffers become items of a list that outlives the loop.
  bool loop_invariant = false;  // Loop-invariant; if kOwn, computed once, in the first iteration.
  std::int64_t turns = 1;       // The number of buffers.
  // The only task that writes the memory; -1 if none does, -2 if several do. An index into
  // Plan::tasks before LoopPlanner::Hoist reorders them.
  int writer = -1;

  // Returns the size of one buffer in bytes.
  std::int64_t size() const {
    return Elements(dimensions) * static_cast<std::int64_t>(bytes ? 1 : sizeof(float));
  }
};

// A matrix in a memory. Offset and steps are in elements. A row step of zero repeats a row, a
// column step of zero repeats an element.
struct View {
  int memory = -1;
  std::int64_t offset = 0, rows = 1, columns = 1, row_step = 1, column_step = 1;

  // Whether the elements are contiguous, row by row.
  bool IsDense() const {
    return (column_step == 1 || columns == 1) && (row_step == columns || rows == 1);
  }
  // Whether the view repeats one element.
  bool IsLone() const { return column_step == 0 && (row_step == 0 || rows == 1); }

  // Whether row i of the view lies within row i of a memory whose rows are `step` elements apart.
  bool IsInRows(std::int64_t step) const {
    return row_step == step && column_step >= 0 && offset >= 0 &&
           offset + (columns - 1) * column_step < step;
  }
};

// One step of an iteration: reads the views `in` and writes the view `out`.
struct Task {
  enum class What { kElements, kProduct, kColumnSums, kRowSums };
  What what;
  const RowLoops* forms = nullptr;  // Of kElements.
  View out;
  std::vector<View> in;  // Of kProduct: the left matrix, and a row to add to each row if any.
  // Of kProduct: the index of the right matrix in Plan::rights, and whether the product is added to
  // `out`.
  int packed = -1;
  bool adds = false;
  // Of kElements, set by Grouping: the loop over a row, and whether consecutive rows form one long
  // row.
  RowLoop row = nullptr;
  bool flat = false;
  bool once = false;  // Runs in the first iteration only. Such tasks precede all others.
};

// The consecutive tasks [first, last). If they are several, they are elementwise, have the same
// number of rows, and row i of each depends only on row i of those before it. So threads share
// their rows.
struct Group {
  std::size_t first, last;
  std::int64_t rows = 0;  // Of elementwise tasks.
  std::int64_t work = 0;  // Estimated cost, in additions of two elements.
};

// The right matrix of one or several products.
struct Right {
  View view;
  bool transposed;
  bool fixed;  // Whether its memory is loop-invariant, so that it is packed only once.
};

// The tensor of a kFixed memory. kFirstItem: the first item of a list whose items share one tensor.
struct Fixed {
  enum class From { kArgument, kConstant, kFirstItem };
  From from;
  int index;  // The argument, or an index into Plan::constants or Plan::reads.
};

// A slice along the first axis of a kFixed memory, at the index that a value gives.
struct CounterSlice {
  int memory;
  int index;  // The value.
};

// What an iteration reads from a list.
struct ListRead {
  int list;        // The argument.
  bool pops;       // Whether it removes the last item, instead of reading one at an index.
  int index = -1;  // The value that gives the index.
  // A loop-invariant memory that earlier iterations write to items that are read, and whether each
  // iteration reads such an item. -1 and empty if there are none.
  int other = -1;
  std::vector<bool> reads_other;
};

// What an iteration writes to a list.
struct ListWrite {
  // kPush appends an item, kSet replaces the item at `index`, kAdd adds to it.
  enum class How { kPush, kSet, kAdd };
  How how;
  int index = -1;          // The value that gives the index.
  int value = -1;          // The value that is written.
  bool is_number = false;  // Whether the value is integers; else it is data.
  View view;               // Of data.
  int constant = -1;       // Of integers that do not change: the index into Plan::constants.
  bool is_last = false;    // Whether all iterations set the same item: only the last one stays.
  bool has_own_memory = false;  // Whether no state, other list or other item shares its memory.
  tensorflow::DataType type = tensorflow::DT_INVALID;  // Of integers.
  tensorflow::PartialTensorShape element_shape;        // Of kAdd: that of the added list.
};

// An integer tensor of one element that may change from iteration to iteration.
struct CounterValues {
  Dimensions dimensions;
  std::vector<std::int64_t> values;  // By iteration.
};

// A sum over all iterations of left^T right, or of the sum of the rows of `right` if there is no
// left matrix. It is added to the columns of an argument from `column` on.
struct SumOf {
  int argument;
  std::int64_t column;
  std::optional<View> left;
  View right;
};

// Tasks and groups are in execution order.
struct Plan {
  std::int64_t iterations = 0;
  std::vector<Memory> memories;
  std::vector<Task> tasks;
  std::vector<Group> groups;
  std::size_t once = 0;  // The number of leading groups that run in the first iteration only.
  std::vector<Right> rights;
  std::vector<Fixed> fixed;
  std::vector<tensorflow::Tensor> constants;
  std::vector<CounterSlice> slices;
  std::vector<ListRead> reads;
  std::map<int, ListWrite> writes;  // By argument.
  std::set<int> popped;             // Arguments that are lists from which each iteration pops.
  std::map<int, View> states;       // By argument: its value for the next iteration.
  std::vector<SumOf> sums;
  std::int64_t chunk = 1;  // Iterations per chunk. `sums` are updated after each chunk.
  std::int64_t rows = 0;   // The rows of all tasks, if rows are independent (rows.h); else 0.
  std::map<int, CounterValues> counters;  // By value: those that slices and lists use.
  std::map<int, std::int64_t> numbers;    // By value: indices that do not change.
  std::map<int, Numbers> final_counters;  // By argument: counters after the last iteration.

  // Returns the index that a value gives in iteration `t`.
  std::int64_t IndexAt(int value, std::int64_t t) const {
    const auto counter = counters.find(value);
    return counter == counters.end() ? numbers.at(value) : counter->second.values[t];
  }
};

// The inputs of an execution, by argument: a tensor (for a variable, its value), and a list if the
// argument is one, else null. Lists are not owned.
struct LoopInputs {
  std::vector<tensorflow::Tensor> tensors;
  std::vector<const tensorflow::TensorList*> lists;
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_LOOPS_PLAN_H_
