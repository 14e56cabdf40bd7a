// Says how two tensors differ.

#ifndef TENSORWRIGHT_GRAPH_DIFFERENCE_H_
#define TENSORWRIGHT_GRAPH_DIFFERENCE_H_

#include <cstdint>
#include <limits>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/tensor.h"
#include "tensorwright/compute/difference.h"

namespace tensorwright {

template <typename T>
std::string DescribeNumbers(const tensorflow::Tensor& expected, const tensorflow::Tensor& actual,
                            const tensorflow::Tensor* moved, double allowed) {
  const auto numbers = [](const tensorflow::Tensor& of) {
    return static_cast<const T*>(of.data());
  };
  const Difference found =
      FindDifference(numbers(expected), numbers(actual),
                     moved == nullptr ? nullptr : numbers(*moved), expected.NumElements(), allowed);
  if (found.index < 0) return "";
  std::ostringstream text;
  text << "element " << found.index << " of shape " << expected.shape().DebugString() << " is "
       << found.actual << " instead of " << found.expected << ", the largest is " << found.largest;
  return text.str();
}

// Returns how `actual` differs from `expected`, or an empty text if they agree: the same type and
// shape, and elements that are as close as FindDifference allows. Elements that are no floating-point
// numbers must be equal, unless `moved` differs, too. The other arguments are those of FindDifference.
inline std::string DescribeDifference(const tensorflow::Tensor& expected,
                                      const tensorflow::Tensor& actual,
                                      const tensorflow::Tensor* moved, double allowed) {
  if (expected.dtype() != actual.dtype() || expected.shape() != actual.shape()) {
    return actual.DebugString(0) + " instead of " + expected.DebugString(0);
  }
  switch (expected.dtype()) {
    case tensorflow::DT_FLOAT: return DescribeNumbers<float>(expected, actual, moved, allowed);
    case tensorflow::DT_DOUBLE: return DescribeNumbers<double>(expected, actual, moved, allowed);
    case tensorflow::DT_HALF: return DescribeNumbers<Eigen::half>(expected, actual, moved, allowed);
    case tensorflow::DT_BFLOAT16:
      return DescribeNumbers<tensorflow::bfloat16>(expected, actual, moved, allowed);
    case tensorflow::DT_BOOL:
    case tensorflow::DT_INT32:
    case tensorflow::DT_INT64:
      return expected.tensor_data() == actual.tensor_data() ||
                     (moved != nullptr && expected.tensor_data() != moved->tensor_data())
                 ? ""
                 : "other elements of shape " + expected.shape().DebugString();
    default: return "";  // No group computes elements of other types.
  }
}

// Returns copies of the float tensors whose elements differ by one in the last place, up or down,
// and the other tensors.
inline std::vector<tensorflow::Tensor> MoveNumbers(const std::vector<tensorflow::Tensor>& tensors) {
  std::vector<tensorflow::Tensor> moved = tensors;
  for (tensorflow::Tensor& tensor : moved) {
    if (tensor.dtype() != tensorflow::DT_FLOAT) continue;
    const float* from = static_cast<const float*>(tensor.data());
    tensorflow::Tensor copy(tensorflow::DT_FLOAT, tensor.shape());
    float* to = static_cast<float*>(copy.data());
    for (std::int64_t i = 0; i < copy.NumElements(); ++i) {
      constexpr float kEpsilon = std::numeric_limits<float>::epsilon();
      const bool up = (static_cast<std::uint64_t>(i) * 0x9E3779B97F4A7C15u) >> 63;
      to[i] = from[i] * (up ? 1 + kEpsilon : 1 - kEpsilon);
    }
    tensor = std::move(copy);
  }
  return moved;
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_GRAPH_DIFFERENCE_H_
