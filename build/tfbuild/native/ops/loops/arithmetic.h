// Plans elementwise operations, matrix products and sums.

#ifndef TENSORWRIGHT_OPS_LOOPS_ARITHMETIC_H_
#define TENSORWRIGHT_OPS_LOOPS_ARITHMETIC_H_

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "tensorwright/ops/loops/draft.h"

namespace tensorwright {

// Each public function adds the tasks of an operation to the plan. It returns false if the
// operation is not supported.
class Arithmetic {
 public:
  explicit Arithmetic(PlanBuilder& draft) : builder_(draft) {}

  // Plans an elementwise operation, with operands that are broadcast. The addition of a matrix
  // product or of a bias to one becomes part of the product where possible.
  bool Elements(const Operation& operation) {
    const RowLoops* forms = operation.loops;
    if (forms == nullptr) return false;
    if (operation.what == Do::kAdd && TryAccumulateProduct(operation)) return true;
    if (operation.what == Do::kBiasAdd && TryStartFromBias(operation)) return true;
    Dimensions shape;
    for (std::size_t i = 0; i < operation.inputs.size(); ++i) {
      const ValueInfo& fact = builder_.Of(operation, i);
      if (fact.is != ValueKind::kData || !builder_.BroadcastTo(fact.dimensions, &shape))
        return false;
      const bool wants_bytes = operation.what == Do::kNot || operation.what == Do::kAnd ||
                               operation.what == Do::kOr ||
                               (operation.what == Do::kSelect && i == 0);
      if (builder_.IsBytes(fact) != wants_bytes) return false;
    }
    if (!IsAllowed(operation, shape)) return false;
    ValueInfo fact = builder_.NewData(shape, operation.type == tensorflow::DT_BOOL);
    Task task = {Task::What::kElements, forms};
    task.out = fact.view;
    for (std::size_t i = 0; i < operation.inputs.size(); ++i) {
      View view;
      if (!builder_.BroadcastTo(builder_.Of(operation, i), shape, &view)) return false;
      task.in.push_back(view);
    }
    builder_.Add(std::move(task));
    builder_.Own(operation, fact);
    return true;
  }

  // Plans AddN. Adds the inputs from first to last, as TensorFlow does for up to nine inputs unless
  // it reuses the buffer of a later one (core/kernels/aggregate_ops.cc).
  bool AddAll(const Operation& operation) {
    ValueInfo sum = builder_.Of(operation, 0);
    bool is_own = IsOnlyUse(operation, 0);
    for (std::size_t i = 1; i < operation.inputs.size(); ++i) {
      if (is_own && Accumulate(sum, operation, i)) continue;
      const ValueInfo& next = builder_.Of(operation, i);
      if (!builder_.IsFloats(sum) || !builder_.IsFloats(next) || next.dimensions != sum.dimensions)
        return false;
      ValueInfo fact = builder_.NewData(sum.dimensions, false);
      Task task = {Task::What::kElements, FindRowLoops("AddV2")};
      task.out = fact.view;
      task.in.resize(2);
      if (!builder_.BroadcastTo(sum, fact.dimensions, &task.in[0]) ||
          !builder_.BroadcastTo(next, fact.dimensions, &task.in[1])) {
        return false;
      }
      builder_.Add(std::move(task));
      sum = fact;
      is_own = true;
    }
    if (operation.inputs.size() > 1) builder_.owners[sum.view.memory] = operation.output;
    builder_.Out(operation) = sum;
    return true;
  }

