// Makes the plan of a loop for given inputs, or says what prevents it.

#ifndef TENSORWRIGHT_OPS_LOOPS_PLANNING_H_
#define TENSORWRIGHT_OPS_LOOPS_PLANNING_H_

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "tensorwright/ops/loops/arithmetic.h"
#include "tensorwright/ops/loops/counters.h"
#include "tensorwright/ops/loops/draft.h"
#include "tensorwright/ops/loops/groups.h"
#include "tensorwright/ops/loops/lists.h"
#include "tensorwright/ops/loops/rows.h"
#include "tensorwright/ops/loops/shapes.h"
#include "tensorwright/ops/loops/sums.h"

namespace tensorwright {

// Plans a loop op by op, then its memory and its threads.
class LoopPlanner {
 public:
  // `parts`: whether a sum over iterations may be assembled from several (Sums::Find). The plan
  // must be empty.
  LoopPlanner(const WhileLoop& loop, const LoopInputs& given, bool parts, Plan& plan)
      : builder_(loop, given, plan), parts_(parts) {}

  // Makes the plan. Returns an empty string, or the part of the loop that cannot be planned. Call
  // it once.
  std::string Make() {
    const Routine& body = builder_.body;
    sums_.Find(parts_);
    for (int i = 0; i < body.arity(); ++i) {
      if (!Argument(i)) return "argument " + std::to_string(i);
    }
    for (const Operation& operation : body.operations) {
      if (!sums_.Has(operation.output) && !Plain(operation)) {
        return "value " + std::to_string(operation.output);
      }
    }
    if (!counters_.EvaluateIterations()) return "its counters";
    for (int i = 0; i < body.arity(); ++i) {
      if (!Result(i)) return "result " + std::to_string(i);
    }
    if (!shapes_.AreSlicesInRange()) return "its slices";
    if (!lists_.CheckAccesses()) return "its lists";
    if (!sums_.Make()) return "its sums";
    if (builder_.too_large) return "its sizes";
    Settle();
    return "";
  }

 private:
  using ValueKind = ValueInfo::ValueKind;

  // Plans an argument. Returns false if it is not supported, as do the functions below.
  bool Argument(int i) {
    ValueInfo& fact = builder_.facts[i];
    const tensorflow::Tensor& tensor = builder_.given.tensors[i];
    switch (builder_.body.arguments[i]) {
      case tensorflow::DT_RESOURCE: fact.is = ValueKind::kHandle; return builder_.IsFixed(i);
      case tensorflow::DT_VARIANT:
        fact.is = ValueKind::kList;
        fact.list = i;
        if (builder_.given.lists[i] == nullptr) return false;
        fact.element_type = builder_.given.lists[i]->element_dtype;
        return true;
      case tensorflow::DT_INT32:
      case tensorflow::DT_INT64:
        fact.is = builder_.IsFixed(i) ? ValueKind::kNumbers : ValueKind::kCounter;
        fact.numbers = NumbersOf(tensor);
        return fact.is == ValueKind::kNumbers || fact.numbers.values.size() == 1;
      case tensorflow::DT_FLOAT:
        if (sums_.Has(i)) return true;
        if (builder_.IsFixed(i)) {
          builder_.Data(fact, builder_.NewFixed({Fixed::From::kArgument, i}, tensor));
        } else {
          builder_.Data(fact,
                        builder_.NewMemory(Memory::Where::kState, i, DimensionsOf(tensor), false));
        }
        return true;
      default: return false;
    }
  }

  // Plans an operation that no sum over iterations contains.
  bool Plain(const Operation& operation) {
    bool numbers = !operation.inputs.empty(), counts = false, knows = true;
    for (const int input : operation.inputs) {
      const ValueInfo& fact = builder_.facts[input];
      knows = knows && fact.is != ValueKind::kUnknown;
      numbers = numbers && (fact.is == ValueKind::kNumbers || fact.is == ValueKind::kCounter);
      counts = counts || fact.is == ValueKind::kCounter;
    }
    if (!knows) return false;
    if (operation.what == Do::kShape) return shapes_.Shape(operation);
    if (numbers && IsNumber(operation.type)) return counters_.Add(operation, counts);
    switch (operation.what) {
      case Do::kConst: return Constant(operation);
      case Do::kReadVariable: return Variable(operation);
      case Do::kReserve:
      case Do::kGetItem:
      case Do::kSetItem:
      case Do::kPushBack:
      case Do::kPopBack:
      case Do::kLength:
      case Do::kElementShape: return lists_.Add(operation);
      case Do::kReshape: return shapes_.Reshape(operation);
      case Do::kSqueeze: return shapes_.Squeeze(operation);
      case Do::kExpandDims: return shapes_.ExpandDims(operation);
      case Do::kSplit:
      case Do::kSplitV: return shapes_.Split(operation);
      case Do::kConcat: return shapes_.Concat(operation);
      case Do::kSlice: return shapes_.Slice(operation);
      case Do::kSliceGrad: return shapes_.SliceGradient(operation);
      case Do::kPack: return shapes_.Pack(operation);
      case Do::kUnpack: return shapes_.Unpack(operation);
      case Do::kTile: return shapes_.Tile(operation);
      case Do::kZerosLike:
      case Do::kFill: return shapes_.Fill(operation);
      case Do::kMatMul: return arithmetic_.Product(operation);
      case Do::kBiasAddGrad:
      case Do::kSum: return arithmetic_.Sum(operation);
      case Do::kAddN:
        if (builder_.Of(operation, 0).is == ValueKind::kList) return lists_.Join(operation);
        return arithmetic_.AddAll(operation);
      default: return arithmetic_.Elements(operation);
    }
  }

