// Integers of a loop, such as counters, shapes, axes and indices, and the operations on them. They
// are computed before the loop runs.

#ifndef TENSORWRIGHT_OPS_LOOPS_NUMBERS_H_
#define TENSORWRIGHT_OPS_LOOPS_NUMBERS_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "tensorflow/core/framework/tensor.h"
#include "tensorwright/ops/loops/loop.h"

namespace tensorwright {

using Dimensions = std::vector<std::int64_t>;

// Returns a * b for sizes, or the largest int64 if that overflows.
inline std::int64_t Times(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<std::int64_t>::max()
                                                : product;
}

// Returns the number of elements of a shape, or the largest int64 if that overflows.
inline std::int64_t Elements(const Dimensions& dimensions) {
  return std::accumulate(dimensions.begin(), dimensions.end(), std::int64_t{1}, Times);
}

constexpr std::int64_t kMostElements = std::int64_t{1} << 36;

// Whether TensorFlow supports a shape and it has at most kMostElements elements, so that the bytes
// of many such tensors do not overflow an int64.
inline bool IsValidShape(const Dimensions& dimensions) {
  tensorflow::TensorShape shape;
  const auto rank = static_cast<std::int64_t>(dimensions.size());
  return tensorflow::TensorShapeUtils::MakeShape(dimensions.data(), rank, &shape).ok() &&
         Elements(dimensions) <= kMostElements;
}

// Replaces a dimension of -1 by the one that gives `elements` elements, as Reshape does. Returns
// false if the shape cannot have that number or is not valid.
inline bool ResolveShape(Dimensions& dimensions, std::int64_t elements) {
  std::int64_t known = 1, *open = nullptr;
  for (auto& each : dimensions) {
    if (each >= 0) {
      known = Times(known, each);
    } else if (each == -1 && open == nullptr) {
      open = &each;
    } else {
      return false;
    }
  }
  if (open != nullptr) {
    if (known == 0 || elements % known != 0) return false;
    *open = elements / known;
  } else if (known != elements) {
    return false;
  }
  return IsValidShape(dimensions);
}

// A tensor of integers or booleans.
struct Numbers {
  Dimensions dimensions;
  std::vector<std::int64_t> values;  // Row-major. Booleans are 0 or 1.

