// Products and sums that only a sum over all iterations needs: they are computed for many iterations at
// once.

#ifndef TENSORWRIGHT_FUSED_LOOP_SUMS_H_
#define TENSORWRIGHT_FUSED_LOOP_SUMS_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>

#include "tensorwright/fused/loop_draft.h"

namespace tensorwright {

class Sums {
 public:
  explicit Sums(Draft& draft) : draft_(draft) {}

  void Find() {
    for (int i = 0; i < draft_.body.arity(); ++i) {
      const int result = draft_.body.results[i];
      const Operation* sum = draft_.body.maker(result);
      if (draft_.body.arguments[i] != tensorflow::DT_FLOAT || sum == nullptr ||
          draft_.body.uses[i] != 1 || (sum->what != Do::kAddN && sum->what != Do::kAdd) ||
          sum->inputs.size() != 2 || draft_.body.uses[result] != 1) {
        continue;
      }
      const int own = sum->inputs[0] == i ? 0 : 1;
      const int other = sum->inputs[1 - own];
      const Operation* each = draft_.body.maker(other);
      if (sum->inputs[own] != i || each == nullptr || draft_.body.uses[other] != 1) continue;
      const bool product = each->what == Do::kMatMul && each->transpose_a && !each->transpose_b;
      if (!product && each->what != Do::kBiasAddGrad) continue;
      summed_[i] = each;
      summed_[result] = each;
      summed_[other] = each;
    }
  }

  // Whether a value is computed here.
  bool Has(int value) const { return summed_.count(value) != 0; }

  bool Make() {
    for (int i = 0; i < draft_.body.arity(); ++i) {
      const auto found = summed_.find(i);
      if (found == summed_.end()) continue;
      const Operation& each = *found->second;
      const Dimensions into = DimensionsOf(draft_.given.tensors[i]);
      SumOf sum = {i};
      const Fact& right = draft_.Of(each, each.what == Do::kMatMul ? 1 : 0);
      if (!draft_.IsFloats(right) || right.dimensions.size() != 2) return false;
      Dimensions shape = {right.dimensions[1]};
      if (each.what == Do::kMatMul) {
        const Fact& left = draft_.Of(each, 0);
        if (!draft_.IsFloats(left) || left.dimensions.size() != 2 ||
            left.dimensions[0] != right.dimensions[0]) {
          return false;
        }
        shape.insert(shape.begin(), left.dimensions[1]);
        sum.left = Stacked(left);
      }
      if (shape != into || right.dimensions[0] == 0) return false;
      sum.right = Stacked(right);
      draft_.plan.chunk =
          std::max<std::int64_t>(draft_.plan.chunk, kRowsOfSum / right.dimensions[0]);
      draft_.plan.sums.push_back(sum);
    }
    draft_.plan.chunk = std::clamp<std::int64_t>(draft_.plan.chunk, 2,
                                                 std::max<std::int64_t>(2, draft_.plan.iterations));
    for (const int memory : stacked_) draft_.AtLeast(memory, draft_.plan.chunk);
    return true;
  }

 private:
  using Is = Fact::Is;

  // The same data where iterations lie one after the other.
  View Stacked(const Fact& fact) {
    const View& view = fact.view;
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

  Draft& draft_;
  std::map<int, const Operation*> summed_;  // Values that are computed for many iterations at once.
  std::map<std::tuple<int, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t>,
           View>
      stacks_;
  std::set<int> stacked_;
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_FUSED_LOOP_SUMS_H_
