// Operations that take tensors apart, join, repeat or reshape them: most of them are views, and cost
// nothing.

#ifndef TENSORWRIGHT_OPS_LOOPS_SHAPES_H_
#define TENSORWRIGHT_OPS_LOOPS_SHAPES_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "tensorwright/ops/loops/draft.h"

namespace tensorwright {

constexpr std::int64_t kMostFilled = 1 << 24;  // Elements.

class Shapes {
 public:
  explicit Shapes(Draft& draft) : draft_(draft) {}

  bool Shape(const Operation& operation) {
    const Fact& of = draft_.Of(operation, 0);
    if (of.is == Is::kList || of.is == Is::kHandle) return false;
    // What is computed anew in each iteration has no dimensions yet.
    if (of.is == Is::kCounter && operation.inputs[0] >= draft_.body.arity()) return false;
    const Dimensions& dimensions = of.is == Is::kData ? of.dimensions : of.numbers.dimensions;
    Fact& fact = draft_.Out(operation);
    fact.is = Is::kNumbers;
    fact.numbers = {{static_cast<std::int64_t>(dimensions.size())}, dimensions};
    return true;
  }

  bool Reshape(const Operation& operation) {
    const Fact& from = draft_.Of(operation, 0);
    if (from.is != Is::kData || draft_.Of(operation, 1).is != Is::kNumbers) return false;
    Dimensions dimensions = draft_.Of(operation, 1).numbers.values;
    if (!Fits(dimensions, Elements(from.dimensions))) return false;
    return draft_.Shaped(operation, from, dimensions);
  }

  // Dimensions of one element come or go.
  bool Squeeze(const Operation& operation) {
    const Fact& from = draft_.Of(operation, 0);
    if (from.is != Is::kData) return false;
    const auto rank = static_cast<std::int64_t>(from.dimensions.size());
    std::set<std::int64_t> axes;
    for (const std::int64_t axis : operation.axes) axes.insert(axis < 0 ? axis + rank : axis);
    Dimensions shape;
    for (std::int64_t axis = 0; axis < rank; ++axis) {
      const bool goes = axes.count(axis) != 0 || (axes.empty() && from.dimensions[axis] == 1);
      if (goes && from.dimensions[axis] != 1) return false;
      if (!goes) shape.push_back(from.dimensions[axis]);
    }
    return draft_.Shaped(operation, from, shape);
  }

  bool ExpandDims(const Operation& operation) {
    const Fact& from = draft_.Of(operation, 0);
    const auto axis = draft_.Axis(draft_.Of(operation, 1), from.dimensions.size() + 1);
    if (from.is != Is::kData || !axis) return false;
    Dimensions shape = from.dimensions;
    shape.insert(shape.begin() + *axis, 1);
    return draft_.Shaped(operation, from, shape);
  }

  bool Split(const Operation& operation) {
    const bool sized = operation.what == Do::kSplitV;
    const Fact from = draft_.Of(operation, sized ? 0 : 1);
    if (from.is != Is::kData) return false;
    const auto axis = draft_.Axis(draft_.Of(operation, sized ? 2 : 0), from.dimensions.size());
    if (!axis) return false;
    std::vector<std::int64_t> sizes(operation.outputs, from.dimensions[*axis] / operation.outputs);
    if (sized) {
      if (draft_.Of(operation, 1).is != Is::kNumbers) return false;
      sizes = draft_.Of(operation, 1).numbers.values;
      if (static_cast<int>(sizes.size()) != operation.outputs ||
          !SizesFit(sizes, from.dimensions[*axis])) {
        return false;
      }
    }
    std::int64_t first = 0;
    for (int i = 0; i < operation.outputs; ++i) {
      Fact part;
      if (!Part(from, *axis, first, sizes[i], &part)) return false;
      draft_.Out(operation, i) = part;
      first += sizes[i];
    }
    return first == from.dimensions[*axis];
  }

  bool Concat(const Operation& operation) {
    const int count = static_cast<int>(operation.inputs.size()) - 1;
    if (!draft_.IsFloats(draft_.Of(operation, 0))) return false;
    Dimensions dimensions = draft_.Of(operation, 0).dimensions;
    const auto axis = draft_.Axis(draft_.Of(operation, count), dimensions.size());
    if (!axis || (*axis != 0 && *axis + 1 != static_cast<std::int64_t>(dimensions.size()))) {
      return false;
    }
    for (int i = 1; i < count; ++i) {
      const Fact& part = draft_.Of(operation, i);
      if (!draft_.IsFloats(part) || part.dimensions.size() != dimensions.size()) return false;
      dimensions[*axis] += part.dimensions[*axis];
    }
    Fact fact = draft_.NewData(dimensions, false);
    std::int64_t first = 0;
    for (int i = 0; i < count; ++i) {
      const std::int64_t size = draft_.Of(operation, i).dimensions[*axis];
      Fact part;
      if (!Part(fact, *axis, first, size, &part) ||
          part.dimensions != draft_.Of(operation, i).dimensions) {
        return false;
      }
      Move(operation.inputs[i], part.view);
      first += size;
    }
    draft_.plan.memories[fact.view.memory].writer = -2;
    draft_.Out(operation) = fact;
    return true;
  }

