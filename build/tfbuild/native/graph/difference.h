// Says how two tensors differ.

#ifndef TENSORWRIGHT_GRAPH_DIFFERENCE_H_
#define TENSORWRIGHT_GRAPH_DIFFERENCE_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "tensorflow/core/framework/tensor.h"
#include "tensorwright/compute/difference.h"

namespace tensorwright {

template <typename T>
std::string DescribeNumbers(const tensorflow::Tensor& expected, const tensorflow::Tensor& actual,
                            const tensorflow::Tensor* moved, const tensorflow::Tensor* before,
                            const Allowed& allowed) {
  const auto numbers = [](const tensorflow::Tensor& of) {
    return static_cast<const T*>(of.data());
  };
  const auto given = [&](const tensorflow::Tensor* of) {
    return of == nullptr ? nullptr : numbers(*of);
  };
  const Difference found = FindDifference(numbers(expected), numbers(actual), given(moved),
                                          given(before), expected.NumElements(), allowed);
  if (found.index < 0) return "";
  std::ostringstream text;
  text.precision(std::numeric_limits<float>::max_digits10);
  text << "element " << found.index << " of shape " << expected.shape().DebugString() << " is "
       << found.actual << " instead of " << found.expected << ", the largest "
       << (before == nullptr ? "value" : "change") << " is " << found.largest;
  return text.str();
}

// Returns an empty text if the elements are equal, or differ only where `moved` differs, too.
template <typename T>
std::string DescribeOthers(const tensorflow::Tensor& expected, const tensorflow::Tensor& actual,
                           const tensorflow::Tensor* moved) {
  const auto elements = [](const tensorflow::Tensor& of) {
    return static_cast<const T*>(of.data());
  };
  const T *one = elements(expected), *other = elements(actual),
          *third = elements(moved == nullptr ? expected : *moved);
  for (std::int64_t i = 0; i < expected.NumElements(); ++i) {
    if (one[i] == other[i] || one[i] != third[i]) continue;
    return "element " + std::to_string(i) + " of shape " + expected.shape().DebugString() + " is " +
           std::to_string(other[i]) + " instead of " + std::to_string(one[i]);
  }
  return "";
}

// Returns how `actual` differs from `expected`, or an empty text if they agree: the same type and
// shape, and elements that are as close as FindDifference allows. Elements that are no floating-point
// numbers must be equal, unless those of `moved` differ. The other arguments are as in FindDifference.
inline std::string DescribeDifference(const tensorflow::Tensor& expected,
                                      const tensorflow::Tensor& actual,
                                      const tensorflow::Tensor* moved,
                                      const tensorflow::Tensor* before, const Allowed& allowed) {
  if (expected.dtype() != actual.dtype() || expected.shape() != actual.shape()) {
    return actual.DebugString(0) + " instead of " + expected.DebugString(0);
  }
  switch (expected.dtype()) {
    case tensorflow::DT_FLOAT:
      return DescribeNumbers<float>(expected, actual, moved, before, allowed);
    case tensorflow::DT_DOUBLE:
      return DescribeNumbers<double>(expected, actual, moved, before, allowed);
    case tensorflow::DT_HALF:
      return DescribeNumbers<Eigen::half>(expected, actual, moved, before, allowed);
    case tensorflow::DT_BFLOAT16:
      return DescribeNumbers<tensorflow::bfloat16>(expected, actual, moved, before, allowed);
    case tensorflow::DT_BOOL: return DescribeOthers<bool>(expected, actual, moved);
    case tensorflow::DT_INT32: return DescribeOthers<std::int32_t>(expected, actual, moved);
    case tensorflow::DT_INT64: return DescribeOthers<std::int64_t>(expected, actual, moved);
    default: return "";  // No group computes elements of other types.
  }
}

// Returns tensors with the same elements in memory of their own.
inline std::vector<tensorflow::Tensor> CopyTensors(const std::vector<tensorflow::Tensor>& tensors) {
  std::vector<tensorflow::Tensor> copies;
  for (const tensorflow::Tensor& tensor : tensors) {
    copies.emplace_back(tensor.dtype(), tensor.shape());
    if (tensor.TotalBytes() > 0) {
      std::memcpy(copies.back().data(), tensor.data(), tensor.TotalBytes());
    }
  }
  return copies;
}

// Returns whether all numbers of the float tensors are finite.
inline bool AreFinite(const std::vector<tensorflow::Tensor>& tensors) {
  for (const tensorflow::Tensor& tensor : tensors) {
    if (tensor.dtype() != tensorflow::DT_FLOAT) continue;
    const float* numbers = static_cast<const float*>(tensor.data());
    for (std::int64_t i = 0; i < tensor.NumElements(); ++i) {
      if (!std::isfinite(numbers[i])) return false;
    }
  }
  return true;
}

// Returns copies whose float numbers differ by a unit in the last place or two, up or down.
inline std::vector<tensorflow::Tensor> MoveNumbers(const std::vector<tensorflow::Tensor>& tensors) {
  std::vector<tensorflow::Tensor> moved = CopyTensors(tensors);
  for (tensorflow::Tensor& tensor : moved) {
    if (tensor.dtype() != tensorflow::DT_FLOAT) continue;
    float* numbers = static_cast<float*>(tensor.data());
    for (std::int64_t i = 0; i < tensor.NumElements(); ++i) {
      constexpr float kEpsilon = std::numeric_limits<float>::epsilon();
      const bool up = (static_cast<std::uint64_t>(i) * 0x9E3779B97F4A7C15u) >> 63;
      numbers[i] *= up ? 1 + kEpsilon : 1 - kEpsilon;
    }
  }
  return moved;
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_GRAPH_DIFFERENCE_H_