  bool Constant(const Operation& operation) {
    ValueInfo& fact = builder_.Out(operation);
    if (operation.constant.dtype() == tensorflow::DT_FLOAT) {
      builder_.Data(fact, builder_.NewConstant(operation.constant));
      return true;
    }
    if (!IsNumber(operation.constant.dtype())) return false;
    fact.is = ValueKind::kNumbers;
    fact.numbers = NumbersOf(operation.constant);
    return true;
  }

  // Plans the read of a variable. An execution reads its value once, before the first iteration.
  bool Variable(const Operation& operation) {
    const int handle = operation.inputs[0];
    if (handle >= builder_.body.arity()) return false;
    const tensorflow::Tensor& value = builder_.given.tensors[handle];
    if (value.dtype() != tensorflow::DT_FLOAT || operation.type != value.dtype()) return false;
    builder_.Data(builder_.Out(operation),
                  builder_.NewFixed({Fixed::From::kArgument, handle}, value));
    return true;
  }

  // Plans a result of the body: the value of argument `i` in the next iteration.
  bool Result(int i) {
    const ValueInfo result = sums_.Has(i) ? ValueInfo() : builder_.facts[builder_.body.results[i]];
    switch (builder_.body.arguments[i]) {
      case tensorflow::DT_FLOAT: {
        if (sums_.Has(i) || builder_.IsFixed(i)) return true;
        if (!builder_.IsFloats(result) || result.dimensions != builder_.facts[i].dimensions)
          return false;
        ValueInfo left = result;
        if (builder_.plan.memories[left.view.memory].where != Memory::Where::kOwn ||
            !builder_.IsWhole(left)) {
          left = builder_.NewData(result.dimensions, false);
          View from;
          if (!builder_.BroadcastTo(result, result.dimensions, &from)) return false;
          builder_.Copy(from, left.view, false);
        }
        builder_.RequireBuffers(left.view.memory, 2);
        builder_.plan.states[i] = left.view;
        return true;
      }
      case tensorflow::DT_VARIANT:
        if (result.is != ValueKind::kList || result.list != i) return false;
        if (result.popped && result.write) return false;
        if (result.write) builder_.plan.writes[i] = *result.write;
        return result.popped == (builder_.plan.popped.count(i) != 0);
      default: return builder_.IsFixed(i) || builder_.facts[i].is == ValueKind::kCounter;
    }
  }

  // Finds tasks that compute loop-invariant values, such as parts of a layer's weights that are
  // written to lists, and moves them to the front: they run once.
  void Hoist() {
    Plan& plan = builder_.plan;
    std::vector<int> writers(plan.memories.size());
    for (const Task& task : plan.tasks) ++writers[task.out.memory];
    for (Memory& memory : plan.memories)
      memory.loop_invariant = memory.where == Memory::Where::kFixed;
    for (Task& task : plan.tasks) {
      Memory& out = plan.memories[task.out.memory];
      task.once =
          task.what != Task::What::kProduct && writers[task.out.memory] == 1 && out.turns == 1 &&
          std::all_of(task.in.begin(), task.in.end(),
                      [&](const View& view) { return plan.memories[view.memory].loop_invariant; });
      out.loop_invariant = task.once;
    }
    for (Right& right : plan.rights) right.fixed = plan.memories[right.view.memory].loop_invariant;
    std::stable_partition(plan.tasks.begin(), plan.tasks.end(),
                          [](const Task& task) { return task.once; });
  }

  // Completes the plan. A value that is written to a list gets a buffer for each iteration, unless
  // only the last iteration's item stays in the list.
  void Settle() {
    Hoist();
    for (auto& [list, write] : builder_.plan.writes) {
      if (write.is_number || write.is_last) continue;
      const Memory& memory = builder_.plan.memories[write.view.memory];
      if (memory.loop_invariant) write.has_own_memory = false;
      if (memory.where == Memory::Where::kOwn) {
        builder_.UseAsListItems(write.view.memory);
      } else if (memory.where == Memory::Where::kState) {
        builder_.UseAsListItems(builder_.plan.states.at(memory.source).memory);
      }
    }
    Grouping(builder_.plan).Make();
    builder_.plan.rows = IndependentRows(builder_.plan).Find();
    // The run divides the threads anew for each chunk, because other loops may have ended.
    if (builder_.plan.sums.empty() && builder_.plan.rows > 0) {
      builder_.plan.chunk = std::max<std::int64_t>(1, kRowsOfSum / builder_.plan.rows);
    }
    DropUnusedCounters();
  }

  // Drops the counters that no execution reads: they have a number for each iteration, and plans
  // are cached.
  void DropUnusedCounters() {
    Plan& plan = builder_.plan;
    std::set<int> used;
    for (const CounterSlice& slice : plan.slices) used.insert(slice.index);
    for (const ListRead& read : plan.reads) used.insert(read.index);
    for (const auto& [list, write] : plan.writes) used.insert({write.index, write.value});
    for (auto counter = plan.counters.begin(); counter != plan.counters.end();) {
      counter = used.count(counter->first) ? std::next(counter) : plan.counters.erase(counter);
    }
    for (auto& [value, counter] : plan.counters) counter.values.shrink_to_fit();
  }

  PlanBuilder builder_;
  const bool parts_;
  Shapes shapes_{builder_};
  Arithmetic arithmetic_{builder_};
  Lists lists_{builder_};
  Counters counters_{builder_};
  Sums sums_{builder_};
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_LOOPS_PLANNING_H_