  // One slice along the first axis, another one in each iteration.
  bool SliceByCounter(const Operation& operation) {
    const Fact& from = draft_.Of(operation, 0);
    const Fact& begin = draft_.Of(operation, 1);
    if (!operation.TakesOne() || from.is != Is::kData || from.dimensions.size() < 2 ||
        begin.is != Is::kCounter || draft_.Of(operation, 3).numbers.values != Dimensions{1} ||
        draft_.plan.memories[from.view.memory].where != Memory::Where::kFixed ||
        !draft_.IsWhole(from)) {
      return false;
    }
    draft_.plan.slices.push_back({from.view.memory, operation.inputs[1]});
    const Dimensions shape(from.dimensions.begin() + 1, from.dimensions.end());
    draft_.Data(
        draft_.Out(operation),
        draft_.NewMemory(Memory::Where::kSlice, static_cast<int>(draft_.plan.slices.size()) - 1,
                         shape, draft_.IsBytes(from)));
    return true;
  }

  // Whether all slices that are taken by counters exist.
  bool AreThere() const {
    for (const SliceOf& slice : draft_.plan.slices) {
      const auto found = draft_.plan.counters.find(slice.index);
      if (found == draft_.plan.counters.end() || found->second.dimensions.size() != 1) return false;
      const std::int64_t size = draft_.plan.memories[slice.memory].dimensions[0];
      for (const std::int64_t index : found->second.values) {
        if (index < 0 || index >= size) return false;
      }
    }
    return true;
  }

  bool Slice(const Operation& operation) {
    if (draft_.Of(operation, 1).is == Is::kCounter) return SliceByCounter(operation);
    Fact from = draft_.Of(operation, 0);
    if (from.is != Is::kData || !draft_.IsByOnes(operation, from.dimensions.size())) return false;
    const std::size_t given = draft_.Of(operation, 1).numbers.values.size();
    Dimensions shape;
    for (std::size_t axis = 0; axis < from.dimensions.size(); ++axis) {
      const std::int64_t size = from.dimensions[axis];
      const bool shrinks = axis < given && (operation.shrink_mask & (1 << axis));
      auto [first, last] = draft_.BoundsOf(operation, axis, size);
      if (shrinks) last = first + 1;
      if (axis < given && (first < 0 || last > size || first >= last)) return false;
      Fact part;
      if (!Part(from, axis, first, last - first, &part)) return false;
      from = part;
      if (!shrinks) shape.push_back(last - first);
    }
    return draft_.Shaped(operation, from, shape);
  }

  bool SliceGradient(const Operation& operation) {
    const Fact& gradient = draft_.Of(operation, 4);
    if (!draft_.IsFloats(gradient) || operation.shrink_mask != 0 ||
        draft_.Of(operation, 0).is != Is::kNumbers) {
      return false;
    }
    const Dimensions shape = draft_.Of(operation, 0).numbers.values;
    if (shape.size() != gradient.dimensions.size() || !draft_.IsByOnes(operation, shape.size())) {
      return false;
    }
    Fact fact = draft_.NewData(shape, false), part = fact;
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      const std::int64_t size = shape[axis];
      const auto [first, last] = draft_.BoundsOf(operation, axis, size);
      if (first < 0 || std::min(last, size) - first != gradient.dimensions[axis]) return false;
      Fact inner;
      if (!Part(part, axis, first, gradient.dimensions[axis], &inner)) return false;
      part = inner;
    }
    draft_.Copy(Zero(), fact.view, false);
    draft_.Copy(gradient.view, part.view, false);
    draft_.Out(operation) = fact;
    return true;
  }

