// The state of planning: what is known about each value of a loop, and functions that add memories
// and tasks to the plan.

#ifndef TENSORWRIGHT_OPS_LOOPS_DRAFT_H_
#define TENSORWRIGHT_OPS_LOOPS_DRAFT_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "tensorwright/compute/elements.h"
#include "tensorwright/ops/loops/loop.h"
#include "tensorwright/ops/loops/numbers.h"
#include "tensorwright/ops/loops/plan.h"

namespace tensorwright {

// What is known about a value before the loop runs.
struct ValueInfo {
  // kUnknown: also of values that Sums computes. kNumbers: integers or booleans that are the same
  // in every iteration. kCounter: those that change from iteration to iteration. kData: a tensor of
  // float or bool in a memory of the plan. kList: a tensor list. kHandle: a resource, such as a
  // variable.
  enum class ValueKind { kUnknown, kNumbers, kCounter, kData, kList, kHandle };
  ValueKind is = ValueKind::kUnknown;
  // kNumbers: the integers. kCounter: of an argument, its initial value. kList: of a list that the
  // body reserves, its number of items.
  Numbers numbers;
  Dimensions dimensions;  // kData: the shape.
  View view;              // kData.
  int list = -1;          // kList: the argument; -1 for a list that the body reserves.
  tensorflow::DataType element_type = tensorflow::DT_INVALID;  // kList.
  tensorflow::PartialTensorShape element_shape;  // kList: of a list that the body reserves.
  std::optional<ListWrite> write;                // kList: what the iteration has written to it.
  bool popped = false;                           // kList: whether the iteration has popped an item.
};

// Shared by the classes that make a plan. Holds references to its arguments, which must outlive it.
class PlanBuilder {
 public:
  using ValueKind = ValueInfo::ValueKind;

  PlanBuilder(const WhileLoop& of, const LoopInputs& with, Plan& made)
      : loop(of), body(of.body), given(with), plan(made), facts(of.body.producers.size()) {}

  // Whether the body returns an argument unchanged.
  bool IsFixed(int argument) const { return body.results[argument] == argument; }

  // Returns the fact of an input of an operation.
  const ValueInfo& Of(const Operation& operation, int input) const {
    return facts[operation.inputs[input]];
  }

  // Returns the fact of an output of an operation.
  ValueInfo& Out(const Operation& operation, int which = 0) {
    return facts[operation.output + which];
  }

  // Adds a memory to the plan. Returns its index.
  int NewMemory(Memory::Where where, int source, const Dimensions& dimensions, bool bytes) {
    Memory memory = {where};
    memory.source = source;
    memory.dimensions = dimensions;
    memory.bytes = bytes;
    too_large = too_large || !IsValidShape(dimensions);
    plan.memories.push_back(memory);
    return static_cast<int>(plan.memories.size()) - 1;
  }

  // Adds a memory of an argument, a constant or a list item that is the same in every iteration.
  // `tensor` gives its shape and type. Returns the index of the memory.
  int NewFixed(Fixed fixed, const tensorflow::Tensor& tensor) {
    plan.fixed.push_back(fixed);
    return NewMemory(Memory::Where::kFixed, static_cast<int>(plan.fixed.size()) - 1,
                     DimensionsOf(tensor), tensor.dtype() == tensorflow::DT_BOOL);
  }

  // Adds a constant, which the plan keeps. Returns the index of its memory.
  int NewConstant(const tensorflow::Tensor& tensor) {
    plan.constants.push_back(tensor);
    return NewFixed({Fixed::From::kConstant, static_cast<int>(plan.constants.size()) - 1}, tensor);
  }

  // Returns a memory as a matrix: its columns are the last axis, its rows all others.
  static View WholeView(int memory, const Dimensions& dimensions) {
    View view;
    view.memory = memory;
    view.columns = dimensions.empty() ? 1 : dimensions.back();
    view.rows = view.columns == 0 ? 0 : Elements(dimensions) / view.columns;
    view.row_step = view.columns;
    return view;
  }

