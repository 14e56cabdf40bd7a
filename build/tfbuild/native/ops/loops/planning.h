// Makes the plan of a loop for what it is given, or says what is in the way.

#ifndef TENSORWRIGHT_OPS_LOOPS_PLANNING_H_
#define TENSORWRIGHT_OPS_LOOPS_PLANNING_H_

#include <algorithm>
#include <cstdint>
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

class Planning {
 public:
  // With `parts` sums over all iterations may be put together from several (Sums).
  Planning(const WhileLoop& loop, const Given& given, bool parts, Plan& plan)
      : draft_(loop, given, plan), parts_(parts) {}

  // Once. Empty, or what is in the way.
  std::string Make() {
    const Routine& body = draft_.body;
    sums_.Find(parts_);
    for (int i = 0; i < body.arity(); ++i) {
      if (!Argument(i)) return "argument " + std::to_string(i);
    }
    for (const Operation& operation : body.operations) {
      if (!sums_.Has(operation.output) && !Plain(operation)) {
        return "value " + std::to_string(operation.output);
      }
    }
    if (!counters_.Follow()) return "its counters";
    for (int i = 0; i < body.arity(); ++i) {
      if (!Result(i)) return "result " + std::to_string(i);
    }
    if (!shapes_.AreThere()) return "its slices";
    if (!lists_.ArePlain()) return "its lists";
    if (!sums_.Make()) return "its sums";
    if (draft_.too_large) return "its sizes";
    Settle();
    return "";
  }

 private:
  using Is = Fact::Is;

  bool Argument(int i) {
    Fact& fact = draft_.facts[i];
    const tensorflow::Tensor& tensor = draft_.given.tensors[i];
    switch (draft_.body.arguments[i]) {
      case tensorflow::DT_RESOURCE: fact.is = Is::kHandle; return draft_.IsFixed(i);
      case tensorflow::DT_VARIANT:
        fact.is = Is::kList;
        fact.list = i;
        return draft_.given.lists[i] != nullptr;
      case tensorflow::DT_INT32:
      case tensorflow::DT_INT64:
        fact.is = draft_.IsFixed(i) ? Is::kNumbers : Is::kCounter;
        fact.numbers = NumbersOf(tensor);
        return fact.is == Is::kNumbers || fact.numbers.values.size() == 1;
      case tensorflow::DT_FLOAT:
        if (sums_.Has(i)) return true;
        if (draft_.IsFixed(i)) {
          draft_.Data(fact, draft_.NewFixed({Fixed::From::kArgument, i}, tensor));
        } else {
          draft_.Data(fact,
                      draft_.NewMemory(Memory::Where::kState, i, DimensionsOf(tensor), false));
        }
        return true;
      default: return false;
    }
  }

  bool Plain(const Operation& operation) {
    bool numbers = !operation.inputs.empty(), counts = false, knows = true;
    for (const int input : operation.inputs) {
      const Fact& fact = draft_.facts[input];
      knows = knows && fact.is != Is::kUnknown;
      numbers = numbers && (fact.is == Is::kNumbers || fact.is == Is::kCounter);
      counts = counts || fact.is == Is::kCounter;
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
        if (draft_.Of(operation, 0).is == Is::kList) return lists_.Join(operation);
        return arithmetic_.AddAll(operation);
      default: return arithmetic_.Elements(operation);
    }
  }

  bool Constant(const Operation& operation) {
    Fact& fact = draft_.Out(operation);
    if (operation.constant.dtype() == tensorflow::DT_FLOAT) {
      draft_.Data(fact, draft_.NewConstant(operation.constant));
      return true;
    }
    if (!IsNumber(operation.constant.dtype())) return false;
    fact.is = Is::kNumbers;
    fact.numbers = NumbersOf(operation.constant);
    return true;
  }

  bool Variable(const Operation& operation) {
    const int handle = operation.inputs[0];
    if (handle >= draft_.body.arity()) return false;
    const tensorflow::Tensor& value = draft_.given.tensors[handle];
    if (value.dtype() != tensorflow::DT_FLOAT) return false;
    draft_.Data(draft_.Out(operation), draft_.NewFixed({Fixed::From::kArgument, handle}, value));
    return true;
  }

  bool Result(int i) {
    const Fact result = sums_.Has(i) ? Fact() : draft_.facts[draft_.body.results[i]];
    switch (draft_.body.arguments[i]) {
      case tensorflow::DT_FLOAT: {
        if (sums_.Has(i) || draft_.IsFixed(i)) return true;
        if (!draft_.IsFloats(result) || result.dimensions != draft_.facts[i].dimensions)
          return false;
        Fact left = result;
        if (draft_.plan.memories[left.view.memory].where != Memory::Where::kOwn ||
            !draft_.IsWhole(left)) {
          left = draft_.NewData(result.dimensions, false);
          View from;
          if (!draft_.Spread(result, result.dimensions, &from)) return false;
          draft_.Copy(from, left.view, false);
        }
        draft_.AtLeast(left.view.memory, 2);
        draft_.plan.states[i] = left.view;
        return true;
      }
      case tensorflow::DT_VARIANT:
        if (result.is != Is::kList || result.list != i) return false;
        if (result.popped && result.write) return false;
        if (result.write) draft_.plan.writes[i] = *result.write;
        return result.popped == (draft_.plan.popped.count(i) != 0);
      default: return draft_.IsFixed(i) || draft_.facts[i].is == Is::kCounter;
    }
  }

  // Finds what is the same in every iteration, as the parts of a layer's weights that go into lists.
  void Hoist() {
    Plan& plan = draft_.plan;
    std::vector<int> writers(plan.memories.size());
    for (const Task& task : plan.tasks) ++writers[task.out.memory];
    for (Memory& memory : plan.memories) memory.steady = memory.where == Memory::Where::kFixed;
    for (Task& task : plan.tasks) {
      Memory& out = plan.memories[task.out.memory];
      task.once = task.what != Task::What::kProduct && writers[task.out.memory] == 1 &&
                  out.turns == 1 &&
                  std::all_of(task.in.begin(), task.in.end(),
                              [&](const View& view) { return plan.memories[view.memory].steady; });
      out.steady = task.once;
    }
    for (Right& right : plan.rights) right.fixed = plan.memories[right.view.memory].steady;
    std::stable_partition(plan.tasks.begin(), plan.tasks.end(),
                          [](const Task& task) { return task.once; });
  }

  // What goes into lists needs a place for each iteration, unless only the last one's stays there.
  void Settle() {
    Hoist();
    for (auto& [list, write] : draft_.plan.writes) {
      if (write.is_number || write.is_last) continue;
      const Memory& memory = draft_.plan.memories[write.view.memory];
      if (memory.steady) write.is_alone = false;
      if (memory.where == Memory::Where::kOwn) {
        draft_.Give(write.view.memory);
      } else if (memory.where == Memory::Where::kState) {
        draft_.Give(draft_.plan.states.at(memory.source).memory);
      }
    }
    Grouping(draft_.plan).Make();
    draft_.plan.rows = IndependentRows(draft_.plan).Find();
    // After so many iterations other loops may have ended, and left their threads.
    if (draft_.plan.sums.empty() && draft_.plan.rows > 0) {
      draft_.plan.chunk = std::max<std::int64_t>(1, kRowsOfSum / draft_.plan.rows);
    }
  }

  Draft draft_;
  const bool parts_;
  Shapes shapes_{draft_};
  Arithmetic arithmetic_{draft_};
  Lists lists_{draft_};
  Counters counters_{draft_};
  Sums sums_{draft_};
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_LOOPS_PLANNING_H_
