// A plan while it is made: what is known of each value of a loop, and how memory and tasks are added.

#ifndef TENSORWRIGHT_OPS_LOOPS_DRAFT_H_
#define TENSORWRIGHT_OPS_LOOPS_DRAFT_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "tensorwright/ops/loops/elements.h"
#include "tensorwright/ops/loops/loop.h"
#include "tensorwright/ops/loops/numbers.h"
#include "tensorwright/ops/loops/plan.h"

namespace tensorwright {

// What is known of a value.
struct Fact {
  enum class Is { kUnknown, kNumbers, kCounter, kData, kList, kHandle };
  Is is = Is::kUnknown;
  Numbers numbers;        // kNumbers.
  Dimensions dimensions;  // kData.
  View view;
  int list = -1;  // kList: which argument; none for one that was reserved here.
  std::optional<ListWrite> write;
  bool popped = false;
};

class Draft {
 public:
  using Is = Fact::Is;

  Draft(const WhileLoop& of, const Given& with, Plan& made)
      : loop(of), body(of.body), given(with), plan(made), facts(of.body.makers.size()) {}

  bool IsFixed(int argument) const { return body.results[argument] == argument; }

  const Fact& Of(const Operation& operation, int input) const {
    return facts[operation.inputs[input]];
  }

  Fact& Out(const Operation& operation, int which = 0) { return facts[operation.output + which]; }

  int NewMemory(Memory::Where where, int source, const Dimensions& dimensions, bool bytes) {
    Memory memory = {where};
    memory.source = source;
    memory.dimensions = dimensions;
    memory.bytes = bytes;
    too_large = too_large || !Exists(dimensions);
    plan.memories.push_back(memory);
    return static_cast<int>(plan.memories.size()) - 1;
  }

  int NewFixed(Fixed fixed, const tensorflow::Tensor& tensor) {
    plan.fixed.push_back(fixed);
    return NewMemory(Memory::Where::kFixed, static_cast<int>(plan.fixed.size()) - 1,
                     DimensionsOf(tensor), tensor.dtype() == tensorflow::DT_BOOL);
  }

  int NewConstant(const tensorflow::Tensor& tensor) {
    plan.constants.push_back(tensor);
    return NewFixed({Fixed::From::kConstant, static_cast<int>(plan.constants.size()) - 1}, tensor);
  }

  static View Whole(int memory, const Dimensions& dimensions) {
    View view;
    view.memory = memory;
    view.columns = dimensions.empty() ? 1 : dimensions.back();
    view.rows = view.columns == 0 ? 0 : Elements(dimensions) / view.columns;
    view.row_step = view.columns;
    return view;
  }

  void Data(Fact& fact, int memory) {
    fact.is = Is::kData;
    fact.dimensions = plan.memories[memory].dimensions;
    fact.view = Whole(memory, fact.dimensions);
  }

  Fact NewData(const Dimensions& dimensions, bool bytes) {
    Fact fact;
    Data(fact, NewMemory(Memory::Where::kOwn, -1, dimensions, bytes));
    return fact;
  }

  void Own(const Operation& operation, const Fact& fact) {
    owners[fact.view.memory] = operation.output;
    Out(operation) = fact;
  }

  bool IsBytes(const Fact& fact) const { return plan.memories[fact.view.memory].bytes; }

  bool IsFloats(const Fact& fact) const { return fact.is == Is::kData && !IsBytes(fact); }

  // Whether the value is all of its memory, with the dimensions of that.
  bool IsWhole(const Fact& fact) const {
    const Memory& memory = plan.memories[fact.view.memory];
    return memory.where != Memory::Where::kSlice && fact.view.IsDense() && fact.view.offset == 0 &&
           fact.dimensions == memory.dimensions;
  }

  Task& Add(Task task) {
    plan.tasks.push_back(std::move(task));
    const Task& added = plan.tasks.back();
    Memory& memory = plan.memories[added.out.memory];
    memory.writer = memory.writer == -1 ? static_cast<int>(plan.tasks.size()) - 1 : -2;
    return plan.tasks.back();
  }

  void Copy(const View& from, const View& to, bool bytes) {
    Task task = {Task::What::kElements, Copies(bytes)};
    task.out = to;
    task.in = {from};
    Add(std::move(task));
  }

  Fact Dense(const Fact& fact) {
    if (fact.view.IsDense()) return fact;
    Fact dense = NewData(fact.dimensions, IsBytes(fact));
    View to = dense.view;
    to.rows = fact.view.rows, to.columns = fact.view.columns, to.row_step = to.columns;
    Copy(fact.view, to, IsBytes(fact));
    return dense;
  }