  bool operator==(const Numbers& other) const {
    return dimensions == other.dimensions && values == other.values;
  }
};

// Whether Numbers can represent a type.
inline bool IsNumber(tensorflow::DataType type) {
  return type == tensorflow::DT_INT32 || type == tensorflow::DT_INT64 ||
         type == tensorflow::DT_BOOL;
}

constexpr std::int64_t kMostNumbers = 64;

// Whether a tensor has few enough integers to make a plan for their values; true for other types.
// Where there are many, as in a batch of words, each execution has others.
inline bool HasFewIntegers(const tensorflow::Tensor& tensor) {
  return !IsNumber(tensor.dtype()) || tensor.dtype() == tensorflow::DT_BOOL ||
         tensor.NumElements() <= kMostNumbers;
}

inline Dimensions DimensionsOf(const tensorflow::Tensor& tensor) {
  const auto sizes = tensor.shape().dim_sizes();
  return Dimensions(sizes.begin(), sizes.end());
}

inline Numbers NumbersOf(const tensorflow::Tensor& tensor) {
  Numbers numbers = {DimensionsOf(tensor), {}};
  for (std::int64_t i = 0; i < tensor.NumElements(); ++i) {
    switch (tensor.dtype()) {
      case tensorflow::DT_INT32: numbers.values.push_back(tensor.flat<std::int32_t>()(i)); break;
      case tensorflow::DT_INT64: numbers.values.push_back(tensor.flat<std::int64_t>()(i)); break;
      default: numbers.values.push_back(tensor.flat<bool>()(i));
    }
  }
  return numbers;
}

inline tensorflow::Tensor TensorOf(const Numbers& numbers, tensorflow::DataType type) {
  tensorflow::Tensor tensor(type, tensorflow::TensorShape(numbers.dimensions));
  for (std::size_t i = 0; i < numbers.values.size(); ++i) {
    switch (type) {
      case tensorflow::DT_INT32: tensor.flat<std::int32_t>()(i) = numbers.values[i]; break;
      case tensorflow::DT_INT64: tensor.flat<std::int64_t>()(i) = numbers.values[i]; break;
      default: tensor.flat<bool>()(i) = numbers.values[i] != 0;
    }
  }
  return tensor;
}

namespace {

// Computes BroadcastGradientArgs as TensorFlow does (core/util/bcast.h). `a` and `b` are shapes
// that were broadcast to each other. Appends the axes along which the gradient of each is summed.
// Returns false if the shapes are incompatible or not vectors.
inline bool BroadcastAxes(const Numbers& a, const Numbers& b, std::vector<Numbers>* out) {
  if (a.dimensions.size() != 1 || b.dimensions.size() != 1) return false;
  const std::size_t rank = std::max(a.values.size(), b.values.size());
  Numbers axes[2];
  for (std::size_t axis = 0; axis < rank; ++axis) {
    std::int64_t sizes[2] = {1, 1};
    for (int side = 0; side < 2; ++side) {
      const auto& values = side == 0 ? a.values : b.values;
      const std::size_t missing = rank - values.size();
      if (axis >= missing) sizes[side] = values[axis - missing];
    }
    if (sizes[0] != sizes[1] && sizes[0] != 1 && sizes[1] != 1) return false;
    for (int side = 0; side < 2; ++side) {
      if (sizes[side] == 1) axes[side].values.push_back(axis);
    }
  }
  // For equal shapes there is no axis, not even one of one element.
  if (a.values == b.values) axes[0].values.clear(), axes[1].values.clear();
  for (Numbers& each : axes) {
    each.dimensions = {static_cast<std::int64_t>(each.values.size())};
    out->push_back(std::move(each));
  }
  return true;
}

// Returns a number wrapped around to the range of its type, as TensorFlow's integers overflow.
inline std::int64_t WrapAround(std::int64_t number, tensorflow::DataType type) {
  return type == tensorflow::DT_INT32 ? static_cast<std::int32_t>(number) : number;
}

// Computes a binary operation on two integers; for any other `what`, a logical or.
inline std::int64_t Apply(Do what, std::int64_t a, std::int64_t b) {
  switch (what) {
    case Do::kAdd: return static_cast<std::uint64_t>(a) + b;
    case Do::kSub: return static_cast<std::uint64_t>(a) - b;
    case Do::kMul: return static_cast<std::uint64_t>(a) * b;
    case Do::kMaximum: return std::max(a, b);
    case Do::kMinimum: return std::min(a, b);
    case Do::kGreater: return a > b;
    case Do::kGreaterEqual: return a >= b;
    case Do::kLess: return a < b;
    case Do::kLessEqual: return a <= b;
    case Do::kAnd: return a != 0 && b != 0;
    default: return a != 0 || b != 0;
  }
}

}  // namespace

// Computes an operation on integers and appends its outputs. Returns false if the operation or its
// shapes are not supported.
inline bool Compute(const Operation& operation, const std::vector<const Numbers*>& inputs,
                    std::vector<Numbers>* out) {
  switch (operation.what) {
    case Do::kAdd:
    case Do::kSub:
    case Do::kMul:
    case Do::kMaximum:
    case Do::kMinimum:
    case Do::kGreater:
    case Do::kGreaterEqual:
    case Do::kLess:
    case Do::kLessEqual:
    case Do::kAnd:
    case Do::kOr: {
      const Numbers &a = *inputs[0], &b = *inputs[1];
      const bool lone_a = a.values.size() == 1, lone_b = b.values.size() == 1;
      if (a.dimensions != b.dimensions && !lone_a && !lone_b) return false;
      const bool like_a = lone_b && (!lone_a || a.dimensions.size() > b.dimensions.size());
      const Numbers &most = like_a ? a : b, &other = like_a ? b : a;
      if (other.dimensions.size() > most.dimensions.size()) return false;
      Numbers result = {most.dimensions, {}};
      for (std::int64_t i = 0; i < Elements(result.dimensions); ++i) {
        const std::int64_t value =
            Apply(operation.what, a.values[lone_a ? 0 : i], b.values[lone_b ? 0 : i]);
        result.values.push_back(WrapAround(value, operation.type));
      }
      out->push_back(std::move(result));
      return true;
    }
    case Do::kNot:
    case Do::kNeg: {
      Numbers result = *inputs[0];
      for (auto& value : result.values) {
        value = operation.what == Do::kNot ? value == 0
                                           : WrapAround(Apply(Do::kSub, 0, value), operation.type);
      }
      out->push_back(std::move(result));
      return true;
    }
    case Do::kBroadcastArgs: return BroadcastAxes(*inputs[0], *inputs[1], out);
    case Do::kPack:
    case Do::kConcat: {
      // Pack makes a vector of scalars, Concat joins vectors: both have one axis.
      const bool packs = operation.what == Do::kPack;
      const std::size_t count = inputs.size() - (packs ? 0 : 1);
      if (!packs && !inputs[count]->dimensions.empty()) return false;
      const std::int64_t axis = packs ? operation.axis : inputs[count]->values[0];
      if (axis < -1 || axis > 0) return false;
      Numbers result;
      for (std::size_t i = 0; i < count; ++i) {
        if (inputs[i]->dimensions.size() != (packs ? 0u : 1u)) return false;
        result.values.insert(result.values.end(), inputs[i]->values.begin(),
                             inputs[i]->values.end());
      }
      result.dimensions = {static_cast<std::int64_t>(result.values.size())};
      out->push_back(std::move(result));
      return true;
    }
    case Do::kSlice: {
      const Numbers& from = *inputs[0];
      const Dimensions one = {1};  // Begin, end and strides are vectors of one element.
      if (from.dimensions.size() != 1 || inputs[1]->dimensions != one ||
          inputs[2]->dimensions != one || inputs[3]->dimensions != one ||
          inputs[3]->values[0] != 1) {
        return false;
      }
      const std::int64_t size = from.dimensions[0];
      std::int64_t first = operation.begin_mask & ~operation.shrink_mask ? 0 : inputs[1]->values[0];
      std::int64_t last = operation.end_mask ? size : inputs[2]->values[0];
      if (first < 0) first += size;
      if (operation.shrink_mask) {
        if (first < 0 || first >= size) return false;
        out->push_back({{}, {from.values[first]}});
        return true;
      }
      if (last < 0) last += size;
      first = std::clamp<std::int64_t>(first, 0, size);
      last = std::clamp<std::int64_t>(last, first, size);
      out->push_back({{last - first}, {from.values.begin() + first, from.values.begin() + last}});
      return true;
    }
    default: return false;
  }
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_LOOPS_NUMBERS_H_
