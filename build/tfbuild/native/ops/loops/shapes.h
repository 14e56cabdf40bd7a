// Plans operations that slice, split, join, repeat or reshape tensors. Most results are views,
// which cost nothing during execution.

#ifndef TENSORWRIGHT_OPS_LOOPS_SHAPES_H_
#define TENSORWRIGHT_OPS_LOOPS_SHAPES_H_

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "tensorwright/ops/loops/draft.h"

namespace tensorwright {

// The largest number of elements of a constant fill.
constexpr std::int64_t kMostFilled = 1 << 24;

// Each public function but AreSlicesInRange plans an operation. It returns false if the operation
// is not supported.
class Shapes {
 public:
  explicit Shapes(PlanBuilder& draft) : builder_(draft) {}

  bool Shape(const Operation& operation) {
    const ValueInfo& of = builder_.Of(operation, 0);
    if (of.is == ValueKind::kList || of.is == ValueKind::kHandle) return false;
    // The shape of a counter that an operation computes is not known yet (Counters::Follow).
    if (of.is == ValueKind::kCounter && operation.inputs[0] >= builder_.body.arity()) return false;
    const Dimensions& dimensions =
        of.is == ValueKind::kData ? of.dimensions : of.numbers.dimensions;
    for (const std::int64_t size : dimensions) {
      if (WrapAround(size, operation.type) != size) return false;
    }
    ValueInfo& fact = builder_.Out(operation);
    fact.is = ValueKind::kNumbers;
    fact.numbers = {{static_cast<std::int64_t>(dimensions.size())}, dimensions};
    return true;
  }

  bool Reshape(const Operation& operation) {
    const ValueInfo& from = builder_.Of(operation, 0);
    if (from.is != ValueKind::kData || !builder_.IsVector(builder_.Of(operation, 1))) return false;
    Dimensions dimensions = builder_.Of(operation, 1).numbers.values;
    if (!ResolveShape(dimensions, Elements(from.dimensions))) return false;
    return builder_.SetReshaped(operation, from, dimensions);
  }

  bool Squeeze(const Operation& operation) {
    const ValueInfo& from = builder_.Of(operation, 0);
    if (from.is != ValueKind::kData) return false;
    const auto rank = static_cast<std::int64_t>(from.dimensions.size());
    std::set<std::int64_t> axes;
    for (const std::int64_t axis : operation.axes) {
      if (axis < -rank || axis >= rank) return false;
      axes.insert(axis < 0 ? axis + rank : axis);
    }
    Dimensions shape;
    for (std::int64_t axis = 0; axis < rank; ++axis) {
      const bool goes = axes.count(axis) != 0 || (axes.empty() && from.dimensions[axis] == 1);
      if (goes && from.dimensions[axis] != 1) return false;
      if (!goes) shape.push_back(from.dimensions[axis]);
    }
    return builder_.SetReshaped(operation, from, shape);
  }

  bool ExpandDims(const Operation& operation) {
    const ValueInfo& from = builder_.Of(operation, 0);
    const auto axis = builder_.Axis(builder_.Of(operation, 1), from.dimensions.size() + 1);
    if (from.is != ValueKind::kData || !axis) return false;
    Dimensions shape = from.dimensions;
    shape.insert(shape.begin() + *axis, 1);
    return builder_.SetReshaped(operation, from, shape);
  }

  // Plans Split and SplitV along the first or last axis. The outputs are views.
  bool Split(const Operation& operation) {
    const bool sized = operation.what == Do::kSplitV;
    const ValueInfo from = builder_.Of(operation, sized ? 0 : 1);
    if (from.is != ValueKind::kData) return false;
    const auto axis = builder_.Axis(builder_.Of(operation, sized ? 2 : 0), from.dimensions.size());
    if (!axis) return false;
    std::vector<std::int64_t> sizes(operation.outputs, from.dimensions[*axis] / operation.outputs);
    if (sized) {
      if (!builder_.IsVector(builder_.Of(operation, 1))) return false;
      sizes = builder_.Of(operation, 1).numbers.values;
      if (sizes == Dimensions{-1}) return false;  // Stock replaces -1 only among several sizes.
      if (static_cast<int>(sizes.size()) != operation.outputs ||
          !SizesFit(sizes, from.dimensions[*axis])) {
        return false;
      }
    }
    std::int64_t first = 0;
    for (int i = 0; i < operation.outputs; ++i) {
      ValueInfo part;
      if (!Part(from, *axis, first, sizes[i], &part)) return false;
      builder_.Out(operation, i) = part;
      first += sizes[i];
    }
    return first == from.dimensions[*axis];
  }

