// How a loop is computed for given shapes: what lies where, and what is done in each iteration. A plan
// holds no data, so that it serves every execution with the same shapes and counts.

#ifndef TENSORWRIGHT_OPS_LOOPS_PLAN_H_
#define TENSORWRIGHT_OPS_LOOPS_PLAN_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/kernels/tensor_list.h"
#include "tensorwright/ops/loops/elements.h"
#include "tensorwright/ops/loops/numbers.h"

namespace tensorwright {

constexpr std::int64_t kMostIterations = 1 << 20;
constexpr std::int64_t kRowsOfSum =
    512;  // After so many, products that are summed up are computed.

// Where values of an execution lie. Each has one place for every iteration, or fewer that take turns.
struct Memory {
  enum class Where {
    kFixed,  // The same in every iteration: an argument, a constant.
    kOwn,    // What the loop computes.
    kItems,  // Items of a list that the loop got.
    kSlice,  // One of the slices of a memory that is fixed, by a counter.
    kState,  // What the iteration before left; in the first one the argument.
  };
  Where where;
  int source = -1;  // Which of those, but of kOwn.
  Dimensions dimensions;
  bool bytes = false;   // Elements are bytes, true or not; else floats.
  bool given = false;   // Each iteration's is an item of a list that outlives the loop.
  bool steady = false;  // The same in every iteration: of kOwn, computed in the first one.
  std::int64_t turns = 1;
  int writer = -1;  // The task that alone writes it.

  std::int64_t size() const {
    return Elements(dimensions) * static_cast<std::int64_t>(bytes ? 1 : sizeof(float));
  }
};

// A matrix in a memory. Offset and steps are in elements; a column step of zero repeats one element.
struct View {
  int memory = -1;
  std::int64_t offset = 0, rows = 1, columns = 1, row_step = 1, column_step = 1;

  bool IsDense() const {
    return (column_step == 1 || columns == 1) && (row_step == columns || rows == 1);
  }
  bool IsLone() const { return column_step == 0 && (row_step == 0 || rows == 1); }

  // Whether each row lies in the same row of a memory whose rows are `step` apart.
  bool IsInRows(std::int64_t step) const {
    return row_step == step && column_step >= 0 && offset >= 0 &&
           offset + (columns - 1) * column_step < step;
  }
};

struct Task {
  enum class What { kElements, kProduct, kColumnSums, kRowSums };
  What what;
  const Forms* forms = nullptr;
  View out;
  std::vector<View> in;
  // Of kProduct: the right matrix, and whether the product is added to what is there. Its second input,
  // if there is one, is a row that is added to each.
  int packed = -1;
  bool adds = false;
  // Of kElements, once all is known: what is done to a row, and whether several are one long row.
  RowLoop row = nullptr;
  bool flat = false;
  bool once = false;  // Done in the first iteration only; such tasks stand before all others.
};

// Tasks that follow each other, from `first` to before `last`. Several are on elements of equally many
// rows, and no row of one needs another row of one before: so threads share their rows.
struct Group {
  std::size_t first, last;
  std::int64_t rows = 0;
  std::int64_t work = 0;  // About how many elements of a sum would take as long.
};

// A right matrix of products.
struct Right {
  View view;
  bool transposed;
  bool fixed;  // Of a memory that is steady: packed once, not in every iteration.
};

struct Fixed {
  enum class From { kArgument, kConstant, kFirstItem };
  From from;
  int index;  // Of the argument, the constant, the reading.
};

struct SliceOf {
  int memory;
  int index;  // The value that is the index.
};

// What an iteration takes out of a list.
struct ListRead {
  int list;        // Which argument.
  bool pops;       // From the end, else at an index.
  int index = -1;  // The value that is the index.
  int other = -1;  // A memory that stays the same and that earlier iterations put at some indices;
  std::vector<bool> is_other;  // in which iterations it is read.
};

// What an iteration does to a list.
struct ListWrite {
  enum class How { kPush, kSet, kAdd };
  How how;
  int index = -1;  // The value that is the index.
  int value = -1;
  bool is_number = false;
  View view;              // Of data.
  int constant = -1;      // Of a number that stays the same.
  bool is_last = false;   // Each iteration's takes the place of the one before.
  bool is_alone = false;  // Nothing else outlives the loop in the memory of the view.
  tensorflow::DataType type = tensorflow::DT_INVALID;
};

// A number that may change from iteration to iteration, of one element.
struct Followed {
  Dimensions dimensions;
  std::vector<std::int64_t> values;  // In each iteration.
};

// left^T right, or the sum of right's rows, summed up over all iterations on top of an argument's
// columns from `column` on.
struct SumOf {
  int argument;
  std::int64_t column;
  std::optional<View> left;
  View right;
};

struct Plan {
  std::int64_t iterations = 0;
  std::vector<Memory> memories;
  std::vector<Task> tasks;
  std::vector<Group> groups;
  std::size_t once = 0;  // So many groups are of tasks that are done once.
  std::vector<Right> rights;
  std::vector<Fixed> fixed;
  std::vector<tensorflow::Tensor> constants;
  std::vector<SliceOf> slices;
  std::vector<ListRead> reads;
  std::map<int, ListWrite> writes;  // By argument.
  std::set<int> popped;             // Arguments.
  std::map<int, View> states;       // Argument → what an iteration leaves for the next one.
  std::vector<SumOf> sums;
  std::int64_t chunk = 1;  // Iterations that are computed before the products of `sums`.
  std::int64_t rows = 0;   // Of all tasks, if none needs another row than its own; else 0.
  std::map<int, Followed> counters;     // By value.
  std::map<int, std::int64_t> numbers;  // Value → an index that stays the same.
  std::map<int, Numbers> finals;        // Argument → its number behind the last one.
};

// What an execution gets: a tensor for each argument (of a variable its value), a list where it is one.
struct Given {
  std::vector<tensorflow::Tensor> tensors;
  std::vector<const tensorflow::TensorList*> lists;
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_LOOPS_PLAN_H_
