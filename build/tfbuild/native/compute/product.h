// A product of matrices of float, once: the right one is packed, part by part, just before it is used.

#ifndef TENSORWRIGHT_COMPUTE_PRODUCT_H_
#define TENSORWRIGHT_COMPUTE_PRODUCT_H_

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tensorwright/compute/matrix.h"

namespace tensorwright {

// What is done to each row of a product: `bias` is added if there is one, then what is negative is zero.
// Before that a convolution's is normalised, if there are factors: (value - mean) * factor.
struct Finish {
  const float* bias = nullptr;
  bool relu = false;
  const float *means = nullptr, *factors = nullptr;
};

// The elements of a row of `b` lie side by side.
class Product {
 public:
  Product(const Matrix& a, const Matrix& b, const Finish& finish, float* out)
      : a_(a), b_(b), finish_(finish), out_(out) {}

  std::int64_t panels() const { return (b_.columns + kPanel - 1) / kPanel; }

  // The columns of the panels from `first` on, without `last`.
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
  void AddRows(std::int64_t from, std::int64_t depth, const float* packed, std::int64_t column,
               std::int64_t width, bool add) const {
    const std::int64_t tiles = (a_.rows + kTileRows - 1) / kTileRows;
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      const std::int64_t row = tile * a_.rows / tiles, rows = (tile + 1) * a_.rows / tiles - row;
      const Matrix part = {a_.data + row * a_.row_step + from * a_.column_step, rows, depth,
                           a_.row_step, a_.column_step};
      TileOf<kTileRows>(rows, part, packed, depth, out_ + row * b_.columns + column, b_.columns,
                        width, add);
    }
  }

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

  void FinishRows(std::int64_t column, std::int64_t width) const {
    if (finish_.bias == nullptr && !finish_.relu) return;
    float bias[kPanel] = {};
    if (finish_.bias != nullptr) std::copy_n(finish_.bias + column, width, bias);
    for (std::int64_t row = 0; row < a_.rows; ++row) {
      float* to = out_ + row * b_.columns + column;
      if (width == kPanel) {
        for (std::int64_t j = 0; j < kPanel; ++j) to[j] = Finished(to[j] + bias[j]);
      } else {
        for (std::int64_t j = 0; j < width; ++j) to[j] = Finished(to[j] + bias[j]);
      }
    }
  }

  float Finished(float value) const { return finish_.relu && value < 0 ? 0.0f : value; }

  const Matrix a_, b_;
  const Finish finish_;
  float* const out_;
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_COMPUTE_PRODUCT_H_