  // Makes a fact the whole content of a memory.
  void Data(ValueInfo& fact, int memory) {
    fact.is = ValueKind::kData;
    fact.dimensions = plan.memories[memory].dimensions;
    fact.view = WholeView(memory, fact.dimensions);
  }

  // Returns a fact with a new memory, which tasks write; of bool if `bytes`, else of float.
  ValueInfo NewData(const Dimensions& dimensions, bool bytes) {
    ValueInfo fact;
    Data(fact, NewMemory(Memory::Where::kOwn, -1, dimensions, bytes));
    return fact;
  }

  // Sets the output of an operation and makes the output the owner of its memory.
  void Own(const Operation& operation, const ValueInfo& fact) {
    owners[fact.view.memory] = operation.output;
    Out(operation) = fact;
  }

  bool IsBytes(const ValueInfo& fact) const { return plan.memories[fact.view.memory].bytes; }

  bool IsFloats(const ValueInfo& fact) const {
    return fact.is == ValueKind::kData && !IsBytes(fact);
  }

  // Whether a value is the whole content of its memory, with the same shape.
  bool IsWhole(const ValueInfo& fact) const {
    const Memory& memory = plan.memories[fact.view.memory];
    return memory.where != Memory::Where::kSlice && fact.view.IsDense() && fact.view.offset == 0 &&
           fact.dimensions == memory.dimensions;
  }

  // Adds a task to the plan and updates the writer of its memory.
  Task& Add(Task task) {
    plan.tasks.push_back(std::move(task));
    const Task& added = plan.tasks.back();
    Memory& memory = plan.memories[added.out.memory];
    memory.writer = memory.writer == -1 ? static_cast<int>(plan.tasks.size()) - 1 : -2;
    return plan.tasks.back();
  }

  // Adds a task that copies a view to another of the same size.
  void Copy(const View& from, const View& to, bool bytes) {
    Task task = {Task::What::kElements, Copies(bytes)};
    task.out = to;
    task.in = {from};
    Add(std::move(task));
  }

  // Returns the fact if its elements are contiguous, else a contiguous copy.
  ValueInfo Dense(const ValueInfo& fact) {
    if (fact.view.IsDense()) return fact;
    ValueInfo dense = NewData(fact.dimensions, IsBytes(fact));
    View to = dense.view;
    to.rows = fact.view.rows, to.columns = fact.view.columns, to.row_step = to.columns;
    Copy(fact.view, to, IsBytes(fact));
    return dense;
  }

  // Sets the output of an operation to the elements of `fact` with another shape. They are copied
  // if the last axis changes and they are not contiguous. Returns true.
  bool SetReshaped(const Operation& operation, ValueInfo fact, const Dimensions& shape) {
    const std::int64_t columns = shape.empty() ? 1 : shape.back();
    if (columns != fact.view.columns) {
      fact = Dense(fact);
      View view = WholeView(fact.view.memory, shape);
      view.offset = fact.view.offset;
      fact.view = view;
    }
    fact.dimensions = shape;
    Out(operation) = fact;
    return true;
  }