  // Plans ConcatV2 along the first or last axis. Inputs without another use are written there
  // directly where possible.
  bool Concat(const Operation& operation) {
    const int count = static_cast<int>(operation.inputs.size()) - 1;
    if (!builder_.IsFloats(builder_.Of(operation, 0))) return false;
    Dimensions dimensions = builder_.Of(operation, 0).dimensions;
    const auto axis = builder_.Axis(builder_.Of(operation, count), dimensions.size());
    if (!axis || (*axis != 0 && *axis + 1 != static_cast<std::int64_t>(dimensions.size()))) {
      return false;
    }
    for (int i = 1; i < count; ++i) {
      const ValueInfo& part = builder_.Of(operation, i);
      if (!builder_.IsFloats(part) || part.dimensions.size() != dimensions.size()) return false;
      dimensions[*axis] += part.dimensions[*axis];
    }
    ValueInfo fact = builder_.NewData(dimensions, false);
    std::int64_t first = 0;
    for (int i = 0; i < count; ++i) {
      const std::int64_t size = builder_.Of(operation, i).dimensions[*axis];
      ValueInfo part;
      if (!Part(fact, *axis, first, size, &part) ||
          part.dimensions != builder_.Of(operation, i).dimensions) {
        return false;
      }
      WriteOrCopy(operation.inputs[i], part.view);
      first += size;
    }
    builder_.plan.memories[fact.view.memory].writer = -2;
    builder_.Out(operation) = fact;
    return true;
  }

  // Plans x[i] for a counter i and a tensor x that is the same in every iteration.
  bool SliceByCounter(const Operation& operation) {
    const ValueInfo& from = builder_.Of(operation, 0);
    const ValueInfo& begin = builder_.Of(operation, 1);
    const ValueInfo& strides = builder_.Of(operation, 3);
    if (!operation.IsSingleIndex() || from.is != ValueKind::kData || from.dimensions.size() < 2 ||
        begin.is != ValueKind::kCounter || !builder_.IsVector(strides) ||
        strides.numbers.values != Dimensions{1} ||
        builder_.plan.memories[from.view.memory].where != Memory::Where::kFixed ||
        !builder_.IsWhole(from)) {
      return false;
    }
    builder_.plan.slices.push_back({from.view.memory, operation.inputs[1]});
    ends_.push_back(operation.inputs[2]);
    const Dimensions shape(from.dimensions.begin() + 1, from.dimensions.end());
    builder_.Data(
        builder_.Out(operation),
        builder_.NewMemory(Memory::Where::kSlice, static_cast<int>(builder_.plan.slices.size()) - 1,
                           shape, builder_.IsBytes(from)));
    return true;
  }

  // Whether the indices of all slices by counters are in range, and their ends vectors of one
  // element. Needs the values of the counters.
  bool AreSlicesInRange() const {
    for (const int end : ends_) {
      const auto found = builder_.plan.counters.find(end);
      const Dimensions& dimensions = found == builder_.plan.counters.end()
                                         ? builder_.facts[end].numbers.dimensions
                                         : found->second.dimensions;
      if (dimensions != Dimensions{1}) return false;
    }
    for (const CounterSlice& slice : builder_.plan.slices) {
      const auto found = builder_.plan.counters.find(slice.index);
      if (found == builder_.plan.counters.end() || found->second.dimensions.size() != 1)
        return false;
      const std::int64_t size = builder_.plan.memories[slice.memory].dimensions[0];
      for (const std::int64_t index : found->second.values) {
        if (index < 0 || index >= size) return false;
      }
    }
    return true;
  }

