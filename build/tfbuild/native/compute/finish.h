// Operations on the outputs of a matrix product or convolution.

#ifndef TENSORWRIGHT_COMPUTE_FINISH_H_
#define TENSORWRIGHT_COMPUTE_FINISH_H_

#include <cstdint>

namespace tensorwright {

// The operations on outputs, in this order. A null pointer means that there is no such operation.
//
// 1. Batch normalisation, (value - mean) * factor. Only convolutions support it.
// 2. Addition of the bias.
// 3. ReLU, which keeps NaN.
//
// The arrays have one element per column, or per filter. They are not owned.
struct Finish {
  const float* bias = nullptr;
  bool relu = false;
  const float *means = nullptr, *factors = nullptr;

  // Applies bias and ReLU to `columns` columns of `rows` rows, which are `step` elements apart, at
  // `to`. The first column has the element `column` of the bias.
  void Apply(std::int64_t column, std::int64_t rows, std::int64_t columns, float* to,
             std::int64_t step) const {
    if (bias == nullptr && !relu) return;
    for (std::int64_t row = 0; row < rows; ++row, to += step) {
      for (std::int64_t j = 0; j < columns; ++j) {
        const float value = bias == nullptr ? to[j] : to[j] + bias[column + j];
        to[j] = relu && value < 0 ? 0.0f : value;
      }
    }
  }
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_COMPUTE_FINISH_H_
