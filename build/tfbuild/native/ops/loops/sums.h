// Plans sums over all iterations, such as gradients of weights. Their products and sums are
// computed for many iterations at once.

#ifndef TENSORWRIGHT_OPS_LOOPS_SUMS_H_
#define TENSORWRIGHT_OPS_LOOPS_SUMS_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>

#include "tensorwright/ops/loops/draft.h"

namespace tensorwright {

// A sum over iterations is an argument to which each iteration adds matrix products a^T b or sums
// of rows, and which nothing else uses. The operands of a chunk of iterations are stacked, so that
// one product of the stacks adds what the chunk contributes.
class Sums {
 public:
  explicit Sums(PlanBuilder& draft) : builder_(draft) {}

  // Finds the sums. With `parts`, also those of values that are assembled from several products by
  // concatenations and gradients of slices, such as the gradient of weights that a layer splits.
  void Find(bool parts) {
    for (int i = 0; i < builder_.body.arity(); ++i) {
      const int result = builder_.body.results[i];
      const Operation* sum = builder_.body.producer(result);
      if (builder_.body.arguments[i] != tensorflow::DT_FLOAT || !IsSum(sum) ||
          builder_.body.uses[i] != 1 || builder_.body.uses[result] != 1) {
        continue;
      }
      std::set<int> found = {i, result};
      bool all = parts || sum->inputs.size() == 2, has_own = false;
      for (const int input : sum->inputs) {
        if (input == i) {
          has_own = true;
        } else {
          all = all && Collect(input, parts, &found);
        }
      }
      if (!all || !has_own || sum->inputs.size() < 2) continue;
      summed_.insert(found.begin(), found.end());
      sums_[i] = sum;
    }
  }

  // Whether a value belongs to a sum, so that no other class plans it.
  bool Has(int value) const { return summed_.count(value) != 0; }

  // Adds the sums to the plan. Returns false if one is not supported.
  bool Make() {
    for (const auto& [argument, sum] : sums_) {
      for (const int input : sum->inputs) {
        Dimensions shape;
        if (input == argument) continue;
        if (!Emit(argument, input, 0, &shape) ||
            shape != DimensionsOf(builder_.given.tensors[argument])) {
          return false;
        }
      }
    }
    Plan& plan = builder_.plan;
    plan.chunk =
        std::clamp<std::int64_t>(plan.chunk, 2, std::max<std::int64_t>(2, plan.iterations));
    for (const int memory : stacked_) builder_.RequireBuffers(memory, plan.chunk);
    return true;
  }

 private:
  using ValueKind = ValueInfo::ValueKind;

  static bool IsSum(const Operation* operation) {
    return operation != nullptr && (operation->what == Do::kAddN || operation->what == Do::kAdd);
  }

  // Inserts a value that is summed, and the values that it is assembled from, into `found`. Returns
  // false if it is not such a value or has other uses.
  bool Collect(int value, bool parts, std::set<int>* found) const {
    const Operation* each = builder_.body.producer(value);
    if (each == nullptr || builder_.body.uses[value] != 1 || !found->insert(value).second)
      return false;
    switch (each->what) {
      case Do::kMatMul: return each->transpose_a && !each->transpose_b;
      case Do::kBiasAddGrad: return true;
      case Do::kSliceGrad: return parts && Collect(each->inputs[4], parts, found);
      case Do::kConcat:
        return parts && std::all_of(each->inputs.begin(), each->inputs.end() - 1,
                                    [&](int input) { return Collect(input, parts, found); });
      default: return false;
    }
  }

  // Plans the sum of a value over iterations, into the columns of an argument from `column` on.
  // Sets `shape` to the shape of the value. Returns false if the sum is not supported.
  bool Emit(int argument, int value, std::int64_t column, Dimensions* shape) {
    const Operation& each = *builder_.body.producer(value);
    switch (each.what) {
      case Do::kSliceGrad: return EmitSlice(argument, each, column, shape);
      case Do::kConcat: return EmitJoined(argument, each, column, shape);
      default: return EmitOne(argument, each, column, shape);
    }
  }

