// Products and sums that only a sum over all iterations needs: they are computed for many iterations at
// once.

#ifndef TENSORWRIGHT_OPS_LOOPS_SUMS_H_
#define TENSORWRIGHT_OPS_LOOPS_SUMS_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>

#include "tensorwright/ops/loops/draft.h"

namespace tensorwright {

class Sums {
 public:
  explicit Sums(Draft& draft) : draft_(draft) {}

  // With `parts` also sums of what is put together from several of them, side by side, as gradients of
  // weights are that a layer takes apart.
  void Find(bool parts) {
    for (int i = 0; i < draft_.body.arity(); ++i) {
      const int result = draft_.body.results[i];
      const Operation* sum = draft_.body.maker(result);
      if (draft_.body.arguments[i] != tensorflow::DT_FLOAT || !IsSum(sum) ||
          draft_.body.uses[i] != 1 || draft_.body.uses[result] != 1) {
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
      if (!all || !has_own) continue;
      summed_.insert(found.begin(), found.end());
      sums_[i] = sum;
    }
  }

  // Whether a value is computed here.
  bool Has(int value) const { return summed_.count(value) != 0; }

  bool Make() {
    for (const auto& [argument, sum] : sums_) {
      for (const int input : sum->inputs) {
        Dimensions shape;
        if (input == argument) continue;
        if (!Emit(argument, input, 0, &shape) ||
            shape != DimensionsOf(draft_.given.tensors[argument])) {
          return false;
        }
      }
    }
    Plan& plan = draft_.plan;
    plan.chunk =
        std::clamp<std::int64_t>(plan.chunk, 2, std::max<std::int64_t>(2, plan.iterations));
    for (const int memory : stacked_) draft_.AtLeast(memory, plan.chunk);
    return true;
  }

 private:
  using Is = Fact::Is;

  static bool IsSum(const Operation* operation) {
    return operation != nullptr && (operation->what == Do::kAddN || operation->what == Do::kAdd);
  }

  // Adds a value, and what it is made of, to those that are summed up; false if it is none of them.
  bool Collect(int value, bool parts, std::set<int>* found) const {
    const Operation* each = draft_.body.maker(value);
    if (each == nullptr || draft_.body.uses[value] != 1 || !found->insert(value).second)
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

  // Has a value summed up in an argument's columns from `column` on. False where it can't be.
  bool Emit(int argument, int value, std::int64_t column, Dimensions* shape) {
    const Operation& each = *draft_.body.maker(value);
    switch (each.what) {
      case Do::kSliceGrad: return EmitSlice(argument, each, column, shape);
      case Do::kConcat: return EmitJoined(argument, each, column, shape);
      default: return EmitOne(argument, each, column, shape);
    }
  }

  bool EmitOne(int argument, const Operation& each, std::int64_t column, Dimensions* shape) {
    const bool product = each.what == Do::kMatMul;
    SumOf sum = {argument, column};
    const Fact& right = draft_.Of(each, product ? 1 : 0);
    if (!draft_.IsFloats(right) || right.dimensions.size() != 2 || right.dimensions[0] == 0) {
      return false;
    }
    *shape = {right.dimensions[1]};
    if (product) {
      const Fact& left = draft_.Of(each, 0);
      if (!draft_.IsFloats(left) || left.dimensions.size() != 2 ||
          left.dimensions[0] != right.dimensions[0]) {
        return false;
      }
      shape->insert(shape->begin(), left.dimensions[1]);
      sum.left = Stacked(left);
    }
    sum.right = Stacked(right);
    draft_.plan.chunk = std::max<std::int64_t>(draft_.plan.chunk, kRowsOfSum / right.dimensions[0]);
    draft_.plan.sums.push_back(sum);
    return true;
  }

  // Side by side.
  bool EmitJoined(int argument, const Operation& each, std::int64_t column, Dimensions* shape) {
    const std::size_t count = each.inputs.size() - 1;
    std::int64_t columns = 0;
    for (std::size_t i = 0; i < count; ++i) {
      Dimensions part;
      if (!Emit(argument, each.inputs[i], column + columns, &part)) return false;
      const auto axis = draft_.Axis(draft_.Of(each, count), part.size());
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

  // Some of the columns, beside zeros.
  bool EmitSlice(int argument, const Operation& each, std::int64_t column, Dimensions* shape) {
    const Fact& all = draft_.Of(each, 0);
    if (each.shrink_mask != 0 || all.is != Is::kNumbers ||
        !draft_.IsByOnes(each, all.numbers.values.size())) {
      return false;
    }
    *shape = all.numbers.values;
    Dimensions wanted = *shape, part;
    for (std::size_t axis = 0; axis < wanted.size(); ++axis) {
      const auto [first, last] = draft_.BoundsOf(each, axis, wanted[axis]);
      const bool is_last = axis + 1 == wanted.size();
      if (first < 0 || (!is_last && (first > 0 || last < wanted[axis]))) return false;
      wanted[axis] = std::min(last, wanted[axis]) - first;
      if (is_last) column += first;
    }
    return !wanted.empty() && Emit(argument, each.inputs[4], column, &part) && part == wanted;
  }

  // The same data where iterations lie one after the other: where it is, or a copy.
  View Stacked(const Fact& fact) {
    const View& view = fact.view;
    if (draft_.plan.memories[view.memory].where == Memory::Where::kOwn && draft_.IsWhole(fact) &&
        !IsWritten(view.memory)) {
      stacked_.insert(view.memory);
      return view;
    }
    const auto key = std::make_tuple(view.memory, view.offset, view.rows, view.columns,
                                     view.row_step, view.column_step);
    const auto known = stacks_.find(key);
    if (known != stacks_.end()) return known->second;
    const Fact dense = draft_.NewData(fact.dimensions, false);
    draft_.Copy(view, dense.view, false);
    stacked_.insert(dense.view.memory);
    stacks_[key] = dense.view;
    return dense.view;
  }

  // Whether it goes into a list, which has a place of its own for each iteration.
  bool IsWritten(int memory) const {
    for (const auto& [list, write] : draft_.plan.writes) {
      if (write.is_number) continue;
      const Memory& item = draft_.plan.memories[write.view.memory];
      const bool left = item.where == Memory::Where::kState &&
                        draft_.plan.states.at(item.source).memory == memory;
      if (left || write.view.memory == memory) return true;
    }
    return false;
  }

  Draft& draft_;
  std::set<int> summed_;                  // Values that are computed for many iterations at once.
  std::map<int, const Operation*> sums_;  // By argument.
  std::map<std::tuple<int, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t>,
           View>
      stacks_;
  std::set<int> stacked_;
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_LOOPS_SUMS_H_
