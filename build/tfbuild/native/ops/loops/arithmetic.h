// Operations that compute: on elements, on matrices, sums.

#ifndef TENSORWRIGHT_OPS_LOOPS_ARITHMETIC_H_
#define TENSORWRIGHT_OPS_LOOPS_ARITHMETIC_H_

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "tensorwright/ops/loops/draft.h"

namespace tensorwright {

class Arithmetic {
 public:
  explicit Arithmetic(Draft& draft) : draft_(draft) {}

  bool Elements(const Operation& operation) {
    const Forms* forms = FormsFor(operation.what);
    if (forms == nullptr) return false;
    if (operation.what == Do::kAdd && AddsProduct(operation)) return true;
    if (operation.what == Do::kBiasAdd && BeginsWithBias(operation)) return true;
    Dimensions shape;
    for (std::size_t i = 0; i < operation.inputs.size(); ++i) {
      const Fact& fact = draft_.Of(operation, i);
      if (fact.is != Is::kData || !draft_.Spread(fact.dimensions, &shape)) return false;
      const bool wants_bytes = operation.what == Do::kNot || operation.what == Do::kAnd ||
                               operation.what == Do::kOr ||
                               (operation.what == Do::kSelect && i == 0);
      if (draft_.IsBytes(fact) != wants_bytes) return false;
    }
    if (!IsAllowed(operation, shape)) return false;
    Fact fact = draft_.NewData(shape, operation.type == tensorflow::DT_BOOL);
    Task task = {Task::What::kElements, forms};
    task.out = fact.view;
    for (std::size_t i = 0; i < operation.inputs.size(); ++i) {
      View view;
      if (!draft_.Spread(draft_.Of(operation, i), shape, &view)) return false;
      task.in.push_back(view);
    }
    draft_.Add(std::move(task));
    draft_.Own(operation, fact);
    return true;
  }

  // In stock's order.
  bool AddAll(const Operation& operation) {
    Fact sum = draft_.Of(operation, 0);
    bool is_own = IsOnlyUse(operation, 0);
    for (std::size_t i = 1; i < operation.inputs.size(); ++i) {
      if (is_own && Accumulate(sum, operation, i)) continue;
      const Fact& next = draft_.Of(operation, i);
      if (!draft_.IsFloats(sum) || !draft_.IsFloats(next) || next.dimensions != sum.dimensions)
        return false;
      Fact fact = draft_.NewData(sum.dimensions, false);
      Task task = {Task::What::kElements, FormsFor(Do::kAdd)};
      task.out = fact.view;
      task.in.resize(2);
      if (!draft_.Spread(sum, fact.dimensions, &task.in[0]) ||
          !draft_.Spread(next, fact.dimensions, &task.in[1])) {
        return false;
      }
      draft_.Add(std::move(task));
      sum = fact;
      is_own = true;
    }
    if (operation.inputs.size() > 1) draft_.owners[sum.view.memory] = operation.output;
    draft_.Out(operation) = sum;
    return true;
  }

  bool Product(const Operation& operation) {
    const Fact &a = draft_.Of(operation, 0), &b = draft_.Of(operation, 1);
    if (!draft_.IsFloats(a) || !draft_.IsFloats(b) || a.dimensions.size() != 2 ||
        b.dimensions.size() != 2) {
      return false;
    }
    View left = a.view;
    if (operation.transpose_a) {
      std::swap(left.rows, left.columns);
      std::swap(left.row_step, left.column_step);
    }
    const std::int64_t depth = b.dimensions[operation.transpose_b ? 1 : 0];
    const std::int64_t columns = b.dimensions[operation.transpose_b ? 0 : 1];
    if (left.columns != depth || left.rows == 0 || columns == 0) return false;
    Fact fact = draft_.NewData({left.rows, columns}, false);
    Task task = {Task::What::kProduct};
    task.out = fact.view;
    task.in = {left};
    task.packed = NewRight(b.view, operation.transpose_b);
    draft_.Add(std::move(task));
    draft_.Own(operation, fact);
    return true;
  }

  bool Sum(const Operation& operation) {
    const Fact from = draft_.Of(operation, 0);
    // Of no elements the sums are zeros, and views of them have no rows.
    if (!draft_.IsFloats(from) || tensorwright::Elements(from.dimensions) == 0) return false;
    const auto rank = static_cast<std::int64_t>(from.dimensions.size());
    std::set<std::int64_t> axes;
    if (operation.what == Do::kBiasAddGrad) {
      if (rank < 2) return false;
      for (std::int64_t axis = 0; axis + 1 < rank; ++axis) axes.insert(axis);
    } else {
      if (draft_.Of(operation, 1).is != Is::kNumbers) return false;
      for (const std::int64_t axis : draft_.Of(operation, 1).numbers.values) {
        axes.insert(axis < 0 ? axis + rank : axis);
      }
    }
    // Of axes of one element a sum changes nothing.
    Dimensions shape;
    bool sums_rows = true, keeps_rows = true, sums_last = true, keeps_last = true;
    for (std::int64_t axis = 0; axis < rank; ++axis) {
      const bool sums = axes.count(axis) != 0;
      if (!sums)
        shape.push_back(from.dimensions[axis]);
      else if (operation.keeps_dimensions)
        shape.push_back(1);
      if (from.dimensions[axis] == 1) continue;
      bool& wrong =
          axis + 1 < rank ? (sums ? keeps_rows : sums_rows) : (sums ? keeps_last : sums_last);
      wrong = false;
    }
    if (keeps_rows && keeps_last) return draft_.Shaped(operation, from, shape);
    if (!(sums_rows && (keeps_last || sums_last)) && !(keeps_rows && sums_last)) return false;
    View view = from.view;
    if (!keeps_rows) {
      const Fact columns = draft_.NewData({1, view.columns}, false);
      Reduce(Task::What::kColumnSums, view, columns.view);
      view = columns.view;
    }
    if (!keeps_last) {
      const Fact rows = draft_.NewData({view.rows, 1}, false);
      Reduce(Task::What::kRowSums, view, rows.view);
      view = rows.view;
    }
    Fact fact = from;
    fact.view = view;
    return draft_.Shaped(operation, fact, shape);
  }