  // Plans the sum of a matrix product or of sums of rows.
  bool EmitOne(int argument, const Operation& each, std::int64_t column, Dimensions* shape) {
    const bool product = each.what == Do::kMatMul;
    SumOf sum = {argument, column};
    const ValueInfo& right = builder_.Of(each, product ? 1 : 0);
    if (!builder_.IsFloats(right) || right.dimensions.size() != 2 ||
        tensorwright::Elements(right.dimensions) == 0) {
      return false;
    }
    *shape = {right.dimensions[1]};
    if (product) {
      const ValueInfo& left = builder_.Of(each, 0);
      if (!builder_.IsFloats(left) || left.dimensions.size() != 2 ||
          left.dimensions[0] != right.dimensions[0]) {
        return false;
      }
      shape->insert(shape->begin(), left.dimensions[1]);
      sum.left = StackIterations(left);
    }
    sum.right = StackIterations(right);
    builder_.plan.chunk =
        std::max<std::int64_t>(builder_.plan.chunk, kRowsOfSum / right.dimensions[0]);
    builder_.plan.sums.push_back(sum);
    return true;
  }

  // Plans the sum of a concatenation along the last axis.
  bool EmitJoined(int argument, const Operation& each, std::int64_t column, Dimensions* shape) {
    const std::size_t count = each.inputs.size() - 1;
    std::int64_t columns = 0;
    for (std::size_t i = 0; i < count; ++i) {
      Dimensions part;
      if (!Emit(argument, each.inputs[i], column + columns, &part)) return false;
      const auto axis = builder_.Axis(builder_.Of(each, count), part.size());
      if (!axis || *axis + 1 != static_cast<std::int64_t>(part.size())) return false;
      columns += part.back();
      part.back() = columns;
      const bool alike =
          i == 0 || (part.size() == shape->size() && (part.size() == 1 || part[0] == (*shape)[0]));
      if (!alike || part.size() > 2) return false;
      *shape = part;
    }
    return true;
  }

  // Plans the sum of a gradient of a slice of columns. The other columns get zeros, so nothing is
  // added.
  bool EmitSlice(int argument, const Operation& each, std::int64_t column, Dimensions* shape) {
    const ValueInfo& all = builder_.Of(each, 0);
    if (each.shrink_mask != 0 || !builder_.IsVector(all) ||
        !builder_.HasUnitStrides(each, all.numbers.values.size())) {
      return false;
    }
    *shape = all.numbers.values;
    Dimensions wanted = *shape, part;
    for (std::size_t axis = 0; axis < wanted.size(); ++axis) {
      const auto [first, last] = builder_.BoundsOf(each, axis, wanted[axis]);
      const bool is_last = axis + 1 == wanted.size();
      if (first < 0 || (!is_last && (first > 0 || last < wanted[axis]))) return false;
      wanted[axis] = std::min(last, wanted[axis]) - first;
      if (is_last) column += first;
    }
    return !wanted.empty() && Emit(argument, each.inputs[4], column, &part) && part == wanted;
  }

  // Returns a view of the data in a memory whose buffers hold the iterations of a chunk in order:
  // its own memory, or that of a copy.
  View StackIterations(const ValueInfo& fact) {
    const View& view = fact.view;
    if (builder_.plan.memories[view.memory].where == Memory::Where::kOwn &&
        builder_.IsWhole(fact) && !IsWrittenToList(view.memory)) {
      stacked_.insert(view.memory);
      return view;
    }
    const auto key = std::make_tuple(view.memory, view.offset, view.rows, view.columns,
                                     view.row_step, view.column_step);
    const auto known = stacks_.find(key);
    if (known != stacks_.end()) return known->second;
    const ValueInfo dense = builder_.NewData(fact.dimensions, false);
    builder_.Copy(view, dense.view, false);
    stacked_.insert(dense.view.memory);
    stacks_[key] = dense.view;
    return dense.view;
  }

  // Whether a memory is written to a list, so that each iteration has a buffer of its own.
  bool IsWrittenToList(int memory) const {
    for (const auto& [list, write] : builder_.plan.writes) {
      if (write.is_number) continue;
      const Memory& item = builder_.plan.memories[write.view.memory];
      const bool left = item.where == Memory::Where::kState &&
                        builder_.plan.states.at(item.source).memory == memory;
      if (left || write.view.memory == memory) return true;
    }
    return false;
  }

  PlanBuilder& builder_;
  std::set<int> summed_;                  // Values that belong to sums.
  std::map<int, const Operation*> sums_;  // By argument: the addition to it.
  // Copies, by the memory, offset, size and steps of the view that was copied.
  std::map<std::tuple<int, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t>,
           View>
      stacks_;
  std::set<int> stacked_;  // Memories that need a buffer for each iteration of a chunk.
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_LOOPS_SUMS_H_