  bool Pack(const Operation& operation) {
    if (operation.axis != 0 || !draft_.IsFloats(draft_.Of(operation, 0))) return false;
    const Dimensions each = draft_.Of(operation, 0).dimensions;
    Dimensions shape = {static_cast<std::int64_t>(operation.inputs.size())};
    shape.insert(shape.end(), each.begin(), each.end());
    Fact fact = draft_.NewData(shape, false);
    for (std::size_t i = 0; i < operation.inputs.size(); ++i) {
      const Fact& part = draft_.Of(operation, i);
      if (!draft_.IsFloats(part) || part.dimensions != each) return false;
      View to = draft_.Whole(fact.view.memory, each);
      to.offset = i * Elements(each);
      View from;
      if (!draft_.Spread(part, each, &from)) return false;
      draft_.Copy(from, to, false);
    }
    draft_.Out(operation) = fact;
    return true;
  }

  bool Unpack(const Operation& operation) {
    const Fact from = draft_.Of(operation, 0);
    if (operation.axis != 0 || from.is != Is::kData || from.dimensions.empty() ||
        from.dimensions[0] != operation.outputs || !from.view.IsDense()) {
      return false;
    }
    const Dimensions each(from.dimensions.begin() + 1, from.dimensions.end());
    for (int i = 0; i < operation.outputs; ++i) {
      Fact& fact = draft_.Out(operation, i);
      fact = from;
      fact.dimensions = each;
      fact.view = draft_.Whole(from.view.memory, each);
      fact.view.offset = from.view.offset + i * Elements(each);
    }
    return true;
  }

  bool Tile(const Operation& operation) {
    const Fact& from = draft_.Of(operation, 0);
    if (from.is != Is::kData || draft_.Of(operation, 1).is != Is::kNumbers ||
        from.dimensions.empty()) {
      return false;
    }
    Dimensions shape = from.dimensions;
    const auto& times = draft_.Of(operation, 1).numbers.values;
    if (times.size() != shape.size()) return false;
    for (std::size_t axis = 0; axis + 1 < shape.size(); ++axis) {
      if (times[axis] != 1) return false;
    }
    Fact fact = from;
    if (times.back() != 1) {
      if (shape.back() != 1 || times.back() < 1) return false;
      shape.back() = times.back();
      if (!draft_.Spread(from, shape, &fact.view)) return false;
      fact.dimensions = shape;
    }
    draft_.Out(operation) = fact;
    return true;
  }

  bool Fill(const Operation& operation) {
    Dimensions shape;
    float value = 0;
    if (operation.what == Do::kZerosLike) {
      if (!draft_.IsFloats(draft_.Of(operation, 0))) return false;
      shape = draft_.Of(operation, 0).dimensions;
    } else {
      const Fact& with = draft_.Of(operation, 1);
      if (draft_.Of(operation, 0).is != Is::kNumbers || !draft_.IsFloats(with)) return false;
      const Operation* constant = draft_.body.maker(operation.inputs[1]);
      if (constant == nullptr || constant->what != Do::kConst) return false;
      shape = draft_.Of(operation, 0).numbers.values;
      if (constant->constant.dims() != 0) return false;
      value = constant->constant.scalar<float>()();
    }
    // Plans keep it: what is large is not worth that.
    if (!Exists(shape) || Elements(shape) > kMostFilled) return false;
    tensorflow::Tensor tensor(tensorflow::DT_FLOAT, tensorflow::TensorShape(shape));
    if (!tensor.IsInitialized()) return false;
    tensor.flat<float>().setConstant(value);
    draft_.Data(draft_.Out(operation), draft_.NewConstant(tensor));
    return true;
  }

 private:
  using Is = Fact::Is;

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

  // Some columns, or some rows of a matrix.
  static bool Part(const Fact& from, std::int64_t axis, std::int64_t first, std::int64_t size,
                   Fact* part) {
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

  // Lets what computes a value put it where it is needed; copies it where others use it, too.
  void Move(int value, const View& to) {
    Fact& fact = draft_.facts[value];
    const Memory& memory = draft_.plan.memories[fact.view.memory];
    const bool own = memory.where == Memory::Where::kOwn && memory.writer >= 0 &&
                     draft_.body.uses[value] == 1 && draft_.owners.count(fact.view.memory) &&
                     draft_.owners[fact.view.memory] == value;
    if (!own) return draft_.Copy(fact.view, to, false);
    View& out = draft_.plan.tasks[memory.writer].out;
    if (out.rows != to.rows || out.columns != to.columns) return draft_.Copy(fact.view, to, false);
    out = to;
    fact.view = to;
  }

  View Zero() {
    tensorflow::Tensor zero(tensorflow::DT_FLOAT, tensorflow::TensorShape());
    zero.scalar<float>()() = 0;
    View view = draft_.Whole(draft_.NewConstant(zero), {});
    view.row_step = view.column_step = 0;
    return view;
  }

  Draft& draft_;
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_LOOPS_SHAPES_H_