 private:
  using Is = Fact::Is;

  // Not every operation broadcasts: TensorFlow refuses some operands that would fit.
  bool IsAllowed(const Operation& operation, const Dimensions& shape) const {
    switch (operation.what) {
      case Do::kBiasAdd:
        return shape.size() >= 2 && draft_.Of(operation, 0).dimensions == shape &&
               draft_.Of(operation, 1).dimensions == Dimensions{shape.back()};
      case Do::kSigmoidGrad:
      case Do::kTanhGrad:
      case Do::kReluGrad:
      case Do::kRelu6Grad:
        return draft_.Of(operation, 0).dimensions == draft_.Of(operation, 1).dimensions;
      default: return true;
    }
  }

  // A sum of a product and of what was there before it, neither of which is used elsewhere.
  bool AddsProduct(const Operation& operation) {
    for (const int input : {0, 1}) {
      const Fact sum = draft_.Of(operation, input);
      if (!IsOnlyUse(operation, input) || !Accumulate(sum, operation, 1 - input)) continue;
      draft_.Own(operation, sum);
      return true;
    }
    return false;
  }

  // Lets a product that nothing else uses be added to what was there before it, where that lies.
  bool Accumulate(const Fact& sum, const Operation& operation, int input) {
    const Fact& product = draft_.Of(operation, input);
    if (!IsOnlyUse(operation, input) || sum.dimensions != product.dimensions) return false;
    const std::vector<int> own = Writers(product);
    if (own.size() != 1 || Writers(sum).back() > own[0]) return false;
    Task& task = draft_.plan.tasks[own[0]];
    if (task.what != Task::What::kProduct || task.in.size() > 1) return false;
    task.out = sum.view;
    task.adds = true;
    draft_.plan.memories[sum.view.memory].writer = -2;
    draft_.plan.memories[product.view.memory].dimensions = {0};
    return true;
  }

  // A row that is added to a sum of products, which nothing else uses: the first one begins with it.
  bool BeginsWithBias(const Operation& operation) {
    const Fact sum = draft_.Of(operation, 0), &bias = draft_.Of(operation, 1);
    if (!IsOnlyUse(operation, 0) || !draft_.IsFloats(bias) ||
        !IsAllowed(operation, sum.dimensions) || !bias.view.IsDense() ||
        draft_.plan.memories[bias.view.memory].where != Memory::Where::kFixed) {
      return false;
    }
    Task& first = draft_.plan.tasks[Writers(sum)[0]];
    if (first.what != Task::What::kProduct || first.in.size() > 1) return false;
    first.in.push_back(bias.view);
    draft_.Own(operation, sum);
    return true;
  }

  // Whether nothing else uses what an operation gets, a matrix that the loop computes.
  bool IsOnlyUse(const Operation& operation, int input) const {
    const Fact& fact = draft_.Of(operation, input);
    if (!draft_.IsFloats(fact) || draft_.body.uses[operation.inputs[input]] != 1) return false;
    const auto owner = draft_.owners.find(fact.view.memory);
    return owner != draft_.owners.end() && owner->second == operation.inputs[input] &&
           draft_.IsWhole(fact);
  }

  // The tasks that write where a value lies that the loop computes, in their order.
  std::vector<int> Writers(const Fact& fact) const {
    std::vector<int> writers;
    for (std::size_t i = 0; i < draft_.plan.tasks.size(); ++i) {
      if (draft_.plan.tasks[i].out.memory == fact.view.memory) writers.push_back(i);
    }
    return writers;
  }

  int NewRight(const View& view, bool transposed) {
    const bool fixed = draft_.plan.memories[view.memory].where == Memory::Where::kFixed;
    for (std::size_t i = 0; i < draft_.plan.rights.size(); ++i) {
      const Right& right = draft_.plan.rights[i];
      if (right.view.memory == view.memory && right.view.offset == view.offset &&
          right.view.rows == view.rows && right.view.columns == view.columns &&
          right.view.row_step == view.row_step && right.view.column_step == view.column_step &&
          right.transposed == transposed && fixed) {
        return static_cast<int>(i);
      }
    }
    draft_.plan.rights.push_back({view, transposed, fixed});
    return static_cast<int>(draft_.plan.rights.size()) - 1;
  }

  void Reduce(Task::What what, const View& from, const View& to) {
    Task task = {what};
    task.out = to;
    task.in = {from};
    draft_.Add(std::move(task));
  }

  Draft& draft_;
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_LOOPS_ARITHMETIC_H_