  // Plans StridedSlice by a counter, or with known bounds and strides of one for tensors of rank 2
  // or less.
  bool Slice(const Operation& operation) {
    if (builder_.Of(operation, 1).is == ValueKind::kCounter) return SliceByCounter(operation);
    ValueInfo from = builder_.Of(operation, 0);
    if (from.is != ValueKind::kData || !builder_.HasUnitStrides(operation, from.dimensions.size()))
      return false;
    const std::size_t given = builder_.Of(operation, 1).numbers.values.size();
    Dimensions shape;
    for (std::size_t axis = 0; axis < from.dimensions.size(); ++axis) {
      const std::int64_t size = from.dimensions[axis];
      const bool shrinks = axis < given && (operation.shrink_mask & (1 << axis));
      auto [first, last] = builder_.BoundsOf(operation, axis, size);
      if (shrinks) last = first + 1;
      if (axis < given && (first < 0 || last > size || first >= last)) return false;
      ValueInfo part;
      if (!Part(from, axis, first, last - first, &part)) return false;
      from = part;
      if (!shrinks) shape.push_back(last - first);
    }
    return builder_.SetReshaped(operation, from, shape);
  }

  // Plans StridedSliceGrad: zeros into which the gradient is copied.
  bool SliceGradient(const Operation& operation) {
    const ValueInfo& gradient = builder_.Of(operation, 4);
    if (!builder_.IsFloats(gradient) || operation.shrink_mask != 0 ||
        !builder_.IsVector(builder_.Of(operation, 0))) {
      return false;
    }
    const Dimensions shape = builder_.Of(operation, 0).numbers.values;
    if (shape.size() != gradient.dimensions.size() ||
        !builder_.HasUnitStrides(operation, shape.size())) {
      return false;
    }
    ValueInfo fact = builder_.NewData(shape, false), part = fact;
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      const std::int64_t size = shape[axis];
      const auto [first, last] = builder_.BoundsOf(operation, axis, size);
      if (first < 0 || std::min(last, size) - first != gradient.dimensions[axis]) return false;
      ValueInfo inner;
      if (!Part(part, axis, first, gradient.dimensions[axis], &inner)) return false;
      part = inner;
    }
    builder_.Copy(Zero(), fact.view, false);
    builder_.Copy(gradient.view, part.view, false);
    builder_.Out(operation) = fact;
    return true;
  }

  // Plans Pack along the first axis, which copies its inputs.
  bool Pack(const Operation& operation) {
    if (operation.axis != 0 || !builder_.IsFloats(builder_.Of(operation, 0))) return false;
    const Dimensions each = builder_.Of(operation, 0).dimensions;
    Dimensions shape = {static_cast<std::int64_t>(operation.inputs.size())};
    shape.insert(shape.end(), each.begin(), each.end());
    ValueInfo fact = builder_.NewData(shape, false);
    for (std::size_t i = 0; i < operation.inputs.size(); ++i) {
      const ValueInfo& part = builder_.Of(operation, i);
      if (!builder_.IsFloats(part) || part.dimensions != each) return false;
      View to = builder_.WholeView(fact.view.memory, each);
      to.offset = i * Elements(each);
      View from;
      if (!builder_.BroadcastTo(part, each, &from)) return false;
      builder_.Copy(from, to, false);
    }
    builder_.Out(operation) = fact;
    return true;
  }

  // Plans Unpack along the first axis. The outputs are views.
  bool Unpack(const Operation& operation) {
    const ValueInfo from = builder_.Of(operation, 0);
    if (operation.axis != 0 || from.is != ValueKind::kData || from.dimensions.empty() ||
        from.dimensions[0] != operation.outputs || !from.view.IsDense()) {
      return false;
    }
    const Dimensions each(from.dimensions.begin() + 1, from.dimensions.end());
    for (int i = 0; i < operation.outputs; ++i) {
      ValueInfo& fact = builder_.Out(operation, i);
      fact = from;
      fact.dimensions = each;
      fact.view = builder_.WholeView(from.view.memory, each);
      fact.view.offset = from.view.offset + i * Elements(each);
    }
    return true;
  }

  // Plans Tile of a last axis of one element, as a view.
  bool Tile(const Operation& operation) {
    const ValueInfo& from = builder_.Of(operation, 0);
    if (from.is != ValueKind::kData || !builder_.IsVector(builder_.Of(operation, 1)) ||
        from.dimensions.empty()) {
      return false;
    }
    Dimensions shape = from.dimensions;
    const auto& times = builder_.Of(operation, 1).numbers.values;
    if (times.size() != shape.size()) return false;
    for (std::size_t axis = 0; axis + 1 < shape.size(); ++axis) {
      if (times[axis] != 1) return false;
    }
    ValueInfo fact = from;
    if (times.back() != 1) {
      if (shape.back() != 1 || times.back() < 1) return false;
      shape.back() = times.back();
      if (!builder_.BroadcastTo(from, shape, &fact.view)) return false;
      fact.dimensions = shape;
    }
    builder_.Out(operation) = fact;
    return true;
  }