  // Plans MatMul.
  bool Product(const Operation& operation) {
    const ValueInfo &a = builder_.Of(operation, 0), &b = builder_.Of(operation, 1);
    if (!builder_.IsFloats(a) || !builder_.IsFloats(b) || a.dimensions.size() != 2 ||
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
    if (left.columns != depth || depth == 0 || left.rows == 0 || columns == 0) return false;
    ValueInfo fact = builder_.NewData({left.rows, columns}, false);
    Task task = {Task::What::kProduct};
    task.out = fact.view;
    task.in = {left};
    task.packed = NewRight(b.view, operation.transpose_b);
    builder_.Add(std::move(task));
    builder_.Own(operation, fact);
    return true;
  }

  // Plans Sum and BiasAddGrad: along the last axis, along all others, or along all.
  bool Sum(const Operation& operation) {
    const ValueInfo from = builder_.Of(operation, 0);
    // Sums of no elements would be zeros, but a view of no elements has no rows.
    if (!builder_.IsFloats(from) || tensorwright::Elements(from.dimensions) == 0) return false;
    const auto rank = static_cast<std::int64_t>(from.dimensions.size());
    std::set<std::int64_t> axes;
    if (operation.what == Do::kBiasAddGrad) {
      if (rank < 2) return false;
      for (std::int64_t axis = 0; axis + 1 < rank; ++axis) axes.insert(axis);
    } else {
      if (builder_.Of(operation, 1).is != ValueKind::kNumbers) return false;
      for (const std::int64_t axis : builder_.Of(operation, 1).numbers.values) {
        const std::int64_t from_start = axis < 0 ? axis + rank : axis;
        // Stock raises an error for an axis that is out of range or given twice.
        if (from_start < 0 || from_start >= rank || !axes.insert(from_start).second) return false;
      }
    }
    // A sum along an axis of one element changes nothing. Rows stand for all axes but the last.
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
    if (keeps_rows && keeps_last) return builder_.SetReshaped(operation, from, shape);
    if (!(sums_rows && (keeps_last || sums_last)) && !(keeps_rows && sums_last)) return false;
    View view = from.view;
    if (!keeps_rows) {
      const ValueInfo columns = builder_.NewData({1, view.columns}, false);
      Reduce(Task::What::kColumnSums, view, columns.view);
      view = columns.view;
    }
    if (!keeps_last) {
      const ValueInfo rows = builder_.NewData({view.rows, 1}, false);
      Reduce(Task::What::kRowSums, view, rows.view);
      view = rows.view;
    }
    ValueInfo fact = from;
    fact.view = view;
    return builder_.SetReshaped(operation, fact, shape);
  }

 private:
  using ValueKind = ValueInfo::ValueKind;

  // Whether TensorFlow accepts the shapes of the operands: not every operation broadcasts.
  bool IsAllowed(const Operation& operation, const Dimensions& shape) const {
    switch (operation.what) {
      case Do::kBiasAdd:
        return shape.size() >= 2 && builder_.Of(operation, 0).dimensions == shape &&
               builder_.Of(operation, 1).dimensions == Dimensions{shape.back()};
      case Do::kSigmoidGrad:
      case Do::kTanhGrad:
      case Do::kReluGrad:
      case Do::kRelu6Grad:
        return builder_.Of(operation, 0).dimensions == builder_.Of(operation, 1).dimensions;
      default: return true;
    }
  }

  // Plans an addition of a matrix product to a value that was computed before it, in place. Returns
  // false if this is not possible, for example if one of them is used elsewhere.
  bool TryAccumulateProduct(const Operation& operation) {
    for (const int input : {0, 1}) {
      const ValueInfo sum = builder_.Of(operation, input);
      if (!IsOnlyUse(operation, input) || !Accumulate(sum, operation, 1 - input)) continue;
      builder_.Own(operation, sum);
      return true;
    }
    return false;
  }

  // Makes the matrix product that computes an input of `operation` accumulate onto `sum` in place.
  // Returns false if that is not possible, for example if something else uses the product or a
  // later task writes `sum`.
  bool Accumulate(const ValueInfo& sum, const Operation& operation, int input) {
    const ValueInfo& product = builder_.Of(operation, input);
    if (!IsOnlyUse(operation, input) || sum.dimensions != product.dimensions) return false;
    const std::vector<int> own = Writers(product);
    if (own.size() != 1 || Writers(sum).back() > own[0]) return false;
    Task& task = builder_.plan.tasks[own[0]];
    if (task.what != Task::What::kProduct || task.in.size() > 1) return false;
    task.out = sum.view;
    task.adds = true;
    builder_.plan.memories[sum.view.memory].writer = -2;
    builder_.plan.memories[product.view.memory].dimensions = {0};
    return true;
  }

  // Plans the addition of a bias to a sum of matrix products that nothing else uses: the first
  // product starts from the bias. Returns false if this is not possible.
  bool TryStartFromBias(const Operation& operation) {
    const ValueInfo sum = builder_.Of(operation, 0), &bias = builder_.Of(operation, 1);
    if (!IsOnlyUse(operation, 0) || !builder_.IsFloats(bias) ||
        !IsAllowed(operation, sum.dimensions) || !bias.view.IsDense() ||
        builder_.plan.memories[bias.view.memory].where != Memory::Where::kFixed) {
      return false;
    }
    Task& first = builder_.plan.tasks[Writers(sum)[0]];
    if (first.what != Task::What::kProduct || first.in.size() > 1) return false;
    first.in.push_back(bias.view);
    builder_.Own(operation, sum);
    return true;
  }

  // Whether an input is computed by the loop, is the whole content of its memory, and has no other
  // use.
  bool IsOnlyUse(const Operation& operation, int input) const {
    const ValueInfo& fact = builder_.Of(operation, input);
    if (!builder_.IsFloats(fact) || builder_.body.uses[operation.inputs[input]] != 1) return false;
    const auto owner = builder_.owners.find(fact.view.memory);
    return owner != builder_.owners.end() && owner->second == operation.inputs[input] &&
           builder_.IsWhole(fact);
  }

  // Returns the tasks that write the memory of a value, in order.
  std::vector<int> Writers(const ValueInfo& fact) const {
    std::vector<int> writers;
    for (std::size_t i = 0; i < builder_.plan.tasks.size(); ++i) {
      if (builder_.plan.tasks[i].out.memory == fact.view.memory) writers.push_back(i);
    }
    return writers;
  }

  // Returns the index of a right matrix in Plan::rights. Products share a matrix of a kFixed
  // memory.
  int NewRight(const View& view, bool transposed) {
    const bool fixed = builder_.plan.memories[view.memory].where == Memory::Where::kFixed;
    for (std::size_t i = 0; i < builder_.plan.rights.size(); ++i) {
      const Right& right = builder_.plan.rights[i];
      if (right.view.memory == view.memory && right.view.offset == view.offset &&
          right.view.rows == view.rows && right.view.columns == view.columns &&
          right.view.row_step == view.row_step && right.view.column_step == view.column_step &&
          right.transposed == transposed && fixed) {
        return static_cast<int>(i);
      }
    }
    builder_.plan.rights.push_back({view, transposed, fixed});
    return static_cast<int>(builder_.plan.rights.size()) - 1;
  }

  // Adds a task that sums the rows or the columns of a view.
  void Reduce(Task::What what, const View& from, const View& to) {
    Task task = {what};
    task.out = to;
    task.in = {from};
    builder_.Add(std::move(task));
  }

  PlanBuilder& builder_;
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_LOOPS_ARITHMETIC_H_