  // Sets `view` to the data of a fact, broadcast to the shape `out`. Only one element, a row or a
  // column can be broadcast. Returns false for other broadcasts, and if `out` has no elements.
  static bool BroadcastTo(const ValueInfo& fact, const Dimensions& out, View* view) {
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

  // Broadcasts the shape `all` with the shape `other`. Returns false if they are incompatible.
  static bool BroadcastTo(const Dimensions& other, Dimensions* all) {
    if (all->size() < other.size()) all->insert(all->begin(), other.size() - all->size(), 1);
    for (std::size_t i = 0; i < other.size(); ++i) {
      std::int64_t& size = (*all)[all->size() - other.size() + i];
      if (size != other[i] && size != 1 && other[i] != 1) return false;
      if (size == 1) size = other[i];
    }
    return true;
  }

  // Gives a memory at least `turns` buffers.
  void RequireBuffers(int memory, std::int64_t turns) {
    plan.memories[memory].turns = std::max(plan.memories[memory].turns, turns);
  }

  // Makes the buffers of a memory items of a list: one for each iteration, or one for all if the
  // memory is loop-invariant.
  void UseAsListItems(int memory) {
    plan.memories[memory].given = true;
    if (!plan.memories[memory].loop_invariant) plan.memories[memory].turns = plan.iterations;
  }

  // Returns the value of an index of a list in an iteration; null if it is not known, or no scalar.
  const std::int64_t* IndexAtIteration(int value, std::int64_t iteration) const {
    if (facts[value].is == ValueKind::kNumbers) return facts[value].numbers.values.data();
    const auto found = plan.counters.find(value);
    if (found == plan.counters.end() || !found->second.dimensions.empty()) return nullptr;
    return &found->second.values[iteration];
  }

  // Whether a fact is a known scalar integer.
  static bool IsScalar(const ValueInfo& fact) {
    return fact.is == ValueKind::kNumbers && fact.numbers.dimensions.empty();
  }

  // Whether a fact is a known vector of integers, as ops require of a shape or of bounds.
  static bool IsVector(const ValueInfo& fact) {
    return fact.is == ValueKind::kNumbers && fact.numbers.dimensions.size() == 1;
  }

  // Whether inputs 1 to 3 are the known begin, end and strides of a slice, for a tensor of rank 2
  // or less, with strides of one.
  bool HasUnitStrides(const Operation& operation, std::size_t rank) const {
    const ValueInfo &begin = Of(operation, 1), &end = Of(operation, 2), &strides = Of(operation, 3);
    if (!IsVector(begin) || !IsVector(end) || !IsVector(strides)) return false;
    const auto& steps = strides.numbers.values;
    return rank <= 2 && begin.numbers.values.size() <= rank &&
           begin.numbers.values.size() == end.numbers.values.size() &&
           begin.numbers.values.size() == steps.size() &&
           std::all_of(steps.begin(), steps.end(), [](std::int64_t step) { return step == 1; });
  }

  // Returns the bounds [first, last) of a slice along an axis of `size` elements: the whole axis if
  // the slice does not specify it. The bounds are not clamped to [0, size].
  std::pair<std::int64_t, std::int64_t> BoundsOf(const Operation& operation, std::size_t axis,
                                                 std::int64_t size) const {
    const auto &begin = Of(operation, 1).numbers.values, &end = Of(operation, 2).numbers.values;
    if (axis >= begin.size()) return {0, size};
    const auto from_start = [size](std::int64_t at) { return at < 0 ? at + size : at; };
    const int bit = 1 << axis;
    // An axis that is removed has one element, from `begin`, whatever its mask says.
    return {operation.begin_mask & ~operation.shrink_mask & bit ? 0 : from_start(begin[axis]),
            operation.end_mask & bit ? size : from_start(end[axis])};
  }

  // Returns the axis that a fact gives, as a number in [0, rank); none if it is unknown, no scalar
  // or out of range.
  static std::optional<std::int64_t> Axis(const ValueInfo& fact, std::size_t rank) {
    if (!IsScalar(fact)) return std::nullopt;
    std::int64_t axis = fact.numbers.values[0];
    if (axis < 0) axis += static_cast<std::int64_t>(rank);
    if (axis < 0 || axis >= static_cast<std::int64_t>(rank)) return std::nullopt;
    return axis;
  }

  const WhileLoop& loop;
  const Routine& body;
  const LoopInputs& given;
  Plan& plan;
  std::vector<ValueInfo> facts;  // By value.
  std::vector<const Operation*>
      counter_operations;     // Operations that compute or pop counters, in order.
  std::map<int, int> owners;  // By memory: the value that the memory was made for.
  bool too_large = false;     // Whether a memory has an unsupported size (Exists).
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_LOOPS_DRAFT_H_
