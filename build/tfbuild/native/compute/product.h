// A product of float matrices that is computed once: each part of the right matrix is packed just
// before it is used.

#ifndef TENSORWRIGHT_COMPUTE_PRODUCT_H_
#define TENSORWRIGHT_COMPUTE_PRODUCT_H_

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tensorwright/compute/matrix.h"

namespace tensorwright {

// The operations on the outputs of a product or convolution, in this order. A null pointer means
// that there is no such operation.
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
};

// Computes out = a b, followed by `finish`. The rows of `b` must be contiguous. `out` is
// contiguous, with a.rows x b.columns elements. Threads can compute different panels at the same
// time.
class Product {
 public:
  Product(const Matrix& a, const Matrix& b, const Finish& finish, float* out)
      : a_(a), b_(b), finish_(finish), out_(out) {}

  std::int64_t panels() const { return (b_.columns + kPanel - 1) / kPanel; }

  // Computes the columns in the panels [first, last).
  void Compute(std::int64_t first, std::int64_t last) const {
    alignas(sizeof(Lanes)) float packed[kDepth * kPanel];
    const std::int64_t blocks = std::max<std::int64_t>((a_.columns + kDepth - 1) / kDepth, 1);
    for (std::int64_t panel = first; panel < last; ++panel) {
      const std::int64_t column = panel * kPanel,
                         width = std::min<std::int64_t>(kPanel, b_.columns - column);
      for (std::int64_t block = 0; block < blocks; ++block) {
        const std::int64_t from = block * a_.columns / blocks,
                           depth = (block + 1) * a_.columns / blocks - from;
        Pack(from, depth, column, width, packed);
        AddRows(from, depth, packed, column, width, block > 0);
      }
      FinishRows(column, width);
    }
  }

 private:
  // Multiplies columns [from, from + depth) of all rows of `a` by one packed block.
  void AddRows(std::int64_t from, std::int64_t depth, const float* packed, std::int64_t column,
               std::int64_t width, bool add) const {
    const std::int64_t tiles = (a_.rows + kTileRows - 1) / kTileRows;
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      const std::int64_t row = tile * a_.rows / tiles, rows = (tile + 1) * a_.rows / tiles - row;
      const Matrix part = {a_.data + row * a_.row_step + from * a_.column_step, rows, depth,
                           a_.row_step, a_.column_step};
      ComputeTile<kTileRows>(rows, part, packed, depth, out_ + row * b_.columns + column,
                             b_.columns, width, add);
    }
  }

  // Packs `width` columns of rows [from, from + depth) of `b`, padded with zeros to kPanel columns.
  void Pack(std::int64_t from, std::int64_t depth, std::int64_t column, std::int64_t width,
            float* to) const {
    const float* start = b_.data + from * b_.row_step + column;
    for (std::int64_t k = 0; k < depth; ++k, start += b_.row_step, to += kPanel) {
      if (width == kPanel) {
        std::memcpy(to, start, kPanel * sizeof(float));
      } else {
        std::fill(std::copy_n(start, width, to), to + kPanel, 0.0f);
      }
    }
  }

  // Adds the bias and applies ReLU to `width` columns of all rows.
  void FinishRows(std::int64_t column, std::int64_t width) const {
    if (finish_.bias == nullptr && !finish_.relu) return;
    float bias[kPanel] = {};
    if (finish_.bias != nullptr) std::copy_n(finish_.bias + column, width, bias);
    for (std::int64_t row = 0; row < a_.rows; ++row) {
      float* to = out_ + row * b_.columns + column;
      if (width == kPanel) {
        for (std::int64_t j = 0; j < kPanel; ++j) to[j] = ApplyRelu(to[j] + bias[j]);
      } else {
        for (std::int64_t j = 0; j < width; ++j) to[j] = ApplyRelu(to[j] + bias[j]);
      }
    }
  }

  float ApplyRelu(float value) const { return finish_.relu && value < 0 ? 0.0f : value; }

  const Matrix a_, b_;
  const Finish finish_;
  float* const out_;
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_COMPUTE_PRODUCT_H_