  // Plans ZerosLike and Fill with a constant, as a constant of the plan.
  bool Fill(const Operation& operation) {
    Dimensions shape;
    float value = 0;
    if (operation.what == Do::kZerosLike) {
      if (!builder_.IsFloats(builder_.Of(operation, 0))) return false;
      shape = builder_.Of(operation, 0).dimensions;
    } else {
      const ValueInfo& with = builder_.Of(operation, 1);
      if (!builder_.IsVector(builder_.Of(operation, 0)) || !builder_.IsFloats(with)) return false;
      const Operation* constant = builder_.body.producer(operation.inputs[1]);
      if (constant == nullptr || constant->what != Do::kConst) return false;
      shape = builder_.Of(operation, 0).numbers.values;
      if (constant->constant.dims() != 0) return false;
      value = constant->constant.scalar<float>()();
    }
    // The plan keeps the tensor, which is not worth the memory if it is large.
    if (!IsValidShape(shape) || Elements(shape) > kMostFilled) return false;
    tensorflow::Tensor tensor(tensorflow::DT_FLOAT, tensorflow::TensorShape(shape));
    if (!tensor.IsInitialized()) return false;
    tensor.flat<float>().setConstant(value);
    builder_.Data(builder_.Out(operation), builder_.NewConstant(tensor));
    return true;
  }

 private:
  using ValueKind = ValueInfo::ValueKind;

  // Replaces a size of -1 by the rest. Returns false if the sizes do not add up to `all`.
  static bool SizesFit(std::vector<std::int64_t>& sizes, std::int64_t all) {
    std::int64_t known = 0, *open = nullptr;
    for (auto& each : sizes) {
      if (each >= 0) {
        known += each;
      } else if (each == -1 && open == nullptr) {
        open = &each;
      } else {
        return false;
      }
    }
    if (open != nullptr) *open = all - known;
    return open == nullptr ? known == all : *open >= 0;
  }

  // Sets `part` to the range [first, first + size) of a value along its first or last axis. Returns
  // false for other axes.
  static bool Part(const ValueInfo& from, std::int64_t axis, std::int64_t first, std::int64_t size,
                   ValueInfo* part) {
    const auto last = static_cast<std::int64_t>(from.dimensions.size()) - 1;
    *part = from;
    part->dimensions[axis] = size;
    if (axis == last) {
      part->view.columns = size;
      part->view.offset += first * from.view.column_step;
      return true;
    }
    if (axis != 0) return false;
    const std::int64_t rows = from.dimensions[0] == 0 ? 0 : from.view.rows / from.dimensions[0];
    part->view.rows = size * rows;
    part->view.offset += first * rows * from.view.row_step;
    return true;
  }

  // Makes the task that computes a value write it to `to`. Copies the value if that is not
  // possible, for example because it has other uses.
  void WriteOrCopy(int value, const View& to) {
    ValueInfo& fact = builder_.facts[value];
    const Memory& memory = builder_.plan.memories[fact.view.memory];
    const bool own = memory.where == Memory::Where::kOwn && memory.writer >= 0 &&
                     builder_.body.uses[value] == 1 && builder_.owners.count(fact.view.memory) &&
                     builder_.owners[fact.view.memory] == value;
    if (!own) return builder_.Copy(fact.view, to, false);
    View& out = builder_.plan.tasks[memory.writer].out;
    if (out.rows != to.rows || out.columns != to.columns)
      return builder_.Copy(fact.view, to, false);
    out = to;
    fact.view = to;
  }

  // Returns a view of a new constant 0, which it repeats.
  View Zero() {
    tensorflow::Tensor zero(tensorflow::DT_FLOAT, tensorflow::TensorShape());
    zero.scalar<float>()() = 0;
    View view = builder_.WholeView(builder_.NewConstant(zero), {});
    view.row_step = view.column_step = 0;
    return view;
  }

  PlanBuilder& builder_;
  std::vector<int> ends_;  // Of Plan::slices: the values that give the ends.
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_LOOPS_SHAPES_H_