  // The same elements with dimensions of one more, or fewer.
  bool Shaped(const Operation& operation, Fact fact, const Dimensions& shape) {
    const std::int64_t columns = shape.empty() ? 1 : shape.back();
    if (columns != fact.view.columns) {
      fact = Dense(fact);
      View view = Whole(fact.view.memory, shape);
      view.offset = fact.view.offset;
      fact.view = view;
    }
    fact.dimensions = shape;
    Out(operation) = fact;
    return true;
  }

  // The fact's data as an operand of elements of these dimensions.
  static bool Spread(const Fact& fact, const Dimensions& out, View* view) {
    const std::int64_t columns = out.empty() ? 1 : out.back();
    const std::int64_t all = Elements(out), own = Elements(fact.dimensions);
    if (all == 0) return false;
    const std::int64_t rows = all / columns;
    *view = fact.view;
    if (own == 1 && all != 1) {
      view->row_step = view->column_step = 0;
    } else if (own == all) {
      if (view->columns != columns) {
        if (!view->IsDense()) return false;
        view->row_step = columns;
        view->column_step = 1;
      }
    } else if (own == columns && fact.dimensions.back() == columns) {
      view->row_step = 0;
    } else if (own == rows && fact.dimensions.size() == out.size() && fact.dimensions.back() == 1) {
      view->column_step = 0;
    } else {
      return false;
    }
    view->rows = rows;
    view->columns = columns;
    return true;
  }

  // The dimensions of an operand that has these and others.
  static bool Spread(const Dimensions& other, Dimensions* all) {
    if (all->size() < other.size()) all->insert(all->begin(), other.size() - all->size(), 1);
    for (std::size_t i = 0; i < other.size(); ++i) {
      std::int64_t& size = (*all)[all->size() - other.size() + i];
      if (size != other[i] && size != 1 && other[i] != 1) return false;
      if (size == 1) size = other[i];
    }
    return true;
  }

  void AtLeast(int memory, std::int64_t turns) {
    plan.memories[memory].turns = std::max(plan.memories[memory].turns, turns);
  }

  void Give(int memory) {
    plan.memories[memory].given = true;
    if (!plan.memories[memory].steady) plan.memories[memory].turns = plan.iterations;
  }

  const std::int64_t* IndexIn(int value, std::int64_t iteration) const {
    if (facts[value].is == Is::kNumbers) return facts[value].numbers.values.data();
    const auto found = plan.counters.find(value);
    return found == plan.counters.end() ? nullptr : &found->second.values[iteration];
  }

  // Whether inputs 1 to 3 are the begin, end and strides of a slice of a matrix, with strides of one.
  bool IsByOnes(const Operation& operation, std::size_t rank) const {
    const Fact &begin = Of(operation, 1), &end = Of(operation, 2), &strides = Of(operation, 3);
    if (begin.is != Is::kNumbers || end.is != Is::kNumbers || strides.is != Is::kNumbers)
      return false;
    const auto& steps = strides.numbers.values;
    return rank <= 2 && begin.numbers.values.size() <= rank &&
           begin.numbers.values.size() == end.numbers.values.size() &&
           std::all_of(steps.begin(), steps.end(), [](std::int64_t step) { return step == 1; });
  }

  // The first position of a slice along an axis, and the one behind its last; of an axis that is not
  // given all. They may lie outside.
  std::pair<std::int64_t, std::int64_t> BoundsOf(const Operation& operation, std::size_t axis,
                                                 std::int64_t size) const {
    const auto &begin = Of(operation, 1).numbers.values, &end = Of(operation, 2).numbers.values;
    if (axis >= begin.size()) return {0, size};
    const auto from_start = [size](std::int64_t at) { return at < 0 ? at + size : at; };
    const int bit = 1 << axis;
    return {operation.begin_mask & bit ? 0 : from_start(begin[axis]),
            operation.end_mask & bit ? size : from_start(end[axis])};
  }

  static std::optional<std::int64_t> Axis(const Fact& fact, std::size_t rank) {
    if (fact.is != Is::kNumbers || fact.numbers.values.size() != 1) return std::nullopt;
    std::int64_t axis = fact.numbers.values[0];
    if (axis < 0) axis += static_cast<std::int64_t>(rank);
    if (axis < 0 || axis >= static_cast<std::int64_t>(rank)) return std::nullopt;
    return axis;
  }

  const WhileLoop& loop;
  const Routine& body;
  const Given& given;
  Plan& plan;
  std::vector<Fact> facts;                 // Of each value.
  std::vector<const Operation*> counting;  // What changes numbers from iteration to iteration.
  std::map<int, int> owners;               // Memory → the value that it was made for.
  bool too_large = false;                  // Whether a memory is of more elements than can be.
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_LOOPS_DRAFT_H_
